//! Handling of a CCB's answer, by the decision on it.

use bio::Errno;
use wire::scsi::{Key, Sense};

use super::{Device, Effect, RAISE_AFTER, REQUEUES_MAX, Slot};
use crate::ccb::{CamStatus, Flags, Outcome, Priority};
use crate::events::Event;
use crate::recovery::{
    BUSY_PAUSE_MAX_MS, BUSY_PAUSE_MIN_MS, BUSY_PROBE_MS, Consequence, Pause, RecoveryDecision,
    Scope, Step,
};

impl Device {
    pub(super) fn apply_decision(&mut self, at: u32, verdict: RecoveryDecision, now: u64) {
        let slot = &mut self.slots[at as usize];
        if verdict.step == Step::Done {
            let moved = slot.outcome.moved;
            self.succeeded();
            return self.finish(at, Ok(moved));
        }
        if slot.ccb.flags.has(Flags::RAW) {
            let error = slot.raw_error(verdict);
            return self.finish(at, Err(error));
        }
        if self.fails_fast(at, verdict) || self.end_if_late(at, verdict, now) {
            return;
        }
        let slot = &mut self.slots[at as usize];
        let cures = matches!(verdict.step, Step::Recover(_));
        if slot.freeze.is_none() && (cures || !slot.ccb.flags.has(Flags::NO_FREEZE)) {
            slot.freeze = Some(self.freezes.freeze());
        }
        self.post_events(verdict);
        let policy = self.shape.policy;
        match verdict.step {
            Step::Done | Step::Fail => self.finish(at, Err(verdict.error)),
            Step::Requeue => self.requeue(at, Pause::None, now),
            Step::Retry(pause) => self.retry(at, pause, verdict.error, now),
            Step::Busy(pause) if policy.retry_busy => self.requeue(at, pause, now),
            Step::Busy(pause) => self.busy(at, pause, verdict.error, now),
            Step::Full(pause) => self.full(at, pause, verdict.error, now),
            Step::Recover(cure) => self.start_recovery(at, cure, verdict.error, now),
            Step::Selection(pause) => {
                if policy.retry_selection && self.slots[at as usize].retries > 0 {
                    return self.retry(at, pause, verdict.error, now);
                }
                self.finish(at, Err(verdict.error));
                self.lose_by_itself(Scope::Target, now);
            }
            Step::Lost(scope) => {
                self.finish(at, Err(verdict.error));
                self.lose_by_itself(scope, now);
            }
        }
    }

    /// Detects victims of a reset, and attentions that mean a loss of power: 29/01, and 29/00
    /// without a known reset. True: an attention that reports a known reset.
    pub(super) fn detect_reset(&mut self, outcome: &Outcome, now: u64) -> bool {
        if matches!(outcome.status, CamStatus::BusReset | CamStatus::ResetSent) {
            self.was_reset = true;
            self.victim_returned(outcome.status, now);
        }
        let Ok(sense) = Sense::decode(outcome.sense.bytes()) else { return false };
        let attention = sense.code.key == Key::UnitAttention && sense.code.asc == 0x29;
        if attention {
            let unexplained = sense.code.ascq == 0 && !self.was_reset;
            self.power_losses += u64::from(unexplained || sense.code.ascq == 1);
            return std::mem::take(&mut self.was_reset);
        }
        false
    }

    pub(super) fn post_events(&mut self, verdict: RecoveryDecision) {
        if verdict.attention {
            self.effects.push_back(Effect::Event(Event::UnitAttention, false));
        }
        let event = match verdict.consequence {
            Consequence::None => return,
            Consequence::Capacity | Consequence::MediumChanged | Consequence::MediumGone => {
                Event::DeviceChanged
            }
            Consequence::Inquiry => Event::InquiryChanged,
            Consequence::Rescan => Event::Contract,
            Consequence::Access => Event::AdvInfoChanged,
        };
        self.effects.push_back(Effect::Event(event, verdict.consequence == Consequence::Rescan));
    }

    pub(super) fn lose_by_itself(&mut self, scope: Scope, now: u64) {
        if !self.lost {
            let target_wide = scope == Scope::Target;
            self.effects.push_back(Effect::Event(Event::LostDevice, target_wide));
            self.lose(now);
        }
    }

    /// One more try that costs a retry, or the end.
    pub(super) fn retry(&mut self, at: u32, pause: Pause, error: Errno, now: u64) {
        let slot = &mut self.slots[at as usize];
        match slot.retries.checked_sub(1) {
            Some(left) => {
                slot.retries = left;
                self.counts.retries += 1;
                self.pause(at, pause, now);
            }
            None => self.finish(at, Err(error)),
        }
    }

    /// The device is busy. A user's command is tried until its time with the device is over, and
    /// then fails with that error. A question of ours costs retries.
    fn busy(&mut self, at: u32, pause: Pause, error: Errno, now: u64) {
        let slot = &mut self.slots[at as usize];
        if slot.ccb.priority < Priority::Normal {
            return self.retry(at, Pause::Ms(BUSY_PROBE_MS), error, now);
        }
        let most_ns = match slot.ccb.end_ns {
            u64::MAX => now.saturating_add(u64::from(slot.ccb.timeout_ms) * 1_000_000),
            end_ns => end_ns,
        };
        if now >= *slot.busy_until_ns.get_or_insert(most_ns) {
            return self.finish(at, Err(error));
        }
        self.counts.requeues += 1;
        self.pause(at, pause, now);
    }

    /// One more try at no cost, within reason.
    pub(super) fn requeue(&mut self, at: u32, pause: Pause, now: u64) {
        let slot = &mut self.slots[at as usize];
        if slot.requeues >= REQUEUES_MAX {
            return self.retry(at, pause, Errno::RemoteIo, now);
        }
        slot.requeues += 1;
        self.counts.requeues += 1;
        self.pause(at, pause, now);
    }

    pub(super) fn full(&mut self, at: u32, pause: Pause, error: Errno, now: u64) {
        self.counts.full += 1;
        self.good_at_depth = 0;
        if self.with_sim == 0 {
            return match self.shape.policy.retry_busy {
                true => self.requeue(at, pause, now),
                false => self.busy(at, pause, error, now),
            };
        }
        let lowers = self.can_lower_openings();
        self.openings = self.openings.min(self.fewer_openings());
        self.requeue(at, if lowers { Pause::None } else { pause }, now);
    }

    fn fewer_openings(&self) -> u32 {
        self.with_sim.max(self.shape.openings_min).max(1)
    }

    /// QUEUE FULL: it is sent less from now on.
    pub(super) fn can_lower_openings(&self) -> bool {
        self.fewer_openings() < self.openings
    }

    pub(super) fn pause(&mut self, at: u32, pause: Pause, now: u64) {
        let (ms, impatient) = match pause {
            Pause::None => {
                self.enqueue(at);
                return self.thaw(at);
            }
            Pause::Ms(ms) => (ms, false),
            Pause::Completion => {
                let slot = &mut self.slots[at as usize];
                let ms = slot.busy_pause_ms.clamp(BUSY_PAUSE_MIN_MS, BUSY_PAUSE_MAX_MS);
                slot.busy_pause_ms = ms.saturating_mul(2);
                (ms, true)
            }
        };
        self.slots[at as usize].waits_for_completion = impatient;
        self.waiting_for_completion += u32::from(impatient);
        self.pause_for(at, u64::from(ms) * 1_000_000, now);
    }

    /// QUEUE FULL is not for ever.
    pub(super) fn succeeded(&mut self) {
        if self.openings >= self.shape.openings_max || self.active + 1 < self.openings {
            return;
        }
        self.good_at_depth += 1;
        if self.good_at_depth >= RAISE_AFTER {
            self.good_at_depth = 0;
            self.openings += 1;
        }
    }
}

impl Slot {
    /// The error of one that ends as the device answered.
    pub(super) fn raw_error(&self, verdict: RecoveryDecision) -> Errno {
        match self.outcome.status {
            CamStatus::Aborted => Errno::Canceled,
            CamStatus::Timeout => Errno::TimedOut,
            _ => verdict.error,
        }
    }
}
