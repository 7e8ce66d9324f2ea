//! The target engine of one core.
//!
//! Invariants
//!  E1  A session lives on one core; all of its work runs there. Its types ensure this: they are
//!      not `Send`.
//!  E2  Engines communicate by mailbox only; a message is a request or an answer and carries no
//!      data.
//!  E3 to E6: see `nexus/buffers.rs`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use geom::Core;
use reactor::{Address, Mailbox, Mailer};

use crate::nexus::ItNexus;
use crate::nexus::buffers::{MemoryQueue, transfer_max};
use crate::nexus::pending_tms::PendingTms;
use crate::nexus::transport::{Login, RefusalReason, Refused, Transport};
use crate::qos::Flow;
use crate::registry::{Denied, Registry, TargetPort};
use crate::unit::message::Message;

/// Sessions that look for changes before other work of the core continues.
const REFRESH_BATCH: usize = 64;

/// Whether sessions are looking for changes.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Refreshing {
    #[default]
    No,
    Once,
    /// Something changed meanwhile.
    Again,
}

/// The engine of one core.
pub struct Engine {
    refreshing: Cell<Refreshing>,
    core: Rc<Core>,
    registry: Arc<Registry>,
    mailer: Mailer<Message>,
    sessions: RefCell<BTreeMap<u64, Rc<ItNexus>>>,
    pub(crate) tms: RefCell<PendingTms>,
    pub(crate) memory: MemoryQueue,
    /// Commands whose turn it is, by session and place.
    pub(crate) starting: RefCell<VecDeque<(u64, u64)>>,
    pub(crate) is_starting: Cell<bool>,
    pub(crate) flows: RefCell<BTreeMap<u32, Weak<Flow>>>,
    scratch: Cell<Vec<u8>>,
}

impl Engine {
    /// The engine of `core`, on the core's thread. It makes its mailbox known in the registry.
    pub fn new(core: Rc<Core>, registry: Arc<Registry>) -> Rc<Engine> {
        let (mailer, mailbox) = core.reactor().mailbox();
        registry.add_engine(core.id(), mailer.clone());
        core.set_origins(registry.origins().clone());
        registry.note_pool(transfer_max(core.pool().usage().limit_bytes));
        let engine = Rc::new(Engine {
            refreshing: Cell::default(),
            core,
            registry,
            mailer,
            sessions: RefCell::default(),
            tms: RefCell::default(),
            memory: MemoryQueue::default(),
            starting: RefCell::default(),
            is_starting: Cell::default(),
            flows: RefCell::default(),
            scratch: Cell::default(),
        });
        let listen = receive_messages(Rc::downgrade(&engine), mailbox);
        drop(engine.core.reactor().spawn("target", listen));
        engine
    }

    pub fn core(&self) -> &Rc<Core> {
        &self.core
    }

    /// State that all engines share.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    pub fn find_target(&self, driver: &str, name: &str) -> Option<Arc<TargetPort>> {
        self.registry.target(driver, name)
    }

    /// Targets that grant this initiator something, for discovery.
    pub fn visible_targets(
        &self,
        driver: &str,
        initiator: &str,
        portal: &Address,
    ) -> Vec<Arc<TargetPort>> {
        self.registry.visible_targets(driver, initiator, portal)
    }

    /// Admits an initiator, or returns the reason why not; refusals are remembered for lists.
    pub fn login(
        self: &Rc<Self>,
        login: Login,
        transport: Rc<dyn Transport>,
    ) -> Result<Rc<ItNexus>, Refused> {
        let decision = login.target.decide(&login.initiator, &login.portal);
        let refused = if login.target.gone().is_some() {
            let text = format!("target {} is being taken away", login.target.name);
            Some(Refused { why: RefusalReason::TargetGone, text })
        } else if !decision.grants() {
            Some(Refused { why: RefusalReason::NoAccess, text: decision.reason.clone() })
        } else {
            None
        };
        if let Some(refused) = refused {
            self.registry.note_denied(Denied {
                at_ns: self.core.now(),
                driver: login.target.driver.clone(),
                target: login.target.name.clone(),
                initiator: login.initiator.clone(),
                from: Some(login.from.clone()),
                text: refused.text.clone(),
            });
            return Err(refused);
        }
        let session = ItNexus::begin(self.clone(), login, decision, transport);
        self.sessions.borrow_mut().insert(session.number(), session.clone());
        Ok(session)
    }

    /// The sessions of this core, oldest first.
    pub fn sessions(&self) -> Vec<Rc<ItNexus>> {
        self.sessions.borrow().values().cloned().collect()
    }

    pub(crate) fn session(&self, number: u64) -> Option<Rc<ItNexus>> {
        self.sessions.borrow().get(&number).cloned()
    }

    pub(crate) fn forget(&self, session: u64) {
        self.sessions.borrow_mut().remove(&session);
        self.registry.session_ended(session);
    }

    pub(crate) fn mailer(&self) -> &Mailer<Message> {
        &self.mailer
    }

    /// A vector for a reply; give it back with [`Engine::put_scratch`].
    pub(crate) fn take_scratch(&self) -> Vec<u8> {
        let mut scratch = self.scratch.take();
        scratch.clear();
        scratch
    }

    pub(crate) fn put_scratch(&self, scratch: Vec<u8>) {
        self.scratch.set(scratch);
    }

    /// Has all sessions look for changes, a few at a time: commands continue between, and each
    /// looks for itself before.
    fn refresh_all(self: &Rc<Self>) {
        if self.refreshing.replace(Refreshing::Again) != Refreshing::No {
            return;
        }
        let engine = self.clone();
        drop(self.core.reactor().spawn("target refresh", async move {
            while engine.refreshing.replace(Refreshing::Once) == Refreshing::Again {
                let mut next = 0;
                while let Some(number) = engine.refresh_some(next) {
                    next = number;
                    engine.core.reactor().yield_now().await;
                }
            }
            engine.refreshing.set(Refreshing::No);
        }));
    }

    /// The next sessions from a number on; answers where to continue.
    fn refresh_some(&self, from: u64) -> Option<u64> {
        let some: Vec<Rc<ItNexus>> = self
            .sessions
            .borrow()
            .range(from..)
            .take(REFRESH_BATCH)
            .map(|(_, s)| s.clone())
            .collect();
        some.iter().for_each(|s| s.refresh());
        (some.len() == REFRESH_BATCH).then(|| some.last().map_or(from, |s| s.number()) + 1)
    }

    fn receive(self: &Rc<Self>, message: Message) {
        match message {
            Message::Refresh => self.refresh_all(),
            Message::Drain(transition) => self.drain(transition),
            Message::Close { session, why } => {
                if let Some(session) = self.session(session) {
                    session.request_close(why);
                }
            }
            Message::Abort(order) => self.abort_for_peer(order),
            Message::Aborted { ticket } => self.tm_step(ticket),
            Message::Gather { device, floor } => self.gather(&device, floor),
            Message::Start { session, word } => self.enable_command(session, word),
        }
    }
}

/// Runs when the core ends: sessions that are still open hold the engine, and it holds them.
struct ShutdownGuard(Weak<Engine>);

impl Drop for ShutdownGuard {
    fn drop(&mut self) {
        let Some(engine) = self.0.upgrade() else { return };
        let sessions = engine.sessions.take();
        sessions.values().for_each(|session| session.drop_references());
    }
}

async fn receive_messages(engine: Weak<Engine>, mailbox: Mailbox<Message>) {
    let _leave = ShutdownGuard(engine.clone());
    while let Some(message) = mailbox.recv().await {
        let Some(engine) = engine.upgrade() else { return };
        engine.receive(message);
    }
}
