//! Execution of commands: from arrival to answer. States and invariants are drawn in
//! `command/mod.rs`.
//!
//! The path of a READ or WRITE allocates nothing in steady state. Places, tag table, scatter lists
//! and Bios are recycled, and the answer from below finds its place by a word. A command's slot is
//! looked up when the command arrives and when it has ended below, and is passed on in between.

use std::rc::Rc;
use std::sync::Arc;

use bio::{End, Flags, Op, Origin, Segs};
use wire::scsi::{Asc, Command as Cdb, CommandInfo, Key, Status, asc};

use crate::command::admission::QueuedCommand;
use crate::command::none::{answer_none, parse_none, plan_none};
use crate::command::serve::parse;
use crate::command::spc;
use crate::flags;
use crate::gate;
use crate::handlers::{ImmediateCommand, REPLY_MAX};
use crate::job::{Job, Medium};
use crate::nexus::buffers::{MemoryWaiter, data_max};
use crate::nexus::slots::{JobState, Slot, slot_id_of};
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
        let mut slots = self.slots.borrow_mut();
        let Some((place, slot)) = slots.take(command.tag, CommandState::DataWait) else {
            drop(slots);
            self.refuse(command, Ending::check(asc::OVERLAPPED_COMMANDS));
            return Next::Started;
        };
        self.count_arrival(place);
        slot.begin(command);
        match self.accept(slot, command) {
            Err(ending) => {
                drop(slots);
                self.complete(place, ending);
            }
            Ok(false) if slot.data_ready => {
                let step = self.arrive(place, slot);
                drop(slots);
                self.carry_out(place, step, false);
            }
            Ok(ordered) => {
                self.note(place, slot);
                let wanted = slot.wanted;
                drop(slots);
                if ordered {
                    self.enter(place);
                }
                if wanted > 0 {
                    return Next::Data { wanted };
                }
                self.arrive_at(place);
            }
        }
        Next::Started
    }

    /// Counts a command that has taken a place.
    #[inline]
    fn count_arrival(&self, place: u32) {
        let outstanding = self.outstanding.get() + 1;
        self.outstanding.set(outstanding);
        self.held.set(self.held.get() + 1);
        let depth_max = &self.facts.session_counters.depth_max;
        if u64::from(outstanding) > depth_max.load(std::sync::atomic::Ordering::Relaxed) {
            depth_max.store(u64::from(outstanding), std::sync::atomic::Ordering::Relaxed);
        }
        self.facts.note_start(place, self.engine().core().now());
    }

    /// Answers without taking a place.
    fn refuse(&self, command: &Command<'_>, ending: Ending) {
        add(&self.facts.session_counters.errors, 1);
        let expected = command.expect_in.max(command.expect_out);
        let residual = Residual::of(0, expected);
        self.send_response(command.tag, ending, &mut Segs::new(), residual, false);
    }

    /// Everything that can be decided before data moves. True when the command has to enter the
    /// order of its unit.
    fn accept(&self, slot: &mut Slot, command: &Command<'_>) -> Result<bool, Ending> {
        let opcode = slot.opcode;
        let Some(path) = self.arrival_path(command.lun) else {
            return self.accept_without_path(slot, command);
        };
        slot.origin = self.origin_of(&path);
        let path: &Path = slot.path.insert(path);
        let word = self.flags_of(path);
        if word & flags::ACA != 0 {
            slot.aca = aca::admit(path, command)?;
        }
        if word != 0
            && let Some(attention) = self.attention(path, opcode)
        {
            return Err(Ending::Check(sense_of(attention, Some(path.device()))));
        }
        let (cdb, info) = parse(command.cdb, path.device()).map_err(Ending::Check)?;
        if word != 0 {
            gate::rights(word, info.access, command.cdb)?;
            if word & flags::IDENTITY_UNKNOWN != 0 {
                self.check_identity_known(path, info.access, command.cdb)?;
            }
        }
        let plan = self.plan(path, &cdb)?;
        let simple = command.attribute == TaskAttribute::Simple;
        let ordered = (word & flags::ORDER != 0 || !simple || plan.exclusive)
            && !(simple && gate::ignores_attentions(opcode));
        take_plan(slot, command, (cdb, info), plan)?;
        Ok(ordered)
    }

    /// The same at a LUN that is not mapped, where no order is kept.
    #[cold]
    fn accept_without_path(&self, slot: &mut Slot, command: &Command<'_>) -> Result<bool, Ending> {
        let absent = self.missing_lun_sense(command.lun);
        slot.missing_lun_sense = absent;
        slot.origin = Origin::default();
        let (cdb, info) = parse_none(command.cdb, absent).map_err(Ending::Check)?;
        let plan = plan_none(&cdb, absent)?;
        take_plan(slot, command, (cdb, info), plan)?;
        Ok(false)
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
        let Some((place, slot)) = slots.by_tag(tag) else { return };
        if slot.state != Some(CommandState::DataWait) || slot.data_ready {
            return;
        }
        std::mem::swap(&mut slot.data, data);
        slot.data_ready = true;
        slot.buffer_bytes = slot.data.len();
        self.buffer_bytes.set(self.buffer_bytes.get() + slot.buffer_bytes);
        let step = match slot.data.len() == slot.wanted as usize {
            true => self.arrive(place, slot),
            false => Step::End(Ending::check(asc::DATA_PHASE_ERROR)),
        };
        drop(slots);
        self.carry_out(place, step, false);
    }

    /// The expected write data does not arrive.
    pub fn data_failed(&self, tag: u32, why: DataError) {
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
        let waiting = match self.slots.borrow_mut().by_tag(tag) {
            Some((place, slot)) if !slot.data_ready => Some(place),
            _ => None,
        };
        if let Some(place) = waiting {
            self.complete(place, ending);
        }
    }

    /// The data is there: execute, or wait for one's turn.
    #[inline]
    fn arrive(&self, place: u32, slot: &mut Slot) -> Step {
        if slot.enabled && slot.data_ready {
            return self.next_step(place, slot, false);
        }
        if !slot.enabled {
            slot.state = Some(CommandState::Dormant);
        }
        self.note(place, slot);
        Step::Nothing
    }

    /// The same for a command whose slot is not borrowed any more.
    fn arrive_at(&self, place: u32) {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(place) else { return };
        let step = self.arrive(place, slot);
        drop(slots);
        self.carry_out(place, step, false);
    }

    /// Executes what may: the first of those that waited for memory when `fed` is set. False when
    /// there is no memory for it.
    pub(crate) fn begin_command(&self, place: u32, fed: bool) -> bool {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(place) else { return true };
        let step = self.next_step(place, slot, fed);
        drop(slots);
        self.carry_out(place, step, fed)
    }

    /// Decides the next step of a command whose turn it is.
    #[inline]
    fn next_step(&self, place: u32, slot: &mut Slot, fed: bool) -> Step {
        if slot.abort.is_some() {
            // Doomed: its abort ends it in a moment.
            return Step::Nothing;
        }
        let barred = slot.path.as_ref().map_or(0, |p| p.nexus().flags() & slot.blocking_flags);
        if barred != 0 {
            // Reserved while it waited for data, its turn or memory: what runs after the answer
            // to a reservation of another respects it.
            return Step::End(gate::blocked_ending(barred));
        }
        if !self.reserve(slot, fed) {
            slot.state = Some(CommandState::MemoryWait);
            self.note(place, slot);
            return Step::WaitForMemory(slot_id_of(place, slot.generation));
        }
        let run = slot.plan.run;
        if let Run::Blocks(_) = run
            && let Some(queue) = self.dispatch(place, slot)
        {
            return Step::Queue(queue);
        }
        slot.state = Some(CommandState::Executing);
        self.note(place, slot);
        match run {
            Run::Blocks(blocks) => Step::Request(DispatchedCommand::of(place, slot, blocks)),
            Run::Task => Step::Task,
            Run::Now => Step::Now,
        }
    }

    /// Carries out a step; no cell of the session is borrowed (N2). False when there is no memory
    /// for it.
    #[inline]
    fn carry_out(&self, place: u32, step: Step, fed: bool) -> bool {
        match step {
            Step::Request(request) => self.issue_request(place, request),
            Step::Queue(queue) => self.enqueue_command(queue),
            Step::Now => self.begin_now(place),
            Step::Task => self.begin_task(place),
            Step::End(ending) => self.complete(place, ending),
            Step::Nothing => {}
            Step::WaitForMemory(word) => {
                if !fed && let Some(me) = self.handle() {
                    self.engine().enqueue_memory_waiter(me, word);
                }
                return false;
            }
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

/// Next step of a command. It is decided while the slots are borrowed and carried out when they
/// are not (N2): the slot is looked up once for both.
enum Step {
    /// None now: it waits for its turn, or its abort ends it in a moment.
    Nothing,
    End(Ending),
    /// It waits for buffers under this word.
    WaitForMemory(u64),
    /// It waits until its unit has fewer commands.
    Queue(QueuedCommand),
    /// A plain read or write is sent below.
    Request(DispatchedCommand),
    /// [`Run::Task`].
    Task,
    /// [`Run::Now`].
    Now,
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
        self.is_over_share_of(|limit| limit)
    }

    fn wait_expired(&self, word: u64) {
        let place = self.slots.borrow_mut().by_slot_id(word).map(|(place, _)| place);
        if let Some(place) = place {
            self.complete(place, Ending::Status(Status::Busy));
        }
    }
}

impl ItNexus {
    /// It holds more than its share of the part of the pool that `part` answers for its limit (E7).
    fn is_over_share_of(&self, part: impl FnOnce(usize) -> usize) -> bool {
        let usage = self.engine().core().pool().usage();
        let free = part(usage.limit_bytes).saturating_sub(usage.used_bytes);
        // The memory of a session is a part of the used memory.
        usage.used_bytes > free && self.holds() > free
    }

    /// It holds more than its share of the memory for write data: its commands wait for memory, and
    /// those of others pass them (E7).
    pub fn is_over_data_share(&self) -> bool {
        self.is_over_share_of(data_max)
    }
}

/// Notes the plan of a command in its slot, unless its attribute or the data that the initiator
/// offers forbids it.
fn take_plan(
    slot: &mut Slot,
    command: &Command<'_>,
    (cdb, info): (Cdb, &CommandInfo),
    plan: Plan,
) -> Result<(), Ending> {
    if command.attribute == TaskAttribute::Aca && !slot.aca {
        return Err(Ending::check(INVALID_ATTRIBUTE));
    }
    if let Err(ending) = expects_enough(&cdb, &plan, command) {
        slot.needed = u64::from(plan.least_out());
        return Err(ending);
    }
    let barring = gate::blocking_flags(info.access, command.cdb);
    slot.blocking_flags = gate::late_blocking_flags(barring, &plan);
    slot.command = cdb;
    slot.wanted = plan.out.min(command.expect_out);
    slot.data_ready = slot.wanted == 0;
    slot.needed = u64::from(if plan.up_to.is_some() { slot.wanted } else { plan.out });
    slot.plan = plan;
    slot.enabled = true;
    Ok(())
}

/// Checks that the initiator sends the data that the command takes. With less data, GOOD would
/// vouch for bytes that are discarded. Whole blocks of a write can be carried out (RFC 7143
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
