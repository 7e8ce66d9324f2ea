//! The fuzz entry points over their corpus and seeded mutations of it: no panic, and what some of
//! the corpus is meant to be is still what it is.

use std::path::{Path, PathBuf};

use target::fuzzing::TARGETS;
use wire::fuzzing::Prng;

/// Mutations of each file.
const ROUNDS: u64 = 2000;

fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

#[test]
fn the_corpus_and_mutations_of_it() {
    for (name, target) in TARGETS {
        let folder = fuzz_folder().join("corpus").join(name);
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        assert!(files.len() >= 5, "{name} has too few seeds");
        for (i, file) in files.iter().enumerate() {
            let seed = std::fs::read(file).unwrap();
            target(&seed);
            let mut random = Prng::new(i as u64 + 1);
            for _ in 0..ROUNDS {
                let mut bytes = seed.clone();
                random.mutate(&mut bytes);
                target(&bytes);
            }
        }
    }
}

#[test]
fn every_target_has_a_program() {
    let manifest = std::fs::read_to_string(fuzz_folder().join("Cargo.toml")).unwrap();
    for (name, _) in TARGETS {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        let program = fuzz_folder().join("fuzz_targets").join(format!("{name}.rs"));
        assert!(std::fs::read_to_string(program).unwrap().contains("target::fuzzing::fuzz_"));
    }
}
