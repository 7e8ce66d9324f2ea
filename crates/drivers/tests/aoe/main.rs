//! AoE from outside: frames of our own making over simulated segments.

mod commands;
#[path = "../common/disk.rs"]
mod disk;
#[path = "../common/plant.rs"]
mod plant;
mod rules;
#[path = "../common/seeds.rs"]
mod seeds;
mod simulated;
#[path = "../common/slow_disk.rs"]
mod slow_disk;
mod stage;
mod volatile;
