//! A session: one initiator port logged in to one target port.
//!
//! ```text
//!   begin() --> OPEN --close()--> CLOSING (commands aborted) --last one ended--> ended()
//!                 ^  ask_to_close(): the transport is asked to call close()
//! ```
//!
//! Invariants
//!  N1  A session has one path (I_T_L nexus) for each LUN that its group grants now. A command
//!      keeps the path that it came by, whatever the groups say later.
//!  N2  While a transport or a layer below is called, no cell of the session is borrowed.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use wire::scsi::{Asc, Lun, TransportId, asc};

use crate::access::Decision;
use crate::attention::{Nexus, Port};
use crate::command::{AbortHow, CommandState, Slots};
use crate::commands::{nexus_lost, nexus_made};
use crate::device::Device;
use crate::engine::Engine;
use crate::registry::{DEPTH_MAX, LunEntry, LunMap, SessionFacts, Tally, TargetPort};
use crate::reserve::Identity;
use crate::transport::{CloseReason, Login, TmOutcome, Transport};

/// One I_T_L nexus on its core.
pub struct Path {
    lun: u64,
    device: Arc<Device>,
    nexus: Arc<Nexus>,
    read_only: bool,
}

impl Path {
    /// The number under which the initiator sees the unit.
    pub fn lun(&self) -> u64 {
        self.lun
    }

    /// The unit.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Its unit attentions.
    pub fn nexus(&self) -> &Arc<Nexus> {
        &self.nexus
    }

    /// The group grants no writes.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }
}

/// A session of this core.
pub struct Session {
    me: Weak<Session>,
    engine: Rc<Engine>,
    target: Arc<TargetPort>,
    port: Arc<Port>,
    pub(crate) facts: Arc<SessionFacts>,
    transport: RefCell<Option<Rc<dyn Transport>>>,
    pub(crate) sink: Cell<u32>,
    seen: Cell<u64>,
    map: RefCell<Arc<LunMap>>,
    paths: RefCell<Vec<Rc<Path>>>,
    pub(crate) slots: RefCell<Slots>,
    pub(crate) outstanding: Cell<u32>,
    /// Places taken, those being answered included.
    pub(crate) held: Cell<u32>,
    closing: Cell<bool>,
    gone: Cell<bool>,
}

impl Session {
    pub(crate) fn begin(
        engine: Rc<Engine>,
        login: Login,
        decision: Decision,
        transport: Rc<dyn Transport>,
    ) -> Rc<Session> {
        let core = engine.core().clone();
        let registry = engine.registry().clone();
        let facts = Arc::new(SessionFacts {
            number: registry.next_session(),
            core: core.id(),
            driver: login.target.driver.clone(),
            target: login.target.name.clone(),
            initiator: login.initiator,
            port_id: login.port_id,
            portal: login.portal,
            from: login.from,
            labels: login.labels,
            since_ns: core.now(),
            group: Mutex::new(decision.group.unwrap_or_default()),
            closing: AtomicBool::new(false),
            tally: Tally::default(),
            lines: SessionFacts::lines(),
        });
        let scsi = TransportId::decode(&login.transport_id).map(|(port, _)| port);
        let port = Arc::new(Port {
            initiator: facts.initiator.clone(),
            port_id: facts.port_id.clone(),
            transport_id: login.transport_id,
            driver: facts.driver.clone(),
            target: facts.target.clone(),
            relative_port: login.target.port,
            identity: scsi.map(|port| Identity { port, target: login.target.port }),
            session: facts.number,
        });
        let first = if login.reinstates { asc::NEXUS_LOSS } else { asc::POWER_ON_OR_RESET };
        let paths = decision.luns.entries().iter().map(|e| {
            let nexus = nexus_of(e, &port, first);
            Rc::new(Path { lun: e.lun, device: e.device.clone(), nexus, read_only: e.read_only })
        });
        let paths: Vec<Rc<Path>> = paths.collect();
        let session = Rc::new_cyclic(|me| Session {
            me: me.clone(),
            // A change between the decision and this line is seen by the first command.
            seen: Cell::new(0),
            target: login.target,
            port,
            transport: RefCell::new(Some(transport)),
            sink: Cell::new(0),
            map: RefCell::new(decision.luns),
            paths: RefCell::new(paths),
            slots: RefCell::new(Slots::new()),
            outstanding: Cell::new(0),
            held: Cell::new(0),
            closing: Cell::new(false),
            gone: Cell::new(false),
            facts: facts.clone(),
            engine,
        });
        session.sink.set(core.add_sink(session.clone()));
        registry.session_began(&facts);
        session
    }

    /// Number in this daemon.
    pub fn number(&self) -> u64 {
        self.facts.number
    }

    /// What lists show.
    pub fn facts(&self) -> &Arc<SessionFacts> {
        &self.facts
    }

    /// Its target.
    pub fn target(&self) -> &Arc<TargetPort> {
        &self.target
    }

    /// The initiator port.
    pub fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// Its engine.
    pub fn engine(&self) -> &Rc<Engine> {
        &self.engine
    }

    /// Commands that have not ended.
    pub fn outstanding(&self) -> usize {
        self.outstanding.get() as usize
    }

    /// Commands that the session takes at once: for the transport's window.
    pub fn depth_hint(&self) -> u32 {
        DEPTH_MAX
    }

    /// True after [`Session::close`].
    pub fn is_closing(&self) -> bool {
        self.closing.get()
    }

    pub(crate) fn handle(&self) -> Option<Rc<Session>> {
        self.me.upgrade()
    }

    pub(crate) fn transport(&self) -> Option<Rc<dyn Transport>> {
        self.transport.borrow().clone()
    }

    pub(crate) fn map(&self) -> Arc<LunMap> {
        self.map.borrow().clone()
    }

    /// The paths now, by growing LUN.
    pub fn paths(&self) -> Vec<Rc<Path>> {
        self.paths.borrow().clone()
    }

    /// The path of a LUN field, in any legal form.
    pub fn path_of(&self, lun: [u8; 8]) -> Option<Rc<Path>> {
        let number = u64::from(Lun::decode(lun).ok()?.number());
        let paths = self.paths.borrow();
        let at = paths.binary_search_by_key(&number, |p| p.lun).ok()?;
        paths.get(at).cloned()
    }

    /// True when the groups have changed since the session last looked: one load.
    #[inline]
    pub(crate) fn is_stale(&self) -> bool {
        self.target.generation() != self.seen.get()
    }

    /// Takes over what the groups say now.
    pub(crate) fn refresh(&self) {
        if !self.is_stale() || self.closing.get() {
            return;
        }
        self.seen.set(self.target.generation());
        self.take_over();
        if self.target.is_removed() {
            self.ask_to_close(CloseReason::TargetRemoved);
        }
    }

    fn take_over(&self) {
        let decision = self.target.decide(&self.facts.initiator);
        if Arc::ptr_eq(&decision.luns, &self.map.borrow()) {
            return;
        }
        *self.facts.group.lock().unwrap_or_else(PoisonError::into_inner) =
            decision.group.unwrap_or_default();
        let changed = self.replace_paths(&decision.luns);
        *self.map.borrow_mut() = decision.luns;
        if changed {
            self.raise_at(asc::LUNS_CHANGED, |_| true);
        }
    }

    /// N1. True when a unit came, went or was exchanged.
    fn replace_paths(&self, map: &LunMap) -> bool {
        let old = self.paths.take();
        let mut changed = false;
        let mut kept = 0;
        let mut new = Vec::with_capacity(map.entries().len());
        for e in map.entries() {
            let was = old.iter().find(|p| p.lun == e.lun);
            let same = was.filter(|p| Arc::ptr_eq(&p.device, &e.device));
            kept += usize::from(same.is_some());
            if let Some(path) = same.filter(|p| p.read_only == e.read_only) {
                new.push(path.clone());
                continue;
            }
            let nexus = match same {
                // The same unit under another rule keeps its conditions.
                Some(path) => path.nexus.clone(),
                None => {
                    changed = true;
                    let first = match was {
                        Some(_) => asc::INQUIRY_CHANGED,
                        None => asc::POWER_ON_OR_RESET,
                    };
                    nexus_of(e, &self.port, first)
                }
            };
            new.push(Rc::new(Path {
                lun: e.lun,
                device: e.device.clone(),
                nexus,
                read_only: e.read_only,
            }));
        }
        changed |= kept != old.len();
        for path in old {
            if !new.iter().any(|p| Arc::ptr_eq(&p.nexus, &path.nexus)) {
                nexus_lost(&path.device, &path.nexus);
            }
        }
        *self.paths.borrow_mut() = new;
        changed
    }

    /// Raises a condition at the paths that `wanted` picks.
    pub(crate) fn raise_at(&self, attention: Asc, wanted: impl Fn(&Rc<Path>) -> bool) {
        self.paths.borrow().iter().filter(|p| wanted(p)).for_each(|p| p.nexus.raise(attention));
    }

    /// The condition was told: at every path of the session when it is one of the session's.
    pub(crate) fn told(&self, attention: Asc) {
        if attention == asc::LUNS_CHANGED {
            self.paths.borrow().iter().for_each(|p| p.nexus.forget(attention));
        }
    }

    /// Commands by the paths they came by.
    pub(crate) fn commands_at(&self, wanted: impl Fn(&Rc<Path>) -> bool) -> Vec<u64> {
        let of_it = |s: &crate::command::Slot| {
            s.state != Some(CommandState::Responding) && s.path.as_ref().is_some_and(&wanted)
        };
        self.slots.borrow().select(of_it)
    }

    pub(crate) fn count(&self, state: CommandState) -> usize {
        self.slots.borrow().select(|s| s.state == Some(state)).len()
    }

    /// The command of a tag.
    pub(crate) fn find(&self, tag: Option<u32>) -> Option<u64> {
        let slots = self.slots.borrow();
        let place = slots.find(tag?)?;
        Some(crate::command::word_of(place, slots.get(place)?.generation))
    }

    pub(crate) fn tm_answer(&self, tag: u32, outcome: TmOutcome) {
        if let Some(transport) = self.transport() {
            transport.task_management_done(tag, outcome);
        }
    }

    pub(crate) fn ask_to_close(&self, why: CloseReason) {
        if self.closing.get() {
            return;
        }
        if let Some(transport) = self.transport() {
            transport.close(why);
        }
    }

    /// Logout, nexus loss, reinstatement: aborts every command in silence. When the last one can
    /// no longer touch the medium the transport hears [`Transport::ended`], maybe from inside
    /// this call. Later commands are discarded.
    pub fn close(&self) {
        if self.closing.replace(true) {
            return;
        }
        self.facts.closing.store(true, Ordering::Relaxed);
        let all = self.slots.borrow().select(|s| s.state != Some(CommandState::Responding));
        self.doom(&all, AbortHow::Silent);
        for word in all {
            self.abort(word, AbortHow::Silent, None);
        }
        self.end_if_idle();
    }

    pub(crate) fn end_if_idle(&self) {
        if !self.closing.get() || self.held.get() > 0 || self.gone.replace(true) {
            return;
        }
        let me = self.handle();
        self.engine.core().remove_sink(self.sink.get());
        self.engine.forget(self.number());
        let transport = self.transport.take();
        for path in self.paths.take() {
            nexus_lost(&path.device, &path.nexus);
        }
        if let Some(transport) = transport {
            transport.ended();
        }
        drop(me);
    }
}

/// A new nexus of an entry of the map, known to its unit.
fn nexus_of(entry: &LunEntry, port: &Arc<Port>, first: Asc) -> Arc<Nexus> {
    let nexus = Arc::new(Nexus::new(port.clone(), entry.lun, first));
    entry.device.enlist(&nexus);
    nexus_made(&entry.device, &nexus);
    nexus
}
