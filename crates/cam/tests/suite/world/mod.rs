//! A core, a control thread's state and virtual HBAs, driven by one test thread in simulated time.
#![allow(dead_code)] // each test binary uses its part

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bio::{Attr, Bio, End, Errno, Flags, Op, Pool, PoolConfig, Segs};
use cam::sims::hba::{DiskSpec, Transport, VirtualHba};
use cam::{Bus, CamClass, Change, Names, Open, Sim, SimKind, Site};
use geom::{
    Access, Class, ConsumerId, Core, Edge, Error, Geom, GeomId, GraphControl, Inbox, Sink, Topology,
};
use reactor::sim::{self, Actor};
use reactor::{Reactor, Token, WaitFor};
use serde_json::Value;
use testkit::user;

/// Remembers which attributes changed below it.
#[derive(Clone, Default)]
struct User(Arc<Mutex<Vec<String>>>);

impl Geom for User {
    fn resizes(&self) -> bool {
        true
    }

    fn attr_changed(&mut self, _: &mut Topology, _: GeomId, _: ConsumerId, name: &str) {
        self.0.lock().unwrap().push(name.to_owned());
    }
}

/// How a request ended.
pub struct End1 {
    pub tag: u64,
    pub status: Result<(), Errno>,
    pub bytes: Vec<u8>,
    /// Where the medium failed.
    pub bad: Option<u64>,
}

#[derive(Default)]
struct Endings(RefCell<Vec<End1>>);

impl Sink for Endings {
    fn done(&self, tag: u64, bio: &mut Bio, _: &Core) {
        let bytes = if bio.op == Op::Read { bio.data.to_vec() } else { Vec::new() };
        assert!(bio.op != Op::Delete || bio.data.is_empty(), "a DELETE's list is taken away");
        let bad = match bio.value {
            Some(Attr::Int(at)) if bio.status.is_err() => Some(at),
            _ => None,
        };
        self.0.borrow_mut().push(End1 { tag, status: bio.status, bytes, bad });
    }
}

pub struct World {
    pub core: Rc<Core>,
    pub control: GraphControl,
    pub cam: Arc<CamClass>,
    pub buses: Vec<Arc<Bus>>,
    user: User,
    world: sim::World,
    endings: Rc<Endings>,
    sink: u32,
}

fn turn(core: &Rc<Core>, world: &sim::World, most: u64) {
    // Without it the clock would not move when nothing is left to happen.
    core.reactor().after(most, Token::default());
    let mut actors = [Actor::new(core.reactor(), || core.turn(WaitFor::Forever))];
    let limits = sim::Limits { ns: most, ..sim::Limits::default() };
    world.run(&mut actors, limits, &mut || false);
}

impl World {
    pub fn new(seed: u64, hbas: &[Arc<VirtualHba>]) -> World {
        let sims: Vec<Arc<dyn Sim>> = hbas.iter().map(|h| h.clone() as Arc<dyn Sim>).collect();
        World::with(seed, &sims)
    }

    /// A virtual HBA with one disk, which is open for writing.
    pub fn of_disk(
        seed: u64,
        transport: Transport,
        spec: DiskSpec,
    ) -> (World, Arc<VirtualHba>, Edge) {
        let hba = VirtualHba::new("hba0", transport, 1);
        hba.plug(0, spec, seed).unwrap();
        let mut w = World::new(seed, std::slice::from_ref(&hba));
        let name = w.scan(0).remove(0);
        let edge = w.open(&name).1;
        (w, hba, edge)
    }

    /// A verb of class cam, polled until it has ended.
    pub fn verb(&mut self, verb: &str, on: &str, params: &Value) -> Result<Value, Error> {
        let cam = self.cam.clone();
        let mut answer = cam.verb(&mut self.control, verb, on, params)?;
        while let Some(so_far) = answer.get("unfinished") {
            let again = so_far["again"].clone();
            self.turn(10_000_000);
            answer = cam.verb(&mut self.control, verb, on, &again)?;
        }
        Ok(answer)
    }

    /// With any SIMs.
    pub fn with(seed: u64, sims: &[Arc<dyn Sim>]) -> World {
        let world = sim::World::new(seed);
        let reactor = Reactor::simulated(&world, "test");
        let inbox = Arc::new(Inbox::default());
        let pool = Pool::new(PoolConfig { limit_bytes: 16 << 20 });
        let (core, mailer) = Core::new(0, reactor.clone(), pool, inbox.report());
        let (c, w) = (core.clone(), world.clone());
        let mut control = GraphControl::new(
            vec![mailer],
            inbox.clone(),
            Box::new(move |_, most: Duration| {
                turn(&c, &w, (most.as_nanos() as u64).min(2_000_000))
            }),
            Box::new(move || reactor.fresh_now()),
        );
        let cam = Arc::new(CamClass::new(inbox.clone(), cam::sims::kinds(), 1));
        control.topology.load(cam.clone()).unwrap();
        user::load(&mut control.topology);
        let notifier = control.topology.notifier();
        let bus = |sim: &Arc<dyn Sim>| cam.add_bus(sim.clone(), Names::default(), notifier.clone());
        let buses = sims.iter().map(bus).collect();
        let endings = Rc::new(Endings::default());
        let sink = core.add_sink(endings.clone());
        World { core, control, cam, buses, user: User::default(), world, endings, sink }
    }

    /// Names of attributes of providers in use that changed since the last call.
    pub fn changed_attrs(&mut self) -> Vec<String> {
        std::mem::take(&mut self.user.0.lock().unwrap())
    }

    /// The world that the core is in.
    pub fn net(&self) -> &sim::World {
        &self.world
    }

    /// A further bus; its number.
    pub fn add(&mut self, sim: Arc<dyn Sim>) -> usize {
        let notifier = self.control.topology.notifier();
        self.buses.push(self.cam.add_bus(sim, Names::default(), notifier));
        self.buses.len() - 1
    }

    /// A further bus of a kind, opened as the daemon opens it; its number.
    pub fn add_kind(&mut self, kind: &dyn SimKind, name: &str, params: &Value) -> usize {
        let site = Site { notifier: self.control.topology.notifier(), cores: 1 };
        self.add(kind.open(&Open { name, params, site: &site }).unwrap())
    }

    /// Adds the disks that buses found by themselves since the last call; their names.
    pub fn found(&mut self) -> Vec<String> {
        let all = self.cam.clone().take_update_results(&mut self.control).into_iter();
        all.flat_map(|(_, names)| names.unwrap()).collect()
    }

    pub fn has(&self, name: &str) -> bool {
        self.control.topology.find(name).is_some()
    }

    /// Turns by so many ns, and adds the disks that buses found, until a condition holds.
    pub fn until(&mut self, (step, most): (u64, u64), what: &str, so: impl Fn(&World) -> bool) {
        let end = self.now() + most;
        while !so(self) {
            assert!(self.now() < end, "{what}");
            self.turn(step);
            self.found();
        }
    }

    pub fn now(&self) -> u64 {
        self.core.reactor().fresh_now()
    }

    /// Lets things happen for at most `ns`.
    pub fn turn(&mut self, ns: u64) {
        turn(&self.core, &self.world, ns);
        self.control.pump();
    }

    /// Looks for devices; the names of the disks that are new.
    pub fn scan(&mut self, bus: usize) -> Vec<String> {
        let bus = self.buses[bus].clone();
        let place: Rc<RefCell<Option<Vec<Change>>>> = Rc::default();
        let (out, core, on) = (place.clone(), self.core.clone(), bus.clone());
        self.core.reactor().spawn("scan", async move {
            let changes = on.scan(&core).await;
            *out.borrow_mut() = Some(changes);
        });
        let end = self.now() + 3_000_000_000_000;
        while place.borrow().is_none() {
            assert!(self.now() < end, "a scan does not end");
            self.turn(100_000_000);
        }
        let changes = place.take().unwrap();
        let cam = self.cam.clone();
        self.control.call(|t| cam.commit(t, &bus, changes)).unwrap()
    }

    /// Opens a provider for reading and writing.
    pub fn open(&mut self, on: &str) -> (ConsumerId, Edge) {
        let user = Box::new(self.user.clone());
        user::open_as(&mut self.control, on, Access::WRITE, user).unwrap()
    }

    /// Opens a provider, if it lets itself be opened so.
    pub fn open_as(&mut self, on: &str, access: Access) -> Result<Edge, Errno> {
        let user = Box::new(self.user.clone());
        let opened = user::open_as(&mut self.control, on, access, user);
        opened.map(|(_, edge)| edge).map_err(|e| e.kind)
    }

    pub fn start(&mut self, edge: Edge, tag: u64, fill: impl FnOnce(&mut Bio)) {
        let sink = self.sink;
        self.core.submit(edge, End::Sink { sink, tag }, fill);
    }

    /// Submits a request whose result is not recorded.
    pub fn start_quietly(&mut self, edge: Edge, fill: impl FnOnce(&mut Bio)) {
        self.core.submit(edge, End::NoReceiver, fill);
    }

    /// What ended since the last call.
    pub fn ended(&mut self) -> Vec<End1> {
        std::mem::take(&mut self.endings.0.borrow_mut())
    }

    /// Carries out one request.
    pub fn io(&mut self, edge: Edge, fill: impl FnOnce(&mut Bio)) -> End1 {
        self.start(edge, u64::MAX, fill);
        let end = self.now() + 3_000_000_000_000;
        loop {
            if let Some(ended) = self.ended().pop() {
                return ended;
            }
            assert!(self.now() < end, "a request does not end");
            self.turn(10_000_000);
        }
    }

    pub fn write(&mut self, edge: Edge, at: u64, bytes: &[u8], flags: Flags) -> Result<(), Errno> {
        let data = self.buffer(bytes.len());
        data.copy_from(0, bytes);
        self.io(edge, |bio| {
            range(bio, Op::Write, at, data);
            bio.flags = flags;
        })
        .status
    }

    pub fn read(&mut self, edge: Edge, at: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let data = self.buffer(len);
        let ended = self.io(edge, |bio| range(bio, Op::Read, at, data));
        ended.status.map(|()| ended.bytes)
    }

    /// An operation without data.
    pub fn plain(&mut self, edge: Edge, op: Op, at: u64, len: u64) -> Result<(), Errno> {
        self.io(edge, |bio| {
            range(bio, op, at, Segs::new());
            bio.length = len;
        })
        .status
    }

    pub fn buffer(&self, len: usize) -> Segs {
        Segs::alloc(self.core.pool(), len).unwrap()
    }
}

pub fn range(bio: &mut Bio, op: Op, offset: u64, data: Segs) {
    bio.op = op;
    bio.offset = offset;
    bio.length = data.len() as u64;
    bio.data = data;
}

/// A virtual HBA with so many disks of 1 MiB, one in each bay.
pub fn small_disks(name: &str, transport: Transport, disks: u64) -> Arc<VirtualHba> {
    let hba = VirtualHba::new(name, transport, disks as usize);
    for bay in 0..disks {
        let mut spec = DiskSpec { serial: format!("S{bay}"), ..DiskSpec::default() };
        spec.shape.size = 1 << 20;
        hba.plug(bay, spec, bay).unwrap();
    }
    hba
}
