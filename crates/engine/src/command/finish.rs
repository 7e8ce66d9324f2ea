//! The end of commands: answers, aborts, and the start of commands that waited. States and
//! invariants are drawn in `command/mod.rs`.

use std::cell::RefMut;

use bio::{Attr, Bio, Op, Segs};
use geom::{Core, Sink};
use wire::scsi::{Command as Cdb, Key, SENSE_LEN_MAX, Status, asc};

use crate::command::admission;
use crate::nexus::ItNexus;
use crate::nexus::slots::{FreedCommand, Slot, Slots};
use crate::nexus::transport::{Residual, Response};
use crate::plan::Run;
use crate::qos::Completion;
use crate::status::{Ending, ending_of};
use crate::task::{AbortHow, CommandState};
use crate::task_set::cross_core::key_of;
use crate::unit::ModeBits;
use crate::unit::counters::{AccessKind, add};
use crate::unit::ending::ending_at;

impl ItNexus {
    /// A command has ended; it is answered, or freed in silence when it was aborted.
    pub(crate) fn complete(&self, place: u32, ending: Ending) {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(place) else { return };
        let end = self.end_of(place, slot, &ending);
        self.end(slots, place, end, ending);
    }

    /// Decides the end of a command, and takes the contents of its answer out of its slot.
    #[inline]
    fn end_of(&self, place: u32, slot: &mut Slot, ending: &Ending) -> CommandEnd {
        if slot.answered {
            return CommandEnd::Freed;
        }
        match slot.abort {
            Some(how) => CommandEnd::Aborted(how),
            None => CommandEnd::Answered(self.take_response(place, slot, ending)),
        }
    }

    #[inline]
    fn end(&self, slots: RefMut<'_, Slots>, place: u32, end: CommandEnd, ending: Ending) {
        match end {
            CommandEnd::Answered(response) => self.respond(slots, place, response, ending),
            CommandEnd::Aborted(how) => self.end_aborted(slots, place, how),
            CommandEnd::Freed => {
                drop(slots);
                self.release(place, None);
            }
        }
    }

    /// Answers a command; its place stays taken until the answer is queued.
    #[inline]
    fn respond(
        &self,
        mut slots: RefMut<'_, Slots>,
        place: u32,
        response: CommandResponse,
        ending: Ending,
    ) {
        let CommandResponse { tag, mut data, residual, descriptor } = response;
        slots.forget_tag(tag, place);
        drop(slots);
        if let Ending::Check(_) = ending {
            self.handle_check_condition(place);
        }
        self.outstanding.set(self.outstanding.get().saturating_sub(1));
        self.send_response(tag, ending, &mut data, residual, descriptor);
        data.clear();
        self.release(place, Some(data));
    }

    /// Sends GOOD for a conversation that continues. The command leaves the order of its unit, but
    /// not its place: task management and the end of the session still wait for it.
    pub(crate) fn respond_early(&self, word: u64) {
        let (path, entry, waiters, answer) = {
            let mut slots = self.slots.borrow_mut();
            let Some((place, slot)) = slots.by_slot_id(word) else { return };
            let running = slot.state == Some(CommandState::Executing);
            if !running || slot.abort.is_some() || slot.answered {
                return;
            }
            slot.answered = true;
            // No function aborts it yet: the waiters are those of the task set.
            let waiters = std::mem::take(&mut slot.waiters);
            let answer = self.take_response(place, slot, &Ending::Good);
            slot.state = Some(CommandState::Executing);
            let out = (slot.path.clone(), std::mem::take(&mut slot.entry), waiters, answer);
            let tag = slot.tag;
            slots.forget_tag(tag, place);
            out
        };
        let CommandResponse { tag, mut data, residual, descriptor } = answer;
        self.outstanding.set(self.outstanding.get().saturating_sub(1));
        self.send_response(tag, Ending::Good, &mut data, residual, descriptor);
        if let Some(path) = path
            && entry != 0
        {
            self.engine().leave_task_set(path.device(), entry);
        }
        for ticket in waiters {
            self.engine().tm_step(ticket);
        }
    }

    /// Takes the contents of the answer out of a place and counts the command.
    fn take_response(&self, place: u32, slot: &mut Slot, ending: &Ending) -> CommandResponse {
        slot.state = Some(CommandState::Responding);
        let mut data = std::mem::take(&mut slot.data);
        let residual = trim_to_expected(slot, ending, &mut data);
        let tally = &self.facts.session_counters;
        if *ending != Ending::Good {
            add(&tally.errors, 1);
        }
        add(&tally.read_bytes, data.len() as u64);
        if slot.data_ready {
            add(&tally.written_bytes, u64::from(slot.wanted));
        }
        if let Run::Blocks(blocks) = slot.plan.run {
            let counter = if blocks.op == Op::Read { &tally.reads } else { &tally.writes };
            add(counter, 1);
        }
        self.count_medium_use(place, slot, ending, data.len() as u64);
        let descriptor = match &slot.path {
            Some(path) => path.device().mode().has(ModeBits::D_SENSE),
            None => false,
        };
        CommandResponse { tag: slot.tag, data, residual, descriptor }
    }

    /// Counts a command that used the medium for its unit's log pages, and its latency for its
    /// session.
    #[inline]
    fn count_medium_use(&self, place: u32, slot: &Slot, ending: &Ending, sent: u64) {
        let Some(path) = &slot.path else { return };
        let (did, bytes) = match (slot.plan.run, &slot.command) {
            (Run::Blocks(blocks), _) if blocks.op == Op::Read => (AccessKind::Read, sent),
            (Run::Blocks(_), _) => (AccessKind::Write, u64::from(slot.wanted)),
            (Run::Task, Cdb::Verify { .. }) => (AccessKind::Verify, u64::from(slot.wanted)),
            (Run::Task, _) if slot.plan.writes => (AccessKind::Write, u64::from(slot.wanted)),
            _ => return,
        };
        let failed = matches!(ending, Ending::Check(sense)
            if matches!(sense.code.key, Key::MediumError | Key::HardwareError));
        let ns = self.facts.age(place, self.engine().core().now());
        if let Run::Blocks(_) = slot.plan.run {
            let tally = &self.facts.session_counters;
            match did {
                AccessKind::Read => tally.read_latency.record(ns),
                AccessKind::Write | AccessKind::Verify => tally.write_latency.record(ns),
            }
        }
        path.nexus().counts().note(did, bytes, ns, failed);
    }

    pub(crate) fn send_response(
        &self,
        tag: u32,
        ending: Ending,
        data: &mut Segs,
        residual: Residual,
        desc: bool,
    ) {
        let mut bytes = [0; SENSE_LEN_MAX];
        let len = match &ending {
            Ending::Check(sense) => sense.encode(desc, &mut bytes),
            _ => 0,
        };
        let sense = bytes.get(..len).unwrap_or(&[]);
        if let Some(transport) = self.transport() {
            let status = ending.status().code();
            transport.respond(tag, Response { status, sense, data, residual });
        }
    }

    /// Frees a place, starts the commands that waited for its turn, notifies task management, ends
    /// the session. `emptied` is the emptied list of its data.
    fn release(&self, place: u32, emptied: Option<Segs>) {
        let freed = self.slots.borrow_mut().free(place, emptied);
        let Some(FreedCommand { slot_id, path, entry, aca, buffer_bytes, turn, waiters }) = freed
        else {
            return;
        };
        self.buffer_bytes.set(self.buffer_bytes.get().saturating_sub(buffer_bytes));
        self.facts.clear(place);
        self.held.set(self.held.get().saturating_sub(1));
        if let (Some(cost), Some(path)) = (turn, &path) {
            self.withdraw(path, slot_id, cost);
        }
        if let Some(path) = path.filter(|_| aca || entry != 0) {
            if aca {
                path.device().order().aca_ended(key_of(path.nexus()));
            }
            self.engine().leave_task_set(path.device(), entry);
        }
        for ticket in waiters {
            self.engine().tm_step(ticket);
        }
        self.end_if_idle();
    }

    /// Keeps commands that are about to be aborted from starting when one before them ends.
    pub(crate) fn mark_for_abort(&self, words: &[u64], how: AbortHow) {
        let mut slots = self.slots.borrow_mut();
        for word in words {
            if let Some((_, slot)) = slots.by_slot_id(*word) {
                slot.abort = slot.abort.or(Some(how));
            }
        }
    }

    /// Aborts a command. True when it is at the medium, so that its end has to be waited for;
    /// `waiter` is notified then.
    pub(crate) fn abort(&self, word: u64, how: AbortHow, waiter: Option<u32>) -> bool {
        let mut slots = self.slots.borrow_mut();
        let Some((place, slot)) = slots.by_slot_id(word) else { return false };
        match slot.state {
            Some(CommandState::Executing | CommandState::Aborting) => {}
            Some(CommandState::Responding) | None => return false,
            _ => {
                self.end_aborted(slots, place, how);
                return false;
            }
        }
        slot.state = Some(CommandState::Aborting);
        slot.abort = slot.abort.or(Some(how));
        slot.waiters.extend(waiter);
        self.note(place, slot);
        let tie = slot.job_state.clone();
        drop(slots);
        if let Some(tie) = tie {
            tie.stop();
        }
        true
    }

    fn end_aborted(&self, mut slots: RefMut<'_, Slots>, place: u32, how: AbortHow) {
        let Some(slot) = slots.get_mut(place) else { return };
        slot.state = Some(CommandState::Responding);
        slot.data.clear();
        let tag = slot.tag;
        slots.forget_tag(tag, place);
        drop(slots);
        self.outstanding.set(self.outstanding.get().saturating_sub(1));
        add(&self.facts.session_counters.aborted, 1);
        match how {
            AbortHow::Silent => {
                if let Some(transport) = self.transport() {
                    transport.discard(tag);
                }
            }
            AbortHow::Status => {
                let ending = Ending::Status(Status::TaskAborted);
                self.send_response(tag, ending, &mut Segs::new(), Residual::None, false);
            }
        }
        self.release(place, None);
    }
}

impl Sink for ItNexus {
    fn done(&self, tag: u64, bio: &mut Bio, core: &Core) {
        let mut slots = self.slots.borrow_mut();
        let Some((place, slot)) = slots.by_slot_id(tag) else { return };
        std::mem::swap(&mut slot.data, &mut bio.data);
        let ending = ending_of_blocks(slot, bio);
        let now = core.now();
        let landing =
            Completion { ns: now.saturating_sub(slot.began_ns), bytes: slot.requested_bytes };
        let landed = slot.path.as_ref().zip(slot.inflight_cost.take());
        let turn =
            landed.filter(|(path, cost)| admission::request_completed(path, *cost, landing, now));
        let turn = turn.map(|(path, _)| path.clone());
        let end = self.end_of(place, slot, &ending);
        self.end(slots, place, end, ending);
        if let Some(path) = turn {
            self.dispatch_next(&path);
        }
    }
}

/// End of a command, decided while the slots are borrowed.
enum CommandEnd {
    Answered(CommandResponse),
    Aborted(AbortHow),
    /// Its place is freed: its status was sent before.
    Freed,
}

/// The answer to the initiator.
struct CommandResponse {
    tag: u32,
    data: Segs,
    residual: Residual,
    /// Sense data has descriptors (D_SENSE).
    descriptor: bool,
}

/// How a plain read or write ended.
fn ending_of_blocks(slot: &Slot, bio: &Bio) -> Ending {
    match bio.status {
        Ok(()) if bio.completed < slot.requested_bytes => Ending::check(asc::LBA_OUT_OF_RANGE),
        Ok(()) => Ending::Good,
        Err(e) => match (&slot.path, slot.plan.run) {
            (Some(path), Run::Blocks(b)) => {
                let bad = match bio.value {
                    Some(Attr::Int(at)) => Some(at),
                    _ => None,
                };
                ending_at(e, bio.op, (b.lba, slot.requested_bytes), bad, path.device())
            }
            _ => ending_of(e, bio.op),
        },
    }
}

/// Cuts the data to the expected length and computes the residual.
fn trim_to_expected(slot: &Slot, ending: &Ending, data: &mut Segs) -> Residual {
    let inward = slot.expect_in > 0 || slot.plan.reply > 0;
    if *ending != Ending::Good {
        data.clear();
        if !inward && slot.needed > u64::from(slot.expect_out) {
            return Residual::of(slot.needed, slot.expect_out);
        }
        let expected = if inward { slot.expect_in } else { slot.expect_out };
        let moved = if !inward && slot.data_ready { slot.wanted } else { 0 };
        return Residual::of(u64::from(moved), expected);
    }
    if inward {
        let sent = slot.needed.min(u64::from(slot.expect_in));
        data.truncate(usize::try_from(sent).unwrap_or(usize::MAX));
        return Residual::of(slot.needed, slot.expect_in);
    }
    data.clear();
    Residual::of(slot.needed, slot.expect_out)
}
