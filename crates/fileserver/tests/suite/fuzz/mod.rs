//! Any bytes: typed, from a client, on the devices. The seeds of `fuzz/corpus`, pieces of them and
//! seeded mutations of them. Guided by coverage the same runs from `fuzz/`, see its README.
//!
//! `ASHLAR_SEEDS=n` plays that many mutations of each target.

mod harness;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use fileserver::fuzzing::TARGETS;
use wire::fuzzing::Prng;

use crate::image::vectors;
use crate::sim::disk;

/// Places at which each seed is cut off.
const CUTS: usize = 8;

fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn run(target: fn(&[u8]), bytes: &[u8], what: &str) {
    if catch_unwind(AssertUnwindSafe(|| target(bytes))).is_err() {
        panic!("{what}: {bytes:02x?}");
    }
}

fn replay(name: &str, target: fn(&[u8]), rounds: usize) {
    let folder = fuzz_folder().join("corpus").join(name);
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
    let asked = std::env::var("ASHLAR_SEEDS").ok().and_then(|n| n.parse().ok());
    let mut rng = Prng::new(7);
    for round in 0..asked.unwrap_or(rounds) {
        let (path, bytes) = &seeds[rng.below(seeds.len())];
        let mut bytes = bytes.clone();
        rng.mutate(&mut bytes);
        run(target, &bytes, &format!("{name}, {path:?}, round {round}"));
    }
}

#[test]
fn what_is_typed_and_nodes() {
    for (name, target) in TARGETS {
        replay(name, *target, 20_000);
    }
}

#[test]
fn connections() {
    replay("fs_connection", harness::connection, 300);
}

#[test]
fn devices() {
    replay("fs_blocks", harness::blocks, 150);
}

#[test]
fn images() {
    replay("fs_image", harness::cwfs_image, 60);
}

#[test]
fn every_target_has_a_program() {
    let manifest = std::fs::read_to_string(fuzz_folder().join("Cargo.toml")).unwrap();
    let whole = ["fs_connection", "fs_blocks", "fs_image"];
    for name in TARGETS.iter().map(|(name, _)| *name).chain(whole) {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        let program = fuzz_folder().join("fuzz_targets").join(format!("{name}.rs"));
        assert!(std::fs::read_to_string(program).unwrap().contains("|data: &[u8]|"));
    }
}
