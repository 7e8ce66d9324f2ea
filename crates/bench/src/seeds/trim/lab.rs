//! One core and a graph with a virtual clock: time passes when all tasks wait.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bio::{Pool, PoolConfig};
use geom::{Access, Core, Edge, Error as GraphError, GraphControl, Inbox, NewProvider};
use reactor::sim::{Actor, Limits, World};
use reactor::{Reactor, SeededRandom, Token, WaitFor};
use serde_json::Value;

use super::flash::BYTES;
use crate::bed::{Plain, failed};
use crate::error::Error;

/// Wakes the task that waits for time to pass.
const TICK: u32 = 999;
/// The disk's other users: one small request after each such time, on the average.
const EVERY_NS: u64 = 1_000_000;
const SMALL: u64 = 4096;
/// Of ten, so many read.
const READS: u64 = 7;

struct LabClass;

impl geom::Class for LabClass {
    fn name(&self) -> &'static str {
        "lab"
    }

    fn doc(&self) -> &'static str {
        "Disks and users of a measurement in virtual time."
    }
}

/// See the module.
pub(super) struct Lab {
    control: GraphControl,
    pub(super) core: Rc<Core>,
    world: World,
}

impl Lab {
    pub(super) fn new(seed: u64) -> Result<Lab, Error> {
        let world = World::new(seed);
        let inbox = Arc::new(Inbox::default());
        let reactor = Reactor::simulated(&world, "core0");
        let pool = Pool::new(PoolConfig { limit_bytes: 64 << 20 });
        let (core, mailer) = Core::new(0, reactor, pool, inbox.report());
        let (own, turns, clock) = (core.clone(), world.clone(), world.clone());
        let wait = Box::new(move |inbox: &Inbox, most: Duration| {
            let ns = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
            own.reactor().after(ns, Token { kind: TICK, user_data: 0 });
            let core = own.clone();
            let mut actors = [Actor::new(own.reactor(), move || core.turn(WaitFor::Peek))];
            let limits = Limits { ns, steps: 10_000_000 };
            turns.run(&mut actors, limits, &mut || !inbox.is_empty());
        });
        let mut control =
            GraphControl::new(vec![mailer], inbox, wait, Box::new(move || clock.now()));
        control.topology.load(Arc::new(LabClass)).map_err(failed)?;
        for class in classes::all() {
            control.topology.load(class).map_err(failed)?;
        }
        Ok(Lab { control, core, world })
    }

    pub(super) fn now(&self) -> u64 {
        self.world.now()
    }

    /// Waits; false when it did not end within so many virtual seconds.
    pub(super) fn until(&mut self, seconds: u64, mut done: impl FnMut() -> bool) -> bool {
        self.control.wait_until(Duration::from_secs(seconds), |_| done())
    }

    pub(super) fn pass(&mut self, ns: u64) {
        self.control.wait_until(Duration::from_nanos(ns), |_| false);
    }

    pub(super) fn disk(&mut self, name: &str, new: NewProvider) -> Result<(), Error> {
        let made = self.control.call(|t| {
            let geom = t.new_geom("lab", name, "measured", Box::new(Plain))?;
            t.new_provider(geom, new)
        });
        made.map(drop).map_err(failed)
    }

    pub(super) fn verb(&mut self, class: &str, verb: &str, on: &str) -> Result<Value, Error> {
        let found = self.control.topology.class(class);
        let found = found.ok_or_else(|| failed(format!("no class {class}")))?;
        let none = Value::Object(serde_json::Map::new());
        found.verb(&mut self.control, verb, on, &none).map_err(failed)
    }

    pub(super) fn open(&mut self, provider: &str) -> Result<Edge, Error> {
        let opened = self.control.call(|t| {
            let none = || GraphError::of(bio::Errno::NoEnt, provider);
            let below = t.find(provider).ok_or_else(none)?;
            let user = t.new_geom("lab", &format!("user of {provider}"), "it", Box::new(Plain))?;
            let c = t.attach_new(user, below).map_err(|e| GraphError::of(e, "attach"))?;
            t.access(c, Access::WRITE).map_err(|e| GraphError::of(e, "open"))?;
            Ok(t.edge(c))
        });
        opened.map_err(failed)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.core.reactor().shutdown();
    }
}

/// The other users of the disk: requests arrive whether or not those before have ended.
#[derive(Default)]
pub(super) struct Crowd {
    stop: Cell<bool>,
    /// Time of each request, ns.
    took: RefCell<Vec<u64>>,
    failed: Cell<u64>,
    under_way: Cell<u64>,
}

impl Crowd {
    /// They begin, behind the first `from` bytes.
    pub(super) fn begin(core: &Rc<Core>, edge: Edge, seed: u64, from: u64) -> Rc<Crowd> {
        let crowd = Rc::<Crowd>::default();
        let (own, on, mut random) = (crowd.clone(), core.clone(), SeededRandom::new(seed));
        drop(core.reactor().spawn("crowd", async move {
            while !own.stop.get() {
                on.reactor().sleep(random.below(2 * EVERY_NS)).await;
                let at = from + random.below((BYTES - from) / SMALL) * SMALL;
                let reads = random.below(10) < READS;
                let one = own.clone().issue_request(on.clone(), edge, at, reads);
                drop(on.reactor().spawn("request", one));
            }
        }));
        crowd
    }

    async fn issue_request(self: Rc<Self>, core: Rc<Core>, edge: Edge, at: u64, reads: bool) {
        let begun = core.reactor().fresh_now();
        self.under_way.set(self.under_way.get() + 1);
        let done = match reads {
            true => core.read(edge, at, SMALL as usize).await.map(drop),
            false => core.write(edge, at, &[7; SMALL as usize]).await,
        };
        self.under_way.set(self.under_way.get() - 1);
        self.failed.set(self.failed.get() + u64::from(done.is_err()));
        self.took.borrow_mut().push(core.reactor().fresh_now().saturating_sub(begun));
    }

    pub(super) fn stop(&self) {
        self.stop.set(true);
    }

    pub(super) fn is_done(&self) -> bool {
        self.under_way.get() == 0
    }

    /// The 99th of a hundred, and the longest, us.
    pub(super) fn late(&self) -> Result<(f64, f64), Error> {
        if self.failed.get() > 0 {
            return Err(failed(format!("{} requests failed", self.failed.get())));
        }
        let mut all = self.took.borrow().clone();
        all.sort_unstable();
        let nth = |n: usize| all.get(n).copied().unwrap_or(0) as f64 / 1000.0;
        Ok((nth(all.len() * 99 / 100), nth(all.len().saturating_sub(1))))
    }
}
