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
use super::replay_guard::{Deed, Held};
use super::session::{Client, Session, name};
use super::shared::Shelf;
use super::target_config::Slot;
use super::{NAME, ata, frames};
use crate::blocks::Blocks;

/// How often interfaces and sessions are looked at, ns.
pub(super) const LOOK_NS: u64 = 1_000_000_000;

/// Frames that are read before others of the core have their turn.
const FRAMES_A_TURN: usize = 64;

/// Sessions of one interface; for a further one the idle one that was silent longest ends.
pub const NEXUSES_MAX: usize = 4096;

/// Time of silence after which a session ends, ns; the next frame of the initiator starts a new
/// one.
const SILENT_NS: u64 = 600_000_000_000;

/// Most refusals that are noted in one watch period; unknown initiators may be many.
const DENIALS_MAX: u32 = 8;

/// The initiator of a session, and its slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    pub mac: Mac,
    pub address: aoe::Address,
}

/// A slot that an initiator may see.
#[derive(Clone)]
pub(super) struct Seat {
    pub shelf: Arc<Shelf>,
    pub port: Arc<TargetPort>,
    pub entry: Arc<LunEntry>,
    pub address: aoe::Address,
    pub slot: Arc<Slot>,
}

/// One interface.
pub(super) struct Portal {
    pub here: Rc<CoreState>,
    pub at: Address,
    link: RefCell<Option<Link>>,
    facts: Cell<LinkFacts>,
    sessions: RefCell<BTreeMap<Key, Rc<Session>>>,
    /// The session of the last frame, which is mostly that of the next one too.
    last: RefCell<Option<Rc<Session>>>,
    /// Sessions to go on with.
    listed: RefCell<Vec<Rc<Session>>>,
    /// Writes whose turn has come.
    released: RefCell<VecDeque<Held>>,
    waker: RefCell<Option<Waker>>,
    /// The portal is at work and needs no wake-up.
    busy: Cell<bool>,
    announcer: Announcer,
    denials: Cell<u32>,
    task: RefCell<Option<TaskHandle>>,
}

/// Starts to serve at an interface; answers its address.
pub(super) fn open(here: &Rc<CoreState>, at: Address) -> io::Result<Address> {
    if here.portal(&at).is_some() {
        return Ok(at);
    }
    let interface = at.ether().ok_or(io::ErrorKind::Unsupported)?;
    let link = here.reactor().link(interface, ETHERTYPE)?;
    let facts = link.facts()?;
    let portal = Rc::new(Portal {
        here: here.clone(),
        at: at.clone(),
        link: RefCell::new(Some(link)),
        facts: Cell::new(facts),
        sessions: RefCell::default(),
        last: RefCell::default(),
        listed: RefCell::default(),
        released: RefCell::default(),
        waker: RefCell::default(),
        busy: Cell::default(),
        announcer: Announcer::default(),
        denials: Cell::default(),
        task: RefCell::default(),
    });
    let task = here.reactor().spawn("aoe portal", run(portal.clone()));
    *portal.task.borrow_mut() = Some(task);
    here.add_portal(at.clone(), portal);
    Ok(at)
}

async fn run(portal: Rc<Portal>) {
    loop {
        let link = portal.link.borrow().clone();
        if let Some(link) = link {
            let error = portal.serve(&link).await;
            tracing::warn!(target: "aoe", "{}: {error}; it is looked for every second", portal.at);
        }
        portal.here.reactor().sleep(LOOK_NS).await;
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
            // Full: one more try. An interface that is down says so to its reader.
            let _ = link.flush();
            let _ = link.send(head, data);
        }
    }

    /// A session has something to go on with.
    pub fn list(&self, session: Rc<Session>) {
        self.listed.borrow_mut().push(session);
        self.kick();
    }

    /// A write's turn has come.
    pub fn release(&self, held: Held) {
        self.released.borrow_mut().push_back(held);
        self.kick();
    }

    /// The portal's own turn goes on: there is something to do or to send.
    pub fn kick(&self) {
        if self.busy.get() {
            return;
        }
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Serves until the interface goes away.
    async fn serve(self: &Rc<Portal>, link: &Link) -> io::Error {
        loop {
            let came = {
                let mut ready = pin!(link.ready());
                poll_fn(|cx| {
                    self.watch(cx.waker());
                    self.work(link);
                    match ready.as_mut().poll(cx) {
                        Poll::Pending if link.queued() > 0 => Poll::Ready(Ok(())),
                        polled => polled,
                    }
                })
                .await
            };
            let came = match came {
                Ok(()) => self.take(link).await,
                Err(e) => Err(e),
            };
            if came.is_ok() && link.queued() > 0 && link.writable().await.is_ok() {
                continue;
            }
            if let Err(e) = came {
                if link.facts().is_err() {
                    return e;
                }
                // Down: it says so once, and nothing comes until it is up again.
                tracing::warn!(target: "aoe", "{}: {e}", self.at);
                self.here.reactor().sleep(LOOK_NS).await;
            }
        }
    }

    /// Receives frames and handles them.
    async fn take(self: &Rc<Portal>, link: &Link) -> io::Result<()> {
        loop {
            self.busy.set(true);
            let got = link.receive(FRAMES_A_TURN, &mut |frame| frames::handle(self, frame));
            self.work(link);
            if got? < FRAMES_A_TURN {
                return Ok(());
            }
            self.here.reactor().yield_now().await;
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
    fn work(self: &Rc<Portal>, link: &Link) {
        self.busy.set(true);
        loop {
            let held = self.released.borrow_mut().pop_front();
            if let Some(held) = held {
                start(held);
                continue;
            }
            let session = self.listed.borrow_mut().pop();
            let Some(session) = session else { break };
            session.front.listed.set(false);
            session.go_on();
            if session.front.is_over() {
                self.leave(&session);
            }
        }
        if link.queued() > 0 {
            // An interface that is down says so to its reader.
            let _ = link.flush();
        }
        self.busy.set(false);
    }

    /// The session of an initiator at a slot; None when the initiator may see nothing there.
    pub fn session(self: &Rc<Portal>, key: Key) -> Option<Rc<Session>> {
        let last = self.last.borrow();
        if let Some(last) = last.as_ref().filter(|s| s.front.key == key && !s.front.is_over()) {
            return Some(last.clone());
        }
        drop(last);
        let known = self.sessions.borrow().get(&key).cloned();
        let session = match known {
            Some(session) if session.front.is_over() => return None,
            Some(session) => session,
            None => self.enter(key)?,
        };
        *self.last.borrow_mut() = Some(session.clone());
        Some(session)
    }

    /// The slots that an initiator may see among those that an address reaches.
    pub fn seats(&self, mac: Mac, to: aoe::Address) -> Vec<Seat> {
        let mut out = Vec::new();
        for shelf in self.here.shared.targets_at(&self.at) {
            let number = shelf.params.shelf;
            if to.shelf != u16::MAX && to.shelf != number {
                continue;
            }
            let Some(port) = self.here.engine.find_target(NAME, &shelf.name) else { continue };
            let decision = port.decide(&name(mac), &self.at);
            if !decision.grants() {
                self.deny(&shelf, mac, to, decision.why);
                continue;
            }
            for entry in decision.luns.iter() {
                let Ok(slot) = u8::try_from(entry.lun) else { continue };
                let address = aoe::Address { shelf: number, slot };
                let sectors = entry.device.block_bytes() as usize == SECTOR;
                if !address.is_single() || !to.reaches(address) || !sectors {
                    continue;
                }
                let slot = shelf.book.slot(slot);
                if slot.lets(mac).0 {
                    let (shelf, port, entry) = (shelf.clone(), port.clone(), entry.clone());
                    out.push(Seat { shelf, port, entry, address, slot });
                }
            }
        }
        out
    }

    /// Reports an initiator that asked for a shelf by its number and may see none of it;
    /// rate-limited.
    fn deny(&self, shelf: &Shelf, mac: Mac, to: aoe::Address, text: String) {
        if !to.is_single() || self.denials.get() >= DENIALS_MAX {
            return;
        }
        self.denials.set(self.denials.get() + 1);
        self.here.shared.registry.note_denied(Denied {
            at_ns: self.here.core.now(),
            driver: NAME.into(),
            target: shelf.name.clone(),
            initiator: name(mac),
            from: Some(Address::Ether(mac.to_string().into())),
            text,
        });
    }

    fn enter(self: &Rc<Portal>, key: Key) -> Option<Rc<Session>> {
        let seat = self.seats(key.mac, key.address).into_iter().next()?;
        if seat.shelf.params.announce && !self.announcer.has_told(&seat) {
            // Before the first command of an initiator, which asks again: it may think of a disk
            // that was here before.
            self.announcer.look(self);
            return None;
        }
        self.make_room();
        let client = Client::new(self, key, &seat);
        let session = Blocks::new(client, seat.entry.device.clone(), seat.entry.lun);
        session.front.belongs_to(&session);
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
        let nexus = self.here.engine.login(login, transport).ok()?;
        session.attach(nexus);
        self.sessions.borrow_mut().insert(key, session.clone());
        Some(session)
    }

    /// A place for one more session: of those that do nothing the one that was silent longest ends.
    fn make_room(self: &Rc<Portal>) {
        let oldest = {
            let sessions = self.sessions.borrow();
            if sessions.len() < NEXUSES_MAX {
                return;
            }
            let idle = sessions.values().filter(|s| s.open() == 0);
            idle.min_by_key(|s| s.front.heard_ns.get()).cloned()
        };
        if let Some(oldest) = oldest {
            self.leave(&oldest);
        }
    }

    /// A session ends.
    fn leave(self: &Rc<Portal>, session: &Rc<Session>) {
        let key = session.front.key;
        let mine = |s: &Rc<Session>| Rc::ptr_eq(s, session);
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
        drop(self.here.reactor().spawn("aoe end", async move {
            session.finish().await;
            session.front.abandon();
        }));
    }

    /// Once a watch period.
    pub fn look(self: &Rc<Portal>) {
        self.denials.set(0);
        let link = self.link.borrow().clone();
        if let Some(facts) = link.as_ref().and_then(|link| link.facts().ok()) {
            self.facts.set(facts);
        }
        let now = self.here.core.now();
        let silent = |s: &&Rc<Session>| {
            s.open() == 0 && now.saturating_sub(s.front.heard_ns.get()) > SILENT_NS
        };
        let silent: Vec<_> = self.sessions.borrow().values().filter(silent).cloned().collect();
        silent.iter().for_each(|session| self.leave(session));
        self.announcer.look(self);
        self.kick();
    }

    /// An interface that went away may be back.
    fn reopen(&self) {
        let Some(interface) = self.at.ether() else { return };
        let Ok(link) = self.here.reactor().link(interface, ETHERTYPE) else { return };
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
        let all: Vec<Rc<Session>> = self.sessions.borrow().values().cloned().collect();
        all.iter().for_each(|session| self.leave(session));
        self.link.take();
    }

    /// Drops what holds it in turn: the core ends.
    pub fn let_go(&self) {
        let held = (self.sessions.take(), self.last.take(), self.listed.take());
        drop((held, self.released.take(), self.waker.take(), self.link.take(), self.task.take()));
    }
}

/// Begins a write whose turn has come.
pub(super) fn start(held: Held) {
    let Held { mark, asked, session, deed } = held;
    session.front.marks(mark);
    let request = asked.request(true, mark.start, mark.end - mark.start);
    match deed {
        Deed::Write(data) => session.start_write(request, mark.start, data, None),
        Deed::Trim(ranges) => ata::trim(&session, request, &ranges),
    }
}
