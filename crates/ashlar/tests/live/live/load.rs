//! Users of every unit: some compare their own writes, some compare data written before everything,
//! some remember their flushed data over kills of the daemon.
//!
//! ```text
//!   0        FILLED               MIDDLE                   END              + a writer's blocks
//!   | filled | small, written and | large, written and     | one writer's   |
//!   | once   | compared           | compared               | rounds         |
//! ```

use std::time::{Duration, Instant};

use bench::load::{self, Order, Outcome, Running, Spec, Work};
use bench::{Error, Kind};

use super::arrays::Arrays;
use crate::fixture::writer::Writer;
use crate::fixture::{Fixture, IQN};

const FILLED: u64 = 1 << 20;
const MIDDLE: u64 = 7 << 20;
const END: u64 = 13 << 20;
/// Seed of the data that is filled once.
const SEED: u64 = 77;
/// Longest wait for a request of every user.
const MOVES_LIMIT: Duration = Duration::from_secs(20);

/// See the module.
pub struct Load {
    specs: Vec<Spec>,
    running: Vec<Running>,
    writers: Vec<Writer>,
    done: Outcome,
}

fn specs(fixture: &Fixture, units: u32) -> Vec<Spec> {
    let base =
        Spec { luns: (0..units).collect(), sessions: units, ..Spec::new(fixture.portal(), IQN, 0) };
    let small = Spec {
        first: 100,
        depth: 4,
        work: Work::Verify,
        start_bytes: FILLED,
        span_bytes: Some(MIDDLE - FILLED),
        ..base.clone()
    };
    let large = Spec {
        first: 200,
        depth: 2,
        request_bytes: 96 << 10,
        start_bytes: MIDDLE,
        span_bytes: Some(END - MIDDLE),
        ..small.clone()
    };
    let filled = Spec {
        first: 300,
        request_bytes: 16 << 10,
        span_bytes: Some(FILLED),
        work: Work::Check,
        seed: SEED,
        ..base
    };
    vec![small, large, filled]
}

/// Writes the data of the first part of every unit, or compares all of it.
fn filled(fixture: &Fixture, units: u32, work: Work) {
    for lun in 0..units {
        let spec = Spec {
            work,
            order: Order::Sequential,
            request_bytes: 64 << 10,
            span_bytes: Some(FILLED),
            requests: Some(FILLED >> 16),
            seed: SEED,
            ..Spec::new(fixture.portal(), IQN, lun)
        };
        load::run(&spec).unwrap_or_else(|e| panic!("LUN {lun}: {e}\n{}", fixture.log()));
    }
}

impl Load {
    pub fn start(fixture: &Fixture, arrays: &Arrays) -> Load {
        let units = arrays.units.len() as u32;
        filled(fixture, units, Work::Fill);
        let mut load = Load {
            specs: specs(fixture, units),
            running: Vec::new(),
            writers: Vec::new(),
            done: Outcome::default(),
        };
        let block = (END / 512) as u32;
        let writers = (0..units as u8).map(|lun| Writer::start(fixture.portal(), lun, block));
        load.writers = writers.collect();
        load.resume(fixture);
        load
    }

    /// Starts again those that end with the daemon.
    pub fn resume(&mut self, fixture: &Fixture) {
        assert!(self.running.is_empty());
        for spec in &mut self.specs {
            let started = load::start(spec).unwrap_or_else(|e| panic!("{e}\n{}", fixture.log()));
            self.running.push(started);
            // New writes differ from the earlier ones; the filled data stays.
            spec.seed += u64::from(spec.work == Work::Verify);
        }
    }

    /// Checks that no user has ended: an error, or other data than was written, ends it.
    #[track_caller]
    pub fn check_running(&mut self) {
        if let Some(at) = self.running.iter().position(Running::is_finished) {
            panic!("load {at} has ended: {:?}", self.running.swap_remove(at).stop());
        }
        if let Some(at) = self.writers.iter().position(Writer::is_finished) {
            self.writers.swap_remove(at).finish();
            panic!("writer {at} has ended");
        }
    }

    /// Checks that all users make progress from here.
    #[track_caller]
    pub fn moves(&mut self, fixture: &Fixture) {
        let count = |load: &Load| {
            let many = load.running.iter().map(Running::requests);
            many.chain(load.writers.iter().map(|w| u64::from(w.rounds()))).collect::<Vec<u64>>()
        };
        let (before, start) = (count(self), Instant::now());
        loop {
            self.check_running();
            let now = count(self);
            if before.iter().zip(&now).all(|(b, n)| n > b) {
                return;
            }
            let output = || ["mirror", "raid"].map(|class| fixture.ok(&[class, "list"])).concat();
            let late = start.elapsed() > MOVES_LIMIT;
            assert!(
                !late,
                "somebody stands still: {before:?}, {now:?}\n{}{}",
                output(),
                fixture.log()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The daemon was killed: their connections end, and nothing they read was wrong.
    #[track_caller]
    pub fn was_killed(&mut self) {
        for one in self.running.drain(..) {
            match one.stop() {
                Ok(done) => self.done.add(&done),
                Err(Error { kind: Kind::Data, message: what }) => panic!("{what}"),
                Err(_) => {}
            }
        }
    }

    /// Stops all users; reads again all data that must be there. Returns a summary.
    #[track_caller]
    pub fn finish(mut self, fixture: &Fixture, kills: u32) -> String {
        self.moves(fixture);
        for one in self.running.drain(..) {
            self.done.add(&one.stop().unwrap());
        }
        let units = self.writers.len() as u32;
        let mut rounds = 0;
        for writer in self.writers.drain(..) {
            let kept = writer.finish();
            assert!(kept.resumed >= kills, "{} of {kills} kills were met", kept.resumed);
            kept.check();
            rounds += kept.rounds;
        }
        filled(fixture, units, Work::Check);
        let Outcome { requests, compared, .. } = self.done;
        format!("{requests} requests, {compared} compared, {rounds} rounds flushed")
    }
}
