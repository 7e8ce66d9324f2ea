//! NVMe over TCP in a simulated world: a host of our own, made of the wire's codecs, that keeps
//! the rules and breaks them. A real Linux host: `crates/ashlar/tests/real_nvme.rs`.

mod attacks;
mod commands;
#[path = "../common/cuts.rs"]
mod cuts;
mod deletes;
#[path = "../common/disk.rs"]
mod disk;
mod host;
#[path = "../common/plant.rs"]
mod plant;
#[path = "../common/seeds.rs"]
mod seeds;
mod simulated;
#[path = "../common/slow_disk.rs"]
mod slow_disk;
mod stage;
