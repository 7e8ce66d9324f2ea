//! The AoE initiator in seeded worlds: lost, duplicated, delayed and reordered frames, interfaces
//! that fail and return, a target that answers late, twice and wrongly. No acknowledged write is
//! lost, no old write is applied over a newer one, and nothing waits beyond its deadline.
//!
//! More of them: see `testkit::seeds`.

mod edits;
mod lost;
mod scenes;
mod turns;

use std::rc::Rc;

use bio::{Errno, Flags};
use cam::sims::aoe::AoeKind;
use geom::Edge;
use reactor::SeededRandom;
use reactor::sim::{Segment, SegmentShape};
use serde_json::json;
use testkit::Seeds;
use testkit::aoe::{Shelf, Ways};
use testkit::clock::{MS, S};

use crate::contents::Contents;
use crate::world::World;

const SECTOR: u64 = 512;
const SECTORS: u64 = 64;
const SEEDS: u64 = 120;

/// The deadline that is configured on the bus.
const DEADLINE_S: u64 = 3;
const LIFE_MS: u64 = 300;

/// A command may have waited for others to end before its own time began.
const LONGEST_NS: u64 = 2 * DEADLINE_S * S + S;

pub struct Net {
    segments: Vec<Segment>,
    shapes: Vec<SegmentShape>,
}

fn stations(n: usize) -> (Vec<String>, Vec<String>) {
    let names = |of: &str| (0..n).map(|i| format!("{of}{i}")).collect();
    (names("eth"), names("shelf"))
}

/// So many networks, each with an interface of ours and one of the target.
fn network(w: &World, shapes: &[(SegmentShape, u32)]) -> Net {
    let (ours, theirs) = stations(shapes.len());
    let plug = |(i, (shape, mtu)): (usize, &(SegmentShape, u32))| {
        let segment = w.net().segment(*shape);
        segment.plug(&ours[i], [2, 0, 0, 0, 1, i as u8], *mtu);
        segment.plug(&theirs[i], [2, 0, 0, 0, 2, i as u8], *mtu);
        segment
    };
    let segments = shapes.iter().enumerate().map(plug).collect();
    Net { segments, shapes: shapes.iter().map(|(shape, _)| *shape).collect() }
}

fn bus(w: &mut World, interfaces: &[String]) -> usize {
    let params = json!({
        "interfaces": interfaces, "deadline_s": DEADLINE_S, "frame_life_ms": LIFE_MS, "ask_s": 2,
    });
    w.add_kind(&AoeKind, "aoe0", &params)
}

struct Storm {
    seed: u64,
    random: SeededRandom,
    w: World,
    net: Net,
    shelf: Rc<Shelf>,
    edge: Edge,
    contents: Contents,
    lost: bool,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let mut random = SeededRandom::new(seed);
        let mut w = World::with(seed, &[]);
        let paths = 1 + random.below(3) as usize;
        let mut shape = || {
            let longest = [50_000, 5 * MS, 60 * MS][random.below(3) as usize];
            let shape = SegmentShape {
                delay_ns_min: 5_000,
                delay_ns_max: longest,
                in_order: random.below(2) == 0,
                lost_per_million: [0, 1_000, 10_000, 100_000][random.below(4) as usize],
                doubled_per_million: [0, 20_000][random.below(2) as usize],
                ..SegmentShape::default()
            };
            (shape, [1500, 4200, 9000][random.below(3) as usize])
        };
        let shapes: Vec<(SegmentShape, u32)> = (0..paths).map(|_| shape()).collect();
        let net = network(&w, &shapes);
        let (ours, theirs) = stations(paths);
        let ways = Ways {
            slow_ns: [100_000, 10 * MS, 120 * MS][random.below(3) as usize],
            twice: [0, 50][random.below(2) as usize],
            wrong: [0, 50][random.below(2) as usize],
            buffers: [1, 2, 16, 24][random.below(4) as usize],
            deaf: false,
        };
        let theirs: Vec<&str> = theirs.iter().map(String::as_str).collect();
        let shelf = Shelf::start(&w.core, &theirs, SECTORS as usize, seed, ways);
        let at = bus(&mut w, &ours);
        let mut found = Vec::new();
        for _ in 0..20 {
            found.extend(w.scan(at));
            // The bus starts a scan when a target announces itself.
            found.extend(w.found());
            if !found.is_empty() {
                break;
            }
        }
        assert_eq!(found, ["ada0"], "seed {seed}: the target is not found");
        let (_, edge) = w.open("ada0");
        let contents = Contents::new(seed, SECTORS as usize);
        shelf.bytes.borrow_mut().copy_from_slice(&contents.initial());
        Storm { seed, random, w, net, shelf, edge, contents, lost: false }
    }

    fn request(&mut self) {
        // Some sectors are written again and again: as soon as one write has ended.
        let (len, at) = match self.random.below(2) {
            0 => (1 + self.random.below(2), self.random.below(3)),
            _ => {
                let len = 1 + self.random.below(20);
                (len, self.random.below(SECTORS - len + 1))
            }
        };
        if self.random.below(2) == 0 {
            let flags = |tag| if is_flushed(tag) { Flags::FUA } else { Flags::NONE };
            self.contents.write(&mut self.w, self.edge, (at, len), flags);
        } else {
            self.contents.read(&mut self.w, self.edge, at, len);
        }
    }

    fn reap(&mut self) {
        let now = self.w.now();
        for ended in self.w.ended() {
            // A write that is flushed behind is two commands.
            let longest = if is_flushed(ended.tag) { 2 * LONGEST_NS } else { LONGEST_NS };
            match self.contents.end(&ended, now, longest) {
                Ok(()) => {}
                Err(Errno::NxIo) => self.lost = true,
                Err(e) => panic!("seed {}: {e} without a reason", self.seed),
            }
        }
    }

    /// Things happen to the interfaces.
    fn happen(&mut self) {
        let n = self.net.segments.len() as u64;
        let i = self.random.below(n) as usize;
        let station = match self.random.below(2) {
            0 => format!("eth{i}"),
            _ => format!("shelf{i}"),
        };
        let segment = &self.net.segments[i];
        match self.random.below(7) {
            0 => segment.set_up(&station, false),
            1 => segment.lose(&format!("eth{i}"), &format!("shelf{i}"), true),
            2 => segment.lose(&format!("shelf{i}"), &format!("eth{i}"), true),
            3 => segment.set_mtu(&station, 1500),
            // Frames that were thought lost arrive long after others.
            _ => segment.set_shape(SegmentShape {
                delay_ns_min: 10_000,
                delay_ns_max: 120 * MS,
                in_order: false,
                ..self.net.shapes[i]
            }),
        }
    }
}

/// Of writes every fourth is to be stable when it ends, for which ATA has a flush.
fn is_flushed(tag: u64) -> bool {
    tag.is_multiple_of(4)
}

impl Storm {
    /// All interfaces are well.
    fn restore_links(&mut self) {
        for (i, segment) in self.net.segments.iter().enumerate() {
            let (own, other) = (format!("eth{i}"), format!("shelf{i}"));
            segment.set_shape(self.net.shapes[i]);
            segment.set_up(&own, true);
            segment.set_up(&other, true);
            segment.lose(&own, &other, false);
            segment.lose(&other, &own, false);
        }
    }

    fn run(&mut self) {
        let mut ill_until = 0;
        for _ in 0..600 {
            if self.lost {
                break;
            }
            while self.contents.in_flight() < 8 && self.random.below(3) > 0 {
                self.request();
            }
            if self.random.chance(30) && ill_until == 0 {
                self.happen();
                // Seldom longer than a caller waits.
                let most = if self.random.chance(30) { 30 * S } else { S };
                ill_until = self.w.now() + self.random.below(most);
            }
            if ill_until != 0 && self.w.now() >= ill_until {
                self.restore_links();
                ill_until = 0;
            }
            let step = [MS / 5, 2 * MS, 20 * MS][self.random.below(3) as usize];
            self.w.turn(step);
            self.reap();
        }
        self.restore_links();
        let end = self.w.now() + 2 * LONGEST_NS;
        while self.contents.in_flight() > 0 {
            let count = self.contents.in_flight();
            assert!(self.w.now() < end, "seed {}: {count} wait", self.seed);
            self.w.turn(20 * MS);
            self.reap();
        }
        // All commands have ended.
        let quiet = self.w.now() + 2 * LIFE_MS * MS;
        while self.w.now() < quiet {
            self.w.turn(20 * MS);
        }
        self.contents.check(&self.shelf.bytes.borrow());
    }
}

#[test]
fn exposing_15_acknowledged_writes_are_neither_lost_nor_overwritten() {
    let seeds = Seeds::of(SEEDS);
    let count = seeds.count();
    let (mut acked, mut read, mut lost) = (0, 0, 0);
    let play = |seed| {
        let mut storm = Storm::new(seed);
        storm.run();
        (storm.contents.writes_done, storm.contents.reads_done, storm.lost)
    };
    for (was_acked, was_read, was_lost) in seeds.each(play) {
        acked += was_acked;
        read += was_read;
        lost += u64::from(was_lost);
    }
    println!("{acked} writes, {read} reads, {lost} disks lost of {count}");
    if seeds.are_enough() {
        assert!(acked > 20 * count && read > 20 * count && lost > 0);
    }
}
