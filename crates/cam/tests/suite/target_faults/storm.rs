//! Seeded worlds in which a target restarts, loses connections and answers, and has its disk
//! exchanged at any moment. No write and no read reaches a disk of another identity, and writes
//! that were acknowledged are on the right one.
//!
//! More of them: see `testkit::seeds`.

use bio::{Errno, Flags};
use geom::Edge;
use reactor::SeededRandom;
use reactor::sim::NetShape;
use testkit::Seeds;

use super::table::reply;
use super::target::{Disk, OTHER, OWN, Reply, Target};
use super::{BUSY, MS, S, open, portal, ways};
use crate::contents::Contents;
use crate::iscsi::peer::{SECTOR, Ways};
use crate::world::World;

const SEEDS: u64 = 100;
/// CAM gives a request 60 s, an abort 5 and a reset 10.
const LONGEST_NS: u64 = 80 * S;
/// Content of a disk of another identity.
const FOREIGN: u8 = 0xee;

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
    contents: Contents,
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
        let contents = Contents::new(seed, OWN.sectors);
        target.peer.bytes.borrow_mut().copy_from_slice(&contents.initial());
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
            contents,
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
            // While the session continues: between two commands, and the next one meets it.
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
        // What needs no R2T, which would release another command.
        let len = 1 + self.random.below(if self.lone { 2 } else { 8 });
        let at = self.random.below(OWN.sectors as u64 - len + 1);
        if self.random.below(3) == 0 {
            self.contents.read(&mut self.w, self.edge, at, len);
        } else {
            self.contents.write(&mut self.w, self.edge, (at, len), |_| Flags::default());
        }
    }

    fn reap(&mut self) {
        let now = self.w.now();
        for ended in self.w.ended() {
            match self.contents.end(&ended, now, LONGEST_NS) {
                Ok(()) => {}
                Err(Errno::NxIo) => self.lost = true,
                Err(Errno::RemoteIo | Errno::TimedOut) => self.sums.failed += 1,
                Err(e) => panic!("seed {}: {e} without a reason", self.seed),
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
            while self.contents.in_flight() < 8 && self.random.below(3) > 0 {
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
        while self.contents.in_flight() > 0 {
            let count = self.contents.in_flight();
            assert!(self.w.now() < end, "seed {}: {count} wait", self.seed);
            self.w.turn(100 * MS);
            self.reap();
        }
        (0..20).for_each(|_| self.w.turn(100 * MS));
        self.look();
        self.sums.lost = u64::from(self.lost);
        (self.sums.acked, self.sums.read) = (self.contents.writes_done, self.contents.reads_done);
        let here = self.target.peer.bytes.borrow();
        self.contents.check(if self.own_is_away { &self.away } else { &here });
    }
}

/// N4 of sims/iscsi/mod.rs.
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
