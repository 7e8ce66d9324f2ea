//! Fail-fast: CCBs that have another path are returned instead of waiting here. D10 of [`super`].

use bio::Errno;

use super::{Device, SlotState};
use crate::ccb::{CamStatus, Flags};
use crate::recovery::{RecoveryDecision, Step};

impl Device {
    /// Applies a decision that the path failed. True: the CCB has ended, another path can take it.
    pub(super) fn fails_fast(&mut self, at: u32, verdict: RecoveryDecision) -> bool {
        let slot = &self.slots[at as usize];
        if slot.outcome.status == CamStatus::Timeout && slot.ccb.flags.has(Flags::FAIL_FAST) {
            // The next try would wait here as long.
            self.post_events(verdict);
            self.finish(at, Err(verdict.error));
            return true;
        }
        if !verdict.is_path_failure() || !self.waits_long(at, verdict.step) {
            return false;
        }
        if self.slots[at as usize].ccb.flags.has(Flags::FAIL_FAST) {
            self.post_events(verdict);
            self.fail_fast(at);
            return true;
        }
        self.wait_for_path(at);
        false
    }

    /// A device that is busy with others is so for a moment. It is tried again when one of them has
    /// ended, and that is soon. It is not soon where there is none, or where that was tried.
    fn waits_long(&self, at: u32, step: Step) -> bool {
        let slot = &self.slots[at as usize];
        let tried =
            slot.requeues > 0 || slot.retries < slot.ccb.retries || slot.busy_until_ns.is_some();
        match step {
            Step::Busy(_) => self.with_sim == 0 || tried,
            Step::Full(_) => self.with_sim == 0 || (tried && !self.can_lower_openings()),
            _ => true,
        }
    }

    /// From now on, until it is thawed or ends, it waits for the way to be open again.
    pub(super) fn wait_for_path(&mut self, at: u32) {
        self.waiting_for_path +=
            u32::from(!std::mem::replace(&mut self.slots[at as usize].waits_for_path, true));
        self.fail_fast_waiting(Some(at));
    }

    /// D10: all that wait and can take another path end, but for the one that found it shut.
    pub(super) fn fail_fast_waiting(&mut self, at: Option<u32>) {
        for other in 0..self.slots.len() as u32 {
            let slot = &self.slots[other as usize];
            let waits =
                matches!(slot.state, SlotState::Queued | SlotState::Starting | SlotState::Pausing);
            // One that is being cured has the device answer for itself.
            let goes = Some(other) != at && slot.ccb.flags.has(Flags::FAIL_FAST);
            if waits && goes && slot.recovery.is_none() {
                self.dequeue(other);
                self.fail_fast(other);
            }
        }
    }

    pub(super) fn fail_fast(&mut self, at: u32) {
        self.counts.failed_fast += 1;
        self.finish(at, Err(Errno::Again));
    }
}
