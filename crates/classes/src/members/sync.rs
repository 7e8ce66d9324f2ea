//! What the parts that several cores share at once are made of.
//!
//! They name these types by this module and no other way, so that `tests/interleavings` can build
//! the same files on types whose every order of steps it tries.

pub(super) use bio::sync::{Mutex, MutexGuard};
pub(super) use std::sync::atomic::{
    AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst,
};
