//! State machine of one device, without I/O: its queue of CCBs, and the steps of each until it has
//! ended. Its caller passes the time in, and carries out the [`Effect`]s that it returns.
//!
//! ```text
//!          submit              take             answered well
//!   (none) ------> Queued ---> Starting --begin--> Active -------------> Ended --end--> (none)
//!                   ^ ^                             |  \                  ^
//!                   | |                     answered|   \ late: expire    | late again: expire
//!                   | |                      badly  |    v                |
//!                   | +------- requeue -------------+  Aborting --> Resetting
//!                   |                               |     (answered there: as Active)
//!                   +-- expire -- Pausing <-- pause +
//! ```
//!
//! `queue` orders CCBs, `completion` handles answers, `recovery_actions` makes a device ready.
//! `failfast` ends CCBs that need not wait here, `reset` holds CCBs back during a reset. `doubt`
//! holds users' commands back until it is known that the medium is the same.
//!
//! Invariants
//!  D1  A CCB ends exactly once: every way leads to `Ended`, and only `end` leads out of it.
//!  D2  An answer of the SIM for a CCB that it does not have (any more) changes nothing.
//!  D3  A CCB that is tried again keeps its place before all that were sent later.
//!  D4  A CCB that failed and is not at its end holds one freeze (unless it requested none and
//!      needs no cure), so that nothing passes it. It returns the freeze when it is queued again,
//!      or ends.
//!  D5  An ORDERED CCB begins when all that were sent before have ended, and nothing that was sent
//!      later begins before it has ended.
//!  D6  Every CCB has a deadline at every step: late ones are aborted, then the device is reset,
//!      then the device is lost. Nothing hangs.
//!  D7  At most one CCB cures the device; others that want to are queued again behind its freeze.
//!  D8  A CCB that the device cannot have beside others ([`Queueing`]) begins when nothing is under
//!      way, and nothing begins beside it. It waits at the head of the queue: no CCB overtakes it.
//!      Only a reset waits for nothing.
//!  D9  While a reset is under way, and until the device has settled, one freeze is out for all
//!      resets together. Nothing but a further reset begins, not even a cure or a probe's question.
//!      The freeze is released once: when the last reset is over, or past its deadline, or the
//!      device is lost. So victims are all back in the queue, in order (D3), before any of them is
//!      sent again.
//!  D10 While a CCB waits for this path to the device to be open again, no CCB that can use another
//!      path ([`Flags::FAIL_FAST`]) waits beside it. Such CCBs end with EAGAIN, which costs
//!      nothing. One that was not answered in time is not tried here again.
//!  D11 A command of a user is not sent while a medium other than the intended one may answer. This
//!      lasts from a new session, or a unit attention that may report another medium, until a check
//!      has found the same identity. A command that met such an attention waits as well. Only
//!      questions and cures pass. A command that waits has the deadline that it has with the SIM.
//!  D12 A CCB with an end ([`Ccb::end_ns`]) is not sent, cured or paused beyond it: it ends with
//!      the error that it met last, or as timed out. One that the SIM has at its end is aborted
//!      (D6).
//!  D13 A command of a user that is not answered for long is detected, and each change is reported.

mod bound;
mod completion;
mod doubt;
mod failfast;
mod queue;
mod recovery_actions;
mod reset;
mod shape;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use bio::Errno;

use crate::ccb::{CamStatus, Ccb, CcbId, Command, Ended, Flags, Outcome, Owner, Priority, Tag};
use crate::events::Event;
use crate::freeze::{Freeze, Freezes};
use crate::recovery::{Scope, Step, judge};
use bound::{Silence, as_late, is_watched};
use doubt::Doubts;
use recovery_actions::Recovery;
use reset::Resets;

pub use bound::{Failure, SILENCE_NS};
pub(crate) use doubt::{blocks_of, is_doubtful};
pub use reset::{ResetId, SETTLE_NS};
pub use shape::{
    ABORT_GRACE_NS, Queueing, RAISE_AFTER, READY_POLL_NS, READY_POLLS_MAX, REQUEUES_MAX,
    RESET_GRACE_NS, STARTS_MAX, Shape,
};

/// An action for the caller, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The owner calls [`Device::begin`] and hands the CCB to the SIM.
    Start(CcbId, Owner),
    /// The owner calls [`Device::end`].
    Ended(CcbId, Owner),
    /// The SIM has to end a CCB.
    Abort(CcbId),
    /// The SIM has to reset the device.
    Reset,
    /// All listeners are notified; of the whole target where the flag is set.
    Event(Event, bool),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SlotState {
    Free,
    Queued,
    Starting,
    Active,
    Aborting,
    Resetting,
    Pausing,
    Ended,
}

struct Slot {
    tenant: u32,
    state: SlotState,
    ccb: Ccb,
    generation: u64,
    retries: u8,
    requeues: u16,
    /// It met a device that was busy: how long that is waited for.
    busy_until_ns: Option<u64>,
    /// Its next pause for that, ms.
    busy_pause_ms: u32,
    /// It met a device that was becoming ready: how long that is waited for.
    ready_until_ns: Option<u64>,
    /// D4
    freeze: Option<Freeze>,
    recovery: Option<Recovery>,
    /// The reset that it is, or that is to end it (D9).
    reset: Option<ResetId>,
    /// The SIM has to abort it because it was late.
    late: bool,
    /// It continues when another CCB ends.
    waits_for_completion: bool,
    /// D10: it waits for the way to be open again.
    waits_for_path: bool,
    /// D6: when something is done about it; `u64::MAX` where nothing is.
    due_ns: u64,
    outcome: Outcome,
    result: Result<u32, Errno>,
    /// When it was sent.
    power_losses: u64,
    /// D12: its error when its time is over.
    error: Errno,
    /// D13: when it counts as not answered; `u64::MAX` where it does not.
    silence_ns: u64,
    /// D13: it does.
    silent: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    priority: Priority,
    generation: u64,
    slot: u32,
}

/// Counters of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Received CCBs.
    pub submitted: u64,
    /// CCBs whose owner has the result.
    pub ended: u64,
    /// Tries that cost a retry.
    pub retries: u64,
    /// Tries that did not.
    pub requeues: u64,
    /// CCBs that were late.
    pub timeouts: u64,
    /// CCBs that were sent elsewhere (D10).
    pub failed_fast: u64,
    /// QUEUE FULLs.
    pub full: u64,
    /// D2: answers for no CCB.
    pub strays: u64,
    /// Resets that recovery requested.
    pub resets: u64,
    /// Commands of users that failed.
    pub failed: u64,
}

/// See the module.
pub struct Device {
    shape: Shape,
    openings: u32,
    /// In the SIM's hands, or about to be.
    active: u32,
    /// In the SIM's hands.
    with_sim: u32,
    pausing: u32,
    waiting_for_completion: u32,
    /// D10: how many wait for the way to be open again.
    waiting_for_path: u32,
    queue: BinaryHeap<Reverse<Key>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    effects: VecDeque<Effect>,
    freezes: Freezes,
    resets: Resets,
    /// D11
    doubts: Doubts,
    /// D13
    silence: Silence,
    /// D5: an ORDERED one that has begun and not ended.
    barrier: Option<u32>,
    /// D7
    recovering_slot: Option<u32>,
    /// D8: one that is alone with the device, or about to be.
    lone: Option<u32>,
    generation: u64,
    /// No due time of a slot is before it.
    sweep_ns: u64,
    good_at_depth: u32,
    /// When the last command with the task attribute ORDERED began.
    ordered_ns: u64,
    lost: bool,
    power_losses: u64,
    /// It was reset on purpose: an attention that leaves open why is about that.
    was_reset: bool,
    counts: Counts,
    /// The last time that was passed in.
    now_ns: u64,
    failure: Option<Failure>,
}

impl Device {
    /// A device that was found.
    pub fn new(shape: Shape) -> Device {
        Device {
            openings: shape.openings_max.max(1),
            shape,
            active: 0,
            with_sim: 0,
            pausing: 0,
            waiting_for_completion: 0,
            waiting_for_path: 0,
            queue: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            effects: VecDeque::new(),
            freezes: Freezes::default(),
            resets: Resets::default(),
            doubts: Doubts::default(),
            silence: Silence::default(),
            barrier: None,
            recovering_slot: None,
            lone: None,
            generation: 0,
            sweep_ns: u64::MAX,
            good_at_depth: 0,
            ordered_ns: 0,
            lost: false,
            power_losses: 0,
            was_reset: false,
            counts: Counts::default(),
            now_ns: 0,
            failure: None,
        }
    }

    /// Another shape: after probing, by hand.
    pub fn reshape(&mut self, shape: Shape) {
        self.shape = shape;
        self.openings = shape.openings_max.max(1);
        self.pump();
    }

    /// As [`Device::reshape`], without letting anything begin: the next CCB does.
    pub fn limit(&mut self, shape: Shape) {
        self.shape = shape;
        self.openings = shape.openings_max.max(1);
    }

    /// Takes a CCB. It ends in any case.
    pub fn submit(&mut self, ccb: Ccb) -> CcbId {
        self.counts.submitted += 1;
        self.generation += 1;
        let slot = Slot {
            tenant: 0,
            state: SlotState::Queued,
            retries: ccb.retries,
            ccb,
            generation: self.generation,
            requeues: 0,
            busy_until_ns: None,
            busy_pause_ms: 0,
            ready_until_ns: None,
            freeze: None,
            recovery: None,
            reset: None,
            late: false,
            waits_for_completion: false,
            waits_for_path: false,
            due_ns: u64::MAX,
            outcome: Outcome::of(CamStatus::Requeue),
            result: Err(Errno::NxIo),
            power_losses: self.power_losses,
            error: Errno::TimedOut,
            silence_ns: u64::MAX,
            silent: false,
        };
        let at = match self.free.pop() {
            Some(at) => {
                let place = &mut self.slots[at as usize];
                *place = Slot { tenant: place.tenant, ..slot };
                at
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        if self.lost {
            self.finish(at, Err(Errno::NxIo));
        } else if self.waiting_for_path > 0 && ccb.flags.has(Flags::FAIL_FAST) {
            self.finish(at, Err(Errno::Again));
        } else {
            self.enqueue(at);
            self.pump();
        }
        CcbId { slot: at, tenant: self.slots[at as usize].tenant }
    }

    /// Takes the next effect.
    pub fn take(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Sends the CCB to the SIM; returns the CCB for the SIM. `None` when it is not its turn (any
    /// more). From now on it belongs to `owner`.
    pub fn begin(&mut self, id: CcbId, owner: Owner, now: u64) -> Option<Ccb> {
        self.now_ns = now;
        let at = self.find(id)?;
        let slot = &mut self.slots[at];
        slot.ccb.owner = owner;
        if slot.state != SlotState::Starting {
            return None;
        }
        let normal = slot.recovery.is_none() && slot.ccb.priority >= Priority::Normal;
        let resets = slot.recovery.is_none() && slot.ccb.command == Command::Reset;
        let waits = normal && (self.freezes.is_frozen() || self.with_sim >= self.openings);
        if waits || (self.resets.is_out() && !resets) {
            // Something happened since its turn began: D4, D9.
            self.release_active(id.slot);
            self.enqueue(id.slot);
            self.pump();
            return None;
        }
        if normal && self.is_beyond(&self.slots[at].ccb) {
            self.release_active(id.slot);
            self.refuse_beyond(id.slot);
            self.pump();
            return None;
        }
        if self.is_past_deadline(id.slot, now) {
            self.release_active(id.slot);
            self.finish_late(id.slot);
            self.pump();
            return None;
        }
        let slot = &mut self.slots[at];
        self.with_sim += 1;
        slot.state = SlotState::Active;
        let mut ccb = match slot.recovery {
            Some(curing) => curing.ccb(slot.ccb),
            None => slot.ccb,
        };
        let left_ms = (ccb.end_ns - now).div_ceil(1_000_000);
        ccb.timeout_ms = u32::try_from(left_ms).unwrap_or(u32::MAX).min(ccb.timeout_ms);
        let timeout_ns = u64::from(ccb.timeout_ms) * 1_000_000;
        if let (Command::Scsi { tag, .. }, Queueing::Untagged) =
            (&mut ccb.command, self.shape.queueing)
        {
            *tag = Tag::None;
        }
        if let Command::Scsi { tag: tag @ Tag::Simple, .. } = &mut ccb.command {
            // Or a device that likes others better would let it starve.
            let overdue = now.saturating_sub(self.ordered_ns) >= timeout_ns / 4;
            if ccb.flags.has(Flags::ORDERED) || overdue {
                *tag = Tag::Ordered;
                self.ordered_ns = now;
            }
        }
        slot.due_ns = now.saturating_add(timeout_ns).min(ccb.end_ns);
        slot.silence_ns = match normal && is_watched(ccb.priority, ccb.flags) {
            true => Device::silence_ns(&ccb.command, timeout_ns, now),
            false => u64::MAX,
        };
        self.sweep_ns = self.sweep_ns.min(slot.due_ns).min(slot.silence_ns);
        if resets {
            let most_ns = timeout_ns + ABORT_GRACE_NS + RESET_GRACE_NS;
            self.slots[at].reset = Some(self.quiesce(most_ns, now));
            self.effects.push_back(Effect::Event(Event::SentBdr, false));
        }
        Some(ccb)
    }

    /// The SIM has ended a CCB. False when it did not have it (D2).
    pub fn done(&mut self, id: CcbId, mut outcome: Outcome, now: u64) -> bool {
        self.now_ns = now;
        let slot = self.find(id).map(|at| &mut self.slots[at]);
        let Some(slot) = slot.filter(|s| {
            matches!(s.state, SlotState::Active | SlotState::Aborting | SlotState::Resetting)
        }) else {
            self.counts.strays += 1;
            return false;
        };
        slot.due_ns = u64::MAX;
        if std::mem::take(&mut slot.late) {
            as_late(&mut outcome);
        }
        slot.outcome = outcome;
        self.leave_sim(id.slot);
        self.command_returned(id.slot);
        self.resume_on_completion();
        let slot = &self.slots[id.slot as usize];
        // A reset that found nothing under way has no victim that would report it.
        self.was_reset |= slot.ccb.command == Command::Reset
            && slot.recovery.is_none()
            && outcome.status == CamStatus::Complete;
        let explained = self.detect_reset(&outcome, now);
        if is_doubtful(&outcome) {
            self.doubt();
        }
        if self.lost {
            let result = match outcome.status {
                CamStatus::Complete => Ok(outcome.moved),
                _ => Err(Errno::NxIo),
            };
            self.finish(id.slot, result);
        } else {
            let mut verdict = judge(&outcome, self.shape.policy);
            if let (true, Step::Retry(_)) = (explained, verdict.step) {
                // Whom the news of a reset meets is its victim too.
                verdict.step = Step::Requeue;
            }
            match self.slots[id.slot as usize].recovery {
                Some(curing) => self.recovery_returned(id.slot, curing, verdict, now),
                None => self.apply_decision(id.slot, verdict, now),
            }
        }
        self.pump();
        true
    }

    /// The owner takes the result. `None` while it has not ended.
    pub fn end(&mut self, id: CcbId) -> Option<Ended> {
        let at = self.find(id)?;
        let slot = &mut self.slots[at];
        if slot.state != SlotState::Ended {
            return None;
        }
        slot.state = SlotState::Free;
        slot.tenant = slot.tenant.wrapping_add(1);
        let ended = Ended {
            result: slot.result,
            outcome: slot.outcome,
            command: slot.ccb.command,
            end_ns: slot.ccb.end_ns,
            power_losses: (slot.power_losses, self.power_losses),
        };
        self.free.push(id.slot);
        self.counts.ended += 1;
        Some(ended)
    }

    /// Gives a CCB up: one in the queue ends now, one in the SIM when the SIM ends it.
    pub fn abort(&mut self, id: CcbId, now: u64) {
        let Some(at) = self.find(id) else { return };
        let slot = &mut self.slots[at];
        slot.retries = 0;
        slot.ccb.flags = slot.ccb.flags | Flags::RAW;
        slot.outcome = Outcome::of(CamStatus::Aborted);
        match slot.state {
            SlotState::Queued | SlotState::Starting | SlotState::Pausing => {
                self.dequeue(id.slot);
                self.finish(id.slot, Err(Errno::Canceled));
            }
            SlotState::Active => self.request_abort(id.slot, now),
            _ => {}
        }
        self.pump();
    }

    /// When [`Device::expire`] wants to be called; it may find nothing to do then.
    pub fn due(&self) -> Option<u64> {
        (self.sweep_ns != u64::MAX).then_some(self.sweep_ns)
    }

    /// Does all due work (D6).
    pub fn expire(&mut self, now: u64) {
        if now < self.sweep_ns {
            return;
        }
        (self.sweep_ns, self.now_ns) = (u64::MAX, now);
        for at in 0..self.slots.len() as u32 {
            if self.slots[at as usize].silence_ns <= now {
                self.is_silent(at);
            }
            let Slot { due_ns: due, silence_ns, .. } = self.slots[at as usize];
            self.sweep_ns = self.sweep_ns.min(silence_ns);
            if due > now {
                self.sweep_ns = self.sweep_ns.min(due);
                continue;
            }
            self.slots[at as usize].due_ns = u64::MAX;
            match self.slots[at as usize].state {
                SlotState::Active => {
                    self.counts.timeouts += 1;
                    self.slots[at as usize].late = true;
                    self.request_abort(at, now);
                }
                SlotState::Aborting => {
                    self.wait(at, SlotState::Resetting, now.saturating_add(RESET_GRACE_NS));
                    if self.slots[at as usize].reset.is_none() {
                        self.slots[at as usize].reset = Some(self.quiesce(2 * RESET_GRACE_NS, now));
                    }
                    self.counts.resets += 1;
                    self.was_reset = true;
                    self.effects.push_back(Effect::Reset);
                    self.effects.push_back(Effect::Event(Event::SentBdr, false));
                }
                SlotState::Resetting => {
                    self.slots[at as usize].outcome.status = CamStatus::Timeout;
                    self.leave_sim(at);
                    self.command_returned(at);
                    self.finish(at, Err(Errno::NxIo));
                    self.lose_by_itself(Scope::Lun, now);
                }
                SlotState::Queued | SlotState::Pausing if self.is_past_deadline(at, now) => {
                    self.dequeue(at);
                    self.finish_late(at);
                }
                SlotState::Pausing => self.resume(at),
                SlotState::Queued => self.expire_waiting(at),
                _ => {}
            }
        }
        self.expire_resets(now);
        self.expire_doubt(now);
        self.pump();
    }

    /// The device was removed: waiting CCBs end with ENXIO, and those with the SIM end when the SIM
    /// ends them.
    pub fn lose(&mut self, now: u64) {
        self.lost = true;
        self.thaw_from_resets();
        self.end_doubt();
        for at in 0..self.slots.len() as u32 {
            match self.slots[at as usize].state {
                SlotState::Queued | SlotState::Starting | SlotState::Pausing => {
                    self.dequeue(at);
                    self.finish(at, Err(Errno::NxIo));
                }
                SlotState::Active => self.request_abort(at, now),
                _ => {}
            }
        }
    }

    /// True once it was removed.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// How often it did.
    pub fn power_losses(&self) -> u64 {
        self.power_losses
    }

    /// The device lost its power, and has it again.
    pub fn lost_power(&mut self) {
        self.power_losses += 1;
    }

    /// The next 29/00 does not report a loss of power.
    pub fn kept_power(&mut self) {
        self.was_reset = true;
    }

    /// The SIM has the CCB.
    pub fn is_held(&self, id: CcbId) -> bool {
        let state = self.find(id).map(|at| self.slots[at].state);
        matches!(state, Some(SlotState::Active | SlotState::Aborting | SlotState::Resetting))
    }

    /// Stops all CCBs that are not of a higher level than [`Priority::Normal`].
    pub fn freeze(&mut self) -> Freeze {
        self.freezes.freeze()
    }

    /// Takes a freeze back.
    pub fn release(&mut self, freeze: Freeze) {
        self.freezes.release(freeze);
        self.pump();
    }

    /// Freezes made and released.
    pub fn freezes(&self) -> (u64, u64) {
        self.freezes.counts()
    }

    /// Openings now, and how many of them are in use.
    pub fn openings(&self) -> (u32, u32) {
        (self.openings, self.active)
    }

    /// CCBs that recovery holds back for a while.
    pub fn held(&self) -> u32 {
        self.pausing
    }

    /// The shape it has.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// CCBs that have not ended.
    pub fn live(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Counters so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn find(&self, id: CcbId) -> Option<usize> {
        let slot = self.slots.get(id.slot as usize)?;
        (slot.tenant == id.tenant && slot.state != SlotState::Free).then_some(id.slot as usize)
    }

    /// It is not with the SIM any more; a reset that it was, or that it waited for, is over.
    fn leave_sim(&mut self, at: u32) {
        self.release_active(at);
        self.with_sim -= 1;
        if let Some(reset) = self.slots[at as usize].reset.take() {
            self.reset_ends(reset, SETTLE_NS);
        }
    }

    fn request_abort(&mut self, at: u32, now: u64) {
        self.wait(at, SlotState::Aborting, now.saturating_add(ABORT_GRACE_NS));
        let tenant = self.slots[at as usize].tenant;
        self.effects.push_back(Effect::Abort(CcbId { slot: at, tenant }));
    }

    /// D1
    fn finish(&mut self, at: u32, result: Result<u32, Errno>) {
        self.thaw(at);
        if self.barrier == Some(at) {
            self.barrier = None;
        }
        if self.recovering_slot == Some(at) {
            self.recovering_slot = None;
        }
        self.keep_failure(at, result);
        let slot = &mut self.slots[at as usize];
        self.waiting_for_completion -= u32::from(std::mem::take(&mut slot.waits_for_completion));
        slot.recovery = None;
        slot.due_ns = u64::MAX;
        slot.state = SlotState::Ended;
        slot.result = result;
        let id = CcbId { slot: at, tenant: slot.tenant };
        self.effects.push_back(Effect::Ended(id, slot.ccb.owner));
    }
}
