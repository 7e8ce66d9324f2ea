//! The parts of the daemon in a simulated world: cores, control, engine, driver, one portal.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use disks::DiskClass;
use drivers::{Account, Driver, TargetSpec};
use engine::lun::LunClass;
use engine::{Engine, Registry};
use geom::{Core, Error, GraphControl, Inbox};
use reactor::sim::{Actor, Limits, World};
use reactor::{Address, Reactor, Token};
use serde_json::{Value, json};
use testkit::cores;

use crate::world::nbd::address;
use crate::world::shared::GROUPS;
use crate::world::slow_store::SlowStore;

pub const IQN: &str = "iqn.2026-11.test.ashlar:world";
/// Relative port identifier of the target: the first that is made.
pub const RELATIVE_PORT: u16 = 1;
/// Name of the NBD target.
pub const EXPORTS: &str = "world";
pub const USER: &str = "mason";
pub const SECRET: &[u8] = b"chisel and hammer";
/// Secret of the target, which no initiator requests.
const OTHER_SECRET: &[u8] = b"mortar and trowel";

/// Timers with this kind only advance the virtual clock.
const TICK: u32 = 999;

/// The panic that ends any work of the control thread when the daemon is to die.
pub struct Crash;

/// Reactors outside the daemon, and their requests to it.
#[derive(Clone)]
pub struct Outside {
    pub world: World,
    pub reactors: Rc<RefCell<Vec<Reactor>>>,
    pub crash: Rc<Cell<bool>>,
}

/// The shape of a daemon.
#[derive(Clone)]
pub struct Shape {
    pub cores: usize,
    pub pool_bytes: usize,
    pub chap: bool,
    pub params: Value,
    /// Exports by NBD too.
    pub nbd: bool,
}

/// Settings of the iSCSI target that no initiator uses.
#[derive(Clone, Copy, Default)]
pub struct TargetEdits {
    /// Accounts of discovery sessions and, where initiators have one, of the target.
    pub accounts: bool,
    /// A second portal.
    pub portal: bool,
}

pub struct Stack {
    pub cores: Vec<Rc<Core>>,
    pub engines: Vec<Rc<Engine>>,
    pub control: GraphControl,
    pub registry: Arc<Registry>,
    pub driver: Arc<dyn Driver>,
    nbd: Option<Arc<dyn Driver>>,
    pub disks: Arc<DiskClass>,
    pub edits: TargetEdits,
    shape: Shape,
}

pub fn portal() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 3260))
}

fn second_portal() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], 3260))
}

/// Runs all reactors for `ns`, or until there is work for the control thread.
fn spin(outside: &Outside, cores: &[Rc<Core>], ns: u64, stop: &mut dyn FnMut() -> bool) {
    let mut actors = cores::actors(cores);
    let reactors = outside.reactors.borrow().clone();
    actors.extend(reactors.iter().map(Actor::of_tasks));
    if let Some(first) = reactors.first() {
        first.after(ns, Token { kind: TICK, user_data: 0 });
    }
    let crash = outside.crash.clone();
    let limits = Limits { ns, steps: 20_000_000 };
    outside.world.run(&mut actors, limits, &mut || crash.get() || stop());
    if outside.crash.get() {
        std::panic::resume_unwind(Box::new(Crash));
    }
}

impl Stack {
    /// A daemon without disks, targets and groups.
    pub fn start(outside: &Outside, shape: &Shape, store: Arc<SlowStore>) -> Stack {
        let (cores, mailers, inbox) = cores::start(&outside.world, shape.cores, shape.pool_bytes);
        let registry = Registry::new();
        registry.set_state_store(store);
        let drivers = drivers::all(&registry);
        let driver = drivers[0].clone();
        let nbd = shape.nbd.then(|| drivers[1].clone());
        let mut engines = Vec::new();
        for core in &cores {
            let engine = Engine::new(core.clone(), registry.clone());
            driver.clone().install(&engine);
            if let Some(nbd) = &nbd {
                nbd.clone().install(&engine);
            }
            engines.push(engine);
        }
        let (all, clock, around) = (cores.clone(), outside.world.clone(), outside.clone());
        let wait = Box::new(move |inbox: &Inbox, most: Duration| {
            spin(&around, &all, most.as_nanos() as u64, &mut || !inbox.is_empty());
        });
        let mut control = GraphControl::new(mailers, inbox, wait, Box::new(move || clock.now()));
        let disks = Arc::new(DiskClass::new(control.inbox().clone(), shape.cores));
        control.topology.load(disks.clone()).expect("disk");
        control.topology.load(Arc::new(LunClass)).expect("lun");
        for class in classes::all() {
            control.topology.load(class).expect("its name is free");
        }
        let (edits, shape) = (TargetEdits::default(), shape.clone());
        Stack { cores, engines, control, registry, driver, nbd, disks, edits, shape }
    }

    /// Runs the world and the control thread for `ns`.
    pub fn pass(&mut self, ns: u64) {
        self.control.wait_until(Duration::from_nanos(ns), |_| false);
    }

    /// Drivers and the names of their targets.
    pub fn targets(&self) -> Vec<(&'static str, &'static str)> {
        let nbd = self.nbd.as_ref().map(|_| ("nbd", EXPORTS));
        [("iscsi", IQN)].into_iter().chain(nbd).collect()
    }

    /// Portals of the iSCSI target.
    fn portals(&self) -> Vec<SocketAddr> {
        let second = self.edits.portal.then(second_portal);
        [portal()].into_iter().chain(second).collect()
    }

    fn set_target(&self) {
        let account = |secret: &[u8]| Account { user: USER.into(), secret: secret.into() };
        let edited = self.edits.accounts;
        let spec = TargetSpec {
            name: IQN.into(),
            listen: self.portals().into_iter().map(Address::from).collect(),
            chap: self.shape.chap.then(|| account(SECRET)),
            mutual_chap: (edited && self.shape.chap).then(|| account(OTHER_SECRET)),
            discovery_chap: edited.then(|| account(SECRET)),
            params: self.shape.params.clone(),
            ..TargetSpec::default()
        };
        self.driver.set_target(spec).expect("a right target");
    }

    fn open_portal(&mut self, at: SocketAddr) {
        for i in 0..self.cores.len() {
            let (driver, engine) = (self.driver.clone(), self.engines[i].clone());
            let opened = self.on_core(i, driver.open_portal(engine, at.into()));
            opened.expect("the address is free");
        }
    }

    fn close_portal(&self, at: SocketAddr) {
        for engine in &self.engines {
            self.driver.close_portal(engine, at.into());
        }
    }

    /// Changes the iSCSI target as the daemon does: a portal opens when its target knows it, and
    /// closes when its target does not.
    pub fn edit_target(&mut self, to: TargetEdits) {
        let from = std::mem::replace(&mut self.edits, to);
        self.set_target();
        match (from.portal, to.portal) {
            (false, true) => self.open_portal(second_portal()),
            (true, false) => self.close_portal(second_portal()),
            _ => {}
        }
    }

    /// Makes the targets and opens their portals on every core.
    pub fn open_target(&mut self) {
        self.set_target();
        let target = self.registry.set_target("iscsi", IQN).expect("a right name");
        assert_eq!(target.port, RELATIVE_PORT);
        self.portals().into_iter().for_each(|at| self.open_portal(at));
        if let Some(nbd) = self.nbd.clone() {
            self.open_exports(&nbd);
        }
    }

    fn open_exports(&mut self, nbd: &Arc<dyn Driver>) {
        let listen: Vec<Address> = (0..GROUPS).map(|g| address(g).into()).collect();
        let spec = TargetSpec {
            name: EXPORTS.into(),
            listen: listen.clone(),
            params: json!({ "handshake_timeout": 5 }),
            ..TargetSpec::default()
        };
        nbd.set_target(spec).expect("a right target");
        self.registry.set_target("nbd", EXPORTS).expect("a right name");
        for i in 0..self.cores.len() {
            for at in &listen {
                let engine = self.engines[i].clone();
                let opened = self.on_core(i, nbd.clone().open_portal(engine, at.clone()));
                opened.expect("the address is free");
            }
        }
    }

    /// Takes the targets and their portals away.
    pub fn close_target(&mut self) {
        if let Some(nbd) = &self.nbd {
            for (engine, group) in
                self.engines.iter().flat_map(|e| (0..GROUPS).map(move |g| (e, g)))
            {
                nbd.close_portal(engine, address(group).into());
            }
            nbd.remove_target(EXPORTS);
            self.registry.remove_target("nbd", EXPORTS).expect("it was there");
        }
        self.portals().into_iter().for_each(|at| self.close_portal(at));
        self.driver.remove_target(IQN);
        self.registry.remove_target("iscsi", IQN).expect("it was there");
    }

    fn on_core<R: Send + 'static>(
        &mut self,
        core: usize,
        job: impl Future<Output = R> + 'static,
    ) -> R {
        let place: Arc<Mutex<Option<R>>> = Arc::default();
        let (answer, inbox) = (place.clone(), self.control.inbox().clone());
        drop(self.cores[core].reactor().spawn("test", async move {
            let out = job.await;
            *answer.lock().expect("one thread") = Some(out);
            inbox.wake();
        }));
        let full = |p: &Arc<Mutex<Option<R>>>| p.lock().expect("one thread").is_some();
        assert!(self.control.wait_until(Duration::from_secs(10), |_| full(&place)));
        place.lock().expect("one thread").take().expect("it is full")
    }

    /// A verb of the class `part`; `request` has its words.
    pub fn part(&mut self, mut request: Value) -> Result<Value, Error> {
        let part = self.control.topology.class("part").expect("loaded");
        let op = request.as_object_mut().and_then(|all| all.remove("op")).expect("a verb");
        part.verb(&mut self.control, op.as_str().expect("a word"), "", &request)
    }

    /// Partitions of a table: index, first block, blocks. A damaged table is repaired first.
    pub fn partitions(&mut self, on: &str) -> Option<Vec<(u32, usize, usize)>> {
        let mut answer = self.part(json!({ "op": "show", "geoms": [on] })).ok()?;
        if answer["tables"][0]["corrupt"].as_bool()? {
            self.part(json!({ "op": "recover", "geom": on })).ok()?;
            answer = self.part(json!({ "op": "show", "geoms": [on] })).ok()?;
        }
        let entries = answer["tables"][0]["entries"].as_array()?;
        let number = |v: &Value, key: &str| v[key].as_u64().expect("a number") as usize;
        let entry = |e: &Value| (number(e, "index") as u32, number(e, "start"), number(e, "count"));
        Some(entries.iter().map(entry).collect())
    }

    /// Shuts down as `ashlar serve` does on a stop request.
    pub fn stop(&mut self) {
        self.close_target();
        self.control.topology.shut_down();
        self.control.pump();
    }

    /// All threads have ended.
    pub fn drop_cores(self) {
        let Stack { cores, engines, control, registry, driver, nbd, disks, .. } = self;
        for core in &cores {
            core.reactor().shutdown();
        }
        drop((engines, control, registry, driver, nbd, disks));
    }
}
