//! Counters of one LUN of an access group: those of its nexuses, and of nexuses that have ended.
//!
//! Invariants
//!  U1  Sums do not fall while the group maps the LUN to its unit. Counts of a nexus that ends,
//!      begins anew or moves to another group are added under the lock under which they are summed
//!      and set to zero. Those of commands that end after their nexus are added too.
//!  U2  Only a LUN that a session has used, or whose mode has changed, has this value. Other LUNs
//!      cost neither memory nor time.

use std::sync::{Arc, Weak};

use bio::sync::Mutex;

use crate::unit::counters::{NexusCounts, Sums};
use crate::unit::unit_attention::ItlNexus;

#[derive(Default)]
struct Used {
    /// Of nexuses that have ended or moved.
    past: Sums,
    nexuses: Vec<Weak<ItlNexus>>,
}

/// Counters of a LUN.
#[derive(Default)]
pub(crate) struct LunUsage(Mutex<Used>);

impl LunUsage {
    /// Counts a nexus, whose counters are zero.
    pub(crate) fn enlist(self: &Arc<LunUsage>, nexus: &Arc<ItlNexus>) {
        let mut used = self.0.lock();
        // As in `Device::enlist`.
        if used.nexuses.len() == used.nexuses.capacity() {
            used.nexuses.retain(|n| n.strong_count() > 0);
        }
        used.nexuses.push(Arc::downgrade(nexus));
        drop(used);
        nexus.set_usage(self.clone());
    }

    /// Keeps the counts of a nexus, which `clear` sets to zero (U1).
    pub(crate) fn keep(&self, nexus: &ItlNexus, clear: impl FnOnce()) {
        let mut used = self.0.lock();
        nexus.counts().collect(&mut used.past);
        clear();
    }

    /// Stops counting a nexus, whose counters are zero.
    pub(crate) fn remove(&self, nexus: &Arc<ItlNexus>) {
        self.0.lock().nexuses.retain(|n| !std::ptr::eq(n.as_ptr(), Arc::as_ptr(nexus)));
    }

    /// The sums of all nexuses since the LUN was mapped.
    pub(crate) fn counts(&self, lun: u64) -> NexusCounts {
        let used = self.0.lock();
        let mut sums = used.past;
        let nexuses = used.nexuses.iter().filter_map(Weak::upgrade);
        nexuses.for_each(|nexus| nexus.counts().collect(&mut sums));
        NexusCounts::new(lun, &sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::counters::{AccessKind, History};

    #[test]
    fn u1_counts_of_a_lun_remain_when_a_nexus_ends_or_moves() {
        let history = History::default();
        let [lun, other] = [(); 2].map(|()| Arc::new(LunUsage::default()));
        let (a, b) = (Arc::new(ItlNexus::default()), Arc::new(ItlNexus::default()));
        for nexus in [&a, &b] {
            lun.enlist(nexus);
            nexus.counts().note(AccessKind::Read, 512, 1, false);
        }
        let of = |usage: &Arc<LunUsage>| (usage.counts(7).lun, usage.counts(7).read_bytes);
        assert_eq!(of(&lun), (7, 1024));
        lun.keep(&a, || history.ended(&a));
        drop(a);
        assert_eq!(of(&lun), (7, 1024));
        lun.keep(&b, || history.ended(&b));
        lun.remove(&b);
        other.enlist(&b);
        b.counts().note(AccessKind::Write, 512, 1, false);
        assert_eq!((of(&lun), of(&other)), ((7, 1024), (7, 0)));
        assert_eq!((lun.counts(7).writes, other.counts(7).writes), (0, 1));
    }
}
