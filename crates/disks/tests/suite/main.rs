//! Integration tests of the disk classes, in one binary.
//!
//! One module of them: `cargo test -p ashlar-disks --test suite file::`.

mod blockdev;
mod checks;
mod file;
mod host;
mod limit;
mod locks;
mod memory;
mod model;
mod nbd;
mod nop;
mod ordered;
mod place;
mod quota;
mod world;
