//! Arrays of every class on files of a test daemon, with users on all of them while members are
//! pulled.

pub mod arrays;
pub mod compare;
pub mod load;
pub mod pull;
