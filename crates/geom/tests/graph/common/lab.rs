//! The simulated world, its cores, and the requests submitted in it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bio::{Attr, Bio, End, Flags, Op, Segs, Status};
use geom::{
    Access, ConsumerId, Core, Create, Edge, Error, GeomId, GraphControl, Inbox, ProviderId,
    Reading, Sink,
};
use reactor::Token;
use reactor::sim::{DelayedThread, Limits as RunLimits, World};
use testkit::cores;

use super::user::{Manner, User};
use super::{Leaf, Log, MS};

/// Timers with this kind only advance the virtual clock.
const TICK: u32 = 999;
/// Turns of the cores for which the control thread is held up, where orders are explored.
const HELD_UP: u32 = 8;

/// How a request ended.
#[derive(Clone, Debug)]
pub struct Ended {
    pub status: Status,
    pub completed: u64,
    pub data: Vec<u8>,
    pub value: Option<Attr>,
    pub at_ns: u64,
}

/// Keeps the ends of requests by tag.
#[derive(Default)]
pub struct Ends {
    pub all: RefCell<BTreeMap<u64, Ended>>,
    pub order: RefCell<Vec<u64>>,
}

impl Sink for Ends {
    fn done(&self, tag: u64, bio: &mut Bio, core: &Core) {
        let ended = Ended {
            status: bio.status,
            completed: bio.completed,
            data: if bio.op == Op::Read { bio.data.to_vec() } else { Vec::new() },
            value: bio.value.clone(),
            at_ns: core.now(),
        };
        self.order.borrow_mut().push(tag);
        let twice = self.all.borrow_mut().insert(tag, ended);
        assert!(twice.is_none(), "request {tag} ended twice");
    }
}

pub struct Lab {
    pub world: World,
    pub cores: Vec<Rc<Core>>,
    pub control: GraphControl,
    pub ends: Rc<Ends>,
    pub log: Log,
    sinks: Vec<u32>,
    tags: Cell<u64>,
}

impl Lab {
    pub fn new(seed: u64) -> Lab {
        Lab::with_cores(seed, 1)
    }

    pub fn with_cores(seed: u64, count: usize) -> Lab {
        let world = World::new(seed);
        let (cores, mailers, inbox) = cores::start(&world, count, 32 << 20);
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
        let ends = Rc::new(Ends::default());
        let sinks = cores.iter().map(|c| c.add_sink(ends.clone())).collect();
        let log = super::log();
        super::classes(&mut control.topology);
        Lab { world, cores, control, ends, log, sinks, tags: Cell::new(0) }
    }

    /// Runs the cores and the control thread for so long.
    pub fn pass(&mut self, ns: u64) {
        self.control.wait_until(Duration::from_nanos(ns), |_| false);
    }

    /// Runs the cores, not the control thread, until nothing but timers far away is left.
    pub fn spin(&self, ns: u64) {
        self.cores[0].reactor().after(ns, Token { kind: TICK, user_data: 0 });
        let limits = RunLimits { ns, steps: 10_000_000 };
        self.world.run(&mut cores::actors(&self.cores), limits, &mut || false);
    }

    /// A disk that behaves as `leaf` defines.
    pub fn disk(&mut self, name: &str, leaf: &Arc<Leaf>) -> ProviderId {
        let leaf = leaf.clone();
        let made = self.control.call(|t| leaf.create(t, name));
        made.unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// A pass-through layer with the parameters of [`super::PassThrough`].
    pub fn pass_through(&mut self, name: &str, below: ProviderId, params: &str) -> ProviderId {
        self.try_pass_through(name, below, params).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub fn try_pass_through(
        &mut self,
        name: &str,
        below: ProviderId,
        params: &str,
    ) -> Result<ProviderId, Error> {
        let params = params.into();
        let geom = self.control.call(|t| {
            let class = t.class("shim").expect("loaded");
            class.create(t, &Create { name, members: &[below], params: &params })
        })?;
        let made = self.control.topology.providers_of(geom).first().copied();
        made.ok_or_else(|| Error::of(bio::Errno::NxIo, "it went as it came"))
    }

    pub fn insert(&mut self, name: &str, below: ProviderId, params: &str) -> Result<GeomId, Error> {
        let params = params.into();
        self.control.insert("shim", below, &Create { name, members: &[], params: &params })
    }

    /// Makes a user of `below`, attached and not open.
    pub fn user(&mut self, name: &str, below: ProviderId, manner: Manner) -> ConsumerId {
        let log = self.log.clone();
        self.control
            .call(|t| User::create(t, name, below, manner, log))
            .unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Makes a user that has `below` open for reading and writing.
    pub fn writer(&mut self, name: &str, below: ProviderId) -> ConsumerId {
        let c = self.user(name, below, Manner::default());
        self.open(c, Access::WRITE).unwrap();
        c
    }

    pub fn open(&mut self, c: ConsumerId, delta: Access) -> Result<(), bio::Errno> {
        let result = self.control.topology.access(c, delta);
        self.control.settle().unwrap();
        self.control.topology.check();
        result
    }

    pub fn edge(&self, c: ConsumerId) -> Edge {
        self.control.topology.edge(c)
    }

    /// Submits on one core; the tag finds it in `ends`.
    pub fn submit(&self, core: usize, edge: Edge, fill: impl FnOnce(&mut Bio)) -> u64 {
        let tag = self.tags.get();
        self.tags.set(tag + 1);
        self.cores[core].submit(edge, End::Sink { sink: self.sinks[core], tag }, fill);
        tag
    }

    pub fn send(&self, edge: Edge, op: Op, offset: u64, length: u64) -> u64 {
        self.send_on(0, edge, op, offset, length, Flags::NONE)
    }

    pub fn send_on(
        &self,
        core: usize,
        edge: Edge,
        op: Op,
        offset: u64,
        length: u64,
        flags: Flags,
    ) -> u64 {
        let mut data = Segs::new();
        if op.has_data() {
            data = Segs::alloc(self.cores[core].pool(), length as usize).expect("memory");
            if op == Op::Write {
                data.copy_from(0, &pattern(offset, length, self.tags.get()));
            }
        }
        self.submit(core, edge, |bio| {
            bio.op = op;
            bio.flags = flags;
            bio.offset = offset;
            bio.length = length;
            bio.data = data;
        })
    }

    /// Sends and runs until it has ended.
    pub fn io(&self, edge: Edge, op: Op, offset: u64, length: u64) -> Ended {
        let tag = self.send(edge, op, offset, length);
        self.finish(tag)
    }

    /// Runs the cores until a request has ended.
    pub fn finish(&self, tag: u64) -> Ended {
        for _ in 0..1000 {
            if let Some(e) = self.ended(tag) {
                return e;
            }
            self.spin(10 * MS);
        }
        panic!("request {tag} does not end");
    }

    pub fn ended(&self, tag: u64) -> Option<Ended> {
        self.ends.all.borrow().get(&tag).cloned()
    }

    pub fn live(&self) -> usize {
        self.cores.iter().map(|c| c.live()).sum()
    }

    /// No request and no buffer is out.
    pub fn assert_empty(&self) {
        assert_eq!(self.live(), 0, "requests that never ended");
        for c in &self.cores {
            assert_eq!(c.pool().usage().used_bytes, 0, "buffers that were not given back");
        }
    }

    pub fn taste_outcome(&self, provider: &str, class: &str) -> String {
        let t = &self.control.topology;
        let view = t.view(0).into_iter().flat_map(|g| g.providers).find(|p| p.name == provider);
        let verdicts = view.map(|v| v.taste_outcomes).unwrap_or_default();
        verdicts.into_iter().find(|(c, _)| *c == class).map_or(String::new(), |(_, v)| v)
    }

    pub fn stats(&self, provider: ProviderId) -> Reading {
        let views = self.control.topology.view(self.control.now_ns());
        let mut all = views.into_iter().flat_map(|g| g.providers);
        all.find(|p| p.id == provider).expect("the provider exists").stats
    }

    pub fn consumer_stats(&self, consumer: ConsumerId) -> Reading {
        let views = self.control.topology.view(self.control.now_ns());
        let mut all = views.into_iter().flat_map(|g| g.consumers);
        all.find(|c| c.id == consumer).expect("the consumer exists").stats
    }

    pub fn logged(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for c in &self.cores {
            c.reactor().shutdown();
        }
    }
}

/// Bytes that depend on their offset and on the version of the write.
pub fn pattern(offset: u64, length: u64, version: u64) -> Vec<u8> {
    (0..length)
        .map(|i| {
            let at = offset + i;
            (at ^ (at >> 8) ^ (at >> 17) ^ version.wrapping_mul(0x9e37_79b9)) as u8
        })
        .collect()
}
