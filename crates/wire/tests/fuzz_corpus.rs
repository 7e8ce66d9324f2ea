//! Runs every fuzz target over its corpus, every prefix of it, and seeded mutations of it.
//! Deterministic; a failure names the target, the seed file and the round.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use wire::fuzzing::{Prng, TARGETS, Target};

/// Mutations of each target; more come from `fuzz/` (see `fuzz/README.md`).
const ROUNDS: usize = 3000;

fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{folder:?}: {e}"));
    let mut out: Vec<_> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            (path, bytes)
        })
        .collect();
    out.sort();
    out
}

fn run(target: Target, bytes: &[u8], what: &str) {
    if catch_unwind(AssertUnwindSafe(|| target(bytes))).is_err() {
        panic!("{what}: {bytes:02x?}");
    }
}

#[test]
fn every_target_survives_its_corpus_and_mutations() {
    let rounds = std::env::var("ASHLAR_SEEDS").ok().and_then(|n| n.parse().ok());
    for (i, (name, target)) in TARGETS.iter().enumerate() {
        let seeds = corpus(name);
        assert!(seeds.len() >= 3, "{name} has too few seeds");
        for (path, bytes) in &seeds {
            for len in 0..=bytes.len().min(600) {
                run(*target, &bytes[..len], &format!("{path:?}, first {len} bytes"));
            }
            run(*target, bytes, &format!("{path:?}"));
        }
        let mut rng = Prng::new(i as u64 + 1);
        for round in 0..rounds.unwrap_or(ROUNDS) {
            let (path, bytes) = &seeds[rng.below(seeds.len())];
            let mut bytes = bytes.clone();
            rng.mutate(&mut bytes);
            run(*target, &bytes, &format!("{name}, {path:?}, round {round}"));
        }
    }
}

/// Each corpus folder belongs to a target, so that none is left behind by a rename.
#[test]
fn every_folder_has_a_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let known = TARGETS.iter().any(|(target, _)| *target == name);
        assert!(known || !name.starts_with("wire_"), "{name} has no target");
    }
}
