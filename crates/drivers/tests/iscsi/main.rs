//! iSCSI from outside: tools of other projects, and an initiator of our own that breaks rules.

mod breaking;
#[path = "../common/cuts.rs"]
mod cuts;
mod defects;
#[path = "../common/disk.rs"]
mod disk;
mod full;
mod hanging;
mod initiator;
mod limits;
mod moving;
mod mutants;
mod order;
#[path = "../common/plant.rs"]
mod plant;
#[path = "../common/seeds.rs"]
mod seeds;
mod server;
mod simulated;
#[path = "../common/slow_disk.rs"]
mod slow_disk;
mod steady;
mod storm;
#[path = "../common/strain.rs"]
mod strain;
#[path = "../common/stuck_disk.rs"]
mod stuck_disk;
mod tools;
