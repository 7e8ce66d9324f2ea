//! space: what is free on a medium, as values: no I/O, no clock, no threads.
//!
//! * [`RangeMap`]: ranges that do not touch, merged as they come.
//! * [`trim`]: the queue between those who delete and a device to which telling it is dear.
//! * [`alloc`]: an allocator of extents with that queue inside, for file systems.
//!
//! A queue counts in whatever unit its ranges are in: the class `trim` counts bytes, an allocator
//! blocks. Whoever uses it brings the time, in ns of any clock that does not go back.

#![forbid(unsafe_code)]

pub mod alloc;
mod ranges;
pub mod trim;

pub use ranges::{Join, RangeMap};
