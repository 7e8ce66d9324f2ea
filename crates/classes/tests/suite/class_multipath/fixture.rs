//! A disk with several paths, each of which can fail or hold the requests under way.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bio::{Attr, Bio, Errno, Flags, Op, Ticket};
use geom::{Access, Core, Flow, Layer, ProviderId, Topology};
use serde_json::{Value, json};
use testkit::disk::Provider;

use crate::world::{Disk, Media, Open, World};

pub const MIB: usize = 1 << 20;

#[derive(Default)]
pub struct WayState {
    pub error: Option<Errno>,
    pub holds: bool,
    /// It has requests wait, except those that another path can serve.
    pub in_transition: bool,
    pub held: Vec<Ticket>,
}

#[derive(Clone)]
pub struct Way {
    pub disk: Disk,
    pub state: Arc<Mutex<WayState>>,
    pub seen: Arc<[AtomicUsize; Op::COUNT]>,
}

impl Way {
    pub fn fails(&self, error: Option<Errno>) {
        self.state.lock().expect("state").error = error;
    }

    pub fn holds(&self) {
        self.state.lock().expect("state").holds = true;
    }

    pub fn in_transition(&self, is: bool) {
        let mut state = self.state.lock().expect("state");
        (state.holds, state.in_transition) = (is, is);
    }

    pub fn release(&self, world: &World) {
        let held = {
            let mut state = self.state.lock().expect("state");
            (state.holds, state.in_transition) = (false, false);
            std::mem::take(&mut state.held)
        };
        let notifier = world.control.topology.notifier();
        held.into_iter().for_each(|ticket| notifier.restart(0, ticket));
    }

    pub fn held(&self) -> usize {
        self.state.lock().expect("state").held.len()
    }

    /// Requests of a kind since the last query.
    pub fn seen(&self, op: Op) -> usize {
        self.seen[op as usize].swap(0, Relaxed)
    }
}

impl Layer for Way {
    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        self.seen[bio.op as usize].fetch_add(1, Relaxed);
        let mut state = self.state.lock().expect("state");
        if state.in_transition && bio.flags.has(Flags::FAIL_FAST) {
            return Flow::Done(Err(Errno::Again));
        }
        if state.holds {
            state.held.push(bio.ticket());
            return Flow::Wait;
        }
        drop(state);
        self.ready(bio, Ok(0), core)
    }

    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        match self.state.lock().expect("state").error {
            Some(error) => Flow::Done(Err(error)),
            None => self.disk.start(bio, core),
        }
    }
}

pub fn disk(bytes: Vec<u8>) -> Disk {
    let media = Media { durable: bytes.clone(), bytes, ..Media::default() };
    Disk(Arc::new(Mutex::new(media)))
}

/// A provider that leads to a disk.
pub fn way(world: &mut World, name: &str, disk: &Disk) -> Way {
    let way = Way { disk: disk.clone(), state: Arc::default(), seen: Arc::default() };
    let attrs = [
        ("GEOM::ident", Attr::Text("serial-1".into())),
        ("GEOM::physpath", Attr::Text(format!("bay/{name}"))),
        ("GEOM::rotation_rate", Attr::Int(7200)),
        ("GEOM::candelete", Attr::Int(1)),
        ("GEOM::deletereadszero", Attr::Int(1)),
    ];
    let provider = Provider::new(name, disk.bytes().len() as u64).io_max(65536).stripe(4096, 512);
    testkit::disk::add(&mut world.control, provider.with_attrs(&attrs), Arc::new(way.clone()));
    way
}

/// A labelled disk with `n` paths.
pub fn labelled(n: usize, extra: Value) -> (World, Disk, Vec<Way>) {
    let mut world = World::new();
    let disk = disk(vec![0; MIB]);
    let ways: Vec<Way> = (0..n).map(|i| way(&mut world, &format!("d{i}"), &disk)).collect();
    let names: Vec<String> = (0..n).map(|i| format!("d{i}")).collect();
    let mut params = json!({ "members": names });
    for (key, value) in extra.as_object().into_iter().flatten() {
        params[key] = value.clone();
    }
    world.verb("multipath", "label", "m", params).expect("labelled");
    (world, disk, ways)
}

pub fn ask(world: &mut World, verb: &str, member: &str) -> Result<Value, geom::Error> {
    world.verb("multipath", verb, "m", json!({ "member": member }))
}

/// States of the paths, by name.
pub fn states(world: &World) -> Vec<String> {
    shown_values(world, "State")
}

/// The values that are shown of each path under a key, by name.
pub fn shown_values(world: &World, key: &str) -> Vec<String> {
    let view = world.control.topology.view(0);
    let found = view.iter().find(|g| g.class == "multipath" && g.name == "m" && !g.withering);
    let consumers = found.into_iter().flat_map(|g| &g.consumers);
    let mut all: Vec<(String, String)> = consumers
        .map(|c| {
            let state = c.show.iter().find(|(k, _)| *k == key).map(|(_, v)| v.clone());
            (c.provider.clone().unwrap_or_default(), state.unwrap_or_default())
        })
        .collect();
    all.sort();
    all.into_iter().map(|(name, state)| format!("{name} {state}")).collect()
}

pub fn state(world: &World) -> String {
    world.show("multipath", "m", "State").concat()
}

/// Lets posted events arrive.
pub fn settle(world: &mut World) {
    world.control.wait_until(Duration::from_millis(5), |_| false);
    world.control.settle().expect("at rest");
}

pub fn write(world: &mut World, at: u64, fill: u8) -> Result<(), Errno> {
    let open = world.open("multipath/m", Access::WRITE);
    let done = world.write(&open, at, &[fill; 512]);
    world.close(open);
    settle(world);
    done
}

pub fn read(world: &mut World, at: u64) -> Result<Vec<u8>, Errno> {
    let open = world.open("multipath/m", Access::READ);
    let done = world.read(&open, at, 512);
    world.close(open);
    settle(world);
    done
}

pub type Outcome = Arc<Mutex<Option<Result<(), Errno>>>>;

/// Starts a write and does not wait for it.
pub fn begin_write(world: &World, open: &Open, at: u64, fill: u8) -> Outcome {
    let edge = world.control.topology.edge(open.consumer);
    let outcome = Outcome::default();
    let place = outcome.clone();
    world.control.topology.notifier().call(
        0,
        Box::new(move |core| {
            let core = core.clone();
            core.reactor().clone().spawn("a test", async move {
                let done = core.write(edge, at, &[fill; 512]).await;
                *place.lock().expect("outcome") = Some(done);
            });
        }),
    );
    outcome
}

pub fn result_of(outcome: &Outcome) -> Option<Result<(), Errno>> {
    *outcome.lock().expect("outcome")
}

pub fn wait(world: &mut World, ms: u64, done: impl Fn() -> bool) -> bool {
    world.control.wait_until(Duration::from_millis(ms), |_| done())
}

/// Every class looks at a provider anew.
pub fn look_again(world: &mut World, on: ProviderId) {
    let again = |t: &mut Topology| {
        t.retaste(on);
        Ok(())
    };
    world.control.call(again).expect("looked at");
}
