//! The cost of a log of partial parity for small writes: simulated time on disks that take the same
//! for every request, so it counts round trips.

use std::cell::Cell;
use std::rc::Rc;

use geom::Access;
use reactor::SeededRandom;
use serde_json::json;

use super::disk::{Disk, LATENCY};
use super::life::{Life, MS};

/// Nanoseconds of each request, flushes too.
const TRIP: u64 = 50_000;
const WRITES: u64 = 512;
const BYTES: u64 = 4096;

/// Round trips that a random write of 4 KiB takes, with so many at once, in hundredths.
fn trips(consistency: &str, depth: u64) -> u64 {
    let mut life = Life::new(1, 1);
    for n in 0..4 {
        life.plug(&format!("d{n}"), &Disk::new(8 << 20, n));
    }
    life.settle();
    let with = json!({
        "format": "Intel", "level": "RAID5", "members": ["d0", "d1", "d2", "d3"],
        "strip": 64 << 10, "size": 6 << 20, "assume_same": true, "consistency": consistency,
    });
    let made = life.verb("raid", "label", "data", with).expect("labelled");
    let volume = format!("raid/{}/data", made["array"].as_str().expect("a name"));
    let (_user, edge) = life.open(&volume, Access::WRITE).expect("opened");
    // The volume is marked, and its logs are begun.
    life.write(edge, 0, vec![1; BYTES as usize]).expect("written");
    LATENCY.with(|l| *l.borrow_mut() = Some(Box::new(|| TRIP)));
    let core = life.cores[0].clone();
    let (left, running) = (Rc::new(Cell::new(WRITES)), Rc::new(Cell::new(depth)));
    let ended = Rc::new(Cell::new(0));
    let begun = core.reactor().fresh_now();
    for seed in 0..depth {
        let (core, own) = (core.clone(), core.clone());
        let (left, running, ended) = (left.clone(), running.clone(), ended.clone());
        core.reactor().spawn("writer", async move {
            let mut random = SeededRandom::new(seed);
            while left.get() > 0 {
                left.set(left.get() - 1);
                let at = random.below((6 << 20) / BYTES) * BYTES;
                own.write(edge, at, &[2; BYTES as usize]).await.expect("written");
            }
            running.set(running.get() - 1);
            ended.set(own.reactor().fresh_now());
        });
    }
    while running.get() > 0 {
        life.pass(MS);
    }
    LATENCY.with(|l| l.borrow_mut().take());
    (ended.get() - begun) * 100 / TRIP / WRITES
}

#[test]
fn a_log_costs_round_trips_that_concurrent_writes_share() {
    for (depth, most) in [(1, 250), (8, 400), (32, 400)] {
        let (without, with) = (trips("resync", depth), trips("ppl", depth));
        println!("{depth} at once: {with} hundredths of a round trip each, {without} without");
        assert!(with > without, "a log costs nothing?");
        assert!(with * 100 <= without * most, "{depth} at once: {with} and {without}");
    }
}
