//! Seeded worlds in which a target restarts, loses connections and answers, and has its disk
//! exchanged at any moment. No write and no read reaches a disk of another identity, and writes
//! that were acknowledged are on the right one.
//!
//! More of them: see `testkit::seeds`.

use std::collections::{BTreeMap, BTreeSet};

use bio::{Errno, Flags, Op};
use geom::Edge;
use reactor::SeededRandom;
use reactor::sim::NetShape;
use testkit::Seeds;

use super::table::reply;
use super::target::{Disk, OTHER, OWN, Reply, Target};
use super::{BUSY, MS, S, open, portal, ways};
use crate::iscsi::peer::{SECTOR, Ways};
use crate::world::{World, range};

const SEEDS: u64 = 200;
/// CAM gives a request 60 s, an abort 5 and a reset 10.
const LONGEST_NS: u64 = 80 * S;
/// Content of a disk of another identity.
const FOREIGN: u8 = 0xee;

fn pattern(sector: u64, version: u64) -> Vec<u8> {
    let head = [sector.to_be_bytes(), version.to_be_bytes()].concat();
    head.iter().copied().cycle().take(SECTOR).collect()
}

enum Operation {
    Write { at: u64, len: u64, version: u64 },
    Read { at: u64, may: Vec<BTreeSet<u64>> },
}

#[derive(Default, Debug)]
struct Sums {
    acked: u64,
    read: u64,
    failed: u64,
    lost: u64,
    exchanged: u64,
    live: u64,
    restarts: u64,
    back: u64,
}

struct Storm {
    seed: u64,
    random: SeededRandom,
    w: World,
    target: Target,
    edge: Edge,
    /// The disk that is not behind the LUN, and whether it is its own.
    away: Vec<u8>,
    own_is_away: bool,
    names: (Disk, Disk),
    lone: bool,
    may: Vec<BTreeSet<u64>>,
    under_way: BTreeMap<u64, (Operation, u64)>,
    next: u64,
    /// When a target that is down lets connections in again.
    open_ns: Option<u64>,
    lost: bool,
    sums: Sums,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let mut random = SeededRandom::new(seed);
        let mut one = |of: &[u64]| of[random.below(of.len() as u64) as usize];
        let mut w = World::with(seed, &[]);
        let delay_ns_max = one(&[50_000, 2 * MS, 20 * MS]);
        let ways = Ways {
            slow_ns: one(&[100_000, 10 * MS, 300 * MS]),
            digests: one(&[0, 1]) == 1,
            initial_r2t: one(&[0, 1]) == 1,
            immediate: one(&[0, 1]) == 1,
            ..ways(one(&[1, 3, 32]) as u32)
        };
        // One command at a time: only then none is on its way when a live session has another disk.
        let lone = one(&[0, 0, 1]) == 1;
        let ways = match lone {
            true => Ways { window: 1, initial_r2t: false, immediate: true, ..ways },
            false => ways,
        };
        // A disk without names is distinguished from another by its size alone.
        let sizes = Disk { serial: "", naa: 0, ..OWN };
        let names = match one(&[0, 1, 2, 3]) {
            0 => (OWN, Disk { serial: OTHER.serial, ..OWN }),
            1 => (OWN, Disk { naa: OTHER.naa, ..OWN }),
            2 => (sizes.clone(), Disk { sectors: 80, ..sizes }),
            _ => (OWN, OTHER),
        };
        let deadline_s = one(&[2, 4, 10]);
        w.net().set_net(NetShape { delay_ns_max, ..NetShape::default() });
        let target = Target::start(&w.core, portal(), names.0.clone(), seed, ways);
        let edge = open(&mut w, deadline_s);
        let all: Vec<u8> = (0..OWN.sectors as u64).flat_map(|s| pattern(s, 0)).collect();
        target.peer.bytes.borrow_mut().copy_from_slice(&all);
        let mute = if lone { 0 } else { [0, 0, 0, 2][random.below(4) as usize] };
        target.peer.ways.borrow_mut().mute = mute;
        Storm {
            seed,
            random,
            w,
            target,
            edge,
            away: vec![FOREIGN; names.1.sectors * SECTOR],
            own_is_away: false,
            names,
            lone,
            may: vec![BTreeSet::from([0]); OWN.sectors],
            under_way: BTreeMap::new(),
            next: 0,
            open_ns: None,
            lost: false,
            sums: Sums::default(),
        }
    }

    fn exchange(&mut self) {
        self.own_is_away = !self.own_is_away;
        let disk = if self.own_is_away { self.names.1.clone() } else { self.names.0.clone() };
        let away = std::mem::take(&mut self.away);
        self.away = self.target.exchange(disk, away);
        self.sums.exchanged += 1;
        self.sums.back += u64::from(!self.own_is_away);
    }

    fn happen(&mut self) {
        match self.random.below(8) {
            0 | 1 => self.target.peer.cut(),
            2 => self.target.attention(0x3f, 3),
            3 => {
                let (times, status) = (1 + self.random.below(30) as u32, BUSY);
                let page = [None, Some(0x83), Some(0x80)][self.random.below(3) as usize];
                let usual = reply(0x12, page, times, status);
                self.target.reply(Reply { sense: (0, 0, 0), ..usual });
            }
            // While the session goes on: between two commands, and the next one meets it.
            4 if self.lone && self.target.peer.is_idle() => {
                self.exchange();
                self.sums.live += 1;
                let (asc, ascq) =
                    [(0x3f, 3), (0x3f, 0x0e), (0x29, 0), (0x2a, 9)][self.random.below(4) as usize];
                self.target.attention(asc, ascq);
            }
            _ => {
                self.target.stop();
                self.sums.restarts += 1;
                let most = [100 * MS, S, 12 * S][self.random.below(3) as usize];
                self.open_ns = Some(self.w.now() + self.random.below(most));
                if self.random.below(3) == 0 {
                    self.exchange();
                }
                if self.random.below(2) == 0 {
                    self.target.attention(0x29, 0);
                }
            }
        }
    }

    fn restore_target(&mut self) {
        if self.open_ns.take_if(|at| *at <= self.w.now()).is_some() {
            self.target.open();
        }
    }

    fn request(&mut self) {
        // What needs no R2T, which would let another command go.
        let len = 1 + self.random.below(if self.lone { 2 } else { 8 });
        let at = self.random.below(OWN.sectors as u64 - len + 1);
        self.next += 1;
        let (tag, now) = (self.next, self.w.now());
        let data = self.w.buffer(len as usize * SECTOR);
        let from = at * SECTOR as u64;
        if self.random.below(3) == 0 {
            let may = self.may[at as usize..(at + len) as usize].to_vec();
            self.under_way.insert(tag, (Operation::Read { at, may }, now));
            return self.w.start(self.edge, tag, |bio| range(bio, Op::Read, from, data));
        }
        let overlaps = |what: &Operation| match what {
            Operation::Write { at: a, len: l, .. } => *a < at + len && at < *a + *l,
            Operation::Read { .. } => false,
        };
        if self.under_way.values().any(|(what, _)| overlaps(what)) {
            return;
        }
        for sector in at..at + len {
            data.copy_from((sector - at) as usize * SECTOR, &pattern(sector, tag));
            self.may[sector as usize].insert(tag);
        }
        for (what, _) in self.under_way.values_mut() {
            let Operation::Read { at: from, may } = what else { continue };
            for (i, may) in may.iter_mut().enumerate() {
                if (at..at + len).contains(&(*from + i as u64)) {
                    may.insert(tag);
                }
            }
        }
        self.under_way.insert(tag, (Operation::Write { at, len, version: tag }, now));
        self.w.start(self.edge, tag, |bio| {
            range(bio, Op::Write, from, data);
            bio.flags = Flags::default();
        });
    }

    fn reap(&mut self) {
        let (seed, now) = (self.seed, self.w.now());
        for ended in self.w.ended() {
            let (what, began) = self.under_way.remove(&ended.tag).expect("ends once");
            let took = now - began;
            assert!(took <= LONGEST_NS, "seed {seed}: {} took {} ms", ended.tag, took / MS);
            match (what, ended.status) {
                (Operation::Write { at, len, version }, Ok(())) => {
                    self.sums.acked += 1;
                    for sector in at..at + len {
                        self.may[sector as usize] = BTreeSet::from([version]);
                    }
                }
                (Operation::Read { at, may }, Ok(())) => {
                    self.sums.read += 1;
                    for (i, may) in may.iter().enumerate() {
                        let found = &ended.bytes[i * SECTOR..][..SECTOR];
                        let sector = at + i as u64;
                        let fits = may.iter().any(|v| pattern(sector, *v) == found);
                        let is = (0..=self.next).find(|v| pattern(sector, *v) == found);
                        assert!(fits, "seed {seed}: sector {sector} is {is:?}, none of {may:?}");
                    }
                }
                (_, Err(Errno::NxIo)) => self.lost = true,
                (_, Err(Errno::RemoteIo | Errno::TimedOut)) => self.sums.failed += 1,
                (_, Err(e)) => panic!("seed {seed}: {e} without a reason"),
            }
        }
        self.look();
    }

    /// Nothing is on the disk that is another one.
    fn look(&self) {
        let here = self.target.peer.bytes.borrow();
        let foreign = if self.own_is_away { &*here } else { &self.away };
        let spoilt = foreign.iter().position(|b| *b != FOREIGN);
        assert_eq!(spoilt, None, "seed {}: a write is on another disk", self.seed);
    }

    fn run(&mut self) {
        for _ in 0..300 {
            if self.lost {
                break;
            }
            while self.under_way.len() < 8 && self.random.below(3) > 0 {
                self.request();
            }
            if self.open_ns.is_none() && self.random.chance(40) {
                self.happen();
            }
            let step = [MS / 5, 2 * MS, 20 * MS, 200 * MS][self.random.below(4) as usize];
            self.w.turn(step);
            self.restore_target();
            self.reap();
        }
        self.target.open();
        self.target.calm();
        let end = self.w.now() + LONGEST_NS;
        while !self.under_way.is_empty() {
            assert!(self.w.now() < end, "seed {}: {} wait", self.seed, self.under_way.len());
            self.w.turn(100 * MS);
            self.reap();
        }
        (0..20).for_each(|_| self.w.turn(100 * MS));
        self.look();
        self.sums.lost = u64::from(self.lost);
        let here = self.target.peer.bytes.borrow();
        let own = if self.own_is_away { &self.away } else { &*here };
        for (sector, may) in self.may.iter().enumerate() {
            let found = &own[sector * SECTOR..][..SECTOR];
            let fits = may.iter().any(|v| pattern(sector as u64, *v) == found);
            assert!(fits, "seed {}: sector {sector} is none of {may:?}", self.seed);
        }
    }
}

#[test]
fn no_request_reaches_a_disk_of_another_identity() {
    let seeds = Seeds::of(SEEDS);
    let count = seeds.count();
    let mut all = Sums::default();
    let play = |seed| {
        let mut storm = Storm::new(seed);
        storm.run();
        storm.sums
    };
    for sums in seeds.each(play) {
        all.acked += sums.acked;
        all.read += sums.read;
        all.failed += sums.failed;
        all.lost += sums.lost;
        all.exchanged += sums.exchanged;
        all.live += sums.live;
        all.restarts += sums.restarts;
        all.back += sums.back;
    }
    println!("{count} worlds: {all:?}");
    if seeds.are_enough() {
        assert!(all.acked > 20 * count && all.read > 10 * count, "{all:?}");
        assert!(all.lost > count / 10 && all.lost < count, "{all:?}");
        assert!(all.exchanged > count / 2 && all.live > 0 && all.back > 0, "{all:?}");
        assert!(all.restarts > count, "{all:?}");
    }
}
