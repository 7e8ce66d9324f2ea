//! Random requests to a scheduler from several cores and clients, among them fences, flushes and
//! overlapping ones. Meanwhile the scheduler is inserted, changed and removed, and another layer
//! beside it. Disks fail some requests, take only small pieces, or are lost for good.
//!
//! Each request ends once. None fails unless the disk failed it. None passes a fence or a request
//! that it overlaps. A read finds the data that was sent last. `ASHLAR_SEEDS` sets the number of
//! seeds, `ASHLAR_SEED` the first one.

use std::collections::BTreeMap;

use bio::{Errno, Flags, Op};
use geom::{Create, Event};
use reactor::model::Timing;
use serde_json::{Value, json};
use testkit::Seeds;

use super::lab::{Lab, pattern};
use super::leaf::{BLOCK, MS};

/// Seeds of every run of the tests.
const SEEDS: u64 = 1000;
/// Blocks that one core works on: few, so that requests overlap.
const BLOCKS: u64 = 200;
const ALGORITHMS: [&str; 5] = ["rr", "as", "fifo", "deadline", "fair"];
const OPTIONS: [&str; 6] =
    ["", "", "", "weight=50,3.weight=500", "2.iops=2000", "1.kbps=20000,weight=7"];

struct Seed(u64);

impl Seed {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len() as u64) as usize]
    }
}

#[derive(Default, Debug)]
struct Totals {
    requests: u64,
    fences: u64,
    inserted: u64,
    configured: u64,
    destroyed: u64,
    beside: u64,
    failed: u64,
    lost: u64,
}

impl Totals {
    fn plus(self, o: Totals) -> Totals {
        Totals {
            requests: self.requests + o.requests,
            fences: self.fences + o.fences,
            inserted: self.inserted + o.inserted,
            configured: self.configured + o.configured,
            destroyed: self.destroyed + o.destroyed,
            beside: self.beside + o.beside,
            failed: self.failed + o.failed,
            lost: self.lost + o.lost,
        }
    }
}

struct Storm {
    chance: Seed,
    lab: Lab,
    /// The newest write to a block, by core.
    wrote: BTreeMap<(usize, u64), u64>,
    /// Reads and the data that they must find: the writes of each block.
    reads: Vec<(usize, u64, Vec<u64>)>,
    sent: u64,
    /// The disk has failed some: reads may find older data.
    failing: bool,
}

impl Storm {
    fn send(&mut self) {
        let core = self.chance.below(self.lab.cores.len() as u64) as usize;
        let first = self.chance.below(BLOCKS);
        let blocks = 1 + self.chance.below(12);
        let at = core as u64 * 1000 + first;
        let op = match self.chance.below(20) {
            0 => Op::Flush,
            1 => Op::Delete,
            2 => Op::WriteZeroes,
            3..=10 => Op::Read,
            _ => Op::Write,
        };
        let flags = if self.chance.one_in(15) { Flags::ORDERED } else { Flags::NONE };
        let who = self.chance.below(5) as u32;
        let tag = self.lab.send(core, op, at, blocks, flags, who);
        self.sent += 1;
        let range = at..at + blocks;
        match op {
            Op::Write => self.wrote.extend(range.map(|b| ((core, b), tag))),
            Op::Delete | Op::WriteZeroes => self.wrote.extend(range.map(|b| ((core, b), 0))),
            Op::Read => {
                let newest = |b| self.wrote.get(&(core, b)).copied().unwrap_or(0);
                self.reads.push((core, tag, range.map(newest).collect()));
            }
            _ => {}
        }
    }

    fn operate(&mut self, tally: &mut Totals) {
        let algorithm = self.chance.of(&ALGORITHMS);
        let options = if algorithm == "fair" { self.chance.of(&OPTIONS) } else { "" };
        let is_there = self.lab.control.topology.find("d0.sched.").is_some();
        match self.chance.below(8) {
            0..=2 if !is_there => {
                let params = json!({ "disks": ["d0"], "algorithm": algorithm, "options": options });
                self.lab.verb("insert", "", params).expect("insert");
                tally.inserted += 1;
            }
            0..=2 => {
                self.lab.verb("destroy", "d0.sched.", Value::Null).expect("destroy");
                tally.destroyed += 1;
            }
            3..=5 if is_there => {
                let classify = self.chance.of(&["session", "lun", "process", "none"]);
                let params =
                    json!({ "algorithm": algorithm, "options": options, "classify": classify });
                self.lab.verb("configure", "d0", params).expect("configure");
                tally.configured += 1;
            }
            6 => self.beside(tally),
            _ => {}
        }
    }

    /// Another layer, the same way, above or below it.
    fn beside(&mut self, tally: &mut Totals) {
        let control = &mut self.lab.control;
        if let Some(geom) = control.topology.find_geom("nop", "beside") {
            control.remove(geom).expect("remove");
            return;
        }
        let on = control.topology.below(self.lab.user).expect("it stands on something");
        let create = Create { name: "beside", members: &[], params: &Value::Null };
        control.insert("nop", on, &create).expect("insert");
        tally.beside += 1;
    }

    fn check(&self, seed: u64) {
        let all = self.lab.ends.all.borrow();
        assert_eq!(all.len() as u64, self.sent, "seed {seed}: requests and ends");
        assert_eq!(self.lab.leaf.lock().fault, None, "seed {seed}");
        if self.failing {
            return;
        }
        let failed = all.values().find(|(status, _)| status.is_err());
        assert_eq!(failed, None, "seed {seed}");
        for (core, tag, blocks) in &self.reads {
            let (_, data) = &all[&(*core as u32, *tag)];
            for (n, (wrote, is)) in blocks.iter().zip(data.chunks(BLOCK as usize)).enumerate() {
                let want =
                    if *wrote == 0 { vec![0; BLOCK as usize] } else { pattern(*wrote, BLOCK) };
                assert!(is == want, "seed {seed}: block {n} of read {tag} is not write {wrote}");
            }
        }
    }
}

fn run_seed(seed: u64, tally: &mut Totals) {
    let mut chance = Seed(seed);
    let timing = match chance.below(3) {
        0 => Timing::Between { min_ns: 1_000, max_ns: 2_000 },
        1 => Timing::Between { min_ns: 5_000, max_ns: 2_000_000 },
        _ => Timing::SPINNING_7200,
    };
    let io_max = if chance.one_in(4) { 16384 } else { 0 };
    let cores = 1 + chance.below(3) as usize;
    let lab = Lab::with(seed, cores, 64 << 20, timing, io_max);
    let (wrote, reads) = (BTreeMap::new(), Vec::new());
    let mut storm = Storm { chance, lab, wrote, reads, sent: 0, failing: false };
    for _ in 0..25 {
        for _ in 0..storm.chance.below(10) {
            storm.send();
        }
        storm.operate(tally);
        if storm.chance.one_in(60) {
            storm.failing = true;
            storm.lab.leaf.lock().errors_percent = storm.chance.below(30);
        }
        if !storm.chance.one_in(3) {
            let ns = storm.chance.below(3 * MS);
            storm.lab.pass(ns);
        }
    }
    if storm.chance.one_in(6) {
        lose(&mut storm);
        tally.lost += 1;
    }
    storm.lab.drain();
    storm.check(seed);
    let ends = storm.lab.ends.all.borrow();
    tally.failed += ends.values().filter(|(status, _)| status.is_err()).count() as u64;
    tally.requests += storm.sent;
    tally.fences += storm.lab.leaf.lock().fences;
}

/// The disk is removed, with requests in the scheduler and below it.
fn lose(storm: &mut Storm) {
    for _ in 0..20 {
        storm.send();
    }
    storm.failing = true;
    storm.lab.leaf.lock().gone = true;
    let (disk, user) = (storm.lab.disk, storm.lab.user);
    let lost = storm.lab.control.call(|t| {
        t.post(Event::Lost(disk, Errno::NxIo));
        if let Some(geom) = t.geom_of(disk) {
            t.wither_geom(geom, Errno::NxIo);
        }
        Ok(())
    });
    lost.expect("lost");
    storm.lab.drain();
    storm.lab.close(user);
    assert!(storm.lab.control.topology.find("d0.sched.").is_none(), "it went with its disk");
}

/// Q1 of sched/mod.rs.
#[test]
fn no_request_is_lost_doubled_failed_or_out_of_order() {
    let seeds = Seeds::of(SEEDS);
    let (first, count) = (seeds.range().start, seeds.count());
    // Each core its share of the seeds; a world lives on one thread.
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let share = |thread: u64| {
        let mut tally = Totals::default();
        (first + thread..first + count)
            .step_by(threads as usize)
            .for_each(|n| seeds.play(n, |seed| run_seed(seed, &mut tally)));
        tally
    };
    let tally = std::thread::scope(|scope| {
        let share = &share;
        let all: Vec<_> = (0..threads).map(|t| scope.spawn(move || share(t))).collect();
        let ended = all.into_iter().map(|t| t.join());
        let tallies = ended.map(|t| t.unwrap_or_else(|e| std::panic::resume_unwind(e)));
        tallies.fold(Totals::default(), Totals::plus)
    });
    println!("{tally:?}");
    let all = [tally.requests, tally.fences, tally.inserted, tally.configured, tally.destroyed];
    assert!(count < 20 || all.iter().all(|n| *n > count / 4), "{tally:?}");
    assert!(count < 100 || tally.beside * tally.failed * tally.lost > 0, "{tally:?}");
}
