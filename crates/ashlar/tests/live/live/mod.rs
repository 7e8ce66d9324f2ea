//! Arrays of every class on files of a house, users on all of them, and hands that pull members.

pub mod arrays;
pub mod compare;
pub mod load;
pub mod pull;
