//! What the desk is made of.
//!
//! It names these types by this module and no other way, so that `tests/interleavings` can build
//! the same file on types whose every order of steps it tries.

pub(super) use bio::sync::{Mutex, MutexGuard};
pub(super) use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
