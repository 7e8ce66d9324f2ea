//! Integration tests of the daemon's library, in one binary.
//!
//! One module of them: `cargo test -p ashlar-daemon --test suite world::`.

mod first_user;
mod foretold;
mod starts;
mod world;
