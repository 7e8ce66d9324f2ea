//! Integration tests of the connection framework, in one binary.
//!
//! One module of them: `cargo test -p ashlar-transport --test suite echo::`.

mod client;
mod echo;
mod faults;
mod tls;
