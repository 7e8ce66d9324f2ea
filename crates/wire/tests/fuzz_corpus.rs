//! Every fuzz target over its corpus, every prefix of it, and seeded mutations of it.

use testkit::corpus::{Corpus, anywhere, each_is_whole};
use wire::fuzzing::TARGETS;

/// Mutations of each target; more are tried by `fuzz/` (see `fuzz/README.md`).
const ROUNDS: u64 = 3000;

/// Longest prefix that is cut from each file, bytes.
const PREFIX_MAX: usize = 600;

#[test]
fn every_target_survives_its_corpus_and_mutations() {
    for (name, target) in TARGETS {
        let corpus = Corpus::of(name, target, 3);
        corpus.beginnings(|len| (0..=len.min(PREFIX_MAX)).chain([len]));
        corpus.mutations(ROUNDS, anywhere);
    }
}

#[test]
fn every_target_has_a_corpus_and_a_manifest_entry() {
    each_is_whole("wire_", TARGETS.iter().map(|(name, _)| *name));
}
