//! Frames and PDUs to the initiators: the seeds of `fuzz/corpus`, pieces of them and seeded
//! mutations. Guided by coverage the same runs from `fuzz/`, see its README.
//!
//! `ASHLAR_SEEDS=n` plays that many mutations.

mod harness;
mod iscsi;

use testkit::corpus::{Corpus, anywhere};

use crate::iscsi::peer;
use crate::world;

/// Mutations without `ASHLAR_SEEDS`.
const ROUNDS: u64 = 900;

#[test]
fn aoe_initiator() {
    play("aoe_initiator", harness::aoe_initiator, ROUNDS);
}

#[test]
fn iscsi_initiator() {
    play("iscsi_initiator", iscsi::iscsi_initiator, ROUNDS / 3);
}

fn play(name: &str, target: fn(&[u8]), few: u64) {
    let corpus = Corpus::of(name, &target, 3);
    corpus.beginnings(|len| [len / 2, len]);
    corpus.mutations(few, anywhere);
}
