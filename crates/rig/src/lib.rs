//! Test rig: software of other projects that exercises a target.
//!
//! The crate does not depend on the daemon. A test names an iSCSI target as a [`Target`] (portal,
//! name, LUN) and runs third-party software against it:
//!
//! - [`scenarios`] boots a real Linux kernel ([`guest`]) that logs in with open-iscsi, makes a
//!   file system, copies, checks, and survives a target that is killed in the middle;
//! - [`testcu`] runs libiscsi's conformance suite, a process a test, and compares the outcome
//!   with an expectation file in both directions;
//! - [`peer`] runs another target (tgt) to compare with, and the small host tools;
//! - [`istgt`] runs a third one;
//! - [`loop_device`] attaches a file as a block device;
//! - [`relay`] is a cable between initiator and portal that can be pulled;
//! - [`proc`] guards child processes and measures their CPU time and memory;
//! - [`packages`] makes sure that all of this is there, from Debian's packages.
//!
//! Tests use it as a dev-dependency; the benchmarks boot a guest with it.
#![forbid(unsafe_code)]

pub mod cpio;
pub mod guest;
pub mod istgt;
pub mod loop_device;
pub mod modules;
pub mod packages;
pub mod papers;
pub mod peer;
pub mod proc;
pub mod relay;
pub mod scenarios;
mod target;
pub mod testcu;

pub use target::{Chap, Login, Target};
