//! Cures, which make a device ready again: D7 of [`super`].

use bio::Errno;

use super::shape::CURE_TIMEOUT_MS;
use super::{Device, READY_POLL_NS, READY_POLLS_MAX, STARTS_MAX};
use crate::ccb::{Ccb, Command, Flags, Outcome, Priority};
use crate::recovery::{Cure, Note, Pause, Step, Verdict};

/// A cure under way.
#[derive(Clone, Copy)]
pub(super) struct Curing {
    cure: Cure,
    /// START UNITs that are left.
    left: u16,
    error: Errno,
    /// Outcome of the command that is to go on.
    was: Outcome,
}

/// How long a device without a deadline of its request may take to become ready.
const READY_NS: u64 = READY_POLLS_MAX as u64 * READY_POLL_NS;

impl Device {
    /// The first cure costs a retry. A device that looks ready, and is not when the command comes
    /// again, is waited for without further cost as long as one that does not look ready.
    pub(super) fn cure(&mut self, at: u32, cure: Cure, error: Errno, now: u64) {
        let slot = &mut self.slots[at as usize];
        let waits = cure == Cure::Wait && slot.ready_until_ns.is_some();
        let Some(left) = slot.retries.checked_sub(u8::from(!waits)) else {
            return self.finish(at, Err(error));
        };
        if self.curer.is_some() {
            // D7
            return self.again_free(at, Pause::None, now);
        }
        slot.retries = left;
        self.counts.retries += u64::from(!waits);
        self.curer = Some(at);
        let was = self.slots[at as usize].outcome;
        self.try_cure(at, Curing { cure, left: STARTS_MAX, error, was }, now);
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

    pub(super) fn try_cure(&mut self, at: u32, curing: Curing, now: u64) {
        let left = match curing.cure {
            Cure::Wait => Some(curing.left).filter(|_| self.is_waited_for(at, now)),
            Cure::Start => curing.left.checked_sub(1).filter(|_| !self.is_over(at, now)),
        };
        match left {
            None => self.not_cured(at, curing),
            Some(left) => {
                self.slots[at as usize].curing = Some(Curing { left, ..curing });
                match curing.cure {
                    Cure::Wait => self.rest(at, READY_POLL_NS, now),
                    Cure::Start => self.enqueue(at),
                }
            }
        }
    }

    /// TEST UNIT READY or START UNIT came back.
    pub(super) fn cured(&mut self, at: u32, curing: Curing, verdict: Verdict, now: u64) {
        self.tell(verdict);
        let flags = self.slots[at as usize].ccb.flags;
        if flags.has(Flags::RAW) {
            // Given up meanwhile.
            return self.finish(at, Err(Errno::Canceled));
        }
        if verdict.note == Note::Access && verdict.is_of_the_way() {
            // D10: it was something else that was waited for.
            match flags.has(Flags::FAIL_FAST) {
                true => return self.hurry(at),
                false => self.shut(at),
            }
        }
        match verdict.step {
            Step::Done => {
                self.slots[at as usize].curing = None;
                self.curer = None;
                self.enqueue(at);
                self.thaw(at);
            }
            Step::Cure(Cure::Wait) if curing.cure == Cure::Start => {
                self.try_cure(at, Curing { cure: Cure::Wait, ..curing }, now);
            }
            Step::Cure(Cure::Start) if curing.cure == Cure::Wait => {
                // It will not become ready by itself after all. Costs a retry, or a device that
                // says one and the other in turn would be asked for ever.
                let slot = &mut self.slots[at as usize];
                let Some(left) = slot.retries.checked_sub(1) else {
                    return self.not_cured(at, curing);
                };
                slot.retries = left;
                let start = Curing { cure: Cure::Start, left: STARTS_MAX, ..curing };
                self.try_cure(at, start, now);
            }
            Step::Lost(scope) => {
                self.finish(at, Err(verdict.error));
                self.lose_by_itself(scope, now);
            }
            // Not ready yet, a unit attention, a reset meanwhile: as long as there are tries.
            Step::Cure(_) | Step::Requeue | Step::Retry(_) | Step::Busy(_) | Step::Full(_) => {
                self.try_cure(at, curing, now);
            }
            // This path is closed meanwhile, which is more precise than the error to be cured.
            Step::Fail if verdict.note == Note::Access => self.finish(at, Err(verdict.error)),
            Step::Fail | Step::Selection(_) => self.not_cured(at, curing),
        }
    }

    /// The device does not become ready: the command ends with its own error, not with that of the
    /// cure.
    fn not_cured(&mut self, at: u32, curing: Curing) {
        self.slots[at as usize].outcome = curing.was;
        self.finish(at, Err(curing.error));
    }
}

impl Curing {
    /// The CCB that the SIM gets in place of the waiting one.
    pub(super) fn ccb(self, waiting: Ccb) -> Ccb {
        let command = match self.cure {
            Cure::Wait => Command::scsi(&[0; 6]),
            Cure::Start => Command::scsi(&[0x1b, 0, 0, 0, 1, 0]),
        };
        Ccb {
            command,
            flags: Flags::NONE,
            priority: Priority::Dev,
            timeout_ms: CURE_TIMEOUT_MS,
            length: 0,
            ..waiting
        }
    }
}
