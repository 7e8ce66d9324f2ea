//! Disks and targets that the tests of several drivers use.

pub mod connection_cuts;
pub mod disk;
pub mod fd_exhaustion;
pub mod plant;
pub mod players;
