//! Cores, disks and initiators for a while.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bio::Attr;
use bio::sync::Mutex;
use engine::{Engine, GroupSpec, Login, LunSpec, Registry};
use geom::{Core, GraphControl, Limits, NewProvider, Runtime, RuntimeConfig};
use reactor::{Mailbox, Mailer, PortChoice};
use rustix::time::{ClockId, clock_gettime};

use super::initiator::Initiator;
use super::leaf::{Boxes, CLASS, Leaf, LeafClass, Plain, Way};
use crate::error::{Error, Kind};

const DRIVER: &str = "bench";
const TARGET: &str = "bench";
/// Bytes of a disk; none of them exists.
const MEDIA_BYTES: u64 = 1 << 40;
/// Bytes of buffers of a core.
const POOL_BYTES: usize = 64 << 20;
/// Commands of the load before anything is counted.
const WARM_UP: Duration = Duration::from_millis(100);
/// How long a core that does not begin is waited for.
const START_MAX: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Cores, with an initiator for each disk on each.
    pub cores: u32,
    pub disks: u32,
    pub way: Way,
    /// WRITE instead of READ.
    pub write: bool,
    /// Commands in flight of each initiator.
    pub depth: u32,
}

/// Results of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// Commands that ended while it was measured.
    pub commands: u64,
    /// How long that was, ns of the clock on the wall.
    pub wall_ns: u64,
    /// Processor time of this process in it, ns: cores and disks' threads.
    pub cpu_ns: u64,
}

impl Outcome {
    /// Commands a second.
    pub fn rate(&self) -> f64 {
        self.commands as f64 * 1e9 / (self.wall_ns as f64).max(1.0)
    }

    /// Processor time of a command, us.
    pub fn cpu_us(&self) -> f64 {
        self.cpu_ns as f64 / 1e3 / (self.commands as f64).max(1.0)
    }
}

/// State shared by the cores and their owner.
#[derive(Default)]
struct RigShared {
    /// Cores whose initiators are logged in.
    ready: AtomicU32,
    counting: AtomicBool,
    stop: AtomicBool,
    ended: Mutex<Vec<Result<Outcome, Error>>>,
}

/// Where the cores wait for their load.
type LoadMailers = Arc<Mutex<Vec<Mailer<(Shape, Arc<RigShared>)>>>>;

/// See the module.
pub(crate) struct Rig {
    runtime: Runtime,
    load_mailers: LoadMailers,
    control: GraphControl,
    shape: Shape,
    threads: Vec<JoinHandle<()>>,
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::new(Kind::System, format!("in process: {error}"))
}

impl Rig {
    /// Starts cores and disks.
    pub fn start(shape: Shape) -> Result<Rig, Error> {
        let registry = Registry::new();
        let boxes = Boxes::default();
        let doors = LoadMailers::default();
        let (known, answers, open) = (registry.clone(), boxes.clone(), doors.clone());
        let config = RuntimeConfig {
            cores: shape.cores as usize,
            port: PortChoice::Auto,
            spin_ns: 0,
            pool_bytes: POOL_BYTES,
        };
        let mut runtime = Runtime::start(config, move |core| {
            listen(core, &answers);
            let engine = Engine::new(core.clone(), known.clone());
            let (mailer, mailbox) = core.reactor().mailbox();
            open.lock().push(mailer);
            drop(core.reactor().spawn("bench", serve(engine, mailbox)));
        })
        .map_err(failed)?;
        let mut control = runtime.take_control().ok_or_else(|| failed("no control side"))?;
        control.topology.load(Arc::new(LeafClass)).map_err(failed)?;
        let mut threads = Vec::new();
        let mut luns = Vec::new();
        for lun in 0..u64::from(shape.disks) {
            let (leaf, thread) = Leaf::new(shape.way, &boxes).map_err(failed)?;
            threads.extend(thread);
            let name = format!("disk{lun}");
            disk(&mut control, &name, leaf).map_err(failed)?;
            let spec = engine::lun::OpenSpec::default();
            engine::lun::open_device(&mut control, &registry, &name, &spec).map_err(failed)?;
            luns.push(LunSpec { lun, device: name, ..LunSpec::default() });
        }
        registry.set_target(DRIVER, TARGET).map_err(failed)?;
        let group = GroupSpec {
            name: "all".into(),
            initiators: vec!["*".into()],
            luns,
            ..GroupSpec::default()
        };
        registry.set_groups(DRIVER, TARGET, &[group]).map_err(failed)?;
        Ok(Rig { runtime, load_mailers: doors, control, shape, threads })
    }

    /// Runs the load for `time` after a warm-up.
    pub fn run(&mut self, time: Duration) -> Result<Outcome, Error> {
        let shared = Arc::new(RigShared::default());
        for mailer in self.load_mailers.lock().iter() {
            mailer.send((self.shape, shared.clone())).map_err(|_| failed("a core has stopped"))?;
        }
        let begun = Instant::now();
        while shared.ready.load(Ordering::Acquire) < self.shape.cores {
            self.control.pump();
            if begun.elapsed() > START_MAX {
                shared.stop.store(true, Ordering::Release);
                return Err(Error::new(Kind::Timeout, "in process: a core does not begin"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(WARM_UP);
        shared.counting.store(true, Ordering::Release);
        let cpu = process_ns();
        std::thread::sleep(time);
        let cpu_ns = process_ns().saturating_sub(cpu);
        shared.stop.store(true, Ordering::Release);
        let mut all = Outcome { cpu_ns, ..Outcome::default() };
        for _ in 0..self.shape.cores {
            let one = loop {
                let one = shared.ended.lock().pop();
                match one {
                    Some(one) => break one?,
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
            };
            all.commands += one.commands;
            all.wall_ns = all.wall_ns.max(one.wall_ns);
        }
        Ok(all)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.runtime.stop();
        for name in (0..self.shape.disks).map(|n| format!("disk{n}")) {
            if let Some(geom) = self.control.topology.find_geom(CLASS, &name) {
                self.control.topology.wither_geom(geom, bio::Errno::NxIo);
            }
        }
        // The disks' threads end when their disks are dropped with the topology; they are not
        // joined.
        self.threads.clear();
    }
}

/// Wakes requests that a disk's thread has answered.
fn listen(core: &Rc<Core>, boxes: &Boxes) {
    let (mailer, mailbox) = core.reactor().mailbox();
    boxes.lock().insert(core.id(), mailer);
    let me = core.clone();
    drop(core.reactor().spawn("bench answers", async move {
        while let Some(ticket) = mailbox.recv().await {
            me.wake(ticket, 0);
        }
    }));
}

fn disk(control: &mut GraphControl, name: &str, leaf: Leaf) -> Result<(), geom::Error> {
    let layer = Arc::new(leaf);
    control.call(|t| {
        let geom = t.new_geom(CLASS, name, "measured", Box::new(Plain))?;
        let limits = Limits {
            media_bytes: MEDIA_BYTES,
            sector_bytes: 512,
            io_max_bytes: 0,
            delete_max_bytes: 0,
        };
        t.new_provider(
            geom,
            NewProvider {
                name: name.into(),
                layer,
                limits,
                stripe_bytes: 0,
                stripe_offset: 0,
                attrs: vec![("GEOM::rotation_rate", Attr::Int(1))],
            },
        )
        .map(drop)
    })
}

/// Runs the loads of one core.
async fn serve(engine: Rc<Engine>, mailbox: Mailbox<(Shape, Arc<RigShared>)>) {
    while let Some((shape, shared)) = mailbox.recv().await {
        let outcome = load(&engine, shape, &shared).await;
        shared.ready.fetch_add(u32::from(outcome.is_err()), Ordering::AcqRel);
        shared.ended.lock().push(outcome);
    }
}

/// The initiators of one core, from login to logout.
async fn load(engine: &Rc<Engine>, shape: Shape, shared: &RigShared) -> Result<Outcome, Error> {
    let core = engine.core();
    let target = engine.find_target(DRIVER, TARGET).ok_or_else(|| failed("no target"))?;
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut initiators = Vec::new();
    for lun in 0..shape.disks {
        let login = Login {
            target: target.clone(),
            initiator: format!("core{}-{lun}", core.id()),
            port_id: vec![core.id() as u8, lun as u8],
            transport_id: Vec::new(),
            portal: nowhere.into(),
            from: nowhere.into(),
            reinstates: false,
            labels: Vec::new(),
        };
        let how = (shape.write, shape.depth, MEDIA_BYTES / 4096);
        initiators.push(Initiator::login(engine, login, lun as u8, how)?);
    }
    shared.ready.fetch_add(1, Ordering::AcqRel);
    let ended = |all: &[Initiator]| all.iter().map(Initiator::ended).sum::<u64>();
    let mut begun = None;
    while !shared.stop.load(Ordering::Acquire) {
        for initiator in &mut initiators {
            if !initiator.turn() {
                return Err(failed("a command was refused"));
            }
        }
        if begun.is_none() && shared.counting.load(Ordering::Acquire) {
            begun = Some((ended(&initiators), core.reactor().fresh_now()));
        }
        core.reactor().yield_now().await;
    }
    let (was, at) = begun.ok_or_else(|| failed("stopped before it began"))?;
    let outcome = Outcome {
        commands: ended(&initiators) - was,
        wall_ns: core.reactor().fresh_now().saturating_sub(at),
        cpu_ns: 0,
    };
    initiators.iter().for_each(Initiator::close);
    Ok(outcome)
}

/// Processor time of this process, ns.
fn process_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let part = |n: i64| u64::try_from(n).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}
