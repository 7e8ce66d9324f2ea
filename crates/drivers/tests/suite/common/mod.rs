//! Disks, targets and seeds that the tests of several drivers use.

pub mod cuts;
pub mod disk;
pub mod plant;
pub mod seeds;
pub mod slow_disk;
pub mod strain;
pub mod stuck_disk;
