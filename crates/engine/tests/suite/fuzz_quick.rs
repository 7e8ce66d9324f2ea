//! The fuzz entry points over their corpus and seeded mutations of it: nothing panics, and certain
//! corpus entries still decode as intended.

use engine::fuzzing::TARGETS;
use testkit::corpus::{Corpus, anywhere, each_is_whole};

/// Mutations of each target.
const ROUNDS: u64 = 4_000;

#[test]
fn corpus_entries_and_their_mutations_cause_no_panic() {
    for (name, target) in TARGETS {
        let corpus = Corpus::of(name, target, 5);
        corpus.beginnings(|len| [len]);
        corpus.mutations(ROUNDS, anywhere);
    }
}

#[test]
fn every_fuzz_target_has_a_corpus_and_a_manifest_entry() {
    each_is_whole("target_", TARGETS.iter().map(|(name, _)| *name));
}
