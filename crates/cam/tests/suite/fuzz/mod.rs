//! Frames and PDUs to the initiators: the seeds of `fuzz/corpus`, pieces of them and seeded
//! mutations. Guided by coverage the same runs from `fuzz/`, see its README.
//!
//! `ASHLAR_SEEDS=n` plays that many mutations.

mod harness;
mod iscsi;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use wire::fuzzing::Prng;

use crate::aoe::shelf;
use crate::iscsi::peer;
use crate::world;

/// Mutations without `ASHLAR_SEEDS`.
const ROUNDS: usize = 1500;

fn run(target: fn(&[u8]), bytes: &[u8], what: &str) {
    if catch_unwind(AssertUnwindSafe(|| target(bytes))).is_err() {
        panic!("{what}: {bytes:02x?}");
    }
}

#[test]
fn aoe_initiator() {
    play("aoe_initiator", harness::aoe_initiator, ROUNDS);
}

#[test]
fn iscsi_initiator() {
    play("iscsi_initiator", iscsi::iscsi_initiator, ROUNDS / 3);
}

fn play(name: &str, target: fn(&[u8]), few: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut seeds: Vec<_> = entries.map(|p| (p.clone(), std::fs::read(p).unwrap())).collect();
    seeds.sort();
    assert!(seeds.len() >= 3, "too few seeds");
    for (path, bytes) in &seeds {
        run(target, bytes, &format!("{path:?}"));
        run(target, &bytes[..bytes.len() / 2], &format!("half of {path:?}"));
    }
    let rounds = std::env::var("ASHLAR_SEEDS").ok().and_then(|n| n.parse().ok());
    let mut rng = Prng::new(7);
    for round in 0..rounds.unwrap_or(few) {
        let (path, bytes) = &seeds[rng.below(seeds.len())];
        let mut bytes = bytes.clone();
        rng.mutate(&mut bytes);
        run(target, &bytes, &format!("{path:?}, round {round}"));
    }
}
