//! SCSI devices of this machine over a simulated kernel, with a disk that hangs, fails and is
//! removed. No acknowledged write is lost, no old write is applied over a newer one, nothing waits
//! forever, and abandoned buffers are not touched.
//!
//! More of them: see `testkit::seeds`.

mod kernel;

use std::sync::Arc;

use bio::{Errno, Flags, Op};
use cam::sims::sg::Sg;
use geom::Edge;
use kernel::{Kernel, Ways};
use reactor::SeededRandom;
use serde_json::json;
use testkit::Seeds;
use testkit::clock::{MS, S};

use crate::contents::Contents;
use crate::world::{World, range};

const SECTORS: u64 = 64;
const SEEDS: u64 = 100;
/// CAM gives a command 60 s, an abort 5 and a reset 10, five times.
const LONGEST_NS: u64 = 400 * S;

fn bus(w: &mut World, kernel: &Arc<Kernel>) -> Vec<String> {
    kernel::install(kernel);
    let site = (w.control.topology.notifier(), 1);
    let at = w.add(Arc::new(Sg::new("sg0", kernel.clone(), site)));
    w.scan(at)
}

#[derive(Default)]
struct Sums {
    acked: u64,
    read: u64,
    failed: u64,
    lost: u64,
    hung: u64,
    resets: u64,
}

struct Storm {
    seed: u64,
    random: SeededRandom,
    w: World,
    kernel: Arc<Kernel>,
    edge: Edge,
    contents: Contents,
    sums: Sums,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let mut random = SeededRandom::new(seed);
        let mut one = |of: &[u64]| of[random.below(of.len() as u64) as usize];
        let ways = Ways {
            slow_ns: one(&[100_000, 10 * MS, 300 * MS]),
            hangs: one(&[0, 0, 5]) as u32,
            recovery_ns: one(&[0, 3 * S, 12 * S, 40 * S]),
            soft: one(&[0, 20]) as u32,
            full: one(&[0, 20]) as u32,
            attention: one(&[0, 20]) as u32,
            short: one(&[0, 20]) as u32,
            stuck: one(&[0, 0, 1]) == 1,
        };
        let mut w = World::with(seed, &[]);
        let good = Ways { slow_ns: ways.slow_ns, ..Ways::default() };
        let kernel = Kernel::new(seed, SECTORS as usize, good);
        assert_eq!(bus(&mut w, &kernel), ["da0"], "seed {seed}");
        let (_, edge) = w.open("da0");
        let contents = Contents::new(seed, SECTORS as usize);
        kernel.state().bytes.copy_from_slice(&contents.initial());
        kernel.state().ways = ways;
        Storm { seed, random, w, kernel, edge, contents, sums: Sums::default() }
    }

    fn request(&mut self) {
        let len = 1 + self.random.below(20);
        let at = self.random.below(SECTORS - len + 1);
        if self.random.below(2) > 0 {
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
                Err(Errno::NxIo) => self.sums.lost = 1,
                Err(Errno::Io | Errno::RemoteIo) => self.sums.failed += 1,
                Err(e) => panic!("seed {}: {e} without a reason", self.seed),
            }
        }
    }

    fn run(&mut self) {
        for _ in 0..400 {
            if self.sums.lost > 0 {
                break;
            }
            // More than the node takes.
            while self.contents.in_flight() < 24 && self.random.below(4) > 0 {
                self.request();
            }
            if self.random.chance(2) {
                self.kernel.plug(false);
            }
            let step = [MS / 5, 2 * MS, 20 * MS, S][self.random.below(4) as usize];
            self.w.turn(step);
            self.reap();
        }
        let end = self.w.now() + LONGEST_NS;
        while self.contents.in_flight() > 0 {
            let count = self.contents.in_flight();
            assert!(self.w.now() < end, "seed {}: {count} wait", self.seed);
            self.w.turn(200 * MS);
            self.reap();
        }
        let state = self.kernel.state();
        self.sums.hung = state.counts.hung;
        self.sums.resets = state.counts.resets;
        if self.sums.lost == 0 {
            self.contents.check(&state.bytes);
        }
        (self.sums.acked, self.sums.read) = (self.contents.writes_done, self.contents.reads_done);
    }
}

/// S2 of sims/sg/mod.rs.
#[test]
fn acknowledged_writes_are_not_lost_and_every_request_ends() {
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
        all.hung += sums.hung;
        all.resets += sums.resets;
    }
    println!(
        "{} writes, {} reads, {} failed, {} hung, {} resets, {} disks lost of {count}",
        all.acked, all.read, all.failed, all.hung, all.resets, all.lost
    );
    if seeds.are_enough() {
        assert!(all.acked > 50 * count && all.read > 50 * count);
        assert!(all.hung > 0 && all.resets > 0 && all.lost > 0 && all.lost < count);
    }
}

#[test]
fn the_disk_of_a_removed_device_is_lost_and_found_again_with_it() {
    (1..=8).for_each(pull);
}

fn pull(seed: u64) {
    let mut w = World::with(seed, &[]);
    let kernel = Kernel::new(seed, 64, Ways { slow_ns: MS, ..Ways::default() });
    assert_eq!(bus(&mut w, &kernel), ["da0"]);
    let place = w.buses[0].sim().location(w.buses[0].devices()[0].0.path());
    assert_eq!(place, "2:0:3:0");
    let (_, edge) = w.open("da0");
    w.write(edge, 0, &[7; 4096], Flags::default()).unwrap();
    kernel.state().ways.slow_ns = 3000 * S;
    let data = w.buffer(4096);
    w.start(edge, 1, |bio| range(bio, Op::Read, 0, data));
    w.turn(MS);
    kernel.plug(false);
    kernel.state().ways.slow_ns = MS;
    let began = w.now();
    let mut ended = Vec::new();
    while ended.is_empty() {
        w.turn(100 * MS);
        ended = w.ended();
    }
    assert_eq!(ended[0].status, Err(Errno::NxIo));
    assert!(w.now() - began < 10 * S, "what the kernel had is not waited for");
    assert_eq!(w.read(edge, 0, 4096), Err(Errno::NxIo));
    let troubles = w.buses[0].sim().troubles();
    let whys: Vec<&str> = troubles.iter().map(|t| t.why.as_str()).collect();
    assert_eq!(whys, ["/dev/sg0: No such file or directory"]);
    (0..50).for_each(|_| w.turn(100 * MS));
    kernel.plug(true);
    let mut back = Vec::new();
    let end = w.now() + 60 * S;
    while back.is_empty() && w.now() < end {
        w.turn(100 * MS);
        back.extend(w.found());
    }
    assert_eq!(back, ["da0"], "under its old name");
    let (_, edge) = w.open("da0");
    assert!(w.read(edge, 0, 4096).unwrap() == [7; 4096]);
}

/// S5
#[test]
fn a_removed_device_ends_its_commands_before_it_is_given_back() {
    let mut w = World::with(3, &[]);
    let kernel = Kernel::new(3, 64, Ways { slow_ns: MS, ..Ways::default() });
    assert_eq!(bus(&mut w, &kernel), ["da0"]);
    let (_, edge) = w.open("da0");
    w.write(edge, 0, &[7; 4096], Flags::default()).unwrap();
    let sim = w.buses[0].sim().clone();
    let name = |device: &str| sim.update_params(&json!({ "devices": [device] })).unwrap();
    kernel.state().ways = Ways { hangs: 1000, recovery_ns: S, ..Ways::default() };
    let data = w.buffer(4096);
    w.start(edge, 1, |bio| range(bio, Op::Read, 0, data));
    w.turn(MS);
    name("/dev/sg9");
    (0..50).for_each(|_| w.turn(20 * MS));
    assert_eq!((kernel.state().releases, w.ended().len()), (0, 0), "the kernel has the command");
    w.until((100 * MS, 400 * S), "the disk of the removed device", |w| !w.has("da0"));
    w.turn(10 * S);
    assert_eq!((kernel.state().releases, w.ended().len()), (1, 1));
    assert!(sim.troubles().is_empty(), "{:?}", sim.troubles());
    kernel.state().ways = Ways { slow_ns: MS, ..Ways::default() };
    name("/dev/sg0");
    w.until((100 * MS, 60 * S), "the disk of the device that returned", |w| w.has("da0"));
    let (_, edge) = w.open("da0");
    assert!(w.read(edge, 0, 4096).unwrap() == [7; 4096]);
}

/// S4
#[test]
fn a_returned_device_is_identified_before_commands_are_sent_to_it() {
    for (serial, ends) in [("NODE1", Ok(())), ("NODE2", Err(Errno::NxIo))] {
        let mut w = World::with(1, &[]);
        let kernel = Kernel::new(1, 64, Ways { slow_ns: MS, ..Ways::default() });
        assert_eq!(bus(&mut w, &kernel), ["da0"]);
        let (_, edge) = w.open("da0");
        w.write(edge, 0, &[7; 4096], Flags::default()).unwrap();
        // Out and in again before anything is sent.
        kernel.plug(false);
        kernel.state().serial = serial;
        if ends.is_err() {
            kernel.state().bytes.fill(0);
        }
        kernel.plug(true);
        assert_eq!(w.write(edge, 8192, &[9; 512], Flags::default()), ends, "{serial}");
        (0..50).for_each(|_| w.turn(100 * MS));
        let written = kernel.state().bytes[8192..8192 + 512] == [9; 512];
        assert_eq!(written, ends.is_ok(), "{serial}");
        let says = w.buses[0].troubles().iter().any(|t| t.why.contains("a different disk"));
        assert_eq!(says, ends.is_err(), "{serial}");
    }
}

/// S3
#[test]
fn released_buffers_are_not_accessed() {
    let mut w = World::with(2, &[]);
    let kernel = Kernel::new(2, 64, Ways { slow_ns: MS, ..Ways::default() });
    assert_eq!(bus(&mut w, &kernel), ["da0"]);
    let (_, edge) = w.open("da0");
    kernel.state().bytes.fill(9);
    // The kernel has it back long after the timeout of CAM.
    let recovery_ns = 100 * S;
    kernel.state().ways = Ways { hangs: 1000, recovery_ns, stuck: true, ..Ways::default() };
    let data = w.buffer(4096);
    let mine: Vec<_> = data.iter().cloned().collect();
    w.start(edge, 1, |bio| range(bio, Op::Read, 0, data));
    let mut ended = Vec::new();
    while ended.is_empty() {
        w.turn(S);
        ended = w.ended();
    }
    assert_eq!(ended[0].status, Err(Errno::NxIo));
    drop(ended);
    mine.iter().for_each(|seg| seg.with_mut(|bytes| bytes.fill(1)));
    (0..200).for_each(|_| w.turn(S));
    assert!(kernel.state().counts.hung > 0, "it was answered");
    assert!(mine.iter().all(|seg| seg.with(|bytes| bytes.iter().all(|b| *b == 1))));
}
