//! Integration tests of the reactor on real ports and in the simulated world, in one binary;
//! `memory_file.rs` is a binary of its own.
//!
//! One module of them: `cargo test -p ashlar-reactor --test suite ports::`.

mod ports;
mod world;
