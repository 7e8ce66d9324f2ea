//! Simulation of one seed: a daemon, its disks and initiators, and all events.
//!
//! ```text
//!   boot --> a change, or time passes --> ... --> crash: boot again from the same disks
//!                                             \-> the end: all agents leave, everything is checked
//! ```
//! The control thread makes changes one after the other. The gremlin (`gremlin.rs`) cuts links and
//! hangs disks at any moment, also in the middle of changes.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use reactor::model::{DiskShape, Timing};
use reactor::sim::{NetShape, World};
use reactor::{Reactor, SeededRandom};
use serde_json::json;
pub use testkit::clock::MS;
use testkit::iscsi::LoginOptions;
use wire::iscsi::{ChapUser, SessionParams};

use crate::world::agent::Agent;
use crate::world::changes::Arrangement;
use crate::world::gremlin;
use crate::world::model::{BlockRange, OPEN, UNIT, at_once};
use crate::world::nbd::Client;
use crate::world::shared::{GROUPS, Grant, Marks, SimContext, Unit};
use crate::world::stack::{Crash, IQN, Outside, SECRET, Shape, Stack, USER};

/// Blocks of the disk with partitions, and where its partitions may lie: four slots.
const TABLE_BLOCKS: usize = 2048;
pub const SLOTS: usize = 4;
pub const SLOT_BLOCKS: usize = 384;
const SLOT_FIRST: usize = 128;

/// Disks: `d0` has partitions, `d1` has none and changes its size.
pub const DISKS: [&str; 2] = ["d0", "d1"];
pub const PLAIN_BLOCKS_MAX: usize = 2048;

/// Bytes that links carry at once where it shall not take long.
const SEGMENT: usize = 48;

/// Most blocks in a request of an NBD client, by the size of what links carry at once.
const LONGEST: [u64; 3] = [3, 16, 160];

/// Most blocks of the model in a command or request, likewise, in most seeds: the time that a seed
/// takes grows with its bytes.
const COMMAND_BLOCKS: [u64; 3] = [6, 48, 192];

/// Changes (or pauses) in a seed.
const STEPS: u64 = 40;

/// A partition as it should be. While it is in doubt (the daemon died during a change) the table
/// has its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub count: usize,
}

pub struct Sim {
    pub seed: u64,
    pub random: SeededRandom,
    pub outside: Outside,
    pub shared: Rc<SimContext>,
    pub shape: Shape,
    pub stack: Option<Stack>,
    pub parts: [Option<Part>; SLOTS],
    pub plain_count: usize,
    pub plain_per: usize,
    pub nops: u32,
    /// Layers slipped in: name, and the provider below.
    pub nop_names: Vec<(String, String)>,
    /// What changes under way would make of the slots, until the table was read again.
    pub doubt: [Vec<Option<usize>>; SLOTS],
    next_lun: usize,
    /// The access state changes.
    pub asymmetric: bool,
    /// Initiators move between groups that see the same.
    pub regroups: bool,
    /// The groups that they are in.
    pub arrangement: Arrangement,
    /// Accounts and portals of the target change.
    pub edits: bool,
    /// Size of what links carry at once, as an index of `LONGEST`.
    segment_size: usize,
}

impl Drop for Sim {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for line in self.shared.last_lines() {
                eprintln!("{line}");
            }
        }
    }
}

/// Plays a seed. One that fails is played again, in the same way, to show its last events.
pub fn play(make: impl Fn() -> Sim) -> (u64, Marks) {
    let failure = match catch_unwind(AssertUnwindSafe(|| make().run())) {
        Ok(played) => return played,
        Err(failure) => failure,
    };
    let again = make();
    again.shared.record();
    again.run();
    // A failure that does not occur again depends on more than the seed.
    resume_unwind(failure)
}

pub fn slot_first(slot: usize) -> usize {
    SLOT_FIRST + slot * SLOT_BLOCKS
}

impl Sim {
    /// The world of the seed.
    pub fn new(seed: u64) -> Sim {
        let mut sim = Sim::before_edits(seed);
        sim.edits = SeededRandom::new(seed ^ 0xed17).chance(500);
        if SeededRandom::new(seed ^ 0x10e6).chance(750) {
            sim.shared.command_blocks.set(COMMAND_BLOCKS[sim.segment_size]);
        }
        sim
    }

    /// The run of a seed before accounts and portals changed.
    pub fn before_edits(seed: u64) -> Sim {
        let nbd = SeededRandom::new(seed ^ 0x6e62_6400).chance(750);
        // Links that carry next to nothing cost most of the time: some seeds have them.
        let segment_min = match SeededRandom::new(seed ^ 0x5e65).chance(60) {
            true => 0,
            false => SEGMENT,
        };
        Sim::with(seed, nbd, segment_min)
    }

    /// The run of a seed before there were NBD clients.
    pub fn of_old(seed: u64) -> Sim {
        Sim::with(seed, false, 0)
    }

    fn with(seed: u64, nbd: bool, segment_min: usize) -> Sim {
        let mut random = SeededRandom::new(seed ^ 0xa51a);
        let world = World::new(seed);
        let mut net = net(&mut random);
        net.segment_max = net.segment_max.max(segment_min);
        world.set_net(net);
        let shared = SimContext::new(&world, &[TABLE_BLOCKS, PLAIN_BLOCKS_MAX]);
        let segment_size = usize::from(net.segment_max > 7) + usize::from(net.segment_max > 100);
        shared.longest.set(LONGEST[segment_size]);
        let plain_per = if random.chance(500) { 8 } else { 1 };
        let plain_count = 512;
        make_disks(&world, &mut random, plain_count, plain_per);
        let outside = Outside {
            world: world.clone(),
            reactors: Rc::default(),
            crash: Rc::new(Cell::new(false)),
        };
        let shape = Shape { nbd, ..shape(&mut random) };
        let mut sim = Sim {
            seed,
            random,
            outside,
            shared,
            shape,
            stack: None,
            parts: [None; SLOTS],
            plain_count,
            plain_per,
            nops: 0,
            nop_names: Vec::new(),
            doubt: Default::default(),
            next_lun: 1,
            asymmetric: false,
            // Regressions from before there were NBD clients keep their runs.
            regroups: nbd && SeededRandom::new(seed ^ 0x9a0f).chance(500),
            arrangement: Arrangement::default(),
            edits: false,
            segment_size,
        };
        gremlin::start(&sim.outside, &sim.shared, sim.random.next_u64());
        sim.shape_more();
        sim.start_agents();
        if nbd {
            sim.shared.moving.set(true);
            sim.shared.forcing.set(SeededRandom::new(seed ^ 0xf0a).chance(333));
            sim.start_clients();
        }
        sim
    }

    /// Draws from a stream of its own, so that seeds without reservations keep their runs.
    fn shape_more(&mut self) {
        let mut random = SeededRandom::new(self.seed ^ 0x5e5e);
        self.shared.store.start(&self.outside, random.next_u64());
        self.shared.reserving.set([0, 15, 60][random.below(3) as usize]);
        self.shared.ordering.set([0, 0, 30, 200][random.below(4) as usize]);
        self.shared.counting.set([0, 50, 150][random.below(3) as usize]);
        self.asymmetric = random.chance(300);
        let mut model = self.shared.model.borrow_mut();
        (0..SLOTS).for_each(|slot| model.counters.add(0, slot_first(slot), 1));
        model.counters.add(1, 0, self.plain_per);
    }

    fn start_agents(&mut self) {
        for i in 0..2 + self.random.below(2) as usize {
            let reactor = Reactor::simulated(&self.outside.world, &format!("init{i}"));
            self.outside.reactors.borrow_mut().push(reactor.clone());
            for isid in 0..1 + self.random.below(2) as u8 {
                let random = &mut self.random;
                let params = SessionParams {
                    recv_data_len_max: 512 << random.below(9),
                    max_burst: 512 << (1 + random.below(8)),
                    first_burst: 512 << random.below(2),
                    initial_r2t: random.chance(500),
                    immediate_data: random.chance(700),
                    ..SessionParams::default()
                };
                let user = || ChapUser { name: USER.into(), secret: SECRET.into() };
                let how = LoginOptions {
                    initiator: format!("iqn.2026-11.test.ashlar:i{i}"),
                    target: IQN.into(),
                    isid,
                    chap: self.shape.chap.then(user),
                    header_digest: random.chance(500),
                    data_digest: random.chance(500),
                    params,
                };
                let seed = random.next_u64();
                let index = self.shared.agents.borrow().len();
                let shared = &self.shared;
                let agent = Agent::new(shared, &reactor, index, i % GROUPS, how, seed);
                self.shared.agents.borrow_mut().push(agent.clone());
                drop(reactor.spawn("agent", agent.live()));
            }
        }
    }

    /// Machines with NBD clients: several connections from each.
    fn start_clients(&mut self) {
        let mut random = SeededRandom::new(self.seed ^ 0xd1a1);
        for i in 0..1 + random.below(2) as usize {
            let reactor = Reactor::simulated(&self.outside.world, &format!("nbd{i}"));
            self.outside.reactors.borrow_mut().push(reactor.clone());
            let group = (i + random.below(GROUPS as u64) as usize) % GROUPS;
            for _ in 0..1 + random.below(3) {
                let number = self.shared.clients.borrow().len();
                let seed = random.next_u64();
                let client = Client::new(&self.shared, &reactor, number, group, seed);
                self.shared.clients.borrow_mut().push(client.clone());
                drop(reactor.spawn("client", client.live()));
            }
        }
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }

    pub fn log(&self, line: impl FnOnce() -> String) {
        self.shared.log(line);
    }

    pub fn stack(&mut self) -> &mut Stack {
        self.stack.as_mut().expect("it runs")
    }

    /// The whole life.
    pub fn run(mut self) -> (u64, Marks) {
        let mut steps = STEPS / 2 + self.below(STEPS);
        loop {
            let lived = catch_unwind(AssertUnwindSafe(|| {
                if self.stack.is_none() {
                    self.boot();
                }
                while steps > 0 {
                    steps -= 1;
                    self.step();
                }
                self.finish();
            }));
            match lived {
                Ok(()) => break,
                Err(what) if what.is::<Crash>() => self.crash(),
                Err(what) => resume_unwind(what),
            }
        }
        self.outside.world.note(self.shared.model.borrow_mut().tick());
        for reactor in self.outside.reactors.borrow().iter() {
            reactor.shutdown();
        }
        let marks = self.shared.marks.borrow().clone();
        self.shared.agents.borrow_mut().clear();
        self.shared.clients.borrow_mut().clear();
        (self.outside.world.trace(), marks)
    }

    /// A daemon over the disks as they are.
    pub fn boot(&mut self) {
        self.log(|| "boot".into());
        let store = self.shared.store.clone();
        self.stack = Some(Stack::start(&self.outside, &self.shape, store));
        *self.shared.registry.borrow_mut() = Some(self.stack().registry.clone());
        self.nop_names.clear();
        for name in DISKS {
            let file = self.outside.world.file(name, DiskShape::default()).expect("it is there");
            let disks = self.stack().disks.clone();
            let serial = format!("SIM-{name}");
            let discards = self.outside.world.with_disk(name, |d| d.shape().discards);
            let discards = discards.expect("it is there");
            let added =
                self.stack().control.call(|t| disks.adopt(t, name, file, &serial, discards));
            added.unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        self.find_table();
        self.stack().open_target();
        self.export_all();
    }

    pub fn find_table(&mut self) {
        // A disk may hang, or fail while it is tasted; then the query is repeated.
        for _ in 0..20 {
            if let Some(found) = self.stack().partitions("d0") {
                return self.compare_table(&found);
            }
            if self.parts.iter().all(Option::is_none) && !self.shared.fails(0) {
                let made = json!({ "op": "create", "provider": "d0", "scheme": "gpt",
                                   "yes_destroy": ["d0"] });
                let done = self.stack().part(made);
                self.log(|| format!("part create: {}", done.is_ok()));
                self.stack().pass(100 * MS);
                continue;
            }
            self.stack().pass(1_000 * MS);
            self.outside.world.with_disk("d0", |d| d.clear_faults());
            let d0 = self.stack().control.topology.find("d0").expect("d0");
            self.stack().control.topology.retaste(d0);
            let _ = self.stack().control.settle();
        }
        let views = self.stack().control.topology.view(0);
        let seen: Vec<_> = views.iter().flat_map(|g| g.providers.iter()).collect();
        panic!(
            "no partition table on d0: {:?}",
            seen.iter().map(|p| (&p.name, &p.taste_outcomes)).collect::<Vec<_>>()
        );
    }

    /// The table holds the acknowledged entries; doubtful entries are as it shows now.
    pub fn compare_table(&mut self, found: &[(u32, usize, usize)]) {
        for slot in 0..SLOTS {
            let here = found.iter().find(|(index, ..)| *index as usize == slot + 1);
            if let Some((_, first, _)) = here {
                assert_eq!(*first, slot_first(slot), "partition {} moved", slot + 1);
            }
            let count = here.map(|(.., count)| *count);
            let known = self.parts[slot].map(|p| p.count);
            let doubt = std::mem::take(&mut self.doubt[slot]);
            assert!(
                count == known || doubt.contains(&count),
                "partition {}: {count:?}, not {known:?} or {doubt:?}",
                slot + 1
            );
            self.parts[slot] = count.map(|count| Part { count });
        }
    }

    /// The units that there should be, exported anew.
    fn export_all(&mut self) {
        let units: Vec<_> = self.shared.units.borrow().iter().cloned().collect();
        for unit in units.iter().filter(|u| u.exported.get()) {
            unit.mode_moved(false);
            let slot = unit.provider.strip_prefix("d0p").and_then(|n| n.parse::<usize>().ok());
            let count = match slot {
                Some(n) => self.parts[n - 1].map(|p| p.count),
                None => Some(self.plain_count),
            };
            // A partition that was about to be removed or changed, when the daemon died.
            let Some(count) = count else {
                unit.exported.set(false);
                unit.grants.set([Grant::default(); GROUPS]);
                continue;
            };
            let place = unit.place.get();
            unit.resized.set(unit.resized.get() || count != place.count);
            unit.place.set(BlockRange { count, ..place });
            self.open_unit(unit);
        }
        self.set_groups(&[]);
        self.shared.open.set(self.tick());
    }

    /// Nothing of the daemon is left.
    pub fn drop_stack(&mut self) {
        self.shared.registry.take();
        if let Some(stack) = self.stack.take() {
            stack.drop_cores();
        }
    }

    pub fn new_unit(&mut self, provider: &str, place: BlockRange, per: usize) -> Rc<Unit> {
        let unit = Rc::new(Unit {
            lun: self.next_lun,
            provider: provider.into(),
            place: Cell::new(place),
            per,
            grants: Cell::default(),
            exported: Cell::new(true),
            changed: Cell::default(),
            resized: Cell::new(false),
            cache_off: Cell::new(false),
            mode_changes: Cell::new(0),
            mode_epoch: Cell::new(0),
            resets: RefCell::default(),
            book: RefCell::default(),
        });
        self.next_lun += 1;
        self.shared.units.borrow_mut().push(unit.clone());
        unit
    }

    /// The daemon dies: with the power of its disks, or alone.
    fn crash(&mut self) {
        self.outside.crash.set(false);
        self.shared.open.set(OPEN);
        self.shared.mark("crashes");
        let power = self.random.chance(700);
        self.log(|| format!("crash, power {}", if power { "cut" } else { "stays" }));
        let world = self.outside.world.clone();
        if self.random.chance(400) {
            // The initiators get no notice.
            world.links().iter().for_each(|(link, ..)| world.half_open(*link));
        }
        for (i, name) in DISKS.iter().enumerate() {
            if power {
                world.power_cut(name);
                self.shared.model.borrow_mut().power_cut(i, true);
            } else {
                world.hang(name, false);
            }
        }
        self.drop_stack();
        (0..DISKS.len()).for_each(|i| self.shared.model.borrow_mut().all_over(i));
        self.forget_rights();
        for unit in self.shared.units.borrow().iter() {
            // The next boot decides changes in progress.
            let mut grants = unit.grants.get();
            for (g, grant) in grants.iter_mut().enumerate() {
                if let Some(next) = grant.next.take() {
                    grant.now = next;
                    self.moved(unit, g);
                }
            }
            unit.grants.set(grants);
        }
        self.look_at_disks("after the crash");
    }

    /// The daemon has ended: the state store determines the reservations.
    pub fn forget_rights(&mut self) {
        self.shared.store.crash(&mut self.random);
        self.shared.sources.borrow_mut().clear();
        let now = self.shared.model.borrow_mut().tick();
        self.shared.states.borrow_mut().restart(now);
        for unit in self.shared.units.borrow().iter() {
            let now = self.shared.model.borrow_mut().tick();
            unit.book.borrow_mut().restart(now);
        }
    }

    pub fn moved(&self, unit: &Unit, group: usize) {
        let mut changed = unit.changed.get();
        changed[group] = self.shared.model.borrow_mut().tick();
        unit.changed.set(changed);
    }

    /// Compares the whole media, but for partition tables, with the model.
    pub fn look_at_disks(&mut self, when: &str) {
        let mut model = self.shared.model.borrow_mut();
        let data = [
            BlockRange { disk: 0, first: SLOT_FIRST, count: SLOTS * SLOT_BLOCKS },
            BlockRange { disk: 1, first: 0, count: self.plain_count },
        ];
        for place in data {
            let mut bytes = vec![0; place.count * UNIT];
            let at = (place.first * UNIT) as u64;
            let name = DISKS[place.disk];
            self.outside.world.with_disk(name, |d| {
                d.clear_faults();
                assert_eq!(d.read(at, &mut bytes), Ok(bytes.len()), "{name}");
            });
            let now = model.tick();
            model.check(place, &bytes, &at_once(now), when);
            model.counters.look(place, &bytes, when);
        }
    }

    /// All commands are answered, all agents leave, and nothing remains.
    fn finish(&mut self) {
        self.log(|| "the end".into());
        self.shared.draining.set(true);
        for name in DISKS {
            self.outside.world.hang(name, false);
            self.outside.world.with_disk(name, |d| d.clear_faults());
        }
        self.stack().pass(30_000 * MS);
        for agent in self.shared.agents.borrow().iter() {
            let left: Vec<u32> = agent.tasks.borrow().keys().copied().collect();
            assert!(left.is_empty(), "{}: {left:?} were never answered", agent.name);
        }
        for client in self.shared.clients.borrow().iter() {
            let left: Vec<u64> = client.tasks.borrow().keys().copied().collect();
            assert!(left.is_empty(), "{}: {left:x?} were never answered", client.name);
        }
        self.look_at_disks("at rest");
        self.shared.leaving.set(true);
        self.stack().pass(40_000 * MS);
        for agent in self.shared.agents.borrow().iter() {
            assert!(agent.logged_out.get(), "{} did not leave", agent.name);
        }
        for client in self.shared.clients.borrow().iter() {
            assert!(client.gone.get(), "{} did not leave", client.name);
        }
        self.nothing_is_left();
        self.shared.open.set(OPEN);
        self.stack().stop();
        self.drop_stack();
    }

    fn nothing_is_left(&mut self) {
        let now = self.outside.world.now();
        let stack = self.stack();
        stack.control.settle().expect("it comes to rest");
        stack.control.topology.check();
        for geom in stack.control.topology.view(now) {
            assert!(!geom.withering, "{} withers for ever", geom.name);
            for p in &geom.providers {
                assert_eq!(p.stats.in_flight, 0, "{}: requests inside", p.name);
            }
        }
        assert_eq!(stack.registry.sessions().len(), 0, "sessions");
        let mut left = Vec::new();
        for core in &stack.cores {
            assert_eq!(core.live(), 0, "core {}: requests", core.id());
            assert_eq!(core.pool().usage().used_bytes, 0, "core {}: buffers", core.id());
            left.extend(core.reactor().tasks());
        }
        left.retain(|t| !QUIET_TASKS.contains(t));
        assert!(left.is_empty(), "tasks: {left:?}");
    }
}

/// Tasks that a core without connections has.
const QUIET_TASKS: &[&str] =
    &["target", "iscsi orders", "iscsi portal", "iscsi watch", "nbd portal", "nbd watch"];

fn net(random: &mut SeededRandom) -> NetShape {
    NetShape {
        delay_ns_min: 1_000,
        delay_ns_max: [20_000, 200_000, 3_000_000][random.below(3) as usize],
        segment_max: [7, 100, 1460, 16_384][random.below(4) as usize],
        buffer_bytes: [2_000, 16_384, 262_144][random.below(3) as usize],
        resets_per_million: [0, 0, 20, 200][random.below(4) as usize],
    }
}

fn shape(random: &mut SeededRandom) -> Shape {
    Shape {
        cores: 1 + random.below(2) as usize,
        pool_bytes: (1 << 20) << random.below(5),
        chap: random.chance(300),
        nbd: false,
        params: json!({
            "nop_interval": 1 + random.below(3),
            "nop_timeout": 1 + random.below(4),
            "login_timeout": 5,
            "initial_r2t": random.chance(500),
            "max_burst_length": 8192 << random.below(4),
            "first_burst_length": 512 << random.below(6),
            "max_recv_data_segment_length": 8192 << random.below(3),
            "max_outstanding_r2t": 1 + random.below(4),
        }),
    }
}

fn make_disks(world: &World, random: &mut SeededRandom, plain: usize, per: usize) {
    for (name, blocks, per) in [("d0", TABLE_BLOCKS, 1), ("d1", plain, per)] {
        let timing = match random.below(3) {
            0 => Timing::FLASH_SATA,
            1 => Timing::Between { min_ns: 1_000, max_ns: 5_000_000 },
            _ => Timing::default(),
        };
        let shape = DiskShape {
            size: (blocks * UNIT) as u64,
            sector: (per * UNIT) as u32,
            volatile_cache: true,
            growable: false,
            discards: random.chance(700),
            timing,
        };
        world.file(name, shape).expect("a right shape");
    }
}
