//! Deadlines of requests, and devices that do not answer: D12 and D13 of [`super`].

use bio::Errno;

use super::{Device, Effect, Slot, SlotState};
use crate::ccb::{CamStatus, Command, Ended, Flags, Outcome, Priority};
use crate::events::Event;
use crate::recovery::{RecoveryDecision, Step};

/// A READ or WRITE that the device has for so long is reported as not answered; others, which may
/// take longer, when half of their time is over.
pub const SILENCE_NS: u64 = 10_000_000_000;

/// Commands that the device does not answer.
#[derive(Default)]
pub(super) struct Silence {
    /// How many of them the SIM has.
    slots: u32,
    /// The last of them that ended without an answer, unless the device answered since.
    ended: Option<Command>,
}

/// A command of a user that failed.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// When, ns of the cores' clock.
    pub at_ns: u64,
    /// The command.
    pub command: Command,
    /// The device's last answer.
    pub outcome: Outcome,
    /// The error of the request.
    pub error: Errno,
}

impl Device {
    /// The last command of a user that failed.
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// A CCB ends. A failure because the device is lost is not recorded.
    pub(super) fn keep_failure(&mut self, at: u32, result: Result<u32, Errno>) {
        let Slot { ccb, outcome, .. } = &self.slots[at as usize];
        let is_recorded = !self.lost && is_watched(ccb.priority, ccb.flags);
        match result {
            Err(error) if is_recorded && !matches!(error, Errno::Again | Errno::Canceled) => {
                let (command, outcome, at_ns) = (ccb.command, *outcome, self.now_ns);
                self.failure = Some(Failure { at_ns, command, outcome, error });
                self.counts.failed += 1;
            }
            _ => {}
        }
    }

    /// A command of a user ended with an answer that its periph takes for a failure.
    pub fn has_failed(&mut self, ended: &Ended, error: Errno, now: u64) {
        let Ended { command, outcome, .. } = *ended;
        self.failure = Some(Failure { at_ns: now, command, outcome, error });
        self.counts.failed += 1;
    }

    /// A command was sent: when it is looked at again, unless it is answered.
    pub(super) fn silence_ns(command: &Command, timeout_ns: u64, now: u64) -> u64 {
        let most_ns = if moves_blocks(command) { SILENCE_NS } else { u64::MAX };
        now.saturating_add((timeout_ns / 2).min(most_ns))
    }

    /// A command that the SIM has was not answered for long.
    pub(super) fn is_silent(&mut self, at: u32) {
        let slot = &mut self.slots[at as usize];
        slot.silence_ns = u64::MAX;
        if slot.state == SlotState::Active {
            slot.silent = true;
            self.silence.slots += 1;
            self.post_silence_event();
        }
    }

    /// The SIM has given a command back.
    pub(super) fn command_returned(&mut self, at: u32) {
        let slot = &mut self.slots[at as usize];
        slot.silence_ns = u64::MAX;
        let was_silent = std::mem::take(&mut slot.silent);
        let (command, status) = (slot.ccb.command, slot.outcome.status);
        self.silence.slots -= u32::from(was_silent);
        let answered =
            matches!(status, CamStatus::Complete | CamStatus::ScsiError | CamStatus::AtaError);
        let news = match answered {
            true => self.silence.ended.take().is_some(),
            false => was_silent && self.silence.ended.replace(command).is_none(),
        };
        if was_silent || news {
            self.post_silence_event();
        }
    }

    fn post_silence_event(&mut self) {
        self.effects.push_back(Effect::Event(Event::Silence, false));
    }

    /// A command that the device has not answered for long, or that ended so: it has answered none
    /// since.
    pub fn unanswered(&self) -> Option<Command> {
        let silent = self.slots.iter().filter(|slot| slot.silent);
        let first = silent.min_by_key(|slot| slot.generation).map(|slot| slot.ccb.command);
        first.or(self.silence.ended)
    }

    /// D12: its time is over.
    pub(super) fn is_past_deadline(&self, at: u32, now: u64) -> bool {
        now >= self.slots[at as usize].ccb.end_ns
    }

    /// D12: a command that is to continue, and has no time for it, ends. True: it has ended.
    pub(super) fn end_if_late(&mut self, at: u32, verdict: RecoveryDecision, now: u64) -> bool {
        let goes_on = matches!(
            verdict.step,
            Step::Requeue | Step::Retry(_) | Step::Busy(_) | Step::Full(_) | Step::Recover(_)
        );
        self.slots[at as usize].error = match verdict.step {
            // It is a victim of something else.
            Step::Requeue => Errno::TimedOut,
            _ => verdict.error,
        };
        let ends = goes_on && self.is_past_deadline(at, now);
        if ends {
            self.post_events(verdict);
            self.finish_late(at);
        }
        ends
    }

    /// D12: the CCB ends with the last error that it met.
    pub(super) fn finish_late(&mut self, at: u32) {
        self.counts.timeouts += 1;
        let error = self.slots[at as usize].error;
        self.finish(at, Err(error));
    }

    /// When something is done about one that waits in the queue.
    pub(super) fn set_queue_deadline(&mut self, at: u32) {
        let slot = &mut self.slots[at as usize];
        slot.due_ns = slot.ccb.end_ns;
        self.sweep_ns = self.sweep_ns.min(slot.due_ns);
    }
}

/// READ and WRITE: the device has nothing to do but to move blocks.
fn moves_blocks(command: &Command) -> bool {
    match command {
        Command::Ata(r) => r.queued || matches!(r.command, 0x24 | 0x25 | 0x34 | 0x35 | 0xc8 | 0xca),
        Command::Scsi { cdb, .. } => {
            matches!(cdb[0], 0x08 | 0x0a | 0x28 | 0x2a | 0x2e | 0x88 | 0x8a | 0x8e)
        }
        Command::Smp { .. } | Command::Reset => false,
    }
}

/// A command that a user waits for.
pub(super) fn is_watched(priority: Priority, flags: Flags) -> bool {
    priority >= Priority::Normal && !flags.has(Flags::RAW)
}

/// Distinguishes a late command from one that was aborted by hand.
pub(super) fn as_late(outcome: &mut Outcome) {
    if outcome.status != CamStatus::Complete {
        outcome.status = CamStatus::Timeout;
    }
}
