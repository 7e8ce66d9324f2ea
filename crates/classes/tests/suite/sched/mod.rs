//! SCHED on disks of a simulated world: slipped in, changed and taken out under load; and what
//! happens when the disk does not answer. Who gets what stands in `bench/src/seeds/sched`.

mod lab;
mod leaf;
mod live;
mod orders;
mod storm;
