//! Disks and targets that the tests of several drivers use.

pub mod cuts;
pub mod disk;
pub mod plant;
pub mod strain;
