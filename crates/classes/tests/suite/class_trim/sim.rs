//! Users on two cores, whose blocks share granules, over a disk that applies deletes late. No
//! written byte is ever touched, in any state of the queue and with a power cut at any moment. The
//! queue is inserted, removed, flushed with `now` and configured while the users work.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use bio::{Bio, Errno, Op};
use geom::{Access, Core, Edge};
use reactor::SeededRandom;
use serde_json::json;
use testkit::Seeds;

use super::MS;
use super::late::{Deletes, LateDisk, SECTOR};
use super::model::{Model, bytes_of};
use crate::sim::life::{Life, PowerCut};

const SECTORS: u64 = 192;
const GRANULE: u64 = 4096;
/// Sectors of one user in a row: granules are shared.
const STRIDE: u64 = 13;
const USERS: u64 = 3;

#[derive(Default, Debug)]
struct Totals {
    ops: u64,
    power_cuts: u64,
    trims: u64,
    waits: u64,
    taken_back: u64,
}

struct Crowd {
    model: RefCell<Model>,
    running: Cell<u64>,
    fault: RefCell<Option<String>>,
    values: Cell<u64>,
    ops: Cell<u64>,
}

impl Crowd {
    fn fail(&self, what: String) {
        self.fault.borrow_mut().get_or_insert(what);
    }

    /// Sectors of one user, some in a row.
    fn place(user: u64, random: &mut SeededRandom) -> (u64, u64) {
        let spans = SECTORS / STRIDE / USERS;
        let first = (random.below(spans) * USERS + user) * STRIDE;
        let from = random.below(STRIDE);
        (first + from, 1 + random.below(STRIDE - from))
    }

    async fn user(self: Rc<Self>, core: Rc<Core>, edge: Edge, user: u64, seed: u64, ops: u64) {
        let mut random = SeededRandom::new(seed);
        for _ in 0..ops {
            self.ops.set(self.ops.get() + 1);
            self.step(&core, edge, user, &mut random).await;
            match random.below(12) {
                0 => core.reactor().sleep(random.below(400) * MS).await,
                1 => core.reactor().sleep(random.below(3) * MS).await,
                _ => {}
            }
        }
        self.running.set(self.running.get() - 1);
    }

    async fn step(&self, core: &Rc<Core>, edge: Edge, user: u64, random: &mut SeededRandom) {
        let (first, count) = Self::place(user, random);
        let (at, len) = (first * SECTOR, count * SECTOR);
        match random.below(10) {
            0..4 => {
                let value = self.values.get() + 1;
                self.values.set(value);
                let step = self.model.borrow_mut().begin(first, count, Some(value));
                let bytes = bytes_of(value).repeat(count as usize);
                if let Err(e) = core.write(edge, at, &bytes).await {
                    self.fail(format!("write: {e:?}"));
                }
                self.model.borrow_mut().end(first, count, step);
            }
            4..8 => {
                let step = self.model.borrow_mut().begin(first, count, None);
                let ask = |b: &mut Bio| (b.op, b.offset, b.length) = (Op::Delete, at, len);
                // Without the queue it is sent down by itself, and may fail there: it was a hint.
                // One without an answer is the user's to wait for then.
                if core.io(edge, ask).await.status == Err(Errno::TimedOut) {
                    core.reactor().sleep(60_000 * MS).await;
                }
                self.model.borrow_mut().end(first, count, step);
            }
            8 => {
                let mark = self.model.borrow().flush();
                match core.flush(edge).await {
                    Ok(()) => self.model.borrow_mut().flushed(&mark),
                    Err(e) => self.fail(format!("flush: {e:?}")),
                }
            }
            _ => match core.read(edge, at, len as usize).await {
                Ok(bytes) => {
                    let right = self.model.borrow().reads(first, &bytes);
                    right.unwrap_or_else(|e| self.fail(format!("user {user}: {e}")));
                }
                Err(e) => self.fail(format!("read: {e:?}")),
            },
        }
    }
}

/// The queue is inserted, removed, flushed and configured.
fn meddle(life: &mut Life, random: &mut SeededRandom) {
    let is_there = life.has("d0.trim");
    let done = match random.below(6) {
        0 if is_there => life.verb("trim", "destroy", "d0.trim", json!({})),
        _ if !is_there => life.verb("trim", "insert", "d0", eager(random)),
        1 | 2 => life.verb("trim", "now", "d0.trim", json!({})),
        3 => {
            let with = json!({ "share": 1 + random.below(100), "quiet_ms": random.below(300) });
            life.verb("trim", "configure", "d0.trim", with)
        }
        _ => life.verb("trim", "stats", "d0.trim", json!({})),
    };
    if let Err(e) = done {
        // The device keeps a delete for longer than the wait lasts.
        assert_eq!(e.kind, Errno::TimedOut, "{e}");
    }
}

fn eager(random: &mut SeededRandom) -> serde_json::Value {
    json!({
        "share": 20 + random.below(80),
        "short": random.below(3) * 4096,
        "batch": 1 + random.below(8),
        "quiet_ms": random.below(100),
        "expire_ms": 200 + random.below(5_000),
    })
}

/// One world until a power cut or the end.
fn live(
    disk: &LateDisk,
    crowd: &Rc<Crowd>,
    random: &mut SeededRandom,
    tally: &mut Totals,
    cut: bool,
) {
    let mut life = Life::with(random.next_u64(), 2, classes::all());
    disk.attach(&mut life.control.topology, "d0", GRANULE);
    life.settle();
    life.verb("trim", "insert", "d0", eager(random)).expect("insert");
    // The queue has the name of the disk below it.
    let (_, edge) = life.open("d0", Access::WRITE).expect("open");
    let read = life.read(edge, 0, (SECTORS * SECTOR) as usize).expect("read");
    let right = crowd.model.borrow_mut().survived(&read);
    right.expect("what was flushed is there");
    crowd.running.set(USERS);
    for user in 0..USERS {
        let core = life.cores[(user % 2) as usize].clone();
        let ops = 20 + random.below(40);
        let one = crowd.clone().user(core.clone(), edge, user, random.next_u64(), ops);
        core.reactor().spawn("user", one);
    }
    if cut {
        life.fuse.set(200 + random.below(6_000));
    }
    while crowd.running.get() > 0 && crowd.fault.borrow().is_none() {
        let (running, most) = (crowd.clone(), 1 + random.below(3));
        life.until(most, move |_| running.running.get() == 0);
        meddle(&mut life, random);
    }
    let ended = crowd.clone();
    assert!(life.until(600, move |_| ended.running.get() == 0), "nobody waits for ever");
    // And all that is left is sent, late.
    life.pass(200_000 * MS);
    let read = life.read(edge, 0, (SECTORS * SECTOR) as usize).expect("read");
    crowd.model.borrow().reads(0, &read).expect("all of it");
    if life.has("d0.trim") {
        let mut figure = |name: &str| {
            let all = life.verb("trim", "stats", "d0.trim", json!({})).expect("stats");
            all["stats"][name].as_u64().expect("a number")
        };
        tally.waits += figure("waited_writes");
        tally.taken_back += figure("taken_back_bytes");
    }
}

fn run_seed(seed: u64, tally: &mut Totals) {
    let mut random = SeededRandom::new(seed);
    // Every other disk takes several ranges at once.
    let ranges = [1, 4][(seed % 2) as usize];
    let disk = LateDisk::of_ranges(SECTORS * SECTOR, seed, Deletes::AnyHow, ranges);
    let crowd = Rc::new(Crowd {
        model: RefCell::new(Model::new(SECTORS)),
        running: Cell::new(0),
        fault: RefCell::new(None),
        values: Cell::new(0),
        ops: Cell::new(0),
    });
    for round in 0..3 {
        let cut = round < 2 && random.below(3) > 0;
        let done = catch_unwind(AssertUnwindSafe(|| {
            live(&disk, &crowd, &mut random, tally, cut);
        }));
        if let Some(fault) = crowd.fault.borrow().as_ref() {
            panic!("seed {seed}: {fault}");
        }
        match done {
            // The machine is switched off: the disk does not carry out the rest later.
            Ok(()) => disk.power_cut(),
            Err(e) if e.is::<PowerCut>() => {
                tally.power_cuts += 1;
                disk.power_cut();
            }
            Err(e) => {
                eprintln!("seed {seed}, round {round}");
                resume_unwind(e);
            }
        }
    }
    tally.ops += crowd.ops.get();
    tally.trims += disk.lock().seen.len() as u64;
}

/// Simulations of all tests together.
const SEEDS: u64 = 1000;
/// Tests that share them, so that they run beside each other.
const PARTS: u64 = 4;

fn part(nth: u64) {
    let (mut tally, seeds) = (Totals::default(), Seeds::of(SEEDS).part(nth, PARTS));
    seeds.each(|seed| run_seed(seed, &mut tally));
    let many = seeds.count();
    eprintln!("{tally:?}");
    assert!(tally.trims > 0 && tally.taken_back > 0 || many < 3, "{tally:?}");
    assert!(tally.waits > 0 && tally.power_cuts > 0 || many < 100, "{tally:?}");
}

#[test]
fn no_byte_outside_the_deleted_ranges_changes() {
    part(0);
}

#[test]
fn no_byte_outside_the_deleted_ranges_changes_2() {
    part(1);
}

#[test]
fn no_byte_outside_the_deleted_ranges_changes_3() {
    part(2);
}

#[test]
fn no_byte_outside_the_deleted_ranges_changes_4() {
    part(3);
}
