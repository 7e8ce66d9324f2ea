//! ORDERED requests at the queue of a disk: nothing passes them, although the disk reorders.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bio::{Bio, End, Errno, Flags, Op, Segs};
use classes::nop::Nop;
use geom::{Core, Create, Edge, Sink};
use reactor::{PortChoice, SeededRandom};
use serde_json::json;
use testkit::Seeds;

use crate::world::{Ended, World, range};

/// The slowest request of the disks here takes so long, ns; with it requests end in any order.
const SLOW_US: u64 = 5_000;

fn shuffling(seed: u64, size: u64) -> World {
    let mut w = World::simulated(seed);
    let params = json!({
        "size": size, "seed": seed, "latency": "between",
        "latency_min_us": 0, "latency_max_us": SLOW_US,
    });
    w.disk("model", "d0", params).unwrap();
    w
}

fn filled(w: &World, len: u64, byte: u8) -> Segs {
    let data = Segs::alloc(w.core.pool(), len as usize).unwrap();
    data.fill(0, len as usize, byte);
    data
}

fn write(
    w: &mut World,
    edge: Edge,
    ended: &Ended,
    n: usize,
    (at, len): (u64, u64),
    (byte, flags): (u8, Flags),
) {
    let data = filled(w, len, byte);
    w.start(edge, n, ended, |bio| {
        range(bio, Op::Write, at, len, data);
        bio.flags = flags;
    });
}

fn start(w: &mut World, edge: Edge, ended: &Ended, n: usize, op: Op, flags: Flags) {
    let length = if op.has_range() { 512 } else { 0 };
    w.start(edge, n, ended, |bio| {
        range(bio, op, 0, length, Segs::new());
        bio.flags = flags;
    });
}

#[test]
fn last_of_three_writes_wins_if_the_middle_one_is_ordered() {
    let (mut passed, seeds) = (0, Seeds::of(1000));
    for seed in seeds.clone() {
        let mut w = shuffling(seed, 1 << 20);
        let edge = w.open("d0");
        for (middle, wanted) in [(Flags::ORDERED, true), (Flags::NONE, false)] {
            let ended = Ended::default();
            for (n, flags) in [Flags::NONE, middle, Flags::NONE].into_iter().enumerate() {
                write(&mut w, edge, &ended, n, (0, 512), (n as u8 + 1, flags));
            }
            w.until("three writes", |_| ended.list().len() == 3);
            let last = w.read(edge, 0, 512).unwrap()[0];
            let order: Vec<u64> = ended.list().iter().map(|(n, _)| *n).collect();
            if wanted {
                assert_eq!((last, order), (3, vec![0, 1, 2]), "seed {seed}");
            } else {
                passed += u32::from(last != 3);
            }
        }
    }
    let seen = passed > 300 || !seeds.are_enough();
    assert!(seen, "without the flag writes pass each other: {passed} of {}", seeds.count());
}

/// Requests in flight and the progress of each barrier, as seen by a user of the disk.
#[derive(Default)]
struct Watcher {
    /// Number of each request that was sent and has not ended, and whether it is ordered.
    open: RefCell<BTreeMap<u64, bool>>,
    ended: RefCell<u64>,
    wrong: RefCell<Option<String>>,
}

impl Sink for Watcher {
    fn done(&self, tag: u64, _: &mut Bio, _: &Core) {
        let mut open = self.open.borrow_mut();
        let ordered = open.remove(&tag).unwrap_or_default();
        let before = open.range(..tag).next();
        let barrier = open.range(..tag).find(|(_, ordered)| **ordered);
        if (ordered && before.is_some()) || barrier.is_some() {
            let what = format!("{tag} (ordered: {ordered}) ended before one of {open:?}");
            self.wrong.borrow_mut().get_or_insert(what);
        }
        *self.ended.borrow_mut() += 1;
    }
}

/// Possible contents of a block: the last ordered write, or one of those after it.
fn many(seed: u64) -> (u64, u64) {
    let blocks = 8u64;
    let mut w = shuffling(seed, 64 << 20);
    let below = w.control.topology.find("d0").unwrap();
    let create = Create { name: "d0.nop", members: &[below], params: &json!({}) };
    w.control.call(|t| geom::filter_class::<Nop>().create(t, &create)).unwrap();
    let edges = [w.open("d0"), w.open("d0"), w.open("d0.nop")];
    let watcher = Rc::new(Watcher::default());
    let sink = w.core.add_sink(watcher.clone());
    let mut random = SeededRandom::new(seed);
    let mut allowed = vec![vec![0u8]; blocks as usize];
    let (mut barriers, mut waited) = (0, 0);
    for n in 1..=400u64 {
        let edge = edges[random.below(3) as usize];
        let block = random.below(blocks);
        let ordered = random.chance(150);
        let op =
            [Op::Write, Op::Write, Op::Write, Op::Read, Op::Delete, Op::WriteZeroes, Op::Flush]
                [random.below(7) as usize];
        let byte = (n % 251) as u8 + 1;
        let length = if op.has_range() { 512 } else { 0 };
        let data = if op.has_data() { filled(&w, 512, byte) } else { Segs::new() };
        watcher.open.borrow_mut().insert(n, ordered);
        barriers += u64::from(ordered);
        w.core.submit(edge, End::Sink { sink, tag: n }, |bio| {
            range(bio, op, block * 512, length, data);
            bio.flags = if ordered { Flags::ORDERED } else { Flags::NONE };
        });
        if ordered {
            // All earlier requests have ended by then, in an unknown order.
            let place = &mut allowed[block as usize];
            match op {
                Op::Write => *place = vec![byte],
                Op::Delete | Op::WriteZeroes => *place = vec![0],
                _ => {}
            }
        } else {
            match op {
                Op::Write => allowed[block as usize].push(byte),
                Op::Delete | Op::WriteZeroes => allowed[block as usize].push(0),
                _ => {}
            }
        }
        waited = waited.max(watcher.open.borrow().len() as u64);
        if random.chance(100) {
            w.turn(random.below(2 * SLOW_US * 1000));
        }
    }
    w.until("all requests", |_| *watcher.ended.borrow() == 400);
    assert_eq!(watcher.wrong.borrow().clone(), None, "seed {seed}");
    for (block, allowed) in allowed.iter().enumerate() {
        let found = w.read(edges[0], block as u64 * 512, 512).unwrap()[0];
        assert!(allowed.contains(&found), "seed {seed}, block {block}: {found} {allowed:?}");
    }
    assert_eq!(w.core.live(), 0);
    (barriers, waited)
}

#[test]
fn no_request_passes_a_barrier_of_several_consumers() {
    let (mut barriers, mut waited, seeds) = (0, 0, Seeds::of(1000));
    for seed in seeds.clone() {
        let (b, most) = many(seed);
        (barriers, waited) = (barriers + b, waited.max(most));
    }
    let seen = barriers > 2000 && waited > 20;
    assert!(seen || !seeds.are_enough(), "{barriers} barriers, at most {waited} under way");
}

/// O1 of disks/src/ordered.rs.
#[test]
fn ordered_operations_are_barriers_and_a_plain_flush_is_not() {
    let ops = [Op::Read, Op::Write, Op::Delete, Op::WriteZeroes, Op::Flush];
    for op in ops {
        for flags in [Flags::ORDERED, Flags::ORDERED | Flags::FUA, Flags::NONE] {
            let mut w = World::simulated(1);
            w.disk("model", "d0", json!({ "size": 1 << 20 })).unwrap();
            let edge = w.open("d0");
            w.verb("hang", "d0", json!({})).unwrap();
            let ended = Ended::default();
            write(&mut w, edge, &ended, 0, (4096, 512), (1, Flags::NONE));
            if op.has_data() {
                let data = filled(&w, 512, 2);
                w.start(edge, 1, &ended, |bio| {
                    range(bio, op, 0, 512, data);
                    bio.flags = flags;
                });
            } else {
                start(&mut w, edge, &ended, 1, op, flags);
            }
            write(&mut w, edge, &ended, 2, (8192, 512), (3, Flags::NONE));
            w.turn(1_000_000);
            let inside = if flags.has(Flags::ORDERED) { "1" } else { "3" };
            assert_eq!(w.line_of("d0", "under way"), inside, "{op:?} {flags:?}");
            w.verb("release", "d0", json!({})).unwrap();
            w.until("all three", |_| ended.list().len() == 3);
            if flags.has(Flags::ORDERED) {
                assert_eq!(ended.list(), [(0, Ok(())), (1, Ok(())), (2, Ok(()))], "{op:?}");
            }
            assert_eq!(w.core.live(), 0);
        }
    }
}

/// O1 of disks/src/ordered.rs.
#[test]
fn attribute_request_is_answered_while_others_wait() {
    let mut w = World::simulated(1);
    w.disk("model", "d0", json!({ "size": 1 << 20 })).unwrap();
    let edge = w.open("d0");
    w.verb("hang", "d0", json!({})).unwrap();
    let ended = Ended::default();
    start(&mut w, edge, &ended, 0, Op::Flush, Flags::ORDERED);
    start(&mut w, edge, &ended, 1, Op::Flush, Flags::ORDERED);
    let done = w.io(edge, |bio| {
        bio.op = Op::GetAttr;
        bio.attr = "PART::nothing";
        bio.flags = Flags::ORDERED;
    });
    assert_eq!(done.status, Err(Errno::NoAttr));
    assert!(ended.list().is_empty());
}

/// O4 of disks/src/ordered.rs.
#[test]
fn errors_hangs_and_power_cuts_leave_no_request_waiting() {
    for seed in Seeds::of(1000) {
        let mut w = shuffling(seed, 1 << 20);
        let edge = w.open("d0");
        let mut random = SeededRandom::new(seed);
        let (ended, mut sent, mut hangs) = (Ended::default(), 0, false);
        for _ in 0..150 {
            match random.below(12) {
                0 => {
                    let op = ["write", "flush", "read", "delete"][random.below(4) as usize];
                    let fail = json!({ "op": op, "percent": 50 });
                    w.verb("fail", "d0", fail).unwrap();
                }
                1 => drop(w.verb("heal", "d0", json!({})).unwrap()),
                2 if !hangs => {
                    w.verb("hang", "d0", json!({})).unwrap();
                    hangs = true;
                }
                2 | 3 => {
                    let how = if random.chance(500) { "release" } else { "power-cut" };
                    w.verb(how, "d0", json!({})).unwrap();
                    hangs = false;
                }
                4 => w.turn(random.below(2 * SLOW_US * 1000)),
                n => {
                    let flags = if random.chance(400) { Flags::ORDERED } else { Flags::NONE };
                    match n {
                        5..8 => write(&mut w, edge, &ended, sent, (0, 2048), (1, flags)),
                        8 => start(&mut w, edge, &ended, sent, Op::Delete, flags),
                        9 => start(&mut w, edge, &ended, sent, Op::WriteZeroes, flags),
                        _ => start(&mut w, edge, &ended, sent, Op::Flush, flags),
                    }
                    sent += 1;
                }
            }
        }
        w.verb("release", "d0", json!({})).unwrap();
        w.until("all requests", |_| ended.list().len() == sent);
        assert_eq!(w.core.live(), 0, "seed {seed}");
        // The queue is as good as new.
        w.verb("heal", "d0", json!({})).unwrap();
        assert_eq!(w.write(edge, 0, &[9; 512]), Ok(()));
        assert_eq!(w.flagged(edge, Op::Flush, 0, 0, Flags::ORDERED), Ok(()));
        assert_eq!(w.read(edge, 0, 512), Ok(vec![9; 512]));
        assert_eq!(w.line_of("d0", "under way"), "0");
    }
}

#[test]
fn removal_of_a_disk_ends_its_waiting_requests() {
    let mut w = World::simulated(3);
    w.disk("model", "d0", json!({ "size": 1 << 20 })).unwrap();
    let edge = w.open("d0");
    w.verb("hang", "d0", json!({})).unwrap();
    let ended = Ended::default();
    for n in 0..6 {
        let flags = if n % 2 == 1 { Flags::ORDERED } else { Flags::NONE };
        write(&mut w, edge, &ended, n, (0, 512), (n as u8, flags));
    }
    w.turn(1_000_000);
    let lost = w.control.topology.find("d0").unwrap();
    w.control.topology.post(geom::Event::Lost(lost, Errno::NxIo));
    w.control.pump();
    write(&mut w, edge, &ended, 6, (0, 512), (7, Flags::NONE));
    assert_eq!(ended.list(), [(6, Err(Errno::NxIo))], "who comes now is refused");
    w.verb("power-cut", "d0", json!({})).unwrap();
    w.until("those who waited", |_| ended.list().len() == 7);
    assert_eq!(w.core.live(), 0);
}

#[test]
fn split_ordered_request_is_one_barrier() {
    // 3 MiB in pieces of 1 MiB, and 100 MiB of zeroes in 100 pieces: more than a wave.
    let mib = 1 << 20;
    for (op, len) in [(Op::Write, 3 * mib), (Op::WriteZeroes, 100 * mib), (Op::Delete, 100 * mib)] {
        for seed in Seeds::of(12) {
            let mut w = shuffling(seed, 128 << 20);
            let edge = w.open("d0");
            let ended = Ended::default();
            let spots = [0, mib + 512, len - 512];
            for (n, at) in spots.into_iter().enumerate() {
                write(&mut w, edge, &ended, n, (at, 512), (1, Flags::NONE));
            }
            let data = if op.has_data() { filled(&w, len, 2) } else { Segs::new() };
            w.start(edge, 3, &ended, |bio| {
                range(bio, op, 0, len, data);
                bio.flags = Flags::ORDERED;
            });
            for (n, at) in spots.into_iter().enumerate() {
                write(&mut w, edge, &ended, 4 + n, (at, 512), (3, Flags::NONE));
            }
            w.until("seven requests", |_| ended.list().len() == 7);
            let order: Vec<u64> = ended.list().iter().map(|(n, _)| *n).collect();
            assert_eq!(order[3], 3, "{op:?}, seed {seed}: {order:?}");
            assert!(order[..3].iter().all(|n| *n < 3), "{order:?}");
            for at in spots {
                assert_eq!(w.read(edge, at, 512), Ok(vec![3; 512]), "{op:?}, seed {seed}");
            }
        }
    }
}

#[test]
fn an_ordered_request_waits_for_all_pieces_of_an_earlier_one() {
    let len = 100u64 << 20;
    for seed in Seeds::of(12) {
        let mut w = shuffling(seed, 128 << 20);
        let edge = w.open("d0");
        let ended = Ended::default();
        w.start(edge, 0, &ended, |bio| range(bio, Op::Delete, 0, len, Segs::new()));
        write(&mut w, edge, &ended, 1, (len - 512, 512), (2, Flags::ORDERED));
        write(&mut w, edge, &ended, 2, (0, 512), (3, Flags::NONE));
        w.until("three requests", |_| ended.list().len() == 3);
        let order: Vec<u64> = ended.list().iter().map(|(n, _)| *n).collect();
        assert_eq!(order, [0, 1, 2], "seed {seed}");
        assert_eq!(w.read(edge, len - 512, 512), Ok(vec![2; 512]));
        assert_eq!(w.read(edge, 0, 512), Ok(vec![3; 512]));
    }
}

/// Sends a whole list of writes from inside the core's loop, as an engine does.
struct Burst {
    edge: Edge,
    sink: u32,
    todo: RefCell<Vec<(u64, u64, Flags)>>,
}

impl Sink for Burst {
    fn done(&self, _: u64, _: &mut Bio, core: &Core) {
        for (n, (at, len, flags)) in self.todo.take().into_iter().enumerate() {
            let data = Segs::alloc(core.pool(), len as usize).unwrap();
            data.fill(0, len as usize, n as u8 + 1);
            core.submit(self.edge, End::Sink { sink: self.sink, tag: n as u64 }, |bio| {
                range(bio, Op::Write, at, len, data);
                bio.flags = flags;
            });
        }
    }
}

/// D7 of geom/src/core/dispatch.rs.
#[test]
fn large_requests_sent_in_a_burst_keep_their_place() {
    let mib = 1u64 << 20;
    for seed in Seeds::of(12) {
        let mut w = shuffling(seed, 64 << 20);
        let edge = w.open("d0");
        let watcher = Rc::new(Watcher::default());
        let sink = w.core.add_sink(watcher.clone());
        let todo = vec![
            (0, 3 * mib, Flags::NONE),
            (mib, 512, Flags::ORDERED),
            (0, 3 * mib, Flags::ORDERED),
            (mib, 1024, Flags::NONE),
        ];
        for (n, (.., flags)) in todo.iter().enumerate() {
            watcher.open.borrow_mut().insert(n as u64, flags.has(Flags::ORDERED));
        }
        let burst = Rc::new(Burst { edge, sink, todo: RefCell::new(todo) });
        let first = w.core.add_sink(burst);
        w.core.submit(edge, End::Sink { sink: first, tag: 0 }, |bio| bio.op = Op::Flush);
        w.until("the burst", |_| *watcher.ended.borrow() == 4);
        assert_eq!(watcher.wrong.borrow().clone(), None, "seed {seed}");
        assert_eq!(w.read(edge, mib, 1024), Ok(vec![4; 1024]));
        assert_eq!(w.read(edge, mib + 1024, 512), Ok(vec![3; 512]));
    }
}

/// O5 of disks/src/ordered.rs.
#[test]
fn request_without_memory_keeps_its_place_in_the_queue() {
    // tmpfs zeroes by no command: zeroes are written, and need memory.
    let path = format!("/dev/shm/ashlar-ordered-{}.img", std::process::id());
    let mut w = World::new(PortChoice::Poll);
    let params = json!({ "path": path, "create": true, "size": 1 << 20, "direct": "no" });
    w.disk("file", "f0", params).unwrap();
    std::fs::remove_file(&path).unwrap();
    let edge = w.open("f0");
    for byte in 1..=3u8 {
        let ordered = filled(&w, 4096, byte);
        let mut all = Vec::new();
        while let Some(buf) = w.core.pool().get(4096) {
            all.push(buf);
        }
        let ended = Ended::default();
        w.start(edge, 0, &ended, |bio| {
            range(bio, Op::WriteZeroes, 0, 65536, Segs::new());
            bio.flags = Flags::NO_HOLE;
        });
        // By the second time the disk knows, and is short of memory from the start.
        w.start(edge, 1, &ended, |bio| {
            range(bio, Op::Write, 0, 4096, ordered);
            bio.flags = Flags::ORDERED;
        });
        w.start(edge, 2, &ended, |bio| range(bio, Op::Delete, 4096, 4096, Segs::new()));
        let until = w.reactor.fresh_now() + 20_000_000;
        while w.reactor.fresh_now() < until {
            w.turn(1_000_000);
        }
        assert_eq!(ended.list(), [], "nobody passes");
        drop(all);
        w.until("all three", |_| ended.list().len() == 3);
        assert_eq!(ended.list(), [(0, Ok(())), (1, Ok(())), (2, Ok(()))]);
        assert_eq!(w.read(edge, 0, 4096), Ok(vec![byte; 4096]));
    }
}
