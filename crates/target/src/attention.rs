//! Unit attentions: what an initiator must hear about a logical unit before its next command runs.
//!
//! Invariants
//!  A1  Every I_T_L nexus has its own queue; nothing delivered to one is lost to another.
//!  A2  Each condition is delivered once, in the order in which it came; identical ones merge.
//!  A3  INQUIRY, REPORT LUNS and REQUEST SENSE run in spite of a queue that is not empty.
//!
//! Queues are shared: any core and the control thread may raise a condition, and it is there when
//! the call returns. The core that serves the nexus looks at one flag a command.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use wire::scsi::{Asc, asc};

/// Conditions in one queue. When it is full the newest one is replaced by a reset condition, which
/// tells the initiator to look at everything again.
pub const ATTENTIONS_MAX: usize = 16;

/// What the cores and the control thread share about one I_T_L nexus.
#[derive(Default)]
pub struct Nexus {
    pending: AtomicBool,
    queue: Mutex<VecDeque<Asc>>,
}

impl Nexus {
    /// A nexus whose first command will hear `first`.
    pub fn new(first: Asc) -> Nexus {
        let nexus = Nexus::default();
        nexus.raise(first);
        nexus
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Asc>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True when a condition waits: one load.
    #[inline(always)]
    pub fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// Puts a condition behind those that wait (A2).
    pub fn raise(&self, attention: Asc) {
        let mut queue = self.queue();
        if !queue.contains(&attention) {
            if queue.len() == ATTENTIONS_MAX {
                queue.pop_back();
                if !queue.contains(&asc::POWER_ON_OR_RESET) {
                    queue.push_back(asc::POWER_ON_OR_RESET);
                }
            } else {
                queue.push_back(attention);
            }
        }
        self.pending.store(!queue.is_empty(), Ordering::Release);
    }

    /// Takes the oldest condition.
    pub fn take(&self) -> Option<Asc> {
        let mut queue = self.queue();
        let first = queue.pop_front();
        self.pending.store(!queue.is_empty(), Ordering::Release);
        first
    }

    /// Takes a condition back that was told otherwise.
    pub fn clear(&self, attention: Asc) {
        let mut queue = self.queue();
        queue.retain(|a| *a != attention);
        self.pending.store(!queue.is_empty(), Ordering::Release);
    }

    /// Conditions that wait, oldest first.
    pub fn waiting(&self) -> Vec<Asc> {
        self.queue().iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a2_order_is_kept_and_identical_ones_merge() {
        let n = Nexus::new(asc::POWER_ON_OR_RESET);
        n.raise(asc::CAPACITY_CHANGED);
        n.raise(asc::MODE_CHANGED);
        n.raise(asc::CAPACITY_CHANGED);
        assert_eq!(n.take(), Some(asc::POWER_ON_OR_RESET));
        assert_eq!(n.take(), Some(asc::CAPACITY_CHANGED));
        assert!(n.is_pending());
        assert_eq!(n.take(), Some(asc::MODE_CHANGED));
        assert!(!n.is_pending());
        assert_eq!(n.take(), None);
    }

    #[test]
    fn a_full_queue_says_reset_instead_of_forgetting_silently() {
        let n = Nexus::default();
        for ascq in 0..ATTENTIONS_MAX as u8 + 3 {
            n.raise(Asc::new(wire::scsi::Key::UnitAttention, 0x5D, ascq));
        }
        let all = n.waiting();
        assert_eq!(all.len(), ATTENTIONS_MAX);
        assert_eq!(all.last(), Some(&asc::POWER_ON_OR_RESET));
    }

    #[test]
    fn a_condition_told_otherwise_is_not_told_again() {
        let n = Nexus::new(asc::LUNS_CHANGED);
        n.clear(asc::LUNS_CHANGED);
        assert!(!n.is_pending());
    }
}
