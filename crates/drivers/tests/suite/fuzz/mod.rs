//! Whole connections of bytes, and frames, into the drivers: the seeds of `fuzz/corpus`, pieces of
//! them and seeded mutations. Guided by coverage the same runs from `fuzz/`, see its README.
//!
//! `ASHLAR_SEEDS=n` plays that many mutations of each driver.

mod harness;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use wire::fuzzing::Prng;

use crate::common::plant;

/// Mutations of each driver without `ASHLAR_SEEDS`.
const ROUNDS: usize = 150;

/// Places at which each seed is cut off.
const CUTS: usize = 8;

fn run(target: fn(&[u8]), bytes: &[u8], what: &str) {
    if catch_unwind(AssertUnwindSafe(|| target(bytes))).is_err() {
        panic!("{what}: {bytes:02x?}");
    }
}

fn replay(name: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut seeds: Vec<(PathBuf, Vec<u8>)> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    seeds.sort();
    assert!(seeds.len() >= 3, "{name} has too few seeds");
    for (path, bytes) in &seeds {
        for cut in 1..=CUTS {
            let part = &bytes[..bytes.len() * cut / CUTS];
            run(target, part, &format!("{path:?}, {} bytes", part.len()));
        }
    }
    let rounds = std::env::var("ASHLAR_SEEDS").ok().and_then(|n| n.parse().ok());
    let mut rng = Prng::new(7);
    for round in 0..rounds.unwrap_or(ROUNDS) {
        let (path, bytes) = &seeds[rng.below(seeds.len())];
        let mut bytes = bytes.clone();
        rng.mutate(&mut bytes);
        run(target, &bytes, &format!("{name}, {path:?}, round {round}"));
    }
}

#[test]
fn iscsi_connections() {
    replay("iscsi_connection", harness::iscsi_connection);
}

#[test]
fn aoe_frames() {
    replay("aoe_frames", harness::aoe_frames);
}

#[test]
fn nbd_connections() {
    replay("nbd_connection", harness::nbd_connection);
}

#[test]
fn nvme_connections() {
    replay("nvme_connection", harness::nvme_connection);
}
