//! A session of one core at one portal: its connection, its tasks, and whose commands are whose.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

use bio::{Pool, Seg, Segs};
use geom::{Core, deadline};
use reactor::{Stream, TaskHandle};
use wire::iscsi::{CHALLENGE_LEN, Challenge};
use wire::scsi::{Sense, asc};

use super::Inner;
use super::engine::{Engine, Fault, PDU_MAX, Task, Wire, slot_of};
use crate::ccb::{CcbId, Outcome};
use crate::reset::UnitReset;
use crate::unit::Unit;

/// Memory for received data, for the next data to send, and for data that are being sent: one
/// buffer each, which the longest PDU fills by half.
const BUFFER_BYTES: usize = Pool::largest();
/// The clock sleeps no longer, ns.
const LOOK_NS: u64 = 1_000_000_000;
/// How long a session that is closed may take to report it, ns.
const LOGOUT_DEADLINE_NS: u64 = 600_000_000;
/// How often a login may be sent to another portal.
const HOPS_MAX: usize = 4;
/// The recovery of a session may take so many times as long as a connection may take to be
/// established. The path is lost long before.
const RESET_DEADLINE_FACTOR: u64 = 16;
/// How long a connection waits for memory before it is tried again, ns.
const NO_MEMORY_NS: u64 = 10_000_000;

/// The next data to send, and the memory of data that are being sent.
struct TxBuffer {
    fill: Seg,
    used: usize,
    idle: Option<Seg>,
    writer: Option<Waker>,
}

impl Wire for &RefCell<Option<TxBuffer>> {
    fn free_bytes(&self) -> usize {
        self.borrow().as_ref().map_or(0, |out| out.fill.len() - out.used)
    }

    fn send(&mut self, head: &[u8], data: Option<(&Segs, usize, usize)>, tail: &[u8]) {
        let mut out = self.borrow_mut();
        let Some(TxBuffer { fill, used, .. }) = out.as_mut() else { return };
        *used += fill.copy_from(*used, head);
        if let Some((segs, from, len)) = data {
            super::engine::for_each_slice(segs, from, len, &mut |bytes| {
                *used += fill.copy_from(*used, bytes)
            });
        }
        *used += fill.copy_from(*used, tail);
    }
}

/// Whose a command is.
type Owner = (Weak<Unit>, CcbId);

/// Whose commands are, by the places of their tags.
#[derive(Default)]
struct Owners(Vec<Option<(u32, Owner)>>);

impl Owners {
    fn enter(&mut self, tag: u32, owner: Owner) {
        let at = slot_of(tag);
        if self.0.len() <= at {
            self.0.resize(at + 1, None);
        }
        if let Some(place) = self.0.get_mut(at) {
            *place = Some((tag, owner));
        }
    }

    fn leave(&mut self, tag: u32) -> Option<Owner> {
        let place = self.0.get_mut(slot_of(tag))?;
        place.take_if(|(at, _)| *at == tag).map(|(_, owner)| owner)
    }

    fn tag(&self, unit: &Unit, id: CcbId) -> Option<u32> {
        let fits = |owner: &Owner| owner.1 == id && std::ptr::eq(owner.0.as_ptr(), unit);
        self.0.iter().flatten().find(|(_, owner)| fits(owner)).map(|(tag, _)| *tag)
    }
}

/// See the module.
pub(super) struct PortalSession {
    core: std::rc::Weak<Core>,
    inner: Arc<Inner>,
    portal: usize,
    at: SocketAddr,
    engine: RefCell<Engine>,
    out: RefCell<Option<TxBuffer>>,
    stream: RefCell<Option<Stream>>,
    owners: RefCell<Owners>,
    /// Why we have hung up.
    fault: RefCell<Option<Fault>>,
    /// Handles of units by LUN.
    units: RefCell<BTreeMap<u64, Weak<Unit>>>,
    /// N3
    resets: RefCell<Vec<UnitReset>>,
    has_work: Cell<bool>,
    /// A send is under way whose end is reported with the next event.
    lazy: Cell<bool>,
    closing: Cell<bool>,
    clock: RefCell<Option<Waker>>,
    tasks: RefCell<Vec<TaskHandle>>,
}

/// Bus, core, portal.
type Key = (u64, u32, usize);

thread_local! {
    /// The sessions of this thread.
    static SESSIONS: RefCell<HashMap<Key, Rc<PortalSession>>> = RefCell::default();
}

/// The session that a bus has at a portal on this core.
pub(super) fn find(inner: &Inner, portal: usize, core: &Core) -> Option<Rc<PortalSession>> {
    let key = (inner.number, core.id(), portal);
    SESSIONS.with_borrow(|all| all.get(&key).cloned())
}

/// The same, for a unit.
pub(super) fn find_for(inner: &Inner, unit: &Unit, core: &Core) -> Option<Rc<PortalSession>> {
    find(inner, usize::try_from(unit.path().target).ok()?, core)
}

/// Makes the session of a bus at a portal on this core.
pub(super) fn open(
    inner: &Arc<Inner>,
    portal: usize,
    core: &Rc<Core>,
) -> Option<Rc<PortalSession>> {
    let at = inner.portal(portal)?;
    let rules = inner.rules(core.id(), portal);
    let session = Rc::new(PortalSession {
        core: Rc::downgrade(core),
        inner: inner.clone(),
        portal,
        at,
        engine: RefCell::new(Engine::new(rules, core.now())),
        out: RefCell::default(),
        stream: RefCell::default(),
        owners: RefCell::default(),
        fault: RefCell::default(),
        units: RefCell::default(),
        resets: RefCell::default(),
        has_work: Cell::default(),
        lazy: Cell::default(),
        closing: Cell::default(),
        clock: RefCell::default(),
        tasks: RefCell::default(),
    });
    let key = (inner.number, core.id(), portal);
    SESSIONS.with_borrow_mut(|all| all.insert(key, session.clone()));
    let tasks = vec![
        core.reactor().spawn("iscsi session", run(session.clone())),
        core.reactor().spawn("iscsi clock", clock(session.clone())),
    ];
    *session.tasks.borrow_mut() = tasks;
    Some(session)
}

/// Waits for the end of a logout, and ends the tasks of the session.
async fn end_logout(session: &PortalSession, core: &Core) {
    let end = core.now() + LOGOUT_DEADLINE_NS;
    while session.stream.borrow().is_some() && core.now() < end {
        core.reactor().sleep(super::LOOK_NS).await;
    }
    session.tasks.take().iter().for_each(TaskHandle::abort);
    session.disconnect();
}

/// N5: ends the session of a bus at a removed portal on this core. `leaving`: the cores whose
/// sessions have not ended.
pub(super) fn retire(
    inner: &Arc<Inner>,
    portal: usize,
    leaving: &Arc<AtomicUsize>,
    core: &Rc<Core>,
) {
    let (known, is_named) = (find(inner, portal, core), inner.portal(portal).is_some());
    if let (0, Some(session), true) = (core.id(), &known, is_named) {
        // It has returned already: its session stays, and no login reports it.
        inner.note_session(portal, session.engine.borrow().is_up());
    }
    let session = known.filter(|_| !is_named);
    let session = session.filter(|session| session.engine.borrow_mut().retire());
    let (inner, leaving, core) = (inner.clone(), leaving.clone(), core.clone());
    drop(core.clone().reactor().spawn("iscsi retirement", async move {
        if let Some(session) = session {
            drain(&session, &core).await;
            end_retired(&session, &core).await;
        }
        if leaving.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(rescan) = inner.rescan.get()
        {
            rescan.request_target_scan(portal as u64);
        }
        // It may have returned meanwhile.
        if core.id() == 0 && find(&inner, portal, &core).is_none() {
            let _session = open(&inner, portal, &core);
        }
    }));
}

/// Waits for the commands of a session, no longer than for those of a silent path. The rest ends by
/// a new session or with the path (I2, I5 of the engine): the target may still carry it out before.
async fn drain(session: &PortalSession, core: &Core) {
    let deadline_ns = session.inner.rules.terms.deadline_ns();
    wait_idle(session, core, deadline_ns).await;
    if !session.engine.borrow().is_busy() {
        return;
    }
    session.engine.borrow_mut().end_session();
    session.schedule_pump();
    wait_idle(session, core, 2 * deadline_ns).await;
}

/// Waits until no command of a session is under way, for so long at most.
async fn wait_idle(session: &PortalSession, core: &Core, most_ns: u64) {
    let end = core.now() + most_ns;
    while session.engine.borrow().is_busy() && core.now() < end {
        core.reactor().sleep(super::LOOK_NS).await;
    }
}

/// Logs a session out that takes no command any more.
async fn end_retired(session: &PortalSession, core: &Core) {
    let key = (session.inner.number, core.id(), session.portal);
    SESSIONS.with_borrow_mut(|all| drop(all.remove(&key)));
    session.begin_logout(core);
    end_logout(session, core).await;
    if session.inner.troubles.lock().remove(&(core.id(), session.portal)).is_some() {
        session.inner.notify_troubles();
    }
}

impl PortalSession {
    pub(super) fn is_tried(&self) -> bool {
        self.engine.borrow().is_tried()
    }

    /// N6: whether a session of a closed bus on this core would be ended by a login of this one.
    fn has_former(&self, core: &Core) -> bool {
        let own = self.inner.rules(core.id(), self.portal);
        let is_former = |(key, other): (&Key, &Rc<PortalSession>)| {
            let is_closed = other.engine.borrow().is_retired();
            if !is_closed || key.0 >= self.inner.number || key.1 != core.id() {
                return false;
            }
            let its = other.inner.rules(core.id(), other.portal);
            let is_same_name = its.initiator == own.initiator && its.target == own.target;
            is_same_name && its.isid == own.isid
        };
        SESSIONS.with_borrow(|all| all.iter().any(is_former))
    }

    /// Commands of a unit wait here.
    pub(super) fn has(&self, lun: [u8; 8]) -> bool {
        self.engine.borrow().has(lun)
    }

    /// Commands that wait end, and the target is notified that the session ends.
    fn begin_logout(&self, core: &Core) {
        self.closing.set(true);
        self.engine.borrow_mut().fail_waiting();
        self.engine.borrow_mut().begin_logout(0, core.now());
        self.schedule_pump();
    }

    fn handle(&self, unit: &Unit) -> Weak<Unit> {
        let mut units = self.units.borrow_mut();
        let known = units.get(&unit.path().lun).filter(|u| std::ptr::eq(u.as_ptr(), unit));
        if let Some(known) = known {
            return known.clone();
        }
        let handle = self.inner.handle(unit);
        units.insert(unit.path().lun, handle.clone());
        handle
    }

    /// Commands of a unit's users that were not sent return to CAM.
    pub(super) fn requeue_unsent(&self, lun: [u8; 8]) {
        self.engine.borrow_mut().requeue_unsent(|task| task.lun == lun);
        self.schedule_pump();
    }

    /// Begins a command; an answer at once when it cannot be.
    pub(super) fn begin(
        &self,
        unit: &Unit,
        id: CcbId,
        task: &Task,
        data: &Segs,
    ) -> Option<Outcome> {
        let tag = match self.engine.borrow_mut().begin(task, data) {
            Ok(tag) => tag,
            Err(outcome) => return Some(outcome),
        };
        self.owners.borrow_mut().enter(tag, (self.handle(unit), id));
        self.wake_writer();
        None
    }

    /// False: there is no such command here.
    pub(super) fn abort(&self, unit: &Unit, id: CcbId) -> bool {
        let tag = self.owners.borrow().tag(unit, id);
        let Some(tag) = tag else { return false };
        self.engine.borrow_mut().abort(tag);
        self.schedule_pump();
        true
    }

    /// Resets a unit, for a CCB or without one.
    pub(super) fn reset(&self, unit: &Unit, id: Option<CcbId>, lun: [u8; 8]) -> Option<Outcome> {
        let tag = match self.engine.borrow_mut().reset(lun) {
            Ok(tag) => tag,
            Err(outcome) => return Some(outcome),
        };
        if let Some(id) = id {
            self.owners.borrow_mut().enter(tag, (self.handle(unit), id));
        }
        self.schedule_pump();
        None
    }

    /// There is more to send: PDUs that are begun in one turn leave together in the next.
    fn wake_writer(&self) {
        if self.lazy.get()
            && let Some(core) = self.core.upgrade()
        {
            core.reactor().flush_lazy_sends();
        }
        let writer = self.out.borrow_mut().as_mut().and_then(|out| out.writer.take());
        writer.into_iter().for_each(Waker::wake);
    }

    /// There is something to do, or to be done at another time than before.
    fn schedule_pump(&self) {
        if !self.has_work.replace(true) {
            let waker = self.clock.borrow_mut().take();
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Sends the PDUs that may be sent, and reports ended commands to their owners.
    fn pump(&self) {
        let Some(core) = self.core.upgrade() else { return };
        let now = core.reactor().fresh_now();
        let done = self.engine.borrow_mut().pump(&mut &self.out, now);
        if let Err(fault) = done {
            self.fault.borrow_mut().get_or_insert(fault);
            self.disconnect();
        }
        if self.out.borrow().as_ref().is_some_and(|out| out.used > 0) {
            self.wake_writer();
        }
        self.report_to_cam(&core);
    }

    fn report_to_cam(&self, core: &Rc<Core>) {
        if self.engine.borrow_mut().take_login() {
            // N4: before the commands of the last session return.
            self.inner.units_of(self.portal).iter().for_each(|unit| unit.doubt(core));
            if let Some(rescan) = self.inner.rescan.get() {
                rescan.rescan_if_missing(self.portal as u64);
            }
        }
        loop {
            let ended = self.engine.borrow_mut().take_ended();
            let Some((tag, outcome)) = ended else { break };
            let owner = self.owners.borrow_mut().leave(tag);
            let Some((unit, id)) = owner.and_then(|(unit, id)| Some((unit.upgrade()?, id))) else {
                continue;
            };
            explain(&unit, &outcome);
            unit.done(id, outcome, core);
        }
        // Nearly always there is none.
        if !self.resets.borrow().is_empty() && self.is_recovered() {
            self.resets.take().into_iter().for_each(UnitReset::is_settled);
        }
        let found = self.engine.borrow_mut().take_found();
        if !found {
            return;
        }
        if self.inner.portal(self.portal).is_none() {
            return;
        }
        self.inner.note_session(self.portal, self.engine.borrow().is_up());
        if let Some(rescan) = self.inner.rescan.get() {
            rescan.request_target_scan(self.portal as u64);
        }
    }

    /// N3: the session has ended, and its units are left alone until there is another one.
    fn reset_begins(&self, core: &Core) {
        let most_ns =
            self.engine.borrow().connect_deadline_ns().saturating_mul(RESET_DEADLINE_FACTOR);
        let units: Vec<Arc<Unit>> =
            self.units.borrow().values().filter_map(Weak::upgrade).collect();
        let resets = units.iter().map(|unit| UnitReset::begin(unit, most_ns, core));
        self.resets.borrow_mut().extend(resets);
    }

    /// N3: there is a session again, or none is waited for.
    fn is_recovered(&self) -> bool {
        let engine = self.engine.borrow();
        engine.is_up() || engine.is_lost() || self.closing.get()
    }

    fn count(&self, core: &Core) {
        let (counts, is_up) = (self.engine.borrow().counts(), self.engine.borrow().is_up());
        let key = (core.id(), self.portal);
        self.inner.counts.lock().insert(key, counts);
        let was_in_trouble = is_up && self.inner.troubles.lock().remove(&key).is_some();
        if was_in_trouble {
            self.inner.notify_troubles();
        }
    }

    fn disconnect(&self) {
        if let Some(stream) = self.stream.borrow().as_ref() {
            stream.close();
        }
    }

    /// From a connection to its end, also where the portal sends us elsewhere. The next time
    /// begins at the portal again: it knows best where the target is then.
    async fn run_connection(self: &Rc<PortalSession>, core: &Rc<Core>) -> Result<(), Fault> {
        let mut at = self.at;
        for _ in 0..HOPS_MAX {
            let done = self.run_connection_at(at, core).await;
            self.discard_unsent();
            match done.as_ref().err().and_then(Fault::moved) {
                Some(next) if !self.closing.get() => at = next,
                _ => return done,
            }
        }
        Err(Fault::Protocol("too many redirections from portal to portal"))
    }

    /// Discards all data that were not sent yet, so that a path that is restored does not carry old
    /// writes. A session that has logged out has nothing to lose.
    fn discard_unsent(&self) {
        let stream = self.stream.borrow_mut().take();
        *self.out.borrow_mut() = None;
        self.fault.take();
        if let Some(stream) = stream {
            match self.closing.get() {
                true => stream.close(),
                false => stream.reset(),
            }
        }
    }

    async fn run_connection_at(
        self: &Rc<PortalSession>,
        at: SocketAddr,
        core: &Rc<Core>,
    ) -> Result<(), Fault> {
        let lost = |e: io::Error| Fault::Connection(e.to_string());
        let most = self.engine.borrow().connect_deadline_ns();
        let connect = deadline(core, most, core.reactor().connect(at)).await;
        let late = io::Error::from(io::ErrorKind::TimedOut);
        let stream = connect.unwrap_or(Err(late)).map_err(lost)?;
        stream.nodelay(true).map_err(lost)?;
        let memory = |bytes: usize| core.pool().get(bytes).and_then(|buf| buf.seg(0, bytes));
        let pieces = (memory(BUFFER_BYTES), memory(BUFFER_BYTES), memory(BUFFER_BYTES));
        let (Some(into), Some(fill), idle @ Some(_)) = pieces else {
            core.reactor().sleep(NO_MEMORY_NS).await;
            return Err(Fault::Protocol("there is no memory for a connection"));
        };
        *self.out.borrow_mut() = Some(TxBuffer { fill, used: 0, idle, writer: None });
        *self.stream.borrow_mut() = Some(stream.clone());
        let mut challenge = Challenge { id: 0, bytes: [0; CHALLENGE_LEN] };
        core.reactor().fill_random(&mut challenge.bytes);
        challenge.id = core.reactor().random() as u8;
        let now = core.reactor().fresh_now();
        self.engine.borrow_mut().connected(challenge, &mut &self.out, now)?;
        let writer = core.reactor().spawn("iscsi writer", write(self.clone(), stream.clone()));
        self.schedule_pump();
        let done = self.read(core, &stream, &into).await;
        writer.abort();
        self.lazy.set(false);
        done
    }

    fn close_reason(&self, last: io::Result<usize>) -> Fault {
        self.fault.take().unwrap_or_else(|| match last {
            Ok(_) => Fault::Connection("the target has closed the connection".to_owned()),
            Err(e) => Fault::Connection(e.to_string()),
        })
    }

    async fn read(&self, core: &Rc<Core>, stream: &Stream, into: &Seg) -> Result<(), Fault> {
        let (mut start, mut end) = (0, 0);
        loop {
            if start == end {
                (start, end) = (0, 0);
            } else if into.len() - start < PDU_MAX {
                into.with_mut(|bytes| bytes.copy_within(start..end, 0));
                (start, end) = (0, end - start);
            }
            let Some(tail) = into.slice(end, into.len() - end) else { return Ok(()) };
            match stream.recv(&tail).await {
                Ok(n) if n > 0 => end += n,
                ended => return Err(self.close_reason(ended)),
            }
            drop(tail);
            let now = core.reactor().fresh_now();
            start += into.with(|bytes| {
                let came = bytes.get(start..end).unwrap_or(&[]);
                self.engine.borrow_mut().receive(came, &mut &self.out, now)
            })?;
            self.pump();
        }
    }
}

/// N6: waits until no session of a closed bus has the same I_T nexus.
async fn wait_for_former(session: &PortalSession) {
    while let Some(core) = session.core.upgrade()
        && session.has_former(&core)
    {
        core.reactor().sleep(super::LOOK_NS).await;
    }
}

/// Connects, and connects again.
async fn run(session: Rc<PortalSession>) {
    wait_for_former(&session).await;
    loop {
        let Some(core) = session.core.upgrade() else { return };
        let done = session.run_connection(&core).await;
        let was_up = session.engine.borrow_mut().dropped(core.reactor().fresh_now());
        if let Err(why) = done
            && !session.closing.get()
        {
            let key = (core.id(), session.portal);
            let why = match session.engine.borrow().poison_command().filter(|_| was_up) {
                Some(command) => format!("{why}; {command}"),
                None => why.to_string(),
            };
            let before = session.inner.troubles.lock().insert(key, why.clone());
            if before != Some(why) {
                session.inner.notify_troubles();
            }
        }
        if was_up && !session.closing.get() {
            session.reset_begins(&core);
        }
        session.pump();
        session.count(&core);
        if session.closing.get() {
            return;
        }
        let wait = session.engine.borrow().try_ns().saturating_sub(core.now());
        core.reactor().sleep(wait).await;
    }
}

/// Sends all pending data.
async fn write(session: Rc<PortalSession>, stream: Stream) {
    let mut going = Vec::with_capacity(1);
    loop {
        let next = poll_fn(|cx| {
            session.pump();
            let mut out = session.out.borrow_mut();
            let Some(out) = out.as_mut() else { return Poll::Ready(None) };
            if out.used == 0 {
                out.writer = Some(cx.waker().clone());
                return Poll::Pending;
            }
            let Some(idle) = out.idle.take() else { return Poll::Ready(None) };
            let full = std::mem::replace(&mut out.fill, idle);
            Poll::Ready(Some((full, std::mem::take(&mut out.used))))
        });
        let Some((full, used)) = next.await else { return };
        going.extend(full.slice(0, used));
        // The end of a send is not waited for if nothing follows it.
        session.lazy.set(!session.engine.borrow().has_more());
        let sent = match session.lazy.get() {
            true => stream.send_lazily(&mut going).await,
            false => stream.send(&mut going).await,
        };
        session.lazy.set(false);
        if sent.is_err() {
            stream.close();
            return;
        }
        if let Some(out) = session.out.borrow_mut().as_mut() {
            out.idle = Some(full);
        }
    }
}

/// Pumps when something was stirred or is due.
async fn clock(session: Rc<PortalSession>) {
    let mut counted: u64 = 0;
    loop {
        let Some(core) = session.core.upgrade() else { return };
        session.has_work.set(false);
        session.pump();
        let (due, now) = (session.engine.borrow().due(), core.reactor().fresh_now());
        if now >= due {
            core.reactor().yield_now().await;
        }
        if now >= counted.saturating_add(LOOK_NS) {
            counted = now;
            session.count(&core);
        }
        let mut sleep = pin!(core.reactor().sleep(due.saturating_sub(now).min(LOOK_NS)));
        poll_fn(|cx| {
            if session.has_work.get() {
                return Poll::Ready(());
            }
            *session.clock.borrow_mut() = Some(cx.waker().clone());
            sleep.as_mut().poll(cx)
        })
        .await;
    }
}

/// N1
fn explain(unit: &Unit, outcome: &Outcome) {
    if outcome.sense.bytes().is_empty() {
        return;
    }
    if Sense::decode(outcome.sense.bytes()).is_ok_and(|s| s.code == asc::POWER_ON_OR_RESET) {
        unit.kept_power();
    }
}
