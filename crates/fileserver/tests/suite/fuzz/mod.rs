//! Random bytes as input: typed, from a client, on the devices. The seeds of `fuzz/corpus`, pieces
//! of them and seeded mutations of them. Guided by coverage the same runs from `fuzz/`, see its
//! README.
//!
//! `ASHLAR_SEEDS=n` plays that many mutations of each target.

mod harness;

use fileserver::fuzzing::TARGETS;
use testkit::corpus::{Corpus, anywhere, each_is_whole};

use crate::image::vectors;
use crate::sim::disk;

/// Places at which each seed is cut off.
const TRUNCATIONS: usize = 8;

fn replay(name: &str, target: fn(&[u8]), rounds: u64) {
    let corpus = Corpus::of(name, &target, 3);
    corpus.beginnings(|len| (1..=TRUNCATIONS).map(move |cut| len * cut / TRUNCATIONS));
    corpus.mutations(rounds, anywhere);
}

#[test]
fn console_input_and_tree_nodes_survive_fuzzing() {
    for (name, target) in TARGETS {
        replay(name, *target, 3_000);
    }
}

#[test]
fn connections_survive_fuzzing() {
    replay("fs_connection", harness::connection, 300);
}

#[test]
fn devices_survive_fuzzing() {
    replay("fs_blocks", harness::blocks, 150);
}

#[test]
fn images_survive_fuzzing() {
    replay("fs_image", harness::cwfs_image, 60);
}

#[test]
fn every_target_has_a_corpus_and_a_manifest_entry() {
    let devices = ["fs_connection", "fs_blocks", "fs_image"];
    each_is_whole("fs_", TARGETS.iter().map(|(name, _)| *name).chain(devices));
}
