//! classes: the GEOM classes between a disk and its users, one folder or file per class.
//!
//! `part` and `label` are in two halves. The pure one reads and writes formats as values and does
//! no I/O; the class is on top of it. [`probe`] is how the pure half requests sectors. [`all`]
//! lists the classes.

#![forbid(unsafe_code)]

pub mod concat;
pub mod crc;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod guard;
pub mod inspect;
pub mod label;
pub mod limit;
mod members;
pub mod mirror;
pub mod multipath;
pub mod nop;
pub mod part;
pub mod probe;
mod probe_io;
mod provider_name;
pub mod raid;
mod registry;
pub mod sched;
mod shared_args;
mod slice;
mod span;
pub mod stripe;
pub mod trim;
pub mod write_plan;

pub use members::Waiting;
pub use registry::{all, all_at, all_with};
pub use span::BEGINS_ON;
