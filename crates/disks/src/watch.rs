//! Reports of a disk that is lost, has another size, or takes no more data.
//!
//! Invariant W1: [`geom::Event::Lost`] is posted at most once for a disk, whichever core or thread
//! notices first and however often.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bio::Errno;
use geom::{Event, Inbox, ProviderId};

/// The line from a disk's data path to the topology. Shared by all cores.
pub struct Watch {
    inbox: Arc<Inbox>,
    provider: OnceLock<ProviderId>,
    loss_reported: AtomicBool,
    no_space_ns: AtomicU64,
    is_refusing: AtomicBool,
}

impl Watch {
    pub(crate) fn new(inbox: Arc<Inbox>) -> Arc<Watch> {
        let (loss_reported, no_space_ns) = (AtomicBool::new(false), AtomicU64::new(0));
        let (provider, is_refusing) = (OnceLock::new(), AtomicBool::new(false));
        Arc::new(Watch { inbox, provider, loss_reported, no_space_ns, is_refusing })
    }

    /// The provider exists now; no request was sent before.
    pub(crate) fn set_provider(&self, provider: ProviderId) {
        let first = self.provider.set(provider).is_ok();
        debug_assert!(first, "a disk has one provider");
    }

    /// The disk is lost for good (W1).
    pub fn lost(&self, error: Errno) {
        if let Some(provider) = self.provider.get()
            && !self.loss_reported.swap(true, Ordering::AcqRel)
        {
            self.inbox.post(Event::Lost(*provider, error));
        }
    }

    /// The disk has so many bytes now, in whole sectors.
    pub(crate) fn resized(&self, bytes: u64) {
        if let Some(provider) = self.provider.get() {
            self.inbox.post(Event::Resize(*provider, bytes));
        }
    }

    /// A write failed for lack of space at `now`, ns of the cores' clock.
    pub(crate) fn record_no_space(&self, now: u64) {
        self.no_space_ns.store(now.max(1), Ordering::Relaxed);
    }

    /// When a write last failed for lack of space, ns of the cores' clock.
    pub(crate) fn no_space_since(&self) -> Option<u64> {
        Some(self.no_space_ns.load(Ordering::Relaxed)).filter(|ns| *ns > 0)
    }

    /// A write succeeded, or failed because its file system is read-only.
    pub(crate) fn refuses_writes(&self, now: bool) {
        // Cores read it with each write and change it seldom.
        if self.is_refusing.load(Ordering::Relaxed) != now {
            self.is_refusing.store(now, Ordering::Relaxed);
        }
    }

    /// True while writes fail because the file system is read-only.
    pub(crate) fn is_refusing(&self) -> bool {
        self.is_refusing.load(Ordering::Relaxed)
    }

    /// True once the disk was found to be lost.
    pub fn is_lost(&self) -> bool {
        self.loss_reported.load(Ordering::Acquire)
    }
}
