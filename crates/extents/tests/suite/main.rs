//! Integration tests of the trim queue, in one binary.
//!
//! One module of them: `cargo test -p ashlar-extents --test suite races::`.

mod crash;
mod explore;
mod model;
mod races;
mod stage;
