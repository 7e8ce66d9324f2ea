//! Integration tests of the file server, in one binary; `tests/linux` is a binary of its own.
//!
//! One module of them: `cargo test -p ashlar-fileserver --test suite ninep::`.

mod fuzz;
mod image;
mod ninep;
mod sim;
