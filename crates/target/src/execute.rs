//! Running commands: from arrival to answer. States and invariants are drawn in `command.rs`.
//!
//! The way of a READ or WRITE allocates nothing in steady state: places, tag table, scatter lists
//! and Bios are recycled, and the answer from below finds its place by a word.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use bio::{Bio, End, Flags, Op, Origin, Segs};
use geom::{Core, Sink};
use wire::scsi::{Asc, Command as Cdb, CommandInfo, Key, SENSE_LEN_MAX, Status, asc};

use crate::command::{AbortHow, Command, CommandState, Next, Slot, TaskAttribute, word_of};
use crate::device::ModeBits;
use crate::handlers::{Ask, Blocks, Job, Plan, REPLY_MAX, Run, answer_none, plan_none};
use crate::registry::{DEPTH_MAX, add};
use crate::session::{Path, Session};
use crate::status::{Ending, ending_at, ending_of};
use crate::transport::{DataError, Residual, Response};

/// INVALID MESSAGE ERROR: a task attribute that cannot be here.
const INVALID_ATTRIBUTE: Asc = Asc::new(Key::AbortedCommand, 0x49, 0x00);

/// Commands that run in spite of unit attentions (SPC-4 5.14.2): REQUEST SENSE, INQUIRY, REPORT
/// LUNS.
fn ignores_attentions(opcode: u8) -> bool {
    matches!(opcode, 0x03 | 0x12 | 0xA0)
}

enum Memory {
    Here,
    Wait,
}

impl Session {
    /// A command arrives. Nothing is executed before all the write data that is wanted is there.
    /// A tag that is outstanding already is an error of the transport: the newcomer is answered
    /// OVERLAPPED COMMANDS ATTEMPTED.
    pub fn command(&self, command: &Command<'_>) -> Next {
        if self.is_stale() {
            self.refresh();
        }
        if self.is_closing() {
            if let Some(transport) = self.transport() {
                transport.discard(command.tag);
            }
            return Next::Started;
        }
        add(&self.facts.tally.commands, 1);
        if self.outstanding.get() >= DEPTH_MAX {
            self.refuse(command, Ending::Status(Status::TaskSetFull));
            return Next::Started;
        }
        if self.slots.borrow().find(command.tag).is_some() {
            self.refuse(command, Ending::check(asc::OVERLAPPED_COMMANDS));
            return Next::Started;
        }
        let place = self.slots.borrow_mut().take(command.tag, CommandState::DataWait);
        let outstanding = self.outstanding.get() + 1;
        self.outstanding.set(outstanding);
        self.held.set(self.held.get() + 1);
        let depth_max = &self.facts.tally.depth_max;
        if u64::from(outstanding) > depth_max.load(std::sync::atomic::Ordering::Relaxed) {
            depth_max.store(u64::from(outstanding), std::sync::atomic::Ordering::Relaxed);
        }
        self.facts.note_start(place, self.engine().core().now());
        match self.accept(place, command) {
            Err(ending) => {
                self.finish(place, ending);
                Next::Started
            }
            Ok(0) => {
                self.arrive(place);
                Next::Started
            }
            Ok(wanted) => Next::Data { wanted },
        }
    }

    /// Answers without taking a place.
    fn refuse(&self, command: &Command<'_>, ending: Ending) {
        add(&self.facts.tally.errors, 1);
        let expected = command.expect_in.max(command.expect_out);
        let residual = Residual::of(0, expected);
        self.tell(command.tag, ending, &mut Segs::new(), residual, false);
    }

    /// Everything that can be decided before data moves. Answers the bytes of write data wanted.
    fn accept(&self, place: u32, command: &Command<'_>) -> Result<u32, Ending> {
        let opcode = command.cdb.first().copied().unwrap_or(0);
        let path = self.path_of(command.lun);
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(place) else {
            return Err(Ending::check(asc::INTERNAL_FAILURE));
        };
        slot.opcode = opcode;
        slot.attribute = command.attribute;
        slot.expect_in = command.expect_in;
        slot.expect_out = command.expect_out;
        slot.wanted = 0;
        slot.plan = Plan::NOTHING;
        slot.path = path.clone();
        drop(slots);
        self.note(place, opcode, command.tag, CommandState::DataWait);
        if let Some(path) = &path
            && path.nexus().is_pending()
            && !ignores_attentions(opcode)
            && let Some(attention) = path.nexus().take()
        {
            self.told(attention);
            return Err(Ending::check(attention));
        }
        let (cdb, info) = Cdb::parse_with_info(command.cdb).map_err(|e| match &path {
            Some(_) => Ending::Check(e.sense()),
            None => Ending::check(asc::LUN_NOT_SUPPORTED),
        })?;
        let plan = match &path {
            Some(path) => self.plan(path, &cdb, info)?,
            None => plan_none(&cdb)?,
        };
        if command.attribute == TaskAttribute::Aca {
            return Err(Ending::check(INVALID_ATTRIBUTE));
        }
        let wrong_way = (plan.out > 0 && command.expect_out == 0 && command.expect_in > 0)
            || (plan.reply > 0 && command.expect_in == 0 && command.expect_out > 0);
        if wrong_way {
            return Err(Ending::check(asc::DATA_PHASE_ERROR));
        }
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(place) else {
            return Err(Ending::check(asc::INTERNAL_FAILURE));
        };
        slot.command = cdb;
        slot.plan = plan;
        slot.wanted = plan.out.min(command.expect_out);
        slot.data_ready = slot.wanted == 0;
        slot.needed = u64::from(plan.out);
        slot.enabled = match &path {
            Some(path) => queue(path, place, command.attribute),
            None => true,
        };
        Ok(slot.wanted)
    }

    fn plan(&self, path: &Path, cdb: &Cdb, _info: &CommandInfo) -> Result<Plan, Ending> {
        let device = path.device();
        let plan = device.handler().plan(cdb, device)?;
        if plan.medium
            && let Some(error) = device.lost()
        {
            let op = if plan.writes { Op::Write } else { Op::Read };
            return Err(ending_of(error, op));
        }
        if plan.writes && is_protected(path) {
            return Err(Ending::check(asc::WRITE_PROTECTED));
        }
        Ok(plan)
    }

    /// All the write data that was wanted. `data` is exchanged for an empty list.
    pub fn data(&self, tag: u32, data: &mut Segs) {
        let mut slots = self.slots.borrow_mut();
        let Some(place) = slots.find(tag) else { return };
        let Some(slot) = slots.get_mut(place) else { return };
        if slot.state != Some(CommandState::DataWait) || slot.data_ready {
            return;
        }
        std::mem::swap(&mut slot.data, data);
        slot.data_ready = true;
        let complete = slot.data.len() == slot.wanted as usize;
        drop(slots);
        if complete {
            self.arrive(place);
        } else {
            self.complete(place, Ending::check(asc::DATA_PHASE_ERROR));
        }
    }

    /// The write data that was wanted does not come.
    pub fn data_failed(&self, tag: u32, why: DataError) {
        let place = self.slots.borrow().find(tag);
        let Some(place) = place else { return };
        let code = match why {
            DataError::Digest => asc::CRC_ERROR,
            DataError::Unexpected => asc::UNEXPECTED_DATA,
            DataError::TooLittle => asc::NOT_ENOUGH_DATA,
            DataError::Sequence => asc::DATA_PHASE_ERROR,
        };
        let waits = {
            let slots = self.slots.borrow();
            slots.get(place).is_some_and(|s| !s.data_ready)
        };
        if waits {
            self.complete(place, Ending::check(code));
        }
    }

    /// The data is there: execute, or wait for one's turn.
    fn arrive(&self, place: u32) {
        let go = {
            let mut slots = self.slots.borrow_mut();
            let Some(slot) = slots.get_mut(place) else { return };
            if !slot.enabled {
                slot.state = Some(CommandState::Dormant);
            }
            slot.enabled && slot.data_ready
        };
        if go {
            self.begin_command(place, false);
        } else {
            self.note_state(place);
        }
    }

    /// Executes. `fed` is set when the command is the first of those that waited for memory.
    fn begin_command(&self, place: u32, fed: bool) -> bool {
        let (plan, expect_in, word) = {
            let slots = self.slots.borrow();
            let Some(slot) = slots.get(place) else { return true };
            (slot.plan, slot.expect_in, word_of(place, slot.generation))
        };
        let want = match plan.run {
            Run::Blocks(b) if b.op == Op::Read => {
                let unit = self.block_bytes(place);
                let cut = plan.reply.min(expect_in);
                // The last block may go out in part; it is read whole.
                cut.checked_next_multiple_of(unit).unwrap_or(plan.reply).min(plan.reply)
            }
            Run::Now => plan.reply.min(expect_in).min(REPLY_MAX),
            _ => 0,
        };
        if let Memory::Wait = self.reserve(place, want, fed) {
            if !fed && let Some(me) = self.handle() {
                self.engine().starve(me, word);
            }
            return false;
        }
        self.set_state(place, CommandState::Executing);
        match plan.run {
            Run::Now => self.begin_now(place),
            Run::Blocks(blocks) => self.begin_blocks(place, blocks),
            Run::Task => self.begin_task(place),
        }
        true
    }

    /// Tries again for a command that waited for memory; false when there still is none.
    pub(crate) fn feed(&self, word: u64) -> bool {
        let place = self.slots.borrow_mut().by_word(word).map(|(place, _)| place);
        match place {
            Some(place) => self.begin_command(place, true),
            None => true,
        }
    }

    fn reserve(&self, place: u32, bytes: u32, fed: bool) -> Memory {
        if bytes == 0 {
            return Memory::Here;
        }
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(place) else { return Memory::Here };
        let first = fed || !self.engine().is_hungry();
        if first && slot.data.grow(self.engine().core().pool(), bytes as usize) {
            return Memory::Here;
        }
        slot.state = Some(CommandState::MemoryWait);
        drop(slots);
        self.note_state(place);
        Memory::Wait
    }

    fn block_bytes(&self, place: u32) -> u32 {
        let slots = self.slots.borrow();
        let path = slots.get(place).and_then(|s| s.path.as_ref());
        path.map_or(512, |p| p.device().block_bytes())
    }

    fn begin_now(&self, place: u32) {
        let (command, path, limit) = {
            let slots = self.slots.borrow();
            let Some(slot) = slots.get(place) else { return };
            (slot.command, slot.path.clone(), slot.plan.reply)
        };
        let map = self.map();
        let mut reply = self.engine().take_scratch();
        let mut ask = Ask {
            command: &command,
            device: path.as_ref().map(|p| &**p.device()),
            nexus: path.as_ref().map(|p| &**p.nexus()),
            read_only: path.as_ref().is_none_or(|p| is_protected(p)),
            port: self.target(),
            luns: &map,
            reply: &mut reply,
            told: None,
        };
        let result = match &path {
            Some(path) => path.device().handler().now(&mut ask),
            None => answer_none(&mut ask),
        };
        let told = ask.told;
        if let Some(attention) = told {
            self.told(attention);
        }
        if matches!(command, Cdb::ReportLuns { .. }) {
            self.told(asc::LUNS_CHANGED);
        }
        let ending = match result {
            Ok(()) => {
                let mut slots = self.slots.borrow_mut();
                if let Some(slot) = slots.get_mut(place) {
                    reply.truncate(limit as usize);
                    slot.needed = reply.len() as u64;
                    let copied = slot.data.copy_from(0, &reply);
                    slot.data.truncate(copied);
                }
                Ending::Good
            }
            Err(sense) => Ending::Check(sense),
        };
        self.engine().put_scratch(reply);
        self.complete(place, ending);
    }

    fn begin_blocks(&self, place: u32, blocks: Blocks) {
        let word = {
            let mut slots = self.slots.borrow_mut();
            let Some(slot) = slots.get_mut(place) else { return };
            let unit = slot.path.as_ref().map_or(512, |p| p.device().block_bytes()) as usize;
            if blocks.op == Op::Write {
                // No byte beyond what the initiator sent reaches the medium, and no part of a
                // block does.
                let whole = slot.data.len() / unit * unit;
                slot.data.truncate(whole);
            } else {
                slot.needed = u64::from(slot.plan.reply);
            }
            word_of(place, slot.generation)
        };
        let Some((device, length)) = ({
            let slots = self.slots.borrow();
            slots
                .get(place)
                .and_then(|s| s.path.as_ref().map(|p| (p.device().clone(), s.data.len() as u64)))
        }) else {
            return;
        };
        if length == 0 {
            return self.complete(place, Ending::Good);
        }
        let mode = device.mode();
        let durable = blocks.fua || (blocks.op == Op::Write && !mode.has(ModeBits::WCE));
        let offset = blocks.lba.saturating_mul(u64::from(device.block_bytes()));
        let origin = Origin(self.number() as u32);
        let end = End::Sink { sink: self.sink.get(), tag: word };
        self.engine().core().submit(device.edge(), end, |bio| {
            bio.op = blocks.op;
            bio.flags = if durable { Flags::FUA } else { Flags::NONE };
            bio.origin = origin;
            bio.offset = offset;
            bio.length = length;
            if let Some(slot) = self.slots.borrow_mut().get_mut(place) {
                slot.asked = length;
                std::mem::swap(&mut slot.data, &mut bio.data);
            }
        });
    }

    fn begin_task(&self, place: u32) {
        let stop = Rc::new(Cell::new(false));
        let job = {
            let mut slots = self.slots.borrow_mut();
            let Some(slot) = slots.get_mut(place) else { return };
            let Some(path) = slot.path.clone() else { return };
            slot.stop = Some(stop.clone());
            let job = Job {
                command: slot.command,
                device: path.device().clone(),
                nexus: path.nexus().clone(),
                data: std::mem::take(&mut slot.data),
                core: self.engine().core().clone(),
                origin: Origin(self.number() as u32),
                stop,
            };
            (job, word_of(place, slot.generation), path)
        };
        let (job, word, path) = job;
        let Some(me) = self.handle() else { return };
        let task = path.device().handler().task(job);
        drop(self.engine().core().reactor().spawn("scsi", async move {
            let ending = task.await;
            let place = me.slots.borrow_mut().by_word(word).map(|(place, _)| place);
            if let Some(place) = place {
                me.complete(place, ending);
            }
        }));
    }

    /// A command has ended below; it is answered, or freed in silence when it was aborted.
    fn complete(&self, place: u32, ending: Ending) {
        let abort = {
            let slots = self.slots.borrow();
            match slots.get(place) {
                Some(slot) => slot.abort,
                None => return,
            }
        };
        match abort {
            Some(how) => self.end_aborted(place, how),
            None => self.finish(place, ending),
        }
    }

    fn finish(&self, place: u32, ending: Ending) {
        let Some((tag, mut data, residual, descriptor)) = self.take_answer(place, &ending) else {
            return;
        };
        self.outstanding.set(self.outstanding.get().saturating_sub(1));
        self.tell(tag, ending, &mut data, residual, descriptor);
        data.clear();
        if let Some(slot) = self.slots.borrow_mut().get_mut(place) {
            slot.data = data;
        }
        self.release(place);
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
        let descriptor = match &slot.path {
            Some(path) => path.device().mode().has(ModeBits::D_SENSE),
            None => false,
        };
        slots.forget_tag(tag);
        Some((tag, data, residual, descriptor))
    }

    fn tell(&self, tag: u32, ending: Ending, data: &mut Segs, residual: Residual, desc: bool) {
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
    fn release(&self, place: u32) {
        let (path, enabled, attribute, waiters) = {
            let mut slots = self.slots.borrow_mut();
            let Some(slot) = slots.get_mut(place) else { return };
            let mut waiters = Vec::new();
            std::mem::swap(&mut waiters, &mut slot.waiters);
            let path = slot.path.take();
            let out = (path, slot.enabled, slot.attribute, waiters);
            slots.free(place);
            out
        };
        self.facts.clear(place);
        self.held.set(self.held.get().saturating_sub(1));
        if let Some(path) = path {
            self.leave(&path, place, enabled, attribute);
        }
        for ticket in waiters {
            self.engine().tm_step(ticket);
        }
        self.end_if_idle();
    }

    /// A command has left its path: those behind it may go.
    fn leave(&self, path: &Path, place: u32, enabled: bool, attribute: TaskAttribute) {
        {
            let mut order = path.order.borrow_mut();
            if enabled {
                order.enabled = order.enabled.saturating_sub(1);
                if attribute == TaskAttribute::Ordered {
                    order.barrier = false;
                }
            } else {
                order.dormant.retain(|p| *p != place);
            }
            if order.dormant.is_empty() {
                return;
            }
        }
        while let Some(next) = self.next_dormant(path) {
            let ready = {
                let mut slots = self.slots.borrow_mut();
                match slots.get_mut(next) {
                    Some(slot) => {
                        slot.enabled = true;
                        slot.data_ready
                    }
                    None => false,
                }
            };
            if ready {
                self.begin_command(next, false);
            }
        }
    }

    /// The next command of a path whose turn has come.
    fn next_dormant(&self, path: &Path) -> Option<u32> {
        let mut order = path.order.borrow_mut();
        let first = *order.dormant.front()?;
        let ordered = {
            let slots = self.slots.borrow();
            slots.get(first).is_some_and(|s| s.attribute == TaskAttribute::Ordered)
        };
        if order.barrier || (ordered && order.enabled > 0) {
            return None;
        }
        order.dormant.pop_front();
        order.enabled += 1;
        order.barrier = ordered;
        Some(first)
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
                if let Some(stop) = &slot.stop {
                    stop.set(true);
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

    fn set_state(&self, place: u32, state: CommandState) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(place) {
            slot.state = Some(state);
        }
        self.note_state(place);
    }

    fn note_state(&self, place: u32) {
        let slots = self.slots.borrow();
        if let Some(slot) = slots.get(place)
            && let Some(state) = slot.state
        {
            self.note(place, slot.opcode, slot.tag, state);
        }
    }

    fn note(&self, place: u32, opcode: u8, tag: u32, state: CommandState) {
        self.facts.note(place, tag, opcode, state);
    }
}

impl Sink for Session {
    fn done(&self, tag: u64, bio: &mut Bio, _core: &Core) {
        let (place, ending) = {
            let mut slots = self.slots.borrow_mut();
            let Some((place, slot)) = slots.by_word(tag) else { return };
            std::mem::swap(&mut slot.data, &mut bio.data);
            (place, ending_of_blocks(slot, bio))
        };
        self.complete(place, ending);
    }
}

/// How a plain read or write ended.
fn ending_of_blocks(slot: &Slot, bio: &Bio) -> Ending {
    match bio.status {
        Ok(()) if bio.completed < slot.asked => Ending::check(asc::LBA_OUT_OF_RANGE),
        Ok(()) => Ending::Good,
        Err(e) => match (&slot.path, slot.plan.run) {
            (Some(path), Run::Blocks(b)) => ending_at(e, bio.op, b.lba, slot.asked, path.device()),
            _ => ending_of(e, bio.op),
        },
    }
}

/// Cuts the data to what the initiator expects and computes the residual.
fn answer_of(slot: &Slot, ending: &Ending, data: &mut Segs) -> Residual {
    let inward = slot.expect_in > 0 || slot.plan.reply > 0;
    if *ending != Ending::Good {
        data.clear();
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

/// Puts a command in the order of its path; true when it may execute as soon as its data is
/// there.
fn queue(path: &Path, place: u32, attribute: TaskAttribute) -> bool {
    let mut order = path.order.borrow_mut();
    let enabled = match attribute {
        TaskAttribute::HeadOfQueue => true,
        TaskAttribute::Ordered => order.enabled == 0 && order.dormant.is_empty(),
        _ => !order.barrier && order.dormant.is_empty(),
    };
    if enabled {
        order.enabled += 1;
        order.barrier |= attribute == TaskAttribute::Ordered;
    } else {
        order.dormant.push_back(place);
    }
    enabled
}

/// No write may pass.
fn is_protected(path: &Path) -> bool {
    let device: &Arc<crate::device::Device> = path.device();
    path.is_read_only() || device.spec().read_only || device.mode().has(ModeBits::SWP)
}
