//! The end of commands: answers, aborts, and who may go next. States and invariants are drawn in
//! `command.rs`.

use bio::{Attr, Bio, Op, Segs};
use geom::{Core, Sink};
use wire::scsi::{Command as Cdb, Key, SENSE_LEN_MAX, Status, asc};

use crate::command::status::{Ending, ending_at, ending_of};
use crate::command::{AbortHow, CommandState, Slot, word_of};
use crate::counters::Did;
use crate::handlers::Run;
use crate::nexus::Session;
use crate::nexus::transport::{Residual, Response};
use crate::qos::Landing;
use crate::qos::admission;
use crate::registry::add;
use crate::task_set::cross_core::key_of;
use crate::unit::ModeBits;

impl Session {
    /// A command has ended below; it is answered, or freed in silence when it was aborted.
    pub(crate) fn complete(&self, place: u32, ending: Ending) {
        let abort = {
            let slots = self.slots.borrow();
            match slots.get(place) {
                Some(slot) if slot.answered => {
                    drop(slots);
                    return self.release(place);
                }
                Some(slot) => slot.abort,
                None => return,
            }
        };
        match abort {
            Some(how) => self.end_aborted(place, how),
            None => self.finish(place, ending),
        }
    }

    pub(crate) fn finish(&self, place: u32, ending: Ending) {
        let Some((tag, mut data, residual, descriptor)) = self.take_answer(place, &ending) else {
            return;
        };
        if let Ending::Check(_) = ending {
            self.blame(place);
        }
        self.outstanding.set(self.outstanding.get().saturating_sub(1));
        self.tell(tag, ending, &mut data, residual, descriptor);
        data.clear();
        if let Some(slot) = self.slots.borrow_mut().get_mut(place) {
            slot.data = data;
        }
        self.release(place);
    }

    /// Tells GOOD of a conversation that goes on. It leaves the order of its unit, but not its
    /// place: task management and the end of the session still wait for it.
    pub(crate) fn answer_early(&self, word: u64) {
        let (place, path, entry, waiters) = {
            let mut slots = self.slots.borrow_mut();
            let Some((place, slot)) = slots.by_word(word) else { return };
            let running = slot.state == Some(CommandState::Executing);
            if !running || slot.abort.is_some() || slot.answered {
                return;
            }
            slot.answered = true;
            // Nobody aborts it yet: those who wait are the order's.
            let waiters = std::mem::take(&mut slot.waiters);
            (place, slot.path.clone(), std::mem::take(&mut slot.entry), waiters)
        };
        let Some((tag, mut data, residual, descriptor)) = self.take_answer(place, &Ending::Good)
        else {
            return;
        };
        if let Some(slot) = self.slots.borrow_mut().get_mut(place) {
            slot.state = Some(CommandState::Executing);
        }
        self.outstanding.set(self.outstanding.get().saturating_sub(1));
        self.tell(tag, Ending::Good, &mut data, residual, descriptor);
        if let Some(path) = path
            && entry != 0
        {
            self.engine().part(path.device(), entry);
        }
        for ticket in waiters {
            self.engine().tm_step(ticket);
        }
    }

    /// Takes what the answer needs out of the place and counts it.
    fn take_answer(&self, place: u32, ending: &Ending) -> Option<(u32, Segs, Residual, bool)> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(place)?;
        slot.state = Some(CommandState::Responding);
        let tag = slot.tag;
        let mut data = std::mem::take(&mut slot.data);
        let residual = answer_of(slot, ending, &mut data);
        let tally = &self.facts.tally;
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
        self.note_use(place, slot, ending, data.len() as u64);
        let descriptor = match &slot.path {
            Some(path) => path.device().mode().has(ModeBits::D_SENSE),
            None => false,
        };
        slots.forget_tag(tag);
        Some((tag, data, residual, descriptor))
    }

    /// Counts a command that used the medium for its unit's log pages.
    #[inline]
    fn note_use(&self, place: u32, slot: &Slot, ending: &Ending, sent: u64) {
        let Some(path) = &slot.path else { return };
        let (did, bytes) = match (slot.plan.run, &slot.command) {
            (Run::Blocks(blocks), _) if blocks.op == Op::Read => (Did::Read, sent),
            (Run::Blocks(_), _) => (Did::Write, u64::from(slot.wanted)),
            (Run::Task, Cdb::Verify { .. }) => (Did::Verify, u64::from(slot.wanted)),
            (Run::Task, _) if slot.plan.writes => (Did::Write, u64::from(slot.wanted)),
            _ => return,
        };
        let failed = matches!(ending, Ending::Check(sense)
            if matches!(sense.code.key, Key::MediumError | Key::HardwareError));
        let ns = self.facts.age(place, self.engine().core().now());
        path.nexus().counts().note(did, bytes, ns, failed);
    }

    pub(crate) fn tell(
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

    /// Frees a place, starts what waited for its turn, tells task management, ends the session.
    pub(crate) fn release(&self, place: u32) {
        let (path, entry, aca, waiters, called_off) = {
            let mut slots = self.slots.borrow_mut();
            let Some(slot) = slots.get_mut(place) else { return };
            let mut waiters = Vec::new();
            std::mem::swap(&mut waiters, &mut slot.waiters);
            self.lent.set(self.lent.get().saturating_sub(slot.lent));
            let called_off = (slot.flying.is_some() || slot.queued)
                .then(|| (word_of(place, slot.generation), slot.flying));
            let out = (slot.path.take(), slot.entry, slot.aca, waiters, called_off);
            slots.free(place);
            out
        };
        self.facts.clear(place);
        self.held.set(self.held.get().saturating_sub(1));
        if let (Some((word, flying)), Some(path)) = (called_off, &path) {
            self.call_off(path, word, flying);
        }
        if let Some(path) = path.filter(|_| aca || entry != 0) {
            if aca {
                path.device().order().aca_ended(key_of(path.nexus()));
            }
            self.engine().part(path.device(), entry);
        }
        for ticket in waiters {
            self.engine().tm_step(ticket);
        }
        self.end_if_idle();
    }

    /// Keeps commands that are about to be aborted from starting when one before them goes.
    pub(crate) fn doom(&self, words: &[u64], how: AbortHow) {
        let mut slots = self.slots.borrow_mut();
        for word in words {
            if let Some((_, slot)) = slots.by_word(*word) {
                slot.abort = slot.abort.or(Some(how));
            }
        }
    }

    /// Aborts a command. True when it is at the medium, so that its end has to be waited for;
    /// `waiter` is told then.
    pub(crate) fn abort(&self, word: u64, how: AbortHow, waiter: Option<u32>) -> bool {
        let (place, executing) = {
            let mut slots = self.slots.borrow_mut();
            let Some((place, slot)) = slots.by_word(word) else { return false };
            let executing = match slot.state {
                Some(CommandState::Executing | CommandState::Aborting) => true,
                Some(CommandState::Responding) | None => return false,
                _ => false,
            };
            if executing {
                slot.state = Some(CommandState::Aborting);
                slot.abort = slot.abort.or(Some(how));
                slot.waiters.extend(waiter);
                if let Some(tie) = &slot.tie {
                    tie.stop();
                }
            }
            (place, executing)
        };
        if executing {
            self.note_state(place);
        } else {
            self.end_aborted(place, how);
        }
        executing
    }

    fn end_aborted(&self, place: u32, how: AbortHow) {
        let tag = {
            let mut slots = self.slots.borrow_mut();
            let Some(slot) = slots.get_mut(place) else { return };
            slot.state = Some(CommandState::Responding);
            slot.data.clear();
            let tag = slot.tag;
            slots.forget_tag(tag);
            tag
        };
        self.outstanding.set(self.outstanding.get().saturating_sub(1));
        add(&self.facts.tally.aborted, 1);
        match how {
            AbortHow::Silent => {
                if let Some(transport) = self.transport() {
                    transport.discard(tag);
                }
            }
            AbortHow::Status => {
                let ending = Ending::Status(Status::TaskAborted);
                self.tell(tag, ending, &mut Segs::new(), Residual::None, false);
            }
        }
        self.release(place);
    }
}

impl Sink for Session {
    fn done(&self, tag: u64, bio: &mut Bio, core: &Core) {
        let (place, ending, turn) = {
            let mut slots = self.slots.borrow_mut();
            let Some((place, slot)) = slots.by_word(tag) else { return };
            std::mem::swap(&mut slot.data, &mut bio.data);
            let ending = ending_of_blocks(slot, bio);
            let now = core.now();
            let landing = Landing { ns: now.saturating_sub(slot.began_ns), bytes: slot.asked };
            let landed = slot.path.as_ref().zip(slot.flying.take());
            let turn = landed.filter(|(path, cost)| admission::landed(path, *cost, landing, now));
            let turn = turn.map(|(path, _)| path.clone());
            (place, ending, turn)
        };
        self.complete(place, ending);
        if let Some(path) = turn {
            self.give_turn(&path);
        }
    }
}

/// How a plain read or write ended.
fn ending_of_blocks(slot: &Slot, bio: &Bio) -> Ending {
    match bio.status {
        Ok(()) if bio.completed < slot.asked => Ending::check(asc::LBA_OUT_OF_RANGE),
        Ok(()) => Ending::Good,
        Err(e) => match (&slot.path, slot.plan.run) {
            (Some(path), Run::Blocks(b)) => {
                let bad = match bio.value {
                    Some(Attr::Int(at)) => Some(at),
                    _ => None,
                };
                ending_at(e, bio.op, (b.lba, slot.asked), bad, path.device())
            }
            _ => ending_of(e, bio.op),
        },
    }
}

/// Cuts the data to what the initiator expects and computes the residual.
fn answer_of(slot: &Slot, ending: &Ending, data: &mut Segs) -> Residual {
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
