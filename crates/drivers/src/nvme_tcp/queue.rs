//! A queue: its commands at the engine, and their results.
//!
//! Invariants
//!  T1  A command is sent to the unit that was reported to the host, or the connection ends.
//!  T2  No cell is borrowed while the engine is called.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use bio::Segs;
use engine::{
    CloseReason as EngineReason, Command as Scsi, DataError, Device, Next, Response, TaskAttribute,
    TmFunction, TmOutcome, Transport,
};
use wire::nvme::{Completion, Connect, Outcome, Status, outcome};
use wire::scsi::Sense;

use super::TRIES_MAX;
use super::admin::Admin;
use super::close_reason::CloseReason;
use super::controller::{Claim, Controller};
use super::protocol::Connection;
use super::tasks::{Stage, Task, Tasks, Work};
use crate::connection_claim::ConnectionClaim;

/// Parameters of a queue from Connect.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    number: u16,
    entries: u16,
    flow_control: bool,
    keep_alive_ms: u32,
}

impl Shape {
    pub fn of(connect: &Connect) -> Shape {
        Shape {
            number: connect.queue,
            entries: connect.size + 1,
            flow_control: !connect.no_flow_control,
            keep_alive_ms: connect.keep_alive_ms,
        }
    }
}

/// A queue with its connection.
pub(crate) struct Queue {
    pub conn: Connection,
    pub controller: Arc<Controller>,
    /// QID.
    pub number: u16,
    pub tasks: RefCell<Tasks>,
    /// The additional state of an admin queue.
    pub admin: Option<Admin>,
    shape: Shape,
    head: Cell<u16>,
    nexus: RefCell<Option<Rc<engine::ItNexus>>>,
    /// Tags of commands that may be handed to the engine.
    ready: RefCell<VecDeque<u32>>,
    /// Commands there.
    running: Cell<u32>,
    /// Bytes of memory for write data that has not all arrived.
    gathering: Cell<usize>,
    /// Units by namespace, as the host takes them for (T1).
    units: RefCell<BTreeMap<u32, u32>>,
    closing: Cell<bool>,
    ended: Cell<bool>,
    _place: Option<ConnectionClaim>,
    _claim: Claim,
}

impl Queue {
    /// The engine's side, which `attach` adds, where there is one.
    pub fn new(
        conn: &Connection,
        controller: &Arc<Controller>,
        shape: Shape,
        claim: Claim,
        place: Option<ConnectionClaim>,
    ) -> Rc<Queue> {
        let now = conn.core.reactor.now();
        Rc::new(Queue {
            conn: conn.clone(),
            controller: controller.clone(),
            number: shape.number,
            tasks: RefCell::default(),
            admin: (shape.number == 0).then(|| Admin::new(shape.keep_alive_ms, now)),
            shape,
            // Connect has taken an entry.
            head: Cell::new(1),
            nexus: RefCell::default(),
            ready: RefCell::default(),
            running: Cell::default(),
            gathering: Cell::default(),
            units: RefCell::default(),
            closing: Cell::default(),
            ended: Cell::default(),
            _place: place,
            _claim: claim,
        })
    }

    /// The engine's side.
    pub fn attach(&self, nexus: Rc<engine::ItNexus>) {
        *self.nexus.borrow_mut() = Some(nexus);
        self.began();
    }

    /// The engine's side, until the queue has ended; none in discovery.
    pub fn nexus(&self) -> Option<Rc<engine::ItNexus>> {
        self.nexus.borrow().clone()
    }

    /// It is no admin queue.
    pub fn is_io(&self) -> bool {
        self.admin.is_none()
    }

    /// A command has arrived; false when there are more than the queue has entries.
    pub fn take_entry(&self) -> bool {
        self.head.set((self.head.get() + 1) % self.shape.entries);
        let waiting = self.admin.as_ref().map_or(0, Admin::waiting);
        self.tasks.borrow().open() + waiting < self.shape.entries
    }

    /// Counts memory for data on its way; answers how much there is.
    pub fn gather(&self, bytes: usize) -> usize {
        self.gathering.set(self.gathering.get() + bytes);
        self.gathering.get()
    }

    /// It has arrived.
    pub fn gathered(&self, bytes: usize) {
        self.gathering.set(self.gathering.get().saturating_sub(bytes));
    }

    pub fn with<R>(&self, tag: u32, f: impl FnOnce(&mut Task) -> R) -> Option<R> {
        self.tasks.borrow_mut().get(tag).map(f)
    }

    /// The unit of a namespace is still the one that the host takes it for (T1).
    pub fn is_known(&self, namespace: u32, device: &Device) -> bool {
        let number = device.number();
        let mut units = self.units.borrow_mut();
        let known = units.entry(namespace);
        *known.or_insert_with(|| self.controller.known_unit(namespace, number)) == number
    }

    /// Ends a command that is not in the table, or has left it.
    pub fn end_command(&self, id: u16, result: u64, status: Status) {
        let status = if self.controller.delays() { status.delayed() } else { status };
        self.conn.complete(&Completion { result, head: self.sq_head(), id, status });
        self.conn.io.wake();
    }

    fn sq_head(&self) -> u16 {
        if self.shape.flow_control { self.head.get() } else { 0 }
    }

    /// Data for the host, and the end of the command.
    pub fn end_with_bytes(&self, id: u16, bytes: &[u8]) {
        let success = !self.shape.flow_control;
        self.conn.send_bytes(id, bytes, success);
        match success {
            true => self.conn.io.wake(),
            false => self.end_command(id, 0, Status::SUCCESS),
        }
    }

    /// The end of a command of the table (Q1).
    pub fn finish_task(&self, tag: u32, status: Status) {
        let Some((id, gathering)) = self.with(tag, |t| {
            let gathering = matches!(t.stage, Stage::Gathering { .. });
            (t.command.id, if gathering { t.wanted } else { 0 })
        }) else {
            return;
        };
        self.gathered(usize::try_from(gathering).unwrap_or(0));
        let data = self.tasks.borrow_mut().free(tag);
        self.conn.core.segs.put(data);
        self.end_command(id, 0, status);
    }

    /// A command has all that it needs.
    pub fn ready(&self, tag: u32) {
        self.with(tag, |t| t.stage = Stage::Ready);
        self.ready.borrow_mut().push_back(tag);
        self.conn.io.wake();
    }

    /// Hands commands to the engine, as many as it takes.
    pub fn issue_ready(&self) {
        loop {
            let Some(nexus) = self.nexus() else { return };
            if self.running.get() >= nexus.depth_hint().min(super::DEPTH.into()) {
                return;
            }
            let next = self.ready.borrow_mut().pop_front();
            let Some(tag) = next else { return };
            if self.with(tag, |t| t.stage) == Some(Stage::Ready) {
                self.issue(&nexus, tag);
            }
        }
    }

    fn issue(&self, nexus: &engine::ItNexus, tag: u32) {
        let Some(wish) = self.with(tag, |t| {
            t.stage = Stage::Engine;
            t.next_scsi_command()
        }) else {
            return;
        };
        self.running.set(self.running.get() + 1);
        let next = nexus.command(&Scsi {
            tag,
            lun: wish.lun,
            cdb: &wish.cdb,
            attribute: TaskAttribute::Simple,
            expect_in: wish.expect_in,
            expect_out: wish.expect_out,
        });
        if let Next::Data { wanted } = next {
            self.submit_data(nexus, tag, wanted);
        }
    }

    /// Hands write data over; the command keeps it too (Q2).
    fn submit_data(&self, nexus: &engine::ItNexus, tag: u32, wanted: u32) {
        let core = &self.conn.core;
        let mut data = core.segs.take();
        let list = self.with(tag, |t| match t.work {
            Work::Free => t.lists.front().cloned(),
            _ => {
                t.data.iter().for_each(|seg| data.push(seg.clone()));
                None
            }
        });
        if let Some(Some(bytes)) = list {
            if !data.grow(&core.memory, bytes.len()) {
                return nexus.data_failed(tag, DataError::NoMemory);
            }
            data.copy_from(0, &bytes);
        }
        data.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
        nexus.data(tag, &mut data);
        core.segs.put(data);
    }

    /// One SCSI command has ended well: the next list, the flush behind the last, or the end.
    fn step_done(&self, tag: u32) {
        let more = self.with(tag, |t| {
            t.tries = 0;
            t.lists.pop_front();
            if !t.lists.is_empty() {
                return true;
            }
            let flush = std::mem::take(&mut t.then_flush);
            if flush {
                t.work = Work::Flush;
            }
            flush
        });
        match more {
            Some(true) => self.ready(tag),
            Some(false) => self.finish_task(tag, Status::SUCCESS),
            None => {}
        }
    }

    /// Handles the data of a READ.
    fn read_done(&self, tag: u32, data: &Segs) {
        let Some((id, wanted)) = self.with(tag, |t| (t.command.id, t.command.sgl.len)) else {
            return;
        };
        if data.len() as u64 != u64::from(wanted) {
            // A unit that became smaller under way.
            return self.finish_task(tag, Status::LBA_OUT_OF_RANGE);
        }
        let success = !self.shape.flow_control;
        self.conn.send_segs(id, data, success);
        if !success {
            return self.finish_task(tag, Status::SUCCESS);
        }
        let spare = self.tasks.borrow_mut().free(tag);
        self.conn.core.segs.put(spare);
        self.conn.io.wake();
    }

    /// Sends a command once more, if it was not sent too often (T1).
    fn retry(&self, tag: u32) {
        let Some((namespace, lun, tries)) = self.with(tag, |t| {
            t.tries = t.tries.saturating_add(1);
            (t.command.nsid, t.lun, t.tries)
        }) else {
            return;
        };
        let path = self.nexus().and_then(|n| n.path_of(lun));
        if path.is_some_and(|p| !self.is_known(namespace, p.device())) {
            return self.conn.io.close(CloseReason::Exchanged);
        }
        match tries < TRIES_MAX {
            true => self.ready(tag),
            false => self.finish_task(tag, Status::INTERNAL),
        }
    }

    /// Ends a command that is not wanted any more, if that is possible at once.
    pub fn abort(&self, id: u16) -> bool {
        let Some(tag) = self.tasks.borrow().find(id) else { return false };
        let Some((stage, lun)) = self.with(tag, |t| (t.stage, t.lun)) else { return false };
        match (stage, self.nexus()) {
            (Stage::MemoryWait | Stage::Ready, _) => {
                self.finish_task(tag, Status::ABORT_REQUESTED);
                true
            }
            (Stage::Engine, Some(nexus)) => {
                self.with(tag, |t| t.aborted = true);
                nexus.task_management(tag, TmFunction::AbortTask, lun, Some(tag));
                self.tasks.borrow().find(id).is_none()
            }
            // Its data is on its way.
            _ => false,
        }
    }

    /// The end: everything is aborted.
    pub async fn finish(&self) {
        self.closing.set(true);
        self.ready.borrow_mut().clear();
        if let Some(nexus) = self.nexus() {
            nexus.close();
            poll_fn(|cx| {
                self.conn.io.set_waker(cx.waker());
                if self.ended.get() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        self.nexus.take();
        self.drop_all();
    }

    fn drop_all(&self) {
        let open = self.tasks.borrow().tags();
        for tag in open {
            let data = self.tasks.borrow_mut().free(tag);
            self.conn.core.segs.put(data);
        }
    }

    fn command_left_engine(&self) {
        self.running.set(self.running.get().saturating_sub(1));
        self.conn.io.wake();
    }
}

impl Transport for Queue {
    fn respond(&self, tag: u32, response: Response<'_>) {
        self.command_left_engine();
        if self.closing.get() {
            return;
        }
        let Some(work) = self.with(tag, |t| t.work) else { return };
        let sense = Sense::decode(response.sense).ok();
        match outcome(response.status, sense, work.writes()) {
            Outcome::Good if work == Work::Read => self.read_done(tag, response.data),
            Outcome::Good => self.step_done(tag),
            Outcome::Again => self.retry(tag),
            Outcome::Failed(status) => self.finish_task(tag, status),
        }
    }

    fn discard(&self, tag: u32) {
        self.command_left_engine();
        match self.with(tag, |t| t.aborted) {
            _ if self.closing.get() => {}
            Some(true) => self.finish_task(tag, Status::ABORT_REQUESTED),
            // Another initiator has reset the unit.
            _ => self.retry(tag),
        }
    }

    fn unsent(&self) -> usize {
        self.conn.io.backlog() + self.gathering.get()
    }

    fn task_management_done(&self, _: u32, _: TmOutcome) {}

    /// Commands that may still reach the medium have no answer: an error would mean that they are
    /// over. The host connects again and sends them again.
    fn close(&self, reason: EngineReason) {
        self.closing.set(true);
        self.conn.io.close(CloseReason::Closed(reason));
    }

    fn ended(&self) {
        self.ended.set(true);
        self.conn.io.wake();
    }
}
