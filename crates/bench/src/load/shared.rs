//! What the load's thread and its owner tell each other.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

#[derive(Default)]
pub(crate) struct Shared {
    /// Latencies are recorded.
    pub recording: AtomicBool,
    /// No new requests; log out.
    pub stop: AtomicBool,
    /// Sessions that have begun their work.
    pub ready: AtomicU32,
    /// Requests that ended well.
    pub requests: AtomicU64,
}
