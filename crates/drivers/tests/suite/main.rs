//! Integration tests of the drivers, in one binary; `tests/allocations` is a binary of its own.
//!
//! One module of them: `cargo test -p ashlar-drivers --test suite nbd::`.

mod aoe;
mod bus;
mod common;
mod fuzz;
mod iscsi;
mod local;
mod nbd;
mod nvme_tcp;
