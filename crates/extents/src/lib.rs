//! Free space on a medium, as values: no I/O, no clock, no threads.
//!
//! * [`RangeMap`]: ranges that do not touch, merged as they are added.
//! * [`trim`]: the queue between clients that delete and a device with expensive trims.
//! * [`alloc`]: an allocator of extents with that queue inside, for file systems.
//!
//! A queue counts in the unit of its ranges: the class `trim` counts bytes, an allocator blocks.
//! The caller passes the time, in ns of any clock that does not go back.

#![forbid(unsafe_code)]

pub mod alloc;
mod ranges;
pub mod trim;

pub use ranges::{Merge, RangeMap};
