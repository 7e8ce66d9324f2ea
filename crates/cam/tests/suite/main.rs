//! Integration tests of the initiators and of CAM, in one binary. `cost.rs` and `aoe_cost.rs` are
//! binaries of their own.
//!
//! One module of them: `cargo test -p ashlar-cam --test suite aoe::`.

mod aoe;
mod bench;
mod bounds;
mod contents;
mod cores;
mod deletes;
mod disks;
mod failfast;
mod fuzz;
mod iscsi;
mod languages;
mod matrix;
mod model;
mod multiplier;
mod odd;
mod optical;
mod places;
mod rescan;
mod resets;
mod sg;
mod shelf;
mod silent_devices;
mod storm;
mod upkeep;
mod verbs;
mod ways;
mod world;
