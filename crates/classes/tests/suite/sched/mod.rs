//! The class SCHED on disks of a simulated world: it is inserted, changed and removed under load,
//! and the disk may not answer. `bench/src/seeds/sched` measures the share of each client.

pub(crate) mod lab;
pub(crate) mod leaf;
mod live;
mod orders;
mod storm;
