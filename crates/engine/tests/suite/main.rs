//! Integration tests of the target engine, in one binary; `maps.rs` is a binary of its own.
//!
//! One module of them: `cargo test -p ashlar-engine --test suite reservations::`.

mod alua;
mod atomic;
mod block_sizes;
mod cache;
mod contingent;
mod copy;
mod fairness;
mod flow;
mod freeing;
mod fuzz_quick;
mod lists;
mod medium;
mod model;
mod nexus;
mod offload;
mod order;
mod origins;
mod pages;
mod protection;
mod protection_commands;
mod protection_tail;
mod protection_verify;
mod reservation_matrix;
mod reservations;
mod tasks;
mod thin;
mod tray;
mod tuples;
mod world;
