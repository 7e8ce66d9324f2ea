//! Integration tests of the initiators and of CAM, in one binary. `aoe_cost.rs`, whose frames cross
//! a real interface in real time, is a binary of its own.
//!
//! One module of them: `cargo test -p ashlar-cam --test suite aoe::`.

mod aoe;
mod bench;
mod bounds;
mod contents;
mod cores;
mod cost;
mod deletes;
mod disks;
mod failfast;
mod faulty_paths;
mod fuzz;
mod iscsi;
mod languages;
mod maintenance_verbs;
mod matrix;
mod model;
mod multiplier;
mod optical;
mod places;
mod rescan;
mod resets;
mod sg;
mod shelf;
mod silent_devices;
mod storm;
mod target_faults;
mod verbs;
mod world;

/// Counts the allocations of each thread for `cost.rs`.
#[global_allocator]
static COUNTED: bio::CountingAlloc = bio::CountingAlloc;
