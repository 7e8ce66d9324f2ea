//! Types of the delete queue.
//!
//! The queue uses these types only by way of this module. So `tests/interleavings` can build
//! the same file on types whose every order of steps it tries.

pub(super) use bio::sync::{Mutex, MutexGuard};
pub(super) use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
