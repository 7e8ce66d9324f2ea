//! Cures, which make a device ready again: D7 of [`super`].

use bio::Errno;

use super::shape::RECOVERY_TIMEOUT_MS;
use super::{Device, READY_POLL_NS, READY_POLLS_MAX, STARTS_MAX};
use crate::ccb::{Ccb, Command, Flags, Outcome, Priority};
use crate::recovery::{Consequence, Pause, RecoveryAction, RecoveryDecision, Step};

/// A cure under way.
#[derive(Clone, Copy)]
pub(super) struct Recovery {
    action: RecoveryAction,
    /// START UNITs that are left.
    left: u16,
    error: Errno,
    /// Outcome of the command that is to continue.
    original_outcome: Outcome,
}

/// How long a device without a deadline of its request may take to become ready.
const READY_NS: u64 = READY_POLLS_MAX as u64 * READY_POLL_NS;

impl Device {
    /// The first cure costs a retry. A device that looks ready, and is not when the command arrives
    /// again, is waited for without further cost as long as one that does not look ready.
    pub(super) fn start_recovery(&mut self, at: u32, cure: RecoveryAction, error: Errno, now: u64) {
        let slot = &mut self.slots[at as usize];
        let waits = cure == RecoveryAction::Wait && slot.ready_until_ns.is_some();
        let Some(left) = slot.retries.checked_sub(u8::from(!waits)) else {
            return self.finish(at, Err(error));
        };
        if self.recovering_slot.is_some() {
            // D7
            return self.requeue(at, Pause::None, now);
        }
        slot.retries = left;
        self.counts.retries += u64::from(!waits);
        self.recovering_slot = Some(at);
        let was = self.slots[at as usize].outcome;
        self.try_recovery(
            at,
            Recovery { action: cure, left: STARTS_MAX, error, original_outcome: was },
            now,
        );
    }

    /// A device that is becoming ready is waited for until then.
    fn is_waited_for(&mut self, at: u32, now: u64) -> bool {
        let slot = &mut self.slots[at as usize];
        let until_ns = match slot.ccb.end_ns {
            u64::MAX => now.saturating_add(READY_NS),
            end_ns => end_ns,
        };
        now < *slot.ready_until_ns.get_or_insert(until_ns)
    }

    pub(super) fn try_recovery(&mut self, at: u32, curing: Recovery, now: u64) {
        let left = match curing.action {
            RecoveryAction::Wait => Some(curing.left).filter(|_| self.is_waited_for(at, now)),
            RecoveryAction::Start => {
                curing.left.checked_sub(1).filter(|_| !self.is_past_deadline(at, now))
            }
        };
        match left {
            None => self.recovery_failed(at, curing),
            Some(left) => {
                self.slots[at as usize].recovery = Some(Recovery { left, ..curing });
                match curing.action {
                    RecoveryAction::Wait => self.pause_for(at, READY_POLL_NS, now),
                    RecoveryAction::Start => self.enqueue(at),
                }
            }
        }
    }

    /// TEST UNIT READY or START UNIT returned.
    pub(super) fn recovery_returned(
        &mut self,
        at: u32,
        curing: Recovery,
        verdict: RecoveryDecision,
        now: u64,
    ) {
        self.post_events(verdict);
        let flags = self.slots[at as usize].ccb.flags;
        if flags.has(Flags::RAW) {
            // Given up meanwhile.
            return self.finish(at, Err(Errno::Canceled));
        }
        if verdict.consequence == Consequence::Access && verdict.is_path_failure() {
            // D10: it was something else that was waited for.
            match flags.has(Flags::FAIL_FAST) {
                true => return self.fail_fast(at),
                false => self.wait_for_path(at),
            }
        }
        match verdict.step {
            Step::Done => {
                self.slots[at as usize].recovery = None;
                self.recovering_slot = None;
                self.enqueue(at);
                self.thaw(at);
            }
            Step::Recover(RecoveryAction::Wait) if curing.action == RecoveryAction::Start => {
                self.try_recovery(at, Recovery { action: RecoveryAction::Wait, ..curing }, now);
            }
            Step::Recover(RecoveryAction::Start) if curing.action == RecoveryAction::Wait => {
                // It will not become ready by itself after all. Costs a retry, or a device that
                // reports one and the other in turn would be tried for ever.
                let slot = &mut self.slots[at as usize];
                let Some(left) = slot.retries.checked_sub(1) else {
                    return self.recovery_failed(at, curing);
                };
                slot.retries = left;
                let start = Recovery { action: RecoveryAction::Start, left: STARTS_MAX, ..curing };
                self.try_recovery(at, start, now);
            }
            Step::Lost(scope) => {
                self.finish(at, Err(verdict.error));
                self.lose_by_itself(scope, now);
            }
            // Not ready yet, a unit attention, a reset meanwhile: as long as there are tries.
            Step::Recover(_) | Step::Requeue | Step::Retry(_) | Step::Busy(_) | Step::Full(_) => {
                self.try_recovery(at, curing, now);
            }
            // This path is closed meanwhile, which is more precise than the error to be cured.
            Step::Fail if verdict.consequence == Consequence::Access => {
                self.finish(at, Err(verdict.error))
            }
            Step::Fail | Step::Selection(_) => self.recovery_failed(at, curing),
        }
    }

    /// The device does not become ready: the command ends with its own error, not with that of the
    /// cure.
    fn recovery_failed(&mut self, at: u32, curing: Recovery) {
        self.slots[at as usize].outcome = curing.original_outcome;
        self.finish(at, Err(curing.error));
    }
}

impl Recovery {
    /// The CCB that the SIM gets in place of the waiting one.
    pub(super) fn ccb(self, waiting: Ccb) -> Ccb {
        let command = match self.action {
            RecoveryAction::Wait => Command::scsi(&[0; 6]),
            RecoveryAction::Start => Command::scsi(&[0x1b, 0, 0, 0, 1, 0]),
        };
        Ccb {
            command,
            flags: Flags::NONE,
            priority: Priority::Dev,
            timeout_ms: RECOVERY_TIMEOUT_MS,
            length: 0,
            ..waiting
        }
    }
}
