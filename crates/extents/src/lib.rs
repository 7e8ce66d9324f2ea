//! Free space on a medium, as values: no I/O, no clock, no threads.
//!
//! [`trim`] is the queue between clients that delete and a device with expensive trims. It counts
//! in the unit of its ranges: the class `trim` counts bytes. The caller passes the time, in ns of
//! any clock that never moves backwards.

#![forbid(unsafe_code)]

mod ranges;
pub mod trim;
