//! Cores, a control thread's state and a folder of its own, driven by one test thread.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bio::{Bio, End, Errno, Flags, Op, Pool, PoolConfig, Segs};
use disks::{DISK_CLASS, DiskClass};
use geom::{
    Access, Class, ConsumerId, Core, Edge, Error, Finished, GraphControl, Inbox, ProviderId, Sink,
};
use reactor::{Config, PortChoice, Reactor, SeededRandom, Token, WaitFor, sim};
use serde_json::Value;

pub struct World {
    /// The first core, with its reactor.
    pub core: Rc<Core>,
    pub reactor: Reactor,
    pub cores: Vec<Rc<Core>>,
    pub control: GraphControl,
    pub disks: Arc<DiskClass>,
    turn: AdvanceWorld,
}

/// Runs the world for at most so many ns.
type AdvanceWorld = Rc<dyn Fn(u64)>;

impl World {
    pub fn new(port: PortChoice) -> World {
        let config = Config { name: "test".into(), port, ..Config::default() };
        World::around(&[Reactor::start(config).unwrap()], None)
    }

    /// A core in a simulated world of its own: time advances only by waiting.
    pub fn simulated(seed: u64) -> World {
        World::simulated_in(sim::World::new(seed), 1)
    }

    /// Cores in a world that was made before.
    pub fn simulated_in(world: sim::World, cores: usize) -> World {
        let reactors: Vec<Reactor> =
            (0..cores).map(|_| Reactor::simulated(&world, "test")).collect();
        World::around(&reactors, Some(world))
    }

    fn around(reactors: &[Reactor], world: Option<sim::World>) -> World {
        let inbox = Arc::new(Inbox::default());
        let start = |(id, reactor): (u32, &Reactor)| {
            let pool = Pool::new(PoolConfig { limit_bytes: 16 << 20 });
            Core::new(id, reactor.clone(), pool, inbox.report())
        };
        let (cores, mailers): (Vec<_>, Vec<_>) = (0..).zip(reactors).map(start).unzip();
        let core = cores[0].clone();
        let (reactor, clock) = (reactors[0].clone(), reactors[0].clone());
        let turn = turner(cores.clone(), world);
        let waiting = turn.clone();
        let mut control = GraphControl::new(
            mailers,
            inbox.clone(),
            Box::new(move |_, most: Duration| waiting((most.as_nanos() as u64).min(2_000_000))),
            Box::new(move || clock.fresh_now()),
        );
        let disks = Arc::new(DiskClass::new(inbox, cores.len()));
        control.topology.load(disks.clone()).unwrap();
        control.topology.load(geom::filter_class::<classes::nop::Nop>()).unwrap();
        World { core, reactor, cores, control, disks, turn }
    }

    pub fn disk(&mut self, kind: &str, name: &str, params: Value) -> Result<ProviderId, Error> {
        let disks = self.disks.clone();
        self.control.call(|t| {
            disks.add(t, kind, name, &params)?;
            t.find(name).ok_or(Error::of(Errno::NoEnt, "provider"))
        })
    }

    /// Opens a provider.
    pub fn user(&mut self, on: &str, access: Access) -> Result<(ConsumerId, Edge), Errno> {
        testkit::user::open(&mut self.control, on, access).map_err(|e| e.kind)
    }

    /// Opens a provider for reading and writing.
    pub fn open(&mut self, on: &str) -> Edge {
        self.user(on, Access::WRITE).unwrap().1
    }

    /// Turns until `done` is true; panics when that takes too long.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut World) -> bool) {
        let end = self.reactor.fresh_now() + 20_000_000_000;
        while !done(self) {
            assert!(self.reactor.fresh_now() < end, "{what} does not happen");
            self.turn(1_000_000);
        }
    }

    /// Lets things happen for at most `ns`.
    pub fn turn(&mut self, ns: u64) {
        (self.turn)(ns);
        self.control.pump();
    }

    pub fn verb(&mut self, verb: &str, disk: &str, params: Value) -> Result<Value, Error> {
        let disks = self.disks.clone();
        disks.verb(&mut self.control, verb, disk, &params)
    }

    /// Starts requests that end in any order; how they end is found in the list, by number.
    pub fn start(&mut self, edge: Edge, n: usize, ended: &Ended, fill: impl FnOnce(&mut Bio)) {
        if ended.sink.get().is_none() {
            ended.sink.set(Some(self.core.add_sink(ended.place.clone())));
        }
        let sink = ended.sink.get().unwrap();
        self.core.submit(edge, End::Sink { sink, tag: n as u64 }, fill);
    }

    /// Carries out one request.
    pub fn io(&mut self, edge: Edge, fill: impl FnOnce(&mut Bio) + 'static) -> Finished {
        let place = Rc::new(RefCell::new(None));
        let (out, core) = (place.clone(), self.core.clone());
        self.reactor.spawn("io", async move {
            let done = core.io(edge, fill).await;
            *out.borrow_mut() = Some(done);
        });
        self.until("the end of a request", |_| place.borrow().is_some());
        place.take().unwrap()
    }

    pub fn read(&mut self, edge: Edge, offset: u64, len: u64) -> Result<Vec<u8>, Errno> {
        let data = Segs::alloc(self.core.pool(), len as usize).unwrap();
        data.fill(0, len as usize, 0xa5);
        let done = self.io(edge, move |bio| range(bio, Op::Read, offset, len, data));
        done.status.map(|()| done.data.to_vec())
    }

    pub fn write(&mut self, edge: Edge, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        let data = Segs::alloc(self.core.pool(), bytes.len()).unwrap();
        data.copy_from(0, bytes);
        let len = bytes.len() as u64;
        self.io(edge, move |bio| range(bio, Op::Write, at, len, data)).status
    }

    /// An operation without data.
    pub fn plain(&mut self, edge: Edge, op: Op, at: u64, len: u64) -> Result<(), Errno> {
        self.io(edge, move |bio| range(bio, op, at, len, Segs::new())).status
    }

    pub fn flagged(
        &mut self,
        edge: Edge,
        op: Op,
        at: u64,
        len: u64,
        flags: Flags,
    ) -> Result<(), Errno> {
        self.io(edge, move |bio| {
            range(bio, op, at, len, Segs::new());
            bio.flags = flags;
        })
        .status
    }

    pub fn line_of(&mut self, disk: &str, line: &str) -> String {
        let view = self.control.topology.view(0);
        let geom = view.iter().find(|g| g.class == DISK_CLASS && g.name == disk).unwrap();
        let found = geom.show.iter().find(|(n, _)| *n == line);
        found.map(|(_, v)| v.clone()).unwrap_or_default()
    }
}

/// Results of requests that [`World::start`] started, in the order of their ends.
#[derive(Default)]
pub struct Ended {
    sink: Cell<Option<u32>>,
    place: Rc<Endings>,
}

#[derive(Default)]
struct Endings(RefCell<Vec<(u64, Result<(), Errno>)>>);

impl Sink for Endings {
    fn done(&self, tag: u64, bio: &mut Bio, _: &Core) {
        self.0.borrow_mut().push((tag, bio.status));
    }
}

impl Ended {
    pub fn list(&self) -> Vec<(u64, Result<(), Errno>)> {
        self.place.0.borrow().clone()
    }
}

fn turner(cores: Vec<Rc<Core>>, world: Option<sim::World>) -> AdvanceWorld {
    let Some(world) = world else {
        return Rc::new(move |most| {
            let until = cores[0].reactor().fresh_now() + most;
            cores[0].turn(WaitFor::Until(until));
        });
    };
    Rc::new(move |most| {
        // Without it the clock would not move when nothing is left to happen.
        cores[0].reactor().after(most, Token::default());
        let limits = sim::Limits { ns: most, ..sim::Limits::default() };
        world.run(&mut testkit::cores::actors(&cores), limits, &mut || false);
    })
}

pub fn range(bio: &mut Bio, op: Op, offset: u64, length: u64, data: Segs) {
    bio.op = op;
    bio.offset = offset;
    bio.length = length;
    bio.data = data;
}

/// Buffers for `len` bytes, cut at places where no disk would.
pub fn crooked(pool: &Pool, len: usize, random: &mut SeededRandom) -> Segs {
    let mut segs = Segs::new();
    let mut left = len;
    while left > 0 {
        let n = left.min(1 + random.below(9000) as usize);
        let skip = random.below(40) as usize;
        let buf = pool.get(n + skip).unwrap();
        let n = n.min(buf.capacity() - skip);
        segs.push(buf.seg(skip, n).unwrap());
        left -= n;
    }
    segs
}

/// Random operations on a disk and on an array of bytes; both must always agree. The disk is
/// zeroes at first and is left as the array that returns.
pub fn exercise(w: &mut World, on: &str, seed: u64, ops: u32) -> Vec<u8> {
    let edge = w.open(on);
    let provider = w.control.topology.find(on).unwrap();
    let limits = w.control.topology.limits(provider).unwrap();
    let unit = u64::from(limits.sector_bytes);
    let sectors = limits.media_bytes / unit;
    let mut random = SeededRandom::new(seed);
    let mut model = vec![0u8; limits.media_bytes as usize];
    for n in 0..ops {
        let at = random.below(sectors);
        let most = if random.chance(50) { 3000 } else { 40 };
        let count = (1 + random.below(most)).min(sectors - at);
        let (offset, len) = (at * unit, count * unit);
        let here = offset as usize..(offset + len) as usize;
        let flags = if random.chance(200) { Flags::FUA } else { Flags::NONE };
        match random.below(10) {
            0..4 => {
                let data = if random.chance(300) {
                    crooked(w.core.pool(), len as usize, &mut random)
                } else {
                    Segs::alloc(w.core.pool(), len as usize).unwrap()
                };
                let bytes: Vec<u8> =
                    (0..len).map(|i| (i / 512) as u8 ^ n as u8 ^ i as u8 | 1).collect();
                data.copy_from(0, &bytes);
                let done = w.io(edge, move |bio| {
                    range(bio, Op::Write, offset, len, data);
                    bio.flags = flags;
                });
                assert_eq!((done.status, done.completed), (Ok(()), len));
                assert!(done.data.to_vec() == bytes, "buffers come back as they were");
                model[here].copy_from_slice(&bytes);
            }
            4..7 => {
                let data = if random.chance(300) {
                    crooked(w.core.pool(), len as usize, &mut random)
                } else {
                    Segs::alloc(w.core.pool(), len as usize).unwrap()
                };
                data.fill(0, len as usize, 0xa5);
                let done = w.io(edge, move |bio| range(bio, Op::Read, offset, len, data));
                assert_eq!((done.status, done.completed), (Ok(()), len));
                assert_eq!(done.data.len() as u64, len);
                assert!(done.data.to_vec() == model[here], "seed {seed}, operation {n}");
            }
            7 => {
                assert_eq!(w.plain(edge, Op::Delete, offset, len), Ok(()));
                model[here].fill(0);
            }
            8 => {
                let hole = if random.chance(500) { Flags::NO_HOLE } else { Flags::NONE };
                assert_eq!(w.flagged(edge, Op::WriteZeroes, offset, len, flags | hole), Ok(()));
                model[here].fill(0);
            }
            _ => assert_eq!(w.plain(edge, Op::Flush, 0, 0), Ok(())),
        }
    }
    for (i, piece) in model.chunks(1 << 20).enumerate() {
        let found = w.read(edge, (i << 20) as u64, piece.len() as u64).unwrap();
        assert!(found == piece, "seed {seed}: MiB {i} at the end");
    }
    model
}

/// What every disk has to refuse or cut.
pub fn boundaries(w: &mut World, on: &str) {
    let edge = w.open(on);
    let provider = w.control.topology.find(on).unwrap();
    let limits = w.control.topology.limits(provider).unwrap();
    let (size, unit) = (limits.media_bytes, u64::from(limits.sector_bytes));
    assert_eq!(w.read(edge, 1, unit), Err(Errno::Inval));
    assert_eq!(w.read(edge, 0, unit - 1), Err(Errno::Inval));
    assert_eq!(w.plain(edge, Op::Delete, unit / 2, unit), Err(Errno::Inval));
    let cut = w.read(edge, size - unit, 4 * unit).unwrap();
    assert_eq!(cut.len() as u64, unit, "cut at the end of the medium");
    assert_eq!(w.read(edge, size, unit), Ok(vec![]));
    assert_eq!(w.read(edge, size + unit, unit), Err(Errno::Io));
    assert_eq!(w.write(edge, size + unit, &vec![0; unit as usize]), Err(Errno::Io));
    let none = w.io(edge, |bio| {
        bio.op = Op::GetAttr;
        bio.attr = "PART::nothing";
    });
    assert_eq!(none.status, Err(Errno::NoAttr));
    let ident = w.io(edge, |bio| {
        bio.op = Op::GetAttr;
        bio.attr = "GEOM::ident";
    });
    assert!(matches!(ident.value, Some(bio::Attr::Text(t)) if !t.is_empty()));
}

/// A folder that the test removes.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let n = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ashlar-disks-{}-{n}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
