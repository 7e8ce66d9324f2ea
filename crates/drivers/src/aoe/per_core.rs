//! The driver on one core.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use bio::Segs;
use engine::{Device, Engine};
use geom::Core;
use reactor::{Address, Reactor};
use transport::{Cores, PeerLog, key_of};

use super::portal::Portal;
use super::replay_guard::ReplayGuard;
use super::shared::AoeGlobal;
use crate::log_fn::log_fn;

/// Empty lists kept for the next requests; further ones are given back.
const SPARES_MAX: usize = 256;

/// The driver on one core.
pub(super) struct CoreState {
    pub shared: Arc<AoeGlobal>,
    pub engine: Rc<Engine>,
    pub core: Rc<Core>,
    pub log: PeerLog,
    portals: RefCell<BTreeMap<Address, Rc<Portal>>>,
    guards: RefCell<BTreeMap<u32, Rc<ReplayGuard>>>,
    spares: RefCell<Vec<Segs>>,
}

thread_local! {
    static CORES: Cores<CoreState> = const { Cores::new() };
}

/// How long the core keeps the driver's value: until its tasks are dropped.
async fn watch_loop(core_state: Rc<CoreState>) {
    let leave = TeardownGuard(core_state);
    loop {
        let core_state = &leave.0;
        core_state.core.reactor().sleep(super::portal::WATCH_NS).await;
        core_state.log.end_period(core_state.core.reactor().now());
        let all: Vec<Rc<Portal>> = core_state.portals.borrow().values().cloned().collect();
        all.iter().for_each(|portal| portal.watch_tick());
        core_state.guards.borrow_mut().retain(|_, guard| Rc::strong_count(guard) > 1);
    }
}

/// Drops the parts that refer to the driver's value.
struct TeardownGuard(Rc<CoreState>);

impl Drop for TeardownGuard {
    fn drop(&mut self) {
        let portals = self.0.portals.take();
        portals.values().for_each(|portal| portal.drop_references());
        self.0.guards.take();
        self.0.log.flush();
    }
}

impl CoreState {
    /// Settles on a core.
    pub fn install(shared: &Arc<AoeGlobal>, engine: &Rc<Engine>) {
        let core = engine.core().clone();
        shared.add_core(core.id());
        let core_state = Rc::new(CoreState {
            shared: shared.clone(),
            engine: engine.clone(),
            log: PeerLog::new(log_fn!(warn, "aoe"), log_fn!(info, "aoe"), &shared.repeated_lines),
            portals: RefCell::default(),
            guards: RefCell::default(),
            spares: RefCell::default(),
            core: core.clone(),
        });
        CORES.with(|all| all.add(key_of(shared), core.id(), &core_state));
        drop(core.reactor().spawn("aoe watch", watch_loop(core_state)));
    }

    pub fn find(shared: &Arc<AoeGlobal>, engine: &Rc<Engine>) -> Option<Rc<CoreState>> {
        CORES.with(|all| all.find(key_of(shared), engine.core().id()))
    }

    pub fn reactor(&self) -> &Reactor {
        self.core.reactor()
    }

    /// A portal that is open.
    pub fn portal(&self, at: &Address) -> Option<Rc<Portal>> {
        self.portals.borrow().get(at).cloned()
    }

    pub fn add_portal(&self, at: Address, portal: Rc<Portal>) {
        self.portals.borrow_mut().insert(at, portal);
    }

    /// Stops listening on a portal whose initiators have left.
    pub fn close_portal(&self, at: &Address) {
        let portal = self.portals.borrow_mut().remove(at);
        if let Some(portal) = portal {
            portal.close();
        }
    }

    /// Where writes of a unit are judged of all interfaces (A2).
    pub fn guard(&self, device: &Device) -> Rc<ReplayGuard> {
        self.guards.borrow_mut().entry(device.number()).or_default().clone()
    }

    /// A list of segments, empty.
    pub fn segs(&self) -> Segs {
        self.spares.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes one back.
    pub fn put_segs(&self, mut segs: Segs) {
        segs.clear();
        let mut spares = self.spares.borrow_mut();
        if spares.len() < SPARES_MAX {
            spares.push(segs);
        }
    }
}
