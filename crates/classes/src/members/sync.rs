//! Types of the parts that several cores share.
//!
//! The parts use these types only by way of this module. So `tests/interleavings` can build
//! the same files on types whose every order of steps it tries.

pub(super) use bio::sync::{Mutex, MutexGuard};
pub(super) use std::sync::atomic::{
    AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst,
};
