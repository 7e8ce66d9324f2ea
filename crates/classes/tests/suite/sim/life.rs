//! One world between two power cuts: cores, the control thread, the classes, the disks plugged in.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bio::{Errno, Ticket};
use geom::{
    Access, Class, ConsumerId, Core, Edge, Error, Event, Geom, GeomView, GraphControl, Inbox,
};
use reactor::sim::{DelayedThread, Limits as RunLimits, World};
use reactor::{SeededRandom, Token};
use serde_json::Value;
pub use testkit::clock::MS;
use testkit::cores;

use super::disk::{CLEANED, Disk, Watch};
use super::known_sizes::Kept;

const TICK: u32 = 999;
/// Turns for which the control thread is held up, when it is.
const HELD_UP: u32 = 12;

/// The panic payload of a power cut.
pub struct PowerCut;

struct User;

impl Geom for User {}

/// The control thread, which gets its turn sooner or later.
struct Lazy {
    chance: RefCell<SeededRandom>,
    world: World,
    held_up: DelayedThread,
}

impl Lazy {
    fn new(seed: u64, world: &World) -> Lazy {
        let chance = RefCell::new(SeededRandom::new(seed ^ 0x1a2));
        Lazy { chance, world: world.clone(), held_up: DelayedThread::default() }
    }

    fn soon(&self) -> u64 {
        self.chance.borrow_mut().below(6)
    }

    /// By chance; where orders are explored at once, or it is held up for a while.
    fn gets_its_turn(&self) -> bool {
        match self.world.is_explored() {
            true => self.held_up.continues(&self.world, HELD_UP),
            false => self.chance.borrow_mut().chance(300),
        }
    }
}

pub struct Life {
    pub control: GraphControl,
    pub cores: Vec<Rc<Core>>,
    /// Turns until the power fails.
    pub fuse: Rc<Cell<u64>>,
    pub world: World,
    /// The ends that this daemon records; by default it starts with none.
    pub kept: Kept,
    users: u32,
}

impl Life {
    /// With the classes of the simulation.
    pub fn new(seed: u64, count: usize) -> Life {
        Life::with(seed, count, super::classes())
    }

    pub fn with(seed: u64, count: usize, classes: Vec<Arc<dyn Class>>) -> Life {
        let world = World::new(seed);
        let (cores, mailers, inbox) = cores::start(&world, count, 8 << 20);
        let fuse = Rc::new(Cell::new(u64::MAX));
        let (own, clock, burning) = (cores.clone(), world.clone(), fuse.clone());
        let (turns, lazy) = (world.clone(), Lazy::new(seed, &world));
        let wait = Box::new(move |inbox: &Inbox, most: Duration| {
            let ns = most.as_nanos() as u64;
            own[0].reactor().after(ns, Token { kind: TICK, user_data: 0 });
            let mut actors = cores::actors(&own);
            turns.run(&mut actors, RunLimits { ns, steps: 10_000_000 }, &mut || {
                if CLEANED.get() == Watch::Seen {
                    CLEANED.set(Watch::Off);
                    burning.set(burning.get().min(lazy.soon()));
                }
                let left = burning.get();
                burning.set(left.saturating_sub(1));
                left == 0 || !inbox.is_empty() && lazy.gets_its_turn()
            });
            drop(actors);
            if burning.get() == 0 {
                std::panic::resume_unwind(Box::new(PowerCut));
            }
        });
        let mut control = GraphControl::new(mailers, inbox, wait, Box::new(move || clock.now()));
        testkit::disk::load(&mut control.topology);
        for class in classes {
            control.topology.load(class).expect("load");
        }
        let mut life = Life { control, cores, fuse, world, kept: Kept::default(), users: 0 };
        life.go_on_from(&Kept::default());
        life
    }

    /// From now on the cores may run between an event and the graph that it changes.
    pub fn overtake(&mut self, seed: u64) {
        self.control.set_event_hook(interlude(&self.world, &self.cores, seed));
    }

    pub fn pass(&mut self, ns: u64) {
        self.control.wait_until(Duration::from_nanos(ns), |_| false);
    }

    /// Waits for something; false when it did not happen within so many simulated seconds.
    pub fn until(&mut self, seconds: u64, done: impl FnMut(&GraphControl) -> bool) -> bool {
        self.control.wait_until(Duration::from_secs(seconds), done)
    }

    pub fn settle(&mut self) {
        self.control.settle().expect("at rest");
        self.control.topology.check();
    }

    pub fn has(&self, name: &str) -> bool {
        self.control.topology.find(name).is_some()
    }

    pub fn plug(&mut self, name: &str, disk: &Disk) {
        disk.attach(&mut self.control.topology, name).expect("a name that is free");
    }

    pub fn pull(&mut self, name: &str, disk: &Disk, dark: bool) {
        let Some(on) = self.control.topology.find(name) else { return };
        let hung = disk.pull(dark);
        let t = &mut self.control.topology;
        t.post(Event::Lost(on, Errno::NxIo));
        if let Some(geom) = t.geom_of(on) {
            t.wither_geom(geom, Errno::NxIo);
        }
        self.wake(hung);
    }

    /// One of several paths to a disk fails: requests under way on it continue.
    pub fn pull_path(&mut self, name: &str) {
        let Some(on) = self.control.topology.find(name) else { return };
        let t = &mut self.control.topology;
        t.post(Event::Lost(on, Errno::NxIo));
        if let Some(geom) = t.geom_of(on) {
            t.wither_geom(geom, Errno::NxIo);
        }
    }

    /// It was pulled, and is not removed yet.
    pub fn is_lost(&self, name: &str) -> bool {
        let on = self.control.topology.find(name);
        on.is_some_and(|on| self.control.topology.error_of(on).is_some())
    }

    pub fn resized(&mut self, name: &str, bytes: u64) {
        if let Some(on) = self.control.topology.find(name) {
            self.control.topology.post(Event::Resize(on, bytes));
        }
    }

    /// Ends the faults of all disks, and waits until the users have noticed.
    pub fn calm(&mut self, disks: &BTreeMap<String, Disk>) {
        for disk in disks.values() {
            disk.lock().heal();
            self.wake(disk.release());
        }
        self.pass(3 * MS);
    }

    pub fn wake(&self, hung: Vec<(usize, Ticket)>) {
        for (core, ticket) in hung {
            self.cores[core].wake(ticket, 0);
        }
    }

    pub fn verb(&mut self, class: &str, verb: &str, on: &str, with: Value) -> Result<Value, Error> {
        let class = self.control.topology.class(class).expect("a class");
        class.verb(&mut self.control, verb, on, &with)
    }

    /// Makes a user that has a provider open.
    pub fn open(&mut self, name: &str, access: Access) -> Option<(ConsumerId, Edge)> {
        let on = self.control.topology.find(name)?;
        self.users += 1;
        let user = format!("user{}", self.users);
        let opened = self.control.call(|t| {
            let geom = t.new_geom("test", &user, "a user", Box::new(User))?;
            let c = t.attach_new(geom, on).map_err(|e| Error::of(e, "attach"))?;
            t.access(c, access).map_err(|e| Error::of(e, "open"))?;
            Ok(c)
        });
        let c = opened.ok()?;
        Some((c, self.control.topology.edge(c)))
    }

    pub fn close(&mut self, c: ConsumerId) {
        self.control.topology.leave(c);
        self.settle();
    }

    pub fn read(&mut self, edge: Edge, at: u64, len: usize) -> Result<Vec<u8>, Errno> {
        self.control
            .run_on_core("test", move |core| {
                Box::pin(async move { core.read(edge, at, len).await })
            })
            .expect("a core")
    }

    pub fn write(&mut self, edge: Edge, at: u64, bytes: Vec<u8>) -> Result<(), Errno> {
        self.control
            .run_on_core("test", move |core| {
                Box::pin(async move { core.write(edge, at, &bytes).await })
            })
            .expect("a core")
    }

    pub fn flush(&mut self, edge: Edge) -> Result<(), Errno> {
        self.control
            .run_on_core("test", move |core| Box::pin(async move { core.flush(edge).await }))
            .expect("a core")
    }

    pub fn geoms(&self, class: &str) -> Vec<GeomView> {
        self.control.topology.class_view(class, 0)
    }

    /// A line of a geom's list.
    pub fn show(&self, class: &str, name: &str, key: &str) -> String {
        let all = self.geoms(class);
        let geom = all.iter().find(|g| g.name == name);
        let line = geom.and_then(|g| g.show.iter().find(|(k, _)| *k == key));
        line.map_or(String::new(), |(_, v)| v.clone())
    }

    /// Numbers of a geom for monitors.
    pub fn measures(&self, class: &str, name: &str) -> Vec<geom::Measure> {
        let geom = self.geoms(class).into_iter().find(|g| g.name == name);
        geom.map(|g| g.measures).unwrap_or_default()
    }

    /// Members of a mirror with their states.
    pub fn members(&self, name: &str) -> Vec<(String, String, ConsumerId)> {
        let all = self.geoms("mirror");
        let Some(geom) = all.iter().find(|g| g.name == name) else { return Vec::new() };
        let state = |show: &[(&'static str, String)]| {
            show.iter().find(|(k, _)| *k == "State").map_or(String::new(), |(_, v)| v.clone())
        };
        let consumers = geom.consumers.iter();
        consumers
            .filter_map(|c| Some((c.provider.clone()?, state(&c.show), c.id)))
            .filter(|(_, state, _)| !state.is_empty())
            .collect()
    }

    /// Whether an array has all of its members, and none is being filled. While copies or parity
    /// are resynchronised after a cut, the loss of a disk shows another of the values that a
    /// sector may have had. So disks are lost before or after.
    pub fn array_is_whole(&self, set: &str) -> bool {
        let lines = self.show("raid", set, "Volume") + &self.show("raid", set, "Subdisks");
        let busy = ["rebuild", "REBUILD"].iter().any(|word| lines.contains(word));
        self.show("raid", set, "State") == "OPTIMAL" && !busy
    }

    pub fn is_spare(&self, set: &str, disk: &str) -> bool {
        let geoms = self.geoms("raid");
        let of = geoms.iter().filter(|geom| geom.name == set).flat_map(|geom| &geom.consumers);
        let spare = |(key, line): &(&str, String)| *key == "State" && line == "SPARE";
        of.filter(|c| c.provider.as_deref() == Some(disk)).any(|c| c.show.iter().any(spare))
    }

    /// How many members an array has seen: not one that was pulled, and is plugged in again before
    /// its loss was dealt with. With the next disk two would be lost at once.
    pub fn array_members(&self, set: &str) -> usize {
        let geoms = self.geoms("raid");
        let of = geoms.iter().filter(|geom| geom.name == set).flat_map(|geom| &geom.consumers);
        let spare = |(key, line): &(&str, String)| *key == "State" && line == "SPARE";
        of.filter(|c| c.provider.is_some() && !c.show.iter().any(spare)).count()
    }

    /// Whether a pulled disk still has consumers: its provider stays until they detach. That disk
    /// may be plugged in again already, and is not a member of an array.
    pub fn is_leaving(&self) -> bool {
        self.control.topology.is_withering(None)
    }

    /// Retastes all providers that did not answer a taste.
    pub fn ask_again(&mut self) {
        let silent = |outcome: &(&str, String)| outcome.1.contains("did not answer");
        let t = &mut self.control.topology;
        let all = t.view(0).into_iter().flat_map(|g| g.providers);
        let all = all.filter(|p| p.taste_outcomes.iter().any(silent)).map(|p| p.id);
        all.for_each(|p| t.retaste(p));
    }

    /// The state of everything, for debugging.
    pub fn dump_state(&self) -> String {
        let mut out = String::new();
        for g in self.control.topology.view(0) {
            out += &format!("{} {} withering {} {:?}\n", g.class, g.name, g.withering, g.show);
            for c in g.consumers {
                out += &format!("    on {:?} {:?}\n", c.provider, c.show);
            }
            for p in g.providers {
                let own = p.taste_outcomes.iter().filter(|(c, _)| *c != "label");
                out += &format!("    offers {} {:?}\n", p.name, own.collect::<Vec<_>>());
            }
        }
        out
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        for c in &self.cores {
            c.reactor().shutdown();
        }
    }
}

impl Life {
    /// Plugs a disk in again as soon as its name is free.
    pub fn plug_soon(&mut self, name: &str, disk: &Disk) {
        let free = |c: &GraphControl| c.topology.find(name).is_none();
        assert!(self.until(60, free), "{name} never goes\n{}", self.dump_state());
        self.plug(name, disk);
    }
}

/// Runs the cores for a few turns, in two of three times.
fn interlude(world: &World, cores: &[Rc<Core>], seed: u64) -> Box<dyn FnMut()> {
    let (world, cores) = (world.clone(), cores.to_vec());
    let mut random = SeededRandom::new(seed ^ 0x0e7);
    Box::new(move || {
        let mut turns = random.below(3) * 40;
        let mut actors = cores::actors(&cores);
        let limits = RunLimits { ns: MS, steps: 10_000_000 };
        world.run(&mut actors, limits, &mut || {
            turns = turns.saturating_sub(1);
            turns == 0
        });
    })
}
