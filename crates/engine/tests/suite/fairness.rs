//! Fair shares of a slow disk: sizes, depths and kinds of commands make no difference to the share
//! of a nexus. Initiators of all sorts run side by side, in virtual time, over seeds.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use bio::{Op, Segs};
use engine::{
    CloseReason, Command, ItNexus, Login, Next, Response, TaskAttribute, TmOutcome, Transport,
};
use reactor::SeededRandom;
use testkit::Seeds;
use testkit::clock::MS;

use crate::world::*;

const KIB: u64 = 1024;
/// A limit is found in trials of a second, on a disk that serves a few hundred commands in one.
const SETTLE_MS: u64 = 60_000;

/// What an initiator sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Read,
    Verify,
    WriteSame,
    Unmap,
    CompareAndWrite,
}

#[derive(Clone, Copy, Debug)]
struct Load {
    core: usize,
    kind: Kind,
    bytes: u64,
    depth: u32,
}

impl Load {
    const SMALL: Load = Load { core: 0, kind: Kind::Read, bytes: 4 * KIB, depth: 1 };
    const GREEDY: Load = Load { bytes: 128 * KIB, depth: 32, ..Load::SMALL };
}

/// Keeps its commands open, regardless of the window.
struct Initiator {
    me: Weak<Initiator>,
    load: Load,
    session: RefCell<Option<Rc<ItNexus>>>,
    world: reactor::sim::World,
    random: RefCell<SeededRandom>,
    tag: Cell<u32>,
    sent: RefCell<BTreeMap<u32, u64>>,
    /// When each ended, and how long it took.
    ended: RefCell<Vec<(u64, u64)>>,
    bad: Cell<u32>,
    stop: Cell<bool>,
}

impl Initiator {
    fn login(w: &World, n: u8, load: Load) -> Rc<Initiator> {
        let it = Rc::new_cyclic(|me| Initiator {
            me: me.clone(),
            load,
            session: RefCell::default(),
            world: w.sim.clone(),
            random: RefCell::new(SeededRandom::new(u64::from(n))),
            tag: Cell::new(0),
            sent: RefCell::default(),
            ended: RefCell::default(),
            bad: Cell::new(0),
            stop: Cell::new(false),
        });
        let engine = &w.engines[load.core];
        let login = Login {
            target: engine.find_target("iscsi", TARGET).unwrap(),
            initiator: format!("i{n}"),
            port_id: vec![n],
            transport_id: Vec::new(),
            portal: "10.0.0.1:3260".parse().unwrap(),
            from: "10.0.0.2:1000".parse().unwrap(),
            reinstates: false,
            labels: Vec::new(),
        };
        *it.session.borrow_mut() = Some(engine.login(login, it.clone()).unwrap());
        it.send(&TUR, 0, &[]);
        assert_eq!(it.bad.replace(0), 1, "the reset");
        it.ended.borrow_mut().clear();
        it
    }

    fn session(&self) -> Rc<ItNexus> {
        self.session.borrow().clone().unwrap()
    }

    fn send(&self, cdb: &[u8], expect_in: u32, data: &[u8]) {
        let tag = self.tag.get();
        self.tag.set(tag + 1);
        self.sent.borrow_mut().insert(tag, self.world.now());
        let attribute = TaskAttribute::Simple;
        let expect_out = data.len() as u32;
        let lun = lun_field(0);
        let command = Command { tag, lun, cdb, attribute, expect_in, expect_out };
        if let Next::Data { wanted } = self.session().command(&command) {
            assert_eq!(wanted, expect_out);
            let core = self.session().engine().core().clone();
            let mut segs = Segs::alloc(core.pool(), data.len()).unwrap();
            segs.copy_from(0, data);
            self.session().data(tag, &mut segs);
        }
    }

    fn send_next(&self) {
        let blocks = self.load.bytes / BLOCK as u64;
        let lba = self.random.borrow_mut().below(64) * blocks % 2048;
        let range = |opcode| cdb16(opcode, lba, blocks as u32);
        match self.load.kind {
            Kind::Read => self.send(&range(0x88), self.load.bytes as u32, &[]),
            Kind::Verify => self.send(&range(0x8f), 0, &[]),
            Kind::WriteSame => self.send(&range(0x93), 0, &[0x5a; BLOCK]),
            Kind::Unmap => {
                let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
                list.extend(lba.to_be_bytes());
                list.extend((blocks as u32).to_be_bytes());
                list.extend([0; 4]);
                self.send(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], 0, &list);
            }
            Kind::CompareAndWrite => {
                let mut cdb = cdb16(0x89, 4000, 0);
                cdb[13] = 1;
                self.send(&cdb, 0, &[0; 2 * BLOCK]);
            }
        }
    }

    fn start(&self) {
        (0..self.load.depth).for_each(|_| self.send_next());
    }

    /// Times of those that ended after `from`, ns, shortest first.
    fn times(&self, from: u64) -> Vec<u64> {
        let mut times: Vec<u64> =
            self.ended.borrow().iter().filter(|(end, _)| *end >= from).map(|t| t.1).collect();
        times.sort_unstable();
        times
    }
}

impl Transport for Initiator {
    fn respond(&self, tag: u32, response: Response<'_>) {
        let (now, since) = (self.world.now(), self.sent.borrow_mut().remove(&tag).unwrap());
        self.ended.borrow_mut().push((now, now - since));
        self.bad.set(self.bad.get() + u32::from(response.status != 0));
        if response.status == 0 {
            // Later: the answer is not yet over.
            let me = self.me.upgrade().unwrap();
            let reactor = self.session().engine().core().reactor().clone();
            drop(reactor.spawn("again", async move {
                if !me.stop.get() {
                    me.send_next();
                }
            }));
        }
    }

    fn discard(&self, tag: u32) {
        self.sent.borrow_mut().remove(&tag);
    }

    fn task_management_done(&self, _: u32, _: TmOutcome) {}
    fn close(&self, _: CloseReason) {}
    fn ended(&self) {}
}

/// A disk: how many requests it serves at once, and how long one takes by itself and a KiB.
#[derive(Clone, Copy, Debug)]
struct Pace {
    servers: u64,
    alone_ns: u64,
    kib_ns: u64,
}

impl Pace {
    fn of(self, op: Op, bytes: u64) -> u64 {
        self.alone_ns + if op.has_data() { bytes * self.kib_ns / KIB } else { 0 }
    }

    fn of_load(self, load: &Load) -> u64 {
        self.of(Op::Read, load.bytes)
    }
}

/// Measurements of a run.
struct Seen {
    /// By load: times, shortest first.
    times: Vec<Vec<u64>>,
    /// By load: medium's time that its commands took, ns.
    used: Vec<u64>,
    /// Part of the disk's time in which it worked.
    busy: f64,
}

fn percentile(times: &[u64], percent: usize) -> u64 {
    times.get(times.len() * percent / 100).or(times.last()).copied().unwrap_or(u64::MAX)
}

/// Lets the loads run, and measures after they have found their ways.
fn run(seed: u64, pace: Pace, loads: &[Load], settle_ms: u64, measure_ms: u64) -> Seen {
    let w = World::simple(seed, 4096);
    w.disks[0].1.set_pace_of_bytes(pace.servers as usize, pace.alone_ns, pace.kib_ns);
    let all: Vec<Rc<Initiator>> =
        (0..).zip(loads).map(|(n, load)| Initiator::login(&w, n, *load)).collect();
    all.iter().for_each(|i| i.start());
    w.run_for(settle_ms * MS);
    let from = w.sim.now();
    w.disks[0].1.state().log.clear();
    w.run_for(measure_ms * MS);
    let times: Vec<Vec<u64>> = all.iter().map(|i| i.times(from)).collect();
    let used = times.iter().zip(loads).map(|(t, load)| t.len() as u64 * pace.of_load(load));
    let used = used.collect();
    let worked: u64 = w.disks[0].1.state().log.iter().map(|d| pace.of(d.op, d.length)).sum();
    let busy = worked as f64 / (pace.servers * measure_ms * MS) as f64;
    all.iter().for_each(|i| i.stop.set(true));
    w.run_for(20_000 * MS);
    for i in &all {
        assert_eq!((i.bad.get(), i.sent.borrow().len()), (0, 0), "seed {seed} {:?}", i.load);
        i.session().close();
        i.session.take();
    }
    w.check_empty();
    Seen { times, used, busy }
}

/// A medium, from a wire that knows bytes only to a disk that knows requests only.
fn pace(random: &mut SeededRandom) -> Pace {
    Pace {
        servers: 1 + random.below(8),
        alone_ns: MS / 4 + random.below(4 * MS),
        kib_ns: random.below(40_000),
    }
}

/// L3: a nexus with one small command beside greedy ones waits only for the commands below the
/// scheduler. These are the commands at the disk and a few more; it does not wait for the queued
/// commands.
#[test]
fn a_small_nexus_beside_greedy_ones_has_low_latency() {
    for seed in Seeds::of(4) {
        let mut random = SeededRandom::new(seed);
        let pace = pace(&mut random);
        let kind = [Kind::Read, Kind::Verify, Kind::WriteSame][random.below(3) as usize];
        let core = random.below(2) as usize;
        let greedy = Load { kind, core, ..Load::GREEDY };
        let loads = [Load::SMALL, greedy];
        let seen = run(seed, pace, &loads, SETTLE_MS, 15_000);
        let bound = pace.of_load(&Load::SMALL) + 5 * pace.of_load(&greedy);
        let p99 = percentile(&seen.times[0], 99);
        let what = format!("seed {seed} {pace:?} {greedy:?}: {p99} of {bound}");
        assert!(seen.times[0].len() > 50, "{what}");
        assert!(p99 <= bound, "{what}");
        assert!(seen.busy > 0.9, "{what}: busy {}", seen.busy);
    }
}

/// L2: nexuses of one core that always have something waiting use the medium for as long.
#[test]
fn greedy_nexuses_of_all_request_sizes_get_equal_disk_time() {
    for seed in Seeds::of(4) {
        let mut random = SeededRandom::new(seed);
        let pace = Pace { servers: 1 + random.below(4), ..pace(&mut random) };
        let size = |bytes: u64| Load { bytes: bytes * KIB, ..Load::GREEDY };
        let loads = [size(128), size(4), size(32)];
        let seen = run(seed, pace, &loads, SETTLE_MS, 30_000);
        let all: u64 = seen.used.iter().sum();
        for used in &seen.used {
            let part = *used as f64 / all as f64;
            assert!((0.25..0.43).contains(&part), "seed {seed} {pace:?}: {:?}", seen.used);
        }
        assert!(seen.busy > 0.95, "seed {seed} {pace:?}: busy {}", seen.busy);
    }
}

/// Every command that touches the medium takes turns: floods of each kind beside small reads.
#[test]
fn no_kind_of_command_monopolizes_the_medium() {
    let pace = Pace { servers: 2, alone_ns: 3 * MS, kib_ns: 10_000 };
    for kind in [Kind::Verify, Kind::WriteSame, Kind::Unmap, Kind::CompareAndWrite] {
        // Reads that make the disk's limit known, the flood, and the small one.
        let flood = Load { kind, bytes: 64 * KIB, depth: 100, ..Load::SMALL };
        let reads = Load { bytes: 16 * KIB, depth: 32, ..Load::SMALL };
        let seen = run(1, pace, &[Load::SMALL, reads, flood], SETTLE_MS, 15_000);
        let bound = 8 * pace.of_load(&flood);
        let p99 = percentile(&seen.times[0], 99);
        assert!(seen.times[0].len() > 100 && p99 <= bound, "{kind:?}: {p99} of {bound}");
        let counts: Vec<usize> = seen.times.iter().map(Vec::len).collect();
        assert!(counts[1] > 500, "reads go on: {kind:?} {counts:?}");
        assert!(counts[2] > 20, "nobody starves: {kind:?} {counts:?}");
    }
}

/// A unit whose commands run in order, for one nexus compares and writes all the time, is as fair.
#[test]
fn strict_command_order_is_as_fair() {
    let pace = Pace { servers: 2, alone_ns: 3 * MS, kib_ns: 10_000 };
    for core in [0, 1] {
        let caw = Load { core: 1, kind: Kind::CompareAndWrite, ..Load::SMALL };
        let greedy = Load { core, ..Load::GREEDY };
        let seen = run(2, pace, &[Load::SMALL, greedy, caw], SETTLE_MS, 15_000);
        // One that compares and writes has two requests.
        for (n, bound) in [(0, 6 * pace.of_load(&greedy)), (2, 12 * pace.of_load(&greedy))] {
            let p99 = percentile(&seen.times[n], 99);
            let many = seen.times[n].len();
            assert!(many > 100 && p99 <= bound, "core {core} {n}: {many}, {p99} of {bound}");
        }
        assert!(seen.busy > 0.9, "core {core}: {}", seen.busy);
    }
}
