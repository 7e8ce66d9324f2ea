//! The fuzz entry points over their corpus and seeded mutations of it: nothing panics, and certain
//! corpus entries still decode as intended.

use engine::fuzzing::TARGETS;
use testkit::corpus::{Corpus, anywhere, each_is_whole};

/// Mutations of each target.
const ROUNDS: u64 = 10_000;

#[test]
fn the_corpus_and_mutations_of_it() {
    for (name, target) in TARGETS {
        let corpus = Corpus::of(name, target, 5);
        corpus.beginnings(|len| [len]);
        corpus.mutations(ROUNDS, anywhere);
    }
}

#[test]
fn every_target_is_whole() {
    each_is_whole("target_", TARGETS.iter().map(|(name, _)| *name));
}
