//! A machine of two cores with one disk, in virtual time: the disk is a model, so the results are
//! the same on every machine.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bio::sync::Mutex;
use bio::{Bio, Errno, Op, Origin, Pool, PoolConfig};
use geom::{Access, Core, Edge, Flow, GraphControl, Inbox, Layer, Limits, NewProvider, Topology};
use reactor::model::{DiskModel, DiskOp, DiskShape, Timing};
use reactor::sim::{Actor, Limits as RunLimits, World};
use reactor::{Reactor, Token, WaitFor};
use serde_json::json;

use crate::bed::{BedClass, CLASS, Plain, failed};
use crate::error::Error;

/// Bytes of the disk: the page's SATA disk has 250 GB.
const DISK: u64 = 250_000_000_000 / 4096 * 4096;
const SECTOR: u32 = 4096;
/// Timers with this kind only advance the virtual clock.
const TICK: u32 = 999;
/// Most steps of one run; one that needs more has lost its way.
const STEPS_MAX: u64 = 100_000_000;

/// A SATA disk of 2010: 72 MB/s, seeks of 8.5 ms on average, 7200 turns a minute.
pub(super) const SATA_2010: Timing = Timing::Spinning {
    seek_ns_min: 800_000,
    seek_ns_max: 15_200_000,
    turn_ns: 8_333_333,
    track_bytes: 600_000,
};

/// Flash that answers in about 100 us, any number at once.
pub(super) const FLASH: Timing = Timing::Between { min_ns: 80_000, max_ns: 120_000 };

/// A client that keeps so many requests in flight.
#[derive(Clone, Copy)]
pub(super) struct Load {
    /// Its number as a client.
    pub client: u32,
    pub op: Op,
    pub depth: u32,
    pub bytes: u64,
    /// Start of sequential requests; None: a random place each time.
    pub from: Option<u64>,
    /// Pause between two requests, ns.
    pub think_ns: u64,
}

/// A disk that takes as long as the model requires. Its data is never checked.
struct Disk(Mutex<DiskModel>);

impl Layer for Disk {
    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        let op = match bio.op {
            Op::Read => DiskOp::Read,
            Op::Flush => DiskOp::Flush,
            _ => DiskOp::Write,
        };
        let now = core.now();
        let mut model = self.0.lock();
        let due = model.begin(now, op, bio.offset, bio.length);
        core.wake(bio.ticket(), due.saturating_sub(now));
        Flow::Wait
    }

    fn ready(&self, _: &mut Bio, _: Result<u64, Errno>, _: &Core) -> Flow {
        Flow::Done(Ok(()))
    }
}

fn spin(world: &World, cores: &[Rc<Core>], ns: u64, stop: &mut dyn FnMut() -> bool) {
    let actor = |core: &Rc<Core>| {
        let own = core.clone();
        Actor::new(core.reactor(), move || own.turn(WaitFor::Peek))
    };
    let mut actors: Vec<Actor> = cores.iter().map(actor).collect();
    world.run(&mut actors, RunLimits { ns, steps: STEPS_MAX }, stop);
}

struct Machine {
    world: World,
    cores: Vec<Rc<Core>>,
    control: GraphControl,
}

impl Machine {
    fn new() -> Machine {
        let world = World::new(1);
        let inbox = Arc::new(Inbox::default());
        let (mut cores, mut mailers) = (Vec::new(), Vec::new());
        for n in 0..2 {
            let reactor = Reactor::simulated(&world, &format!("core{n}"));
            let pool = Pool::new(PoolConfig { limit_bytes: 128 << 20 });
            let (core, mailer) = Core::new(n, reactor, pool, inbox.report());
            cores.push(core);
            mailers.push(mailer);
        }
        let (turning, all, clock) = (world.clone(), cores.clone(), world.clone());
        let wait = Box::new(move |inbox: &Inbox, most: Duration| {
            let ns = most.as_nanos() as u64;
            if let Some(core) = all.first() {
                core.reactor().after(ns, Token { kind: TICK, user_data: 0 });
            }
            spin(&turning, &all, ns, &mut || !inbox.is_empty());
        });
        let control = GraphControl::new(mailers, inbox, wait, Box::new(move || clock.now()));
        Machine { world, cores, control }
    }

    /// A disk, under a scheduler if one is named, and the way to it.
    fn disk(&mut self, timing: Timing, scheduler: Option<(&str, &str)>) -> Result<Edge, Error> {
        let shape = DiskShape { size: DISK, timing, sector: SECTOR, ..DiskShape::default() };
        let model = DiskModel::new(shape, 1).map_err(|e| failed(e.text()))?;
        let topology = &mut self.control.topology;
        topology.load(Arc::new(BedClass)).map_err(failed)?;
        classes::all().into_iter().try_for_each(|c| topology.load(c)).map_err(failed)?;
        let limits = Limits {
            media_bytes: DISK,
            sector_bytes: SECTOR,
            io_max_bytes: 0,
            delete_max_bytes: 0,
        };
        let new = NewProvider {
            name: "d0".into(),
            layer: Arc::new(Disk(Mutex::new(model))),
            limits,
            stripe_bytes: 0,
            stripe_offset: 0,
            attrs: Vec::new(),
        };
        let open = |t: &mut Topology| {
            let geom = t.new_geom(CLASS, "d0", "measured", Box::new(Plain))?;
            let disk = t.new_provider(geom, new)?;
            let user = t.new_geom(CLASS, "user", "measured", Box::new(Plain))?;
            let of = |e| geom::Error::of(e, "open");
            let consumer = t.attach_new(user, disk).map_err(of)?;
            t.access(consumer, Access::WRITE).map_err(of)?;
            Ok(t.edge(consumer))
        };
        let edge = self.control.call(open).map_err(failed)?;
        if let Some((algorithm, options)) = scheduler {
            let params = json!({ "disks": ["d0"], "algorithm": algorithm, "options": options });
            let class = self.control.topology.class("sched");
            let class = class.ok_or_else(|| failed("no class sched"))?;
            class.verb(&mut self.control, "insert", "", &params).map_err(failed)?;
        }
        Ok(edge)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.cores.iter().for_each(|c| drop(c.reactor().shutdown()));
    }
}

/// One of the requests that a load keeps under way, again and again.
async fn run(core: Rc<Core>, edge: Edge, load: Load, next: Rc<Cell<u64>>, done: Rc<Cell<u64>>) {
    loop {
        let at = match load.from {
            Some(_) => next.replace(next.get() + load.bytes),
            None => core.reactor().random() % (DISK / load.bytes) * load.bytes,
        };
        let Ok(data) = core.buffers(load.bytes as usize).await else { return };
        let fill = |bio: &mut Bio| {
            (bio.op, bio.origin) = (load.op, Origin(load.client));
            (bio.offset, bio.length, bio.data) = (at, load.bytes, data);
        };
        if core.io(edge, fill).await.status.is_err() {
            return;
        }
        done.set(done.get() + load.bytes);
        if load.think_ns > 0 {
            core.reactor().sleep(load.think_ns).await;
        }
    }
}

/// MB/s of each load, all at the same time for so many seconds, under a scheduler (its name and
/// options) or none.
pub(super) fn measure(
    (timing, seconds): (Timing, u64),
    scheduler: Option<(&str, &str)>,
    loads: &[Load],
) -> Result<Vec<f64>, Error> {
    let mut machine = Machine::new();
    let edge = machine.disk(timing, scheduler)?;
    let mut done = Vec::new();
    for (load, core) in loads.iter().zip(machine.cores.iter().cycle()) {
        let next = Rc::new(Cell::new(load.from.unwrap_or(0)));
        let bytes = Rc::new(Cell::new(0));
        for _ in 0..load.depth {
            let task = run(core.clone(), edge, *load, next.clone(), bytes.clone());
            core.reactor().spawn("load", task);
        }
        done.push(bytes);
    }
    let from = machine.world.now();
    machine.control.wait_until(Duration::from_secs(seconds), |_| false);
    let seconds = (machine.world.now() - from) as f64 / 1e9;
    Ok(done.iter().map(|d| d.get() as f64 / 1e6 / seconds).collect())
}
