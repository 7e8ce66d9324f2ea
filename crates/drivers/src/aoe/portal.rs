//! One interface: frames in and out, and the sessions of those that speak there.
//!
//! ```text
//!   OPEN --goes down--> OPEN, looks every second --is up--> OPEN
//!     ^ --goes away---> GONE, looks every second --is back--+
//!     +------------------------------------------------------+
//! ```
//! Reading, answering and going on with requests are one task: what one turn answers leaves in one
//! send.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use bio::Segs;
use engine::registry::{Denied, LunEntry};
use engine::{Login, TargetPort, Transport};
use reactor::{Address, Link, LinkFacts, TaskHandle};
use wire::aoe::{self, ETHERTYPE, Mac, SECTOR};

use super::announce::Announcer;
use super::per_core::CoreState;
use super::replay_guard::{HeldAction, HeldWrite};
use super::session::{AoeSession, Client, name};
use super::shared::Shelf;
use super::target_config::Slot;
use super::{NAME, ata, frames};
use crate::block_requests::BlockSession;

/// How often interfaces and sessions are looked at, ns.
pub(super) const WATCH_NS: u64 = 1_000_000_000;

/// Frames that are read before others of the core have their turn.
const FRAMES_PER_BATCH: usize = 64;

/// Sessions of one interface; for a further one the idle one that was silent longest ends.
pub const NEXUSES_MAX: usize = 4096;

/// Time of silence after which a session ends, ns; the next frame of the initiator starts a new
/// one.
const IDLE_TIMEOUT_NS: u64 = 600_000_000_000;

/// Most refusals that are noted in one watch period; unknown initiators may be many.
const DENIALS_MAX: u32 = 8;

/// The initiator of a session, and its slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct SessionKey {
    pub mac: Mac,
    pub address: aoe::Address,
}

/// A slot that an initiator may see.
#[derive(Clone)]
pub(super) struct VisibleSlot {
    pub shelf: Arc<Shelf>,
    pub port: Arc<TargetPort>,
    pub entry: Arc<LunEntry>,
    pub address: aoe::Address,
    pub slot: Arc<Slot>,
}

/// One interface.
pub(super) struct Portal {
    pub per_core: Rc<CoreState>,
    pub at: Address,
    link: RefCell<Option<Link>>,
    facts: Cell<LinkFacts>,
    sessions: RefCell<BTreeMap<SessionKey, Rc<AoeSession>>>,
    /// The session of the last frame, which is mostly that of the next one too.
    last: RefCell<Option<Rc<AoeSession>>>,
    /// Sessions to continue.
    runnable: RefCell<Vec<Rc<AoeSession>>>,
    /// Writes that may begin.
    released: RefCell<VecDeque<HeldWrite>>,
    waker: RefCell<Option<Waker>>,
    /// The portal is at work and needs no wake-up.
    busy: Cell<bool>,
    announcer: Announcer,
    denials: Cell<u32>,
    task: RefCell<Option<TaskHandle>>,
}

/// Starts to serve at an interface; answers its address.
pub(super) fn open(core_state: &Rc<CoreState>, at: Address) -> io::Result<Address> {
    if core_state.portal(&at).is_some() {
        return Ok(at);
    }
    let interface = at.ether().ok_or(io::ErrorKind::Unsupported)?;
    let link = core_state.reactor().link(interface, ETHERTYPE)?;
    let facts = link.facts()?;
    let portal = Rc::new(Portal {
        per_core: core_state.clone(),
        at: at.clone(),
        link: RefCell::new(Some(link)),
        facts: Cell::new(facts),
        sessions: RefCell::default(),
        last: RefCell::default(),
        runnable: RefCell::default(),
        released: RefCell::default(),
        waker: RefCell::default(),
        busy: Cell::default(),
        announcer: Announcer::default(),
        denials: Cell::default(),
        task: RefCell::default(),
    });
    let task = core_state.reactor().spawn("aoe portal", run(portal.clone()));
    *portal.task.borrow_mut() = Some(task);
    core_state.add_portal(at.clone(), portal);
    Ok(at)
}

async fn run(portal: Rc<Portal>) {
    loop {
        let link = portal.link.borrow().clone();
        if let Some(link) = link {
            let error = portal.serve(&link).await;
            tracing::warn!(target: "aoe", "{}: {error}; the interface is looked up every second",
                                    portal.at);
        }
        portal.per_core.reactor().sleep(WATCH_NS).await;
        portal.reopen();
    }
}

impl Portal {
    /// Address of the interface.
    pub fn mac(&self) -> Mac {
        Mac(self.facts.get().mac)
    }

    /// Most sectors of a frame now.
    pub fn sectors_max(&self) -> u8 {
        let mtu = usize::try_from(self.facts.get().mtu).unwrap_or(0);
        aoe::sectors_of_mtu(mtu).max(1)
    }

    /// The same for one unit, which may take less at a time.
    pub fn sectors_of(&self, entry: &LunEntry) -> u8 {
        let most = entry.device.transfer_max() / SECTOR as u32;
        self.sectors_max().min(u8::try_from(most).unwrap_or(u8::MAX).max(1))
    }

    /// Queues an answer. An answer that the interface does not accept is lost, as on the network.
    pub fn send(&self, head: &[u8], data: &Segs) {
        let link = self.link.borrow();
        let Some(link) = link.as_ref() else { return };
        if link.send(head, data).is_err() {
            // Full: one more try. The reader learns that an interface is down.
            let _ = link.flush();
            let _ = link.send(head, data);
        }
    }

    /// A session has something to continue.
    pub fn enqueue_session(&self, session: Rc<AoeSession>) {
        self.runnable.borrow_mut().push(session);
        self.kick();
    }

    /// A write may begin.
    pub fn release(&self, held: HeldWrite) {
        self.released.borrow_mut().push_back(held);
        self.kick();
    }

    /// The portal's own turn continues: there is something to do or to send.
    pub fn kick(&self) {
        if self.busy.get() {
            return;
        }
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Serves until the interface disappears.
    async fn serve(self: &Rc<Portal>, link: &Link) -> io::Error {
        loop {
            let came = {
                let mut ready = pin!(link.ready());
                poll_fn(|cx| {
                    self.watch(cx.waker());
                    self.run_pending(link);
                    match ready.as_mut().poll(cx) {
                        Poll::Pending if link.queued() > 0 => Poll::Ready(Ok(())),
                        polled => polled,
                    }
                })
                .await
            };
            let came = match came {
                Ok(()) => self.receive_frames(link).await,
                Err(e) => Err(e),
            };
            if came.is_ok() && link.queued() > 0 && link.writable().await.is_ok() {
                continue;
            }
            if let Err(e) = came {
                if link.facts().is_err() {
                    return e;
                }
                // Down: reported once, and nothing arrives until it is up again.
                tracing::warn!(target: "aoe", "{}: {e}", self.at);
                self.per_core.reactor().sleep(WATCH_NS).await;
            }
        }
    }

    async fn receive_frames(self: &Rc<Portal>, link: &Link) -> io::Result<()> {
        loop {
            self.busy.set(true);
            let got = link.receive(FRAMES_PER_BATCH, &mut |frame| frames::handle(self, frame));
            self.run_pending(link);
            if got? < FRAMES_PER_BATCH {
                return Ok(());
            }
            self.per_core.reactor().yield_now().await;
        }
    }

    fn watch(&self, waker: &Waker) {
        let mut mine = self.waker.borrow_mut();
        match mine.as_mut() {
            Some(mine) => mine.clone_from(waker),
            None => *mine = Some(waker.clone()),
        }
    }

    /// Continues waiting work, and sends the answers.
    fn run_pending(self: &Rc<Portal>, link: &Link) {
        self.busy.set(true);
        loop {
            let held = self.released.borrow_mut().pop_front();
            if let Some(held) = held {
                start(held);
                continue;
            }
            let session = self.runnable.borrow_mut().pop();
            let Some(session) = session else { break };
            session.frontend.is_runnable.set(false);
            session.issue_ready();
            if session.frontend.is_over() {
                self.end_session(&session);
            }
        }
        if link.queued() > 0 {
            // An interface that is down reports that to its reader.
            let _ = link.flush();
        }
        self.busy.set(false);
    }

    /// The session of an initiator at a slot; None when the initiator may see nothing there.
    pub fn session(self: &Rc<Portal>, key: SessionKey) -> Option<Rc<AoeSession>> {
        let last = self.last.borrow();
        if let Some(last) = last.as_ref().filter(|s| s.frontend.key == key && !s.frontend.is_over())
        {
            return Some(last.clone());
        }
        drop(last);
        let known = self.sessions.borrow().get(&key).cloned();
        let session = match known {
            Some(session) if session.frontend.is_over() => return None,
            Some(session) => session,
            None => self.log_in(key)?,
        };
        *self.last.borrow_mut() = Some(session.clone());
        Some(session)
    }

    /// The slots that an initiator may see among those that an address reaches.
    pub fn visible_slots(&self, mac: Mac, to: aoe::Address) -> Vec<VisibleSlot> {
        let mut out = Vec::new();
        for shelf in self.per_core.shared.targets_at(&self.at) {
            let number = shelf.params.shelf;
            if to.shelf != u16::MAX && to.shelf != number {
                continue;
            }
            let Some(port) = self.per_core.engine.find_target(NAME, &shelf.name) else { continue };
            let decision = port.decide(&name(mac), &self.at);
            if !decision.grants() {
                self.note_denied(&shelf, mac, to, decision.reason);
                continue;
            }
            for entry in decision.luns.iter() {
                let Ok(slot) = u8::try_from(entry.lun) else { continue };
                let address = aoe::Address { shelf: number, slot };
                let sectors = entry.device.block_bytes() as usize == SECTOR;
                if !address.is_single() || !to.reaches(address) || !sectors {
                    continue;
                }
                let slot = shelf.config.slot(slot);
                if slot.access_of(mac).0 {
                    let (shelf, port, entry) = (shelf.clone(), port.clone(), entry.clone());
                    out.push(VisibleSlot { shelf, port, entry, address, slot });
                }
            }
        }
        out
    }

    /// Reports an initiator that requested a shelf by its number and may see none of it;
    /// rate-limited.
    fn note_denied(&self, shelf: &Shelf, mac: Mac, to: aoe::Address, text: String) {
        if !to.is_single() || self.denials.get() >= DENIALS_MAX {
            return;
        }
        self.denials.set(self.denials.get() + 1);
        self.per_core.shared.registry.note_denied(Denied {
            at_ns: self.per_core.core.now(),
            driver: NAME.into(),
            target: shelf.name.clone(),
            initiator: name(mac),
            from: Some(Address::Ether(mac.to_string().into())),
            text,
        });
    }

    fn log_in(self: &Rc<Portal>, key: SessionKey) -> Option<Rc<AoeSession>> {
        let seat = self.visible_slots(key.mac, key.address).into_iter().next()?;
        if seat.shelf.params.announce && !self.announcer.has_announced(&seat) {
            // Before the first command of an initiator, which repeats it: it may think of a disk
            // that was here before.
            self.announcer.announce_new(self);
            return None;
        }
        self.evict_idle_session();
        let client = Client::new(self, key, &seat);
        let session = BlockSession::new(client, seat.entry.device.clone(), seat.entry.lun);
        session.frontend.set_session(&session);
        let login = Login {
            target: seat.port,
            initiator: name(key.mac),
            port_id: [self.at.to_string().as_bytes(), &[0, key.address.slot]].concat(),
            transport_id: Vec::new(),
            portal: self.at.clone(),
            from: Address::Ether(key.mac.to_string().into()),
            reinstates: false,
            labels: vec![("address", key.address.to_string())],
        };
        let transport: Rc<dyn Transport> = session.clone();
        // A refusal was noted, and is silence here (A3).
        let nexus = self.per_core.engine.login(login, transport).ok()?;
        session.attach(nexus);
        self.sessions.borrow_mut().insert(key, session.clone());
        Some(session)
    }

    /// A place for one more session: of those that do nothing the one that was silent longest ends.
    fn evict_idle_session(self: &Rc<Portal>) {
        let oldest = {
            let sessions = self.sessions.borrow();
            if sessions.len() < NEXUSES_MAX {
                return;
            }
            let idle = sessions.values().filter(|s| s.open() == 0);
            idle.min_by_key(|s| s.frontend.last_frame_ns.get()).cloned()
        };
        if let Some(oldest) = oldest {
            self.end_session(&oldest);
        }
    }

    fn end_session(self: &Rc<Portal>, session: &Rc<AoeSession>) {
        let key = session.frontend.key;
        let mine = |s: &Rc<AoeSession>| Rc::ptr_eq(s, session);
        if self.last.borrow().as_ref().is_some_and(mine) {
            self.last.take();
        }
        let mut sessions = self.sessions.borrow_mut();
        if !sessions.get(&key).is_some_and(mine) {
            return;
        }
        sessions.remove(&key);
        drop(sessions);
        let session = session.clone();
        drop(self.per_core.reactor().spawn("aoe end", async move {
            session.finish().await;
            session.frontend.abandon_writes();
        }));
    }

    /// Once a watch period.
    pub fn watch_tick(self: &Rc<Portal>) {
        self.denials.set(0);
        let link = self.link.borrow().clone();
        if let Some(facts) = link.as_ref().and_then(|link| link.facts().ok()) {
            self.facts.set(facts);
        }
        let now = self.per_core.core.now();
        let silent = |s: &&Rc<AoeSession>| {
            s.open() == 0 && now.saturating_sub(s.frontend.last_frame_ns.get()) > IDLE_TIMEOUT_NS
        };
        let silent: Vec<_> = self.sessions.borrow().values().filter(silent).cloned().collect();
        silent.iter().for_each(|session| self.end_session(session));
        self.announcer.announce_new(self);
        self.kick();
    }

    /// An interface that disappeared may be back.
    fn reopen(&self) {
        let Some(interface) = self.at.ether() else { return };
        let Ok(link) = self.per_core.reactor().link(interface, ETHERTYPE) else { return };
        if let Ok(facts) = link.facts() {
            self.facts.set(facts);
            *self.link.borrow_mut() = Some(link);
            tracing::info!(target: "aoe", "{}: the interface is back", self.at);
        }
    }

    /// Serves no more.
    pub fn close(self: &Rc<Portal>) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
        let all: Vec<Rc<AoeSession>> = self.sessions.borrow().values().cloned().collect();
        all.iter().for_each(|session| self.end_session(session));
        self.link.take();
    }

    /// Drops what holds it in turn: the core ends.
    pub fn drop_references(&self) {
        let held = (self.sessions.take(), self.last.take(), self.runnable.take());
        drop((held, self.released.take(), self.waker.take(), self.link.take(), self.task.take()));
    }
}

/// Begins a write that may begin now.
pub(super) fn start(held: HeldWrite) {
    let HeldWrite { id: mark, request: ata_request, session, action: deed } = held;
    session.frontend.add_write(mark);
    let request = ata_request.request(true, mark.start, mark.end - mark.start);
    match deed {
        HeldAction::Write(data) => session.start_write(request, mark.start, data, None),
        HeldAction::Trim(ranges) => ata::trim(&session, request, &ranges),
    }
}
