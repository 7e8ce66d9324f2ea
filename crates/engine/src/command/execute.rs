//! Running commands: from arrival to answer. States and invariants are drawn in `command.rs`.
//!
//! The way of a READ or WRITE allocates nothing in steady state: places, tag table, scatter lists
//! and Bios are recycled, and the answer from below finds its place by a word.

use std::rc::Rc;
use std::sync::Arc;

use bio::{End, Flags, Op, Origin, Segs};
use wire::scsi::{Asc, Command as Cdb, Key, Status, asc};

use crate::command::buffers::{Eater, data_max};
use crate::command::gate;
use crate::command::spc;
use crate::command::status::{Ending, ending_of};
use crate::command::{Command, CommandState, Next, TaskAttribute, word_of};
use crate::handlers::{
    Ask, Blocks, Job, Medium, Plan, REPLY_MAX, Run, Tie, answer_none, parse, parse_none, plan_none,
};
use crate::nexus::transport::{DataError, Residual};
use crate::nexus::unit_attention::{flags, sense_of};
use crate::nexus::{Path, Session};
use crate::registry::{DEPTH_MAX, add};
use crate::task_set::Span;
use crate::task_set::aca;
use crate::unit::ModeBits;

/// INVALID MESSAGE ERROR: a task attribute that cannot be here.
const INVALID_ATTRIBUTE: Asc = Asc::new(Key::AbortedCommand, 0x49, 0x00);

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
            // Should the session end by it, then after this command.
            self.held.set(self.held.get() + 1);
            self.refresh();
            self.held.set(self.held.get() - 1);
        }
        if self.is_closing() {
            if let Some(transport) = self.transport() {
                transport.discard(command.tag);
            }
            self.end_if_idle();
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
        let absent = self.absent(path.as_ref(), command.lun);
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(place) else {
            return Err(Ending::check(asc::INTERNAL_FAILURE));
        };
        slot.opcode = opcode;
        slot.attribute = command.attribute;
        slot.expect_in = command.expect_in;
        slot.expect_out = command.expect_out;
        slot.wanted = 0;
        slot.needed = 0;
        slot.plan = Plan::NOTHING;
        slot.bars = 0;
        slot.path = path.clone();
        slot.absent = absent;
        slot.origin = path.as_ref().map_or_else(Origin::default, |p| self.origin_of(p));
        slot.naca = aca::naca(command.cdb);
        drop(slots);
        self.note(place, opcode, command.tag, CommandState::DataWait);
        if let Some(path) = &path {
            self.note_path(path);
        }
        let word = path.as_ref().map_or(0, |p| self.word_of(p));
        let runs = match &path {
            Some(path) if word & flags::ACA != 0 => aca::admit(path, command)?,
            _ => false,
        };
        if runs && let Some(slot) = self.slots.borrow_mut().get_mut(place) {
            slot.aca = true;
        }
        if word != 0
            && let Some(path) = &path
            && let Some(attention) = self.attention(path, opcode)
        {
            return Err(Ending::Check(sense_of(attention, Some(path.device()))));
        }
        let parsed = match &path {
            Some(path) => parse(command.cdb, path.device()),
            None => parse_none(command.cdb, absent),
        };
        let (cdb, info) = parsed.map_err(Ending::Check)?;
        if word != 0 {
            gate::rights(word, info.access, command.cdb)?;
            if word & flags::STRANGER != 0
                && let Some(path) = &path
            {
                self.introduce(path, info.access, command.cdb)?;
            }
        }
        let plan = match &path {
            Some(path) => self.plan(path, &cdb)?,
            None => plan_none(&cdb, absent)?,
        };
        if command.attribute == TaskAttribute::Aca && !runs {
            return Err(Ending::check(INVALID_ATTRIBUTE));
        }
        if let Err(ending) = expects_enough(&cdb, &plan, command) {
            if let Some(slot) = self.slots.borrow_mut().get_mut(place) {
                slot.needed = u64::from(plan.out);
            }
            return Err(ending);
        }
        let simple = command.attribute == TaskAttribute::Simple;
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(place) else {
            return Err(Ending::check(asc::INTERNAL_FAILURE));
        };
        slot.command = cdb;
        slot.bars = gate::barred_late(gate::barred(info.access, command.cdb), &plan);
        slot.plan = plan;
        slot.wanted = plan.out.min(command.expect_out);
        slot.data_ready = slot.wanted == 0;
        slot.needed = u64::from(if plan.up_to { slot.wanted } else { plan.out });
        slot.enabled = true;
        let wanted = slot.wanted;
        drop(slots);
        if (word & flags::ORDER != 0 || !simple || plan.exclusive)
            && let Some(path) = &path
            && !(simple && gate::ignores_attentions(opcode))
        {
            let enabled = self.enter(place, path, &plan, command.attribute);
            if let Some(slot) = self.slots.borrow_mut().get_mut(place) {
                slot.enabled = enabled;
            }
        }
        Ok(wanted)
    }

    /// What a command needs, or why it cannot run.
    fn plan(&self, path: &Path, cdb: &Cdb) -> Result<Plan, Ending> {
        if path.is_read_only() && !self.map.borrow().read_only_reserves() {
            gate::spare_others(cdb)?;
        }
        plan(path, cdb)
    }

    /// All the write data that was wanted. `data` is exchanged for an empty list.
    pub fn data(&self, tag: u32, data: &mut Segs) {
        if self.is_stale() {
            self.refresh();
        }
        let mut slots = self.slots.borrow_mut();
        let Some(place) = slots.find(tag) else { return };
        let Some(slot) = slots.get_mut(place) else { return };
        if slot.state != Some(CommandState::DataWait) || slot.data_ready {
            return;
        }
        std::mem::swap(&mut slot.data, data);
        slot.data_ready = true;
        slot.lent = slot.data.len();
        self.lent.set(self.lent.get() + slot.lent);
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
            DataError::NoMemory => asc::NONE,
        };
        let ending = match why {
            DataError::NoMemory => Ending::Status(Status::Busy),
            _ => Ending::check(code),
        };
        let waits = {
            let slots = self.slots.borrow();
            slots.get(place).is_some_and(|s| !s.data_ready)
        };
        if waits {
            self.complete(place, ending);
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
    pub(crate) fn begin_command(&self, place: u32, fed: bool) -> bool {
        let (plan, expect_in, word, barred) = {
            let slots = self.slots.borrow();
            let Some(slot) = slots.get(place) else { return true };
            if slot.abort.is_some() {
                // Doomed: whoever said so ends it in a moment.
                return true;
            }
            let barred = slot.path.as_ref().map_or(0, |p| p.nexus().flags() & slot.bars);
            (slot.plan, slot.expect_in, word_of(place, slot.generation), barred)
        };
        if barred != 0 {
            // Reserved while it waited for data, its turn or memory: what runs after the answer
            // to a reservation of another respects it.
            self.complete(place, gate::late(barred));
            return true;
        }
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
        if let Run::Blocks(_) = plan.run
            && !self.take_off(place)
        {
            return true;
        }
        self.set_state(place, CommandState::Executing);
        match plan.run {
            Run::Now => self.begin_now(place),
            Run::Blocks(blocks) => self.begin_blocks(place, blocks),
            Run::Task => self.begin_task(place),
        }
        true
    }

    fn reserve(&self, place: u32, bytes: u32, fed: bool) -> Memory {
        if bytes == 0 {
            return Memory::Here;
        }
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(place) else { return Memory::Here };
        let first = fed || !self.engine().is_hungry() && !self.is_over();
        if first && slot.data.grow(self.engine().core().pool(), bytes as usize) {
            slot.lent = bytes as usize;
            self.lent.set(self.lent.get() + slot.lent);
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
        let (command, path, absent, limit) = {
            let slots = self.slots.borrow();
            let Some(slot) = slots.get(place) else { return };
            (slot.command, slot.path.clone(), slot.absent, slot.plan.reply)
        };
        let (map, engine) = (self.map(), self.engine().clone());
        if let (Some(path), Cdb::RequestSense { .. }) = (&path, &command) {
            self.lend_attention(path);
        }
        let mut reply = self.engine().take_scratch();
        let mut ask = Ask {
            command: &command,
            device: path.as_ref().map(|p| p.device()),
            nexus: path.as_ref().map(|p| p.nexus()),
            read_only: path.as_ref().is_none_or(|p| is_protected(p)),
            port: self.target(),
            who: self.port(),
            luns: &map,
            registry: engine.registry(),
            core: engine.core(),
            reply: &mut reply,
            told: None,
        };
        let result = match &path {
            Some(path) => match spc::find(&command) {
                Some(own) => own.now(&mut ask),
                None => path.device().handler().now(&mut ask),
            },
            None => answer_none(&mut ask, absent),
        };
        let told = ask.told;
        if let Some(attention) = told {
            self.told(attention);
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

    pub(crate) fn begin_blocks(&self, place: u32, blocks: Blocks) {
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
        let Some((path, length, origin)) = ({
            let slots = self.slots.borrow();
            slots.get(place).and_then(|s| Some((s.path.clone()?, s.data.len() as u64, s.origin)))
        }) else {
            return;
        };
        let device = path.device();
        if length == 0 {
            return self.complete(place, Ending::Good);
        }
        if let Some(error) = device.lost() {
            return self.complete(place, ending_of(error, blocks.op));
        }
        if blocks.op == Op::Write {
            device.watch().before_write(blocks.lba, u64::from(blocks.blocks));
        }
        let mode = device.mode();
        let durable = blocks.fua || (blocks.op == Op::Write && !mode.has(ModeBits::WCE));
        let offset = blocks.lba.saturating_mul(u64::from(device.block_bytes()));
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
        let Some(me) = self.handle() else { return };
        let word = {
            let slots = self.slots.borrow();
            slots.get(place).map_or(u64::MAX, |s| word_of(place, s.generation))
        };
        let tie = Rc::new(Tie { session: Rc::downgrade(&me), word, ..Tie::default() });
        let Some(job) = self.job(place, &tie) else { return };
        let task = match spc::find(&job.command) {
            Some(own) => own.task(job),
            None => job.device.handler().task(job),
        };
        drop(self.engine().core().reactor().spawn("scsi", async move {
            let ending = task.await;
            let place = me.slots.borrow_mut().by_word(word).map(|(place, slot)| {
                let mut reply = tie.reply.take();
                if slot.plan.reply > 0 {
                    reply.truncate(slot.plan.reply as usize);
                    slot.needed = reply.len() as u64;
                    slot.data = reply;
                }
                place
            });
            if let Some(place) = place {
                me.complete(place, ending);
            }
        }));
    }

    /// What the conversation of a command gets into its hands.
    fn job(&self, place: u32, tie: &Rc<Tie>) -> Option<Job> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(place)?;
        let path = slot.path.clone()?;
        slot.tie = Some(tie.clone());
        let medium = Medium {
            device: path.device().clone(),
            core: self.engine().core().clone(),
            origin: slot.origin,
            tie: tie.clone(),
            seat: Some(path.seat().clone()),
            engine: Some(self.engine().clone()),
            may_claim: slot.plan.span() == Span::Nothing,
        };
        Some(Job {
            command: slot.command,
            device: path.device().clone(),
            nexus: path.nexus().clone(),
            data: std::mem::take(&mut slot.data),
            limit: slot.plan.reply,
            read_only: is_protected(&path),
            luns: self.map(),
            port: self.target().clone(),
            registry: self.engine().registry().clone(),
            engine: self.engine().clone(),
            medium,
        })
    }

    pub(crate) fn set_state(&self, place: u32, state: CommandState) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(place) {
            slot.state = Some(state);
        }
        self.note_state(place);
    }

    pub(crate) fn note_state(&self, place: u32) {
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

impl Eater for Session {
    fn feed(&self, word: u64) -> bool {
        let place = self.slots.borrow_mut().by_word(word).map(|(place, _)| place);
        match place {
            Some(place) => self.begin_command(place, true),
            None => true,
        }
    }

    fn is_over(&self) -> bool {
        self.is_over_of(self.engine().core().pool().usage().limit_bytes)
    }

    fn starved(&self, word: u64) {
        let place = self.slots.borrow_mut().by_word(word).map(|(place, _)| place);
        if let Some(place) = place {
            self.complete(place, Ending::Status(Status::Busy));
        }
    }
}

impl Session {
    /// It holds more than its share of `limit` bytes (E7).
    fn is_over_of(&self, limit: usize) -> bool {
        let used = self.engine().core().pool().usage().used_bytes;
        let free = limit.saturating_sub(used);
        // What a session holds is a part of what is out.
        used > free && self.holds() > free
    }

    /// It holds more than its share of what write data may have: its commands wait for memory, and
    /// those of others go past them (E7).
    pub fn is_over_data(&self) -> bool {
        self.is_over_of(data_max(self.engine().core().pool().usage().limit_bytes))
    }
}

/// The initiator is ready to send what the command takes. Of less, GOOD would vouch for bytes that
/// are discarded: whole blocks of a write can be carried out (RFC 7143 11.4.5.2: residual
/// overflow), a part of a block or of a parameter list cannot.
fn expects_enough(cdb: &Cdb, plan: &Plan, command: &Command<'_>) -> Result<(), Ending> {
    let expect_out = command.expect_out;
    // One that would send to an initiator which wants to send itself moves nothing: GOOD with an
    // overflow. One that would write nothing of what it should must not say GOOD.
    if plan.out > 0 && expect_out == 0 && command.expect_in > 0 {
        return Err(Ending::check(asc::DATA_PHASE_ERROR));
    }
    if plan.exact && expect_out != plan.out {
        return Err(Ending::check(asc::INVALID_FIELD_IN_CDB));
    }
    if plan.up_to || expect_out >= plan.out {
        return Ok(());
    }
    match cdb {
        // With protection information a block comes with its tuple.
        Cdb::Write(extent) | Cdb::WriteVerify { extent, .. }
            if extent.blocks > 0 && expect_out.is_multiple_of(plan.out / extent.blocks) =>
        {
            Ok(())
        }
        _ => Err(Ending::check(asc::INVALID_FIELD_IN_INFORMATION_UNIT)),
    }
}

/// No write may pass.
fn is_protected(path: &Path) -> bool {
    let device: &Arc<crate::unit::Device> = path.device();
    path.is_read_only() || device.spec().read_only || device.mode().has(ModeBits::SWP)
}

/// What a command needs, or why it cannot run at this unit through this nexus.
fn plan(path: &Path, cdb: &Cdb) -> Result<Plan, Ending> {
    let device = path.device();
    let plan = match spc::find(cdb) {
        Some(own) => own.plan(cdb, device)?,
        None => device.handler().plan(cdb, device)?,
    };
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
