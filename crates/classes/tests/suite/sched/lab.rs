//! A simulated world with cores, a control thread, one disk and a user that has it open.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bio::{Bio, End, Errno, Flags, Op, Origin, Segs, Status};
use geom::{
    Access, ConsumerId, Core, Edge, Error, Geom, GeomId, GraphControl, Inbox, ProviderId, Sink,
    Topology,
};
use reactor::Token;
use reactor::model::Timing;
use reactor::sim::{DelayedThread, Limits as RunLimits, World};
use serde_json::{Value, json};
use testkit::cores;

use super::leaf::{BLOCK, Leaf, MS};

/// Timers with this kind only advance the virtual clock.
const TICK: u32 = 999;

/// Turns of cores for which the control thread is held up when the orders require it.
const HELD_UP: u32 = 8;

/// The status of a request that ended, and the data read.
type Ended = (Status, Vec<u8>);

/// The receiver of requests that ended.
#[derive(Default)]
pub struct Ends {
    pub all: RefCell<BTreeMap<(u32, u64), Ended>>,
}

impl Sink for Ends {
    fn done(&self, tag: u64, bio: &mut Bio, core: &Core) {
        let data = if bio.op == Op::Read { bio.data.to_vec() } else { Vec::new() };
        let twice = self.all.borrow_mut().insert((core.id(), tag), (bio.status, data));
        assert!(twice.is_none(), "request {tag} ended twice");
    }
}

struct User;

impl Geom for User {
    fn orphan(&mut self, _: &mut Topology, _: GeomId, _: ConsumerId, _: Errno) {}
}

pub struct Lab {
    pub world: World,
    pub cores: Vec<Rc<Core>>,
    pub control: GraphControl,
    pub leaf: Leaf,
    pub disk: ProviderId,
    pub user: ConsumerId,
    pub ends: Rc<Ends>,
    sinks: Vec<u32>,
    tags: Cell<u64>,
}

/// Makes a user that has a provider open for writing.
fn open(control: &mut GraphControl, name: &str, on: ProviderId) -> ConsumerId {
    let user = control.call(|t| {
        let geom = t.new_geom("test", name, "a user", Box::new(User))?;
        let user = t.attach_new(geom, on).map_err(|e| Error::of(e, "attach"))?;
        t.access(user, Access::WRITE).map_err(|e| Error::of(e, "open"))?;
        Ok(user)
    });
    user.expect("a user")
}

impl Lab {
    pub fn new(seed: u64, cores: usize, bytes: u64, timing: Timing) -> Lab {
        Lab::with(seed, cores, bytes, timing, 0)
    }

    pub fn with(seed: u64, count: usize, bytes: u64, timing: Timing, io_max: u32) -> Lab {
        let world = World::new(seed);
        let (cores, mailers, inbox) = cores::start(&world, count, 128 << 20);
        let (w, c, clock) = (world.clone(), cores.clone(), world.clone());
        let held_up = DelayedThread::default();
        let wait = Box::new(move |inbox: &Inbox, most: Duration| {
            let ns = most.as_nanos() as u64;
            if let Some(core) = c.first() {
                core.reactor().after(ns, Token { kind: TICK, user_data: 0 });
            }
            let limits = RunLimits { ns, steps: 10_000_000 };
            w.run(&mut cores::actors(&c), limits, &mut || {
                !inbox.is_empty() && held_up.continues(&w, HELD_UP)
            });
        });
        let mut control = GraphControl::new(mailers, inbox, wait, Box::new(move || clock.now()));
        testkit::disk::load(&mut control.topology);
        classes::all().into_iter().for_each(|c| control.topology.load(c).expect("load"));
        let leaf = Leaf::new(bytes, timing, seed);
        let disk = control.call(|t| leaf.create(t, "d0", io_max)).expect("a disk");
        let user = open(&mut control, "user", disk);
        let ends = Rc::new(Ends::default());
        let sinks = cores.iter().map(|c| c.add_sink(ends.clone())).collect();
        Lab { world, cores, control, leaf, disk, user, ends, sinks, tags: Cell::new(1) }
    }

    pub fn verb(&mut self, verb: &str, on: &str, params: Value) -> Result<Value, Error> {
        let class = self.control.topology.class("sched").expect("loaded");
        let done = class.verb(&mut self.control, verb, on, &params);
        self.control.topology.check();
        done
    }

    pub fn insert(&mut self, algorithm: &str) {
        let done = self.verb("insert", "", json!({ "disks": ["d0"], "algorithm": algorithm }));
        done.unwrap_or_else(|e| panic!("insert {algorithm}: {e}"));
    }

    /// Makes another user that has a provider open.
    pub fn user_of(&mut self, name: &str, provider: &str) -> ConsumerId {
        let on = self.control.topology.find(provider).expect("a provider");
        open(&mut self.control, name, on)
    }

    pub fn close(&mut self, user: ConsumerId) {
        let left = self.control.call(|t| {
            t.leave(user);
            Ok(())
        });
        left.expect("left");
    }

    /// The output of `stats` for the scheduler of the disk.
    pub fn stats(&mut self) -> Value {
        self.verb("stats", "d0", Value::Null).expect("stats")["geoms"][0].clone()
    }

    /// Runs all cores for `ns` nanoseconds.
    pub fn pass(&mut self, ns: u64) {
        self.control.wait_until(Duration::from_nanos(ns), |_| false);
    }

    /// Sends one request; its tag is its number in the order of sending.
    pub fn send(
        &self,
        core: usize,
        op: Op,
        block: u64,
        blocks: u64,
        flags: Flags,
        who: u32,
    ) -> u64 {
        let edge: Edge = self.control.topology.edge(self.user);
        let tag = self.tags.get();
        self.tags.set(tag + 1);
        let length = blocks * BLOCK;
        let mut data = Segs::new();
        if op.has_data() {
            data = Segs::alloc(self.cores[core].pool(), length as usize).expect("memory");
            if op == Op::Write {
                data.copy_from(0, &pattern(tag, length));
            }
        }
        self.cores[core].submit(edge, End::Sink { sink: self.sinks[core], tag }, |bio| {
            bio.op = op;
            bio.flags = flags;
            bio.origin = Origin(who);
            bio.offset = block * BLOCK;
            bio.length = if op.has_range() { length } else { 0 };
            bio.data = data;
        });
        tag
    }

    pub fn ended(&self, core: usize, tag: u64) -> Option<Ended> {
        self.ends.all.borrow().get(&(core as u32, tag)).cloned()
    }

    pub fn live(&self) -> usize {
        self.cores.iter().map(|c| c.live()).sum()
    }

    /// Runs until no request is out.
    pub fn drain(&mut self) {
        for _ in 0..3000 {
            if self.live() == 0 {
                return;
            }
            self.pass(10 * MS);
        }
        panic!("{} requests never end", self.live());
    }

    /// Wakes the requests that the disk held.
    pub fn release(&self) {
        for (core, ticket) in self.leaf.release() {
            self.cores[core].restart(ticket);
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.cores.iter().for_each(|c| drop(c.reactor().shutdown()));
    }
}

/// The data that request `tag` writes.
pub fn pattern(tag: u64, length: u64) -> Vec<u8> {
    let word = tag.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    word.iter().copied().cycle().take(length as usize).collect()
}
