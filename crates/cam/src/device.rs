//! One device: its queue of CCBs, and what happens to each until it has ended. Without I/O: the
//! time is handed in, what is to be done comes out as [`Effect`]s.
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
//! Invariants
//!  D1  A CCB ends exactly once: every way leads to `Ended`, and only `end` leads out of it.
//!  D2  What comes from the SIM for a CCB that it does not have (any more) changes nothing.
//!  D3  A CCB that is tried again keeps its place before all that were sent later.
//!  D4  A CCB that failed and is not at its end holds one freeze (unless it asked for none and
//!      needs no cure), so that nothing passes it; it gives it back when it is queued again, or
//!      ends.
//!  D5  An ORDERED one begins when all that were sent before have ended, and nothing that was
//!      sent later begins before it has ended.
//!  D6  Every CCB has a deadline at every step: late ones are aborted, then the device is reset,
//!      then the device is lost. Nothing hangs.
//!  D7  At most one CCB cures the device; others that want to are queued again behind its freeze.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use bio::Errno;
use wire::scsi::{Key as ScsiKey, Sense};

use crate::ccb::{CamStatus, Ccb, CcbId, Command, Ended, Flags, Outcome, Owner, Priority, Tag};
use crate::events::Event;
use crate::freeze::{Freeze, Freezes};
use crate::recovery::{Cure, Note, Pause, Policy, Scope, Step, Verdict, judge};

/// How long a SIM has to end what it was asked to abort; then the device is reset.
pub const ABORT_GRACE_NS: u64 = 5_000_000_000;
/// How long a SIM has to end everything after a reset; then the device is lost.
pub const RESET_GRACE_NS: u64 = 10_000_000_000;
/// Time between two looks at a device that is becoming ready.
pub const READY_POLL_NS: u64 = 500_000_000;
/// Looks at a device that is becoming ready; then the request fails.
pub const READY_POLLS_MAX: u16 = 120;
/// START UNITs that may go wrong before the request fails.
pub const STARTS_MAX: u16 = 4;
/// How often a CCB is queued again at no cost; after that it costs retries.
pub const REQUEUES_MAX: u16 = 1000;
/// CCBs that end well with all openings in use before QUEUE FULL is forgotten by one opening.
pub const RAISE_AFTER: u32 = 256;
/// How long TEST UNIT READY and START UNIT may take.
const CURE_TIMEOUT_MS: u32 = 60_000;

/// What a device's queue is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Never fewer openings, whatever the device says.
    pub openings_min: u32,
    /// Never more in flight.
    pub openings_max: u32,
    /// What recovery may do.
    pub policy: Policy,
}

/// What is to be done, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The owner calls [`Device::begin`] and hands the CCB to the SIM.
    Start(CcbId, Owner),
    /// The owner calls [`Device::end`].
    Ended(CcbId, Owner),
    /// The SIM is asked to end a CCB.
    Abort(CcbId),
    /// The SIM is asked to reset the device.
    Reset,
    /// Everybody concerned is told; of the whole target where the flag is set.
    Event(Event, bool),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Queued,
    Starting,
    Active,
    Aborting,
    Resetting,
    Pausing,
    Ended,
}

/// A cure under way.
#[derive(Clone, Copy)]
struct Curing {
    cure: Cure,
    left: u16,
    error: Errno,
}

struct Slot {
    tenant: u32,
    state: State,
    ccb: Ccb,
    generation: u64,
    retries: u8,
    requeues: u16,
    /// D4
    freeze: Option<Freeze>,
    curing: Option<Curing>,
    /// The SIM was asked to abort it because it was late.
    late: bool,
    /// It goes on when another CCB ends.
    impatient: bool,
    /// D6: when something is done about it; `u64::MAX` where nothing is.
    due_ns: u64,
    outcome: Outcome,
    result: Result<u32, Errno>,
    /// When it was sent.
    power_losses: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    priority: Priority,
    generation: u64,
    slot: u32,
}

/// What happened so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// CCBs that came.
    pub submitted: u64,
    /// CCBs whose owner has the result.
    pub ended: u64,
    /// Tries that cost a retry.
    pub retries: u64,
    /// Tries that did not.
    pub requeues: u64,
    /// CCBs that were late.
    pub timeouts: u64,
    /// QUEUE FULLs.
    pub full: u64,
    /// D2: answers to nobody.
    pub strays: u64,
    /// Resets that recovery asked for.
    pub resets: u64,
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
    impatient: u32,
    queue: BinaryHeap<Reverse<Key>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    effects: VecDeque<Effect>,
    freezes: Freezes,
    /// D5: an ORDERED one that has begun and not ended.
    barrier: Option<u32>,
    /// D7
    curer: Option<u32>,
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
            impatient: 0,
            queue: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            effects: VecDeque::new(),
            freezes: Freezes::default(),
            barrier: None,
            curer: None,
            generation: 0,
            sweep_ns: u64::MAX,
            good_at_depth: 0,
            ordered_ns: 0,
            lost: false,
            power_losses: 0,
            was_reset: false,
            counts: Counts::default(),
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
            state: State::Queued,
            retries: ccb.retries,
            ccb,
            generation: self.generation,
            requeues: 0,
            freeze: None,
            curing: None,
            late: false,
            impatient: false,
            due_ns: u64::MAX,
            outcome: Outcome::of(CamStatus::Requeue),
            result: Err(Errno::NxIo),
            power_losses: self.power_losses,
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
        } else {
            self.enqueue(at);
            self.pump();
        }
        CcbId { slot: at, tenant: self.slots[at as usize].tenant }
    }

    /// What is to be done next.
    pub fn take(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The CCB goes to the SIM: what the SIM gets. `None` when it is not its turn (any more). The
    /// owner is how it is called from now on.
    pub fn begin(&mut self, id: CcbId, owner: Owner, now: u64) -> Option<Ccb> {
        let at = self.find(id)?;
        let slot = &mut self.slots[at];
        slot.ccb.owner = owner;
        if slot.state != State::Starting {
            return None;
        }
        let normal = slot.curing.is_none() && slot.ccb.priority >= Priority::Normal;
        if normal && (self.freezes.is_frozen() || self.with_sim >= self.openings) {
            // Something happened since its turn came: D4.
            self.active -= 1;
            self.enqueue(id.slot);
            return None;
        }
        self.with_sim += 1;
        slot.state = State::Active;
        let mut ccb = match slot.curing {
            Some(curing) => curing.ccb(slot.ccb),
            None => slot.ccb,
        };
        let timeout_ns = u64::from(ccb.timeout_ms) * 1_000_000;
        if let Command::Scsi { tag: tag @ Tag::Simple, .. } = &mut ccb.command {
            // Or a device that likes others better would let it starve.
            let overdue = now.saturating_sub(self.ordered_ns) >= timeout_ns / 4;
            if ccb.flags.has(Flags::ORDERED) || overdue {
                *tag = Tag::Ordered;
                self.ordered_ns = now;
            }
        }
        slot.due_ns = now.saturating_add(timeout_ns);
        self.sweep_ns = self.sweep_ns.min(slot.due_ns);
        Some(ccb)
    }

    /// The SIM has ended a CCB. False when it did not have it (D2).
    pub fn done(&mut self, id: CcbId, mut outcome: Outcome, now: u64) -> bool {
        let slot = self.find(id).map(|at| &mut self.slots[at]);
        let Some(slot) =
            slot.filter(|s| matches!(s.state, State::Active | State::Aborting | State::Resetting))
        else {
            self.counts.strays += 1;
            return false;
        };
        slot.due_ns = u64::MAX;
        if std::mem::take(&mut slot.late) && outcome.status != CamStatus::Complete {
            outcome.status = CamStatus::Timeout;
        }
        slot.outcome = outcome;
        self.active -= 1;
        self.with_sim -= 1;
        self.call_impatient();
        self.heed_resets(&outcome);
        if self.lost {
            let result = match outcome.status {
                CamStatus::Complete => Ok(outcome.moved),
                _ => Err(Errno::NxIo),
            };
            self.finish(id.slot, result);
        } else {
            let verdict = judge(&outcome, self.shape.policy);
            match self.slots[id.slot as usize].curing {
                Some(curing) => self.cured(id.slot, curing, verdict, now),
                None => self.act(id.slot, verdict, now),
            }
        }
        self.pump();
        true
    }

    /// The owner takes the result. `None` while it has not ended.
    pub fn end(&mut self, id: CcbId) -> Option<Ended> {
        let at = self.find(id)?;
        let slot = &mut self.slots[at];
        if slot.state != State::Ended {
            return None;
        }
        slot.state = State::Free;
        slot.tenant = slot.tenant.wrapping_add(1);
        let ended = Ended {
            result: slot.result,
            outcome: slot.outcome,
            command: slot.ccb.command,
            power_losses: (slot.power_losses, self.power_losses),
        };
        self.free.push(id.slot);
        self.counts.ended += 1;
        Some(ended)
    }

    /// Gives a CCB up: one in the queue ends now, one in the SIM when the SIM says so.
    pub fn abort(&mut self, id: CcbId, now: u64) {
        let Some(at) = self.find(id) else { return };
        let slot = &mut self.slots[at];
        slot.retries = 0;
        slot.ccb.flags = slot.ccb.flags | Flags::RAW;
        slot.outcome = Outcome::of(CamStatus::Aborted);
        match slot.state {
            State::Queued | State::Starting | State::Pausing => {
                self.drop_from(id.slot);
                self.finish(id.slot, Err(Errno::Canceled));
            }
            State::Active => self.ask_abort(id.slot, now),
            _ => {}
        }
        self.pump();
    }

    /// When [`Device::expire`] wants to be called; it may find nothing to do then.
    pub fn due(&self) -> Option<u64> {
        (self.sweep_ns != u64::MAX).then_some(self.sweep_ns)
    }

    /// Does what the time has come for (D6).
    pub fn expire(&mut self, now: u64) {
        if now < self.sweep_ns {
            return;
        }
        self.sweep_ns = u64::MAX;
        for at in 0..self.slots.len() as u32 {
            let due = self.slots[at as usize].due_ns;
            if due > now {
                self.sweep_ns = self.sweep_ns.min(due);
                continue;
            }
            self.slots[at as usize].due_ns = u64::MAX;
            match self.slots[at as usize].state {
                State::Active => {
                    self.counts.timeouts += 1;
                    self.slots[at as usize].late = true;
                    self.ask_abort(at, now);
                }
                State::Aborting => {
                    self.wait(at, State::Resetting, now.saturating_add(RESET_GRACE_NS));
                    self.counts.resets += 1;
                    self.was_reset = true;
                    self.effects.push_back(Effect::Reset);
                    self.effects.push_back(Effect::Event(Event::SentBdr, false));
                }
                State::Resetting => {
                    self.slots[at as usize].outcome.status = CamStatus::Timeout;
                    self.active -= 1;
                    self.with_sim -= 1;
                    self.finish(at, Err(Errno::NxIo));
                    self.lose_by_itself(Scope::Lun, now);
                }
                State::Pausing => self.resume(at),
                _ => {}
            }
        }
        self.pump();
    }

    /// The device is gone: what waits ends with ENXIO, what the SIM has when the SIM says so.
    pub fn lose(&mut self, now: u64) {
        self.lost = true;
        for at in 0..self.slots.len() as u32 {
            match self.slots[at as usize].state {
                State::Queued | State::Starting | State::Pausing => {
                    self.drop_from(at);
                    self.finish(at, Err(Errno::NxIo));
                }
                State::Active => self.ask_abort(at, now),
                _ => {}
            }
        }
    }

    /// True once it is gone.
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

    /// The SIM has the CCB.
    pub fn is_held(&self, id: CcbId) -> bool {
        let state = self.find(id).map(|at| self.slots[at].state);
        matches!(state, Some(State::Active | State::Aborting | State::Resetting))
    }

    /// Stops what is not of a higher level than [`Priority::Normal`].
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

    /// The shape it has.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// CCBs that have not ended.
    pub fn live(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn find(&self, id: CcbId) -> Option<usize> {
        let slot = self.slots.get(id.slot as usize)?;
        (slot.tenant == id.tenant && slot.state != State::Free).then_some(id.slot as usize)
    }

    fn enqueue(&mut self, at: u32) {
        let slot = &mut self.slots[at as usize];
        slot.state = State::Queued;
        // D3: the generation stays. A cure goes before everything of its level.
        let priority = if slot.curing.is_some() { Priority::Dev } else { slot.ccb.priority };
        self.queue.push(Reverse(Key { priority, generation: slot.generation, slot: at }));
    }

    /// Takes one that has not begun out of where it waits.
    fn drop_from(&mut self, at: u32) {
        match self.slots[at as usize].state {
            State::Queued => self.queue.retain(|Reverse(key)| key.slot != at),
            State::Starting => self.active -= 1,
            State::Pausing => self.pausing -= 1,
            _ => {}
        }
    }

    /// Lets begin what may.
    fn pump(&mut self) {
        if self.lost {
            return;
        }
        while let Some(Reverse(key)) = self.queue.peek() {
            let at = key.slot;
            if key.priority >= Priority::Normal && !self.may_begin(at) {
                break;
            }
            self.queue.pop();
            self.active += 1;
            let tenant = {
                let slot = &mut self.slots[at as usize];
                slot.state = State::Starting;
                if slot.ccb.flags.has(Flags::ORDERED) && slot.curing.is_none() {
                    self.barrier = Some(at);
                }
                slot.tenant
            };
            let owner = self.slots[at as usize].ccb.owner;
            self.effects.push_back(Effect::Start(CcbId { slot: at, tenant }, owner));
        }
    }

    fn may_begin(&self, at: u32) -> bool {
        if self.freezes.is_frozen() || self.active >= self.openings {
            return false;
        }
        match self.barrier {
            Some(barrier) => barrier == at,
            // D5: what was sent before has ended, for it is neither in the SIM nor pausing, and
            // would be before this one in the queue.
            None if self.slots[at as usize].ccb.flags.has(Flags::ORDERED) => {
                self.active == 0 && self.pausing == 0
            }
            None => true,
        }
    }

    fn act(&mut self, at: u32, verdict: Verdict, now: u64) {
        let slot = &mut self.slots[at as usize];
        if verdict.step == Step::Done {
            let moved = slot.outcome.moved;
            self.ended_well();
            return self.finish(at, Ok(moved));
        }
        if slot.ccb.flags.has(Flags::RAW) {
            let error = slot.raw_error(verdict);
            return self.finish(at, Err(error));
        }
        let cures = matches!(verdict.step, Step::Cure(_));
        if slot.freeze.is_none() && (cures || !slot.ccb.flags.has(Flags::NO_FREEZE)) {
            slot.freeze = Some(self.freezes.freeze());
        }
        self.tell(verdict);
        let policy = self.shape.policy;
        match verdict.step {
            Step::Done | Step::Fail => self.finish(at, Err(verdict.error)),
            Step::Requeue => self.again_free(at, Pause::None, now),
            Step::Retry(pause) => self.again(at, pause, verdict.error, now),
            Step::Busy(pause) if policy.retry_busy => self.again_free(at, pause, now),
            Step::Busy(pause) => self.again(at, pause, verdict.error, now),
            Step::Full(pause) => self.full(at, pause, verdict.error, now),
            Step::Cure(cure) => self.cure(at, cure, verdict.error, now),
            Step::Selection(pause) => {
                if policy.retry_selection && self.slots[at as usize].retries > 0 {
                    return self.again(at, pause, verdict.error, now);
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

    /// Attentions that mean a loss of power: 29/01, and 29/00 when nobody reset it.
    fn heed_resets(&mut self, outcome: &Outcome) {
        self.was_reset |= matches!(outcome.status, CamStatus::BusReset | CamStatus::ResetSent);
        let Ok(sense) = Sense::decode(outcome.sense.bytes()) else { return };
        let attention = sense.code.key == ScsiKey::UnitAttention && sense.code.asc == 0x29;
        if attention {
            let unexplained = sense.code.ascq == 0 && !self.was_reset;
            self.power_losses += u64::from(unexplained || sense.code.ascq == 1);
            self.was_reset = false;
        }
    }

    fn tell(&mut self, verdict: Verdict) {
        if verdict.attention {
            self.effects.push_back(Effect::Event(Event::UnitAttention, false));
        }
        let event = match verdict.note {
            Note::None => return,
            Note::Capacity | Note::MediumChanged | Note::MediumGone => Event::DeviceChanged,
            Note::Inquiry => Event::InquiryChanged,
            Note::Rescan => Event::Contract,
        };
        self.effects.push_back(Effect::Event(event, verdict.note == Note::Rescan));
    }

    fn lose_by_itself(&mut self, scope: Scope, now: u64) {
        if !self.lost {
            let whole = scope == Scope::Target;
            self.effects.push_back(Effect::Event(Event::LostDevice, whole));
            self.lose(now);
        }
    }

    /// One more try that costs a retry, or the end.
    fn again(&mut self, at: u32, pause: Pause, error: Errno, now: u64) {
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

    /// One more try at no cost, within reason.
    fn again_free(&mut self, at: u32, pause: Pause, now: u64) {
        let slot = &mut self.slots[at as usize];
        if slot.requeues >= REQUEUES_MAX {
            return self.again(at, pause, Errno::Io, now);
        }
        slot.requeues += 1;
        self.counts.requeues += 1;
        self.pause(at, pause, now);
    }

    fn full(&mut self, at: u32, pause: Pause, error: Errno, now: u64) {
        self.counts.full += 1;
        self.good_at_depth = 0;
        if self.with_sim == 0 {
            return match self.shape.policy.retry_busy {
                true => self.again_free(at, pause, now),
                false => self.again(at, pause, error, now),
            };
        }
        let fewer = self.with_sim.max(self.shape.openings_min).max(1);
        let lowers = fewer < self.openings;
        self.openings = self.openings.min(fewer);
        self.again_free(at, if lowers { Pause::None } else { pause }, now);
    }

    fn pause(&mut self, at: u32, pause: Pause, now: u64) {
        let (ms, impatient) = match pause {
            Pause::None => {
                self.enqueue(at);
                return self.thaw(at);
            }
            Pause::Ms(ms) => (ms, false),
            Pause::Completion(ms) => (ms, true),
        };
        self.slots[at as usize].impatient = impatient;
        self.impatient += u32::from(impatient);
        self.rest(at, u64::from(ms) * 1_000_000, now);
    }

    fn rest(&mut self, at: u32, ns: u64, now: u64) {
        self.pausing += 1;
        self.wait(at, State::Pausing, now.saturating_add(ns));
    }

    fn wait(&mut self, at: u32, state: State, due_ns: u64) {
        let slot = &mut self.slots[at as usize];
        slot.state = state;
        slot.due_ns = due_ns;
        self.sweep_ns = self.sweep_ns.min(due_ns);
    }

    /// A pause is over.
    fn resume(&mut self, at: u32) {
        self.pausing -= 1;
        let slot = &mut self.slots[at as usize];
        slot.due_ns = u64::MAX;
        self.impatient -= u32::from(std::mem::take(&mut slot.impatient));
        let curing = slot.curing.is_some();
        self.enqueue(at);
        if !curing {
            self.thaw(at);
        }
    }

    fn call_impatient(&mut self) {
        for at in 0..self.slots.len() as u32 {
            if self.impatient == 0 {
                return;
            }
            let slot = &self.slots[at as usize];
            if slot.state == State::Pausing && slot.impatient {
                self.resume(at);
            }
        }
    }

    fn thaw(&mut self, at: u32) {
        if let Some(freeze) = self.slots[at as usize].freeze.take() {
            self.freezes.release(freeze);
        }
    }

    fn ask_abort(&mut self, at: u32, now: u64) {
        self.wait(at, State::Aborting, now.saturating_add(ABORT_GRACE_NS));
        let tenant = self.slots[at as usize].tenant;
        self.effects.push_back(Effect::Abort(CcbId { slot: at, tenant }));
    }

    fn cure(&mut self, at: u32, cure: Cure, error: Errno, now: u64) {
        let slot = &mut self.slots[at as usize];
        let Some(left) = slot.retries.checked_sub(1) else {
            return self.finish(at, Err(error));
        };
        if self.curer.is_some() {
            // D7
            return self.again_free(at, Pause::None, now);
        }
        slot.retries = left;
        self.counts.retries += 1;
        self.curer = Some(at);
        let tries = if cure == Cure::Wait { READY_POLLS_MAX } else { STARTS_MAX };
        self.try_cure(at, Curing { cure, left: tries, error }, now);
    }

    fn try_cure(&mut self, at: u32, curing: Curing, now: u64) {
        match curing.left.checked_sub(1) {
            None => self.finish(at, Err(curing.error)),
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
    fn cured(&mut self, at: u32, curing: Curing, verdict: Verdict, now: u64) {
        self.tell(verdict);
        if self.slots[at as usize].ccb.flags.has(Flags::RAW) {
            // Given up meanwhile.
            return self.finish(at, Err(Errno::Canceled));
        }
        match verdict.step {
            Step::Done => {
                self.slots[at as usize].curing = None;
                self.curer = None;
                self.enqueue(at);
                self.thaw(at);
            }
            Step::Cure(Cure::Wait) if curing.cure == Cure::Start => {
                let wait = Curing { cure: Cure::Wait, left: READY_POLLS_MAX, ..curing };
                self.try_cure(at, wait, now);
            }
            Step::Cure(Cure::Start) if curing.cure == Cure::Wait => {
                // It will not become ready by itself after all. Costs a retry, or a device that
                // says one and the other in turn would be asked for ever.
                let slot = &mut self.slots[at as usize];
                let Some(left) = slot.retries.checked_sub(1) else {
                    return self.finish(at, Err(curing.error));
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
            Step::Fail | Step::Selection(_) => self.finish(at, Err(curing.error)),
        }
    }

    /// QUEUE FULL is not for ever.
    fn ended_well(&mut self) {
        if self.openings >= self.shape.openings_max || self.active + 1 < self.openings {
            return;
        }
        self.good_at_depth += 1;
        if self.good_at_depth >= RAISE_AFTER {
            self.good_at_depth = 0;
            self.openings += 1;
        }
    }

    /// D1
    fn finish(&mut self, at: u32, result: Result<u32, Errno>) {
        self.thaw(at);
        if self.barrier == Some(at) {
            self.barrier = None;
        }
        if self.curer == Some(at) {
            self.curer = None;
        }
        let slot = &mut self.slots[at as usize];
        self.impatient -= u32::from(std::mem::take(&mut slot.impatient));
        slot.curing = None;
        slot.due_ns = u64::MAX;
        slot.state = State::Ended;
        slot.result = result;
        let id = CcbId { slot: at, tenant: slot.tenant };
        self.effects.push_back(Effect::Ended(id, slot.ccb.owner));
    }
}

impl Slot {
    /// The error of one that ends as the device answered.
    fn raw_error(&self, verdict: Verdict) -> Errno {
        match self.outcome.status {
            CamStatus::Aborted => Errno::Canceled,
            CamStatus::Timeout => Errno::TimedOut,
            _ => verdict.error,
        }
    }
}

impl Curing {
    /// What the SIM gets in place of the CCB that is waiting.
    fn ccb(self, waiting: Ccb) -> Ccb {
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
