//! How a disk says that it is gone.
//!
//! Invariant W1: [`geom::Event::Lost`] is posted at most once for a disk, whichever core or thread
//! notices first and however often.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bio::Errno;
use geom::{Event, Inbox, ProviderId};

/// The line from a disk's data path to the topology. Shared by all cores.
pub struct Watch {
    inbox: Arc<Inbox>,
    provider: OnceLock<ProviderId>,
    told: AtomicBool,
}

impl Watch {
    pub(crate) fn new(inbox: Arc<Inbox>) -> Arc<Watch> {
        Arc::new(Watch { inbox, provider: OnceLock::new(), told: AtomicBool::new(false) })
    }

    /// The provider exists now; no request came before.
    pub(crate) fn belongs_to(&self, provider: ProviderId) {
        let first = self.provider.set(provider).is_ok();
        debug_assert!(first, "a disk has one provider");
    }

    /// The disk is gone for good (W1).
    pub fn lost(&self, error: Errno) {
        if let Some(provider) = self.provider.get()
            && !self.told.swap(true, Ordering::AcqRel)
        {
            self.inbox.post(Event::Lost(*provider, error));
        }
    }

    /// True once the disk was found to be gone.
    pub fn is_lost(&self) -> bool {
        self.told.load(Ordering::Acquire)
    }
}
