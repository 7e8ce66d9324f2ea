//! Execution of commands: from arrival to answer. States and invariants are drawn in
//! `command/mod.rs`.
//!
//! The path of a READ or WRITE allocates nothing in steady state: places, tag table, scatter lists
//! and Bios are recycled, and the answer from below finds its place by a word.

use std::cell::RefMut;
use std::rc::Rc;
use std::sync::Arc;

use bio::{End, Flags, Op, Origin, Segs};
use wire::scsi::{Asc, Command as Cdb, Key, Status, asc};

use crate::command::none::{answer_none, parse_none, plan_none};
use crate::command::serve::parse;
use crate::command::spc;
use crate::flags;
use crate::gate;
use crate::handlers::{ImmediateCommand, REPLY_MAX};
use crate::job::{Job, Medium};
use crate::nexus::buffers::{MemoryWaiter, data_max};
use crate::nexus::slots::{JobState, Slot, Slots, slot_id_of};
use crate::nexus::transport::{Command, DataError, Next, Residual};
use crate::nexus::{ItNexus, Path};
use crate::plan::{Blocks, Plan, Run};
use crate::status::{Ending, ending_of};
use crate::task::set::Span;
use crate::task::{CommandState, DEPTH_MAX, TaskAttribute};
use crate::task_set::aca;
use crate::unit::ModeBits;
use crate::unit::counters::add;
use crate::unit::unit_attention::sense_of;

/// INVALID MESSAGE ERROR: a task attribute that cannot be here.
const INVALID_ATTRIBUTE: Asc = Asc::new(Key::AbortedCommand, 0x49, 0x00);

impl ItNexus {
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
        add(&self.facts.session_counters.commands, 1);
        if self.outstanding.get() >= DEPTH_MAX {
            self.refuse(command, Ending::Status(Status::TaskSetFull));
            return Next::Started;
        }
        let taken = self.slots.borrow_mut().take(command.tag, CommandState::DataWait).map(
            |(place, slot)| {
                slot.begin(command);
                place
            },
        );
        let Some(place) = taken else {
            self.refuse(command, Ending::check(asc::OVERLAPPED_COMMANDS));
            return Next::Started;
        };
        let outstanding = self.outstanding.get() + 1;
        self.outstanding.set(outstanding);
        self.held.set(self.held.get() + 1);
        let depth_max = &self.facts.session_counters.depth_max;
        if u64::from(outstanding) > depth_max.load(std::sync::atomic::Ordering::Relaxed) {
            depth_max.store(u64::from(outstanding), std::sync::atomic::Ordering::Relaxed);
        }
        self.facts.note_start(place, self.engine().core().now());
        match self.accept(place, command) {
            Err(ending) => {
                self.finish(self.slots.borrow_mut(), place, ending);
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
        add(&self.facts.session_counters.errors, 1);
        let expected = command.expect_in.max(command.expect_out);
        let residual = Residual::of(0, expected);
        self.send_response(command.tag, ending, &mut Segs::new(), residual, false);
    }

    /// Everything that can be decided before data moves. Answers the bytes of write data wanted.
    fn accept(&self, place: u32, command: &Command<'_>) -> Result<u32, Ending> {
        let opcode = command.cdb.first().copied().unwrap_or(0);
        let path = self.path_of(command.lun);
        let absent = self.missing_lun_sense(path.as_ref(), command.lun);
        if let Some(slot) = self.slots.borrow_mut().get_mut(place) {
            slot.path = path.clone();
            slot.missing_lun_sense = absent;
            slot.origin = path.as_ref().map_or_else(Origin::default, |p| self.origin_of(p));
            self.note(place, slot);
        }
        if let Some(path) = &path {
            self.note_path(path);
        }
        let word = path.as_ref().map_or(0, |p| self.flags_of(p));
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
            if word & flags::IDENTITY_UNKNOWN != 0
                && let Some(path) = &path
            {
                self.check_identity_known(path, info.access, command.cdb)?;
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
                slot.needed = u64::from(plan.least_out());
            }
            return Err(ending);
        }
        let simple = command.attribute == TaskAttribute::Simple;
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(place) else {
            return Err(Ending::check(asc::INTERNAL_FAILURE));
        };
        slot.command = cdb;
        slot.blocking_flags =
            gate::late_blocking_flags(gate::blocking_flags(info.access, command.cdb), &plan);
        slot.plan = plan;
        slot.wanted = plan.out.min(command.expect_out);
        slot.data_ready = slot.wanted == 0;
        slot.needed = u64::from(if plan.up_to.is_some() { slot.wanted } else { plan.out });
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

    /// The needs of a command, or why it cannot run.
    fn plan(&self, path: &Path, cdb: &Cdb) -> Result<Plan, Ending> {
        if self.lacks_write_access(path) {
            gate::check_without_write_access(cdb)?;
        }
        plan(path, cdb)
    }

    /// Nothing that arrives on the path may affect what others do at the unit.
    pub(crate) fn lacks_write_access(&self, path: &Path) -> bool {
        path.is_read_only() && !self.map.borrow().read_only_reserves()
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
        slot.buffer_bytes = slot.data.len();
        self.buffer_bytes.set(self.buffer_bytes.get() + slot.buffer_bytes);
        let complete = slot.data.len() == slot.wanted as usize;
        drop(slots);
        if complete {
            self.arrive(place);
        } else {
            self.complete(place, Ending::check(asc::DATA_PHASE_ERROR));
        }
    }

    /// The expected write data does not arrive.
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
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(place) else { return };
        if !slot.enabled {
            slot.state = Some(CommandState::Dormant);
        }
        if slot.enabled && slot.data_ready {
            self.start(slots, place, false);
        } else {
            self.note(place, slot);
        }
    }

    /// Executes what may: the first of those that waited for memory when `fed` is set. False when
    /// there is no memory for it.
    pub(crate) fn begin_command(&self, place: u32, fed: bool) -> bool {
        self.start(self.slots.borrow_mut(), place, fed)
    }

    fn start(&self, mut slots: RefMut<'_, Slots>, place: u32, fed: bool) -> bool {
        let Some(slot) = slots.get_mut(place) else { return true };
        if slot.abort.is_some() {
            // Doomed: its abort ends it in a moment.
            return true;
        }
        let barred = slot.path.as_ref().map_or(0, |p| p.nexus().flags() & slot.blocking_flags);
        if barred != 0 {
            // Reserved while it waited for data, its turn or memory: what runs after the answer
            // to a reservation of another respects it.
            self.end(slots, place, gate::blocked_ending(barred));
            return true;
        }
        if !self.reserve(slot, fed) {
            slot.state = Some(CommandState::MemoryWait);
            self.note(place, slot);
            let word = slot_id_of(place, slot.generation);
            drop(slots);
            if !fed && let Some(me) = self.handle() {
                self.engine().enqueue_memory_waiter(me, word);
            }
            return false;
        }
        let run = slot.plan.run;
        if let Run::Blocks(_) = run
            && let Some(queue) = self.dispatch(place, slot)
        {
            drop(slots);
            self.enqueue_command(queue);
            return true;
        }
        slot.state = Some(CommandState::Executing);
        self.note(place, slot);
        if let Run::Blocks(blocks) = run {
            let launch = DispatchedCommand::of(place, slot, blocks);
            drop(slots);
            self.issue_request(place, launch);
            return true;
        }
        drop(slots);
        match run {
            Run::Task => self.begin_task(place),
            Run::Now | Run::Blocks(_) => self.begin_now(place),
        }
        true
    }

    /// Takes the buffers that a command reads into; false when there are too few.
    fn reserve(&self, slot: &mut Slot, fed: bool) -> bool {
        let (plan, expect_in) = (&slot.plan, slot.expect_in);
        let bytes = match plan.run {
            Run::Blocks(b) if b.op == Op::Read => {
                let unit = slot.block_bytes();
                let cut = plan.reply.min(expect_in);
                // The last block may be sent in part; it is read whole.
                cut.checked_next_multiple_of(unit).unwrap_or(plan.reply).min(plan.reply)
            }
            Run::Now => plan.reply.min(expect_in).min(REPLY_MAX),
            _ => 0,
        } as usize;
        if bytes == 0 {
            return true;
        }
        let first = fed || !self.engine().has_memory_waiters() && !self.is_over_share();
        if !first || !slot.data.grow(self.engine().core().pool(), bytes) {
            return false;
        }
        slot.buffer_bytes = bytes;
        self.buffer_bytes.set(self.buffer_bytes.get() + bytes);
        true
    }

    fn begin_now(&self, place: u32) {
        let (command, path, absent, limit) = {
            let slots = self.slots.borrow();
            let Some(slot) = slots.get(place) else { return };
            (slot.command, slot.path.clone(), slot.missing_lun_sense, slot.plan.reply)
        };
        if let (Some(path), Cdb::RequestSense { .. }) = (&path, &command) {
            self.move_attention(path);
        }
        // Handlers reach no session: none takes over another map meanwhile.
        let (map, engine) = (self.map.borrow(), self.engine());
        let mut reply = self.engine().take_scratch();
        let mut ask = ImmediateCommand {
            command: &command,
            device: path.as_ref().map(|p| p.device()),
            nexus: path.as_ref().map(|p| p.nexus()),
            read_only: path.as_ref().is_none_or(|p| is_protected(p)),
            port: self.target(),
            initiator_port: self.port(),
            luns: &map,
            registry: engine.registry(),
            core: engine.core(),
            reply: &mut reply,
            zeroes: 0,
            reported_attention: None,
        };
        let result = match &path {
            Some(path) => match spc::find(&command) {
                Some(own) => own.now(&mut ask),
                None => path.device().handler().now(&mut ask),
            },
            None => answer_none(&mut ask, absent),
        };
        let (told, zeroes) = (ask.reported_attention, ask.zeroes);
        drop(map);
        if let Some(attention) = told {
            self.attention_reported(attention);
        }
        let ending = match result {
            Ok(()) => {
                let mut slots = self.slots.borrow_mut();
                if let Some(slot) = slots.get_mut(place) {
                    reply.truncate(limit as usize);
                    let zeroes = zeroes.min(limit as usize - reply.len());
                    // Without a reply the residual is that of the write data.
                    if limit > 0 {
                        slot.needed = (reply.len() + zeroes) as u64;
                    }
                    let copied = slot.data.copy_from(0, &reply);
                    let filled = slot.data.fill(copied, zeroes, 0);
                    slot.data.truncate(copied + filled);
                }
                Ending::Good
            }
            Err(sense) => Ending::Check(sense),
        };
        self.engine().put_scratch(reply);
        self.complete(place, ending);
    }

    /// Sends a plain read or write below. No cell of the session is borrowed (N2).
    pub(crate) fn issue_request(&self, place: u32, launch: DispatchedCommand) {
        let DispatchedCommand { slot_id: word, path, origin, blocks, mut data } = launch;
        let Some(path) = path else { return };
        let (device, length) = (path.device(), data.len() as u64);
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
            std::mem::swap(&mut data, &mut bio.data);
        });
    }

    fn begin_task(&self, place: u32) {
        let Some(me) = self.handle() else { return };
        let word = {
            let slots = self.slots.borrow();
            slots.get(place).map_or(u64::MAX, |s| slot_id_of(place, s.generation))
        };
        let tie =
            Rc::new(JobState { session: Rc::downgrade(&me), slot_id: word, ..JobState::default() });
        let Some(job) = self.job(place, &tie) else { return };
        let task = match spc::find(&job.command) {
            Some(own) => own.task(job),
            None => job.device.handler().task(job),
        };
        drop(self.engine().core().reactor().spawn("scsi", async move {
            let ending = task.await;
            let place = me.slots.borrow_mut().by_slot_id(word).map(|(place, slot)| {
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

    /// Context of the conversation of a command.
    fn job(&self, place: u32, tie: &Rc<JobState>) -> Option<Job> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(place)?;
        let path = slot.path.clone()?;
        slot.job_state = Some(tie.clone());
        let medium = Medium {
            device: path.device().clone(),
            core: self.engine().core().clone(),
            origin: slot.origin,
            state: tie.clone(),
            qos_client: Some(path.qos_client().clone()),
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

    /// Shows a command's state in lists.
    #[inline]
    pub(crate) fn note(&self, place: u32, slot: &Slot) {
        if let Some(state) = slot.state {
            self.facts.note(place, slot.tag, slot.opcode, state);
        }
    }
}

/// The parts of a plain read or write that the layers below need, taken out of its place.
pub(crate) struct DispatchedCommand {
    /// Place and generation, for the answer (C3).
    slot_id: u64,
    path: Option<Rc<Path>>,
    origin: Origin,
    blocks: Blocks,
    data: Segs,
}

impl DispatchedCommand {
    pub(crate) fn of(place: u32, slot: &mut Slot, blocks: Blocks) -> DispatchedCommand {
        if blocks.op == Op::Write {
            // No byte beyond the sent data reaches the medium, and no part of a block does.
            let unit = slot.block_bytes() as usize;
            let whole = slot.data.len() / unit * unit;
            slot.data.truncate(whole);
        } else {
            slot.needed = u64::from(slot.plan.reply);
        }
        slot.requested_bytes = slot.data.len() as u64;
        DispatchedCommand {
            slot_id: slot_id_of(place, slot.generation),
            path: slot.path.clone(),
            origin: slot.origin,
            blocks,
            data: std::mem::take(&mut slot.data),
        }
    }
}

impl MemoryWaiter for ItNexus {
    fn grant(&self, word: u64) -> bool {
        let place = self.slots.borrow_mut().by_slot_id(word).map(|(place, _)| place);
        match place {
            Some(place) => self.begin_command(place, true),
            None => true,
        }
    }

    fn is_over_share(&self) -> bool {
        self.is_over_share_of(self.engine().core().pool().usage().limit_bytes)
    }

    fn wait_expired(&self, word: u64) {
        let place = self.slots.borrow_mut().by_slot_id(word).map(|(place, _)| place);
        if let Some(place) = place {
            self.complete(place, Ending::Status(Status::Busy));
        }
    }
}

impl ItNexus {
    /// It holds more than its share of `limit` bytes (E7).
    fn is_over_share_of(&self, limit: usize) -> bool {
        let used = self.engine().core().pool().usage().used_bytes;
        let free = limit.saturating_sub(used);
        // The memory of a session is a part of the used memory.
        used > free && self.holds() > free
    }

    /// It holds more than its share of the memory for write data: its commands wait for memory, and
    /// those of others pass them (E7).
    pub fn is_over_data_share(&self) -> bool {
        self.is_over_share_of(data_max(self.engine().core().pool().usage().limit_bytes))
    }
}

/// Checks that the initiator sends the data that the command takes. With less data, GOOD would
/// vouch for bytes that are discarded: whole blocks of a write can be carried out (RFC 7143
/// 11.4.5.2: residual overflow), a part of a block or of a parameter list cannot.
fn expects_enough(cdb: &Cdb, plan: &Plan, command: &Command<'_>) -> Result<(), Ending> {
    let expect_out = command.expect_out;
    // A read from an initiator that offers only write data moves nothing: GOOD with an overflow. A
    // write from an initiator that expects only read data must not end GOOD.
    if plan.out > 0 && expect_out == 0 && command.expect_in > 0 {
        return Err(Ending::check(asc::DATA_PHASE_ERROR));
    }
    if plan.exact && expect_out != plan.out {
        return Err(Ending::check(asc::INVALID_FIELD_IN_CDB));
    }
    if expect_out >= plan.least_out() {
        return Ok(());
    }
    match cdb {
        // With protection information a block arrives with its tuple.
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

/// The needs of a command, or why it cannot run at this unit through this nexus.
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
