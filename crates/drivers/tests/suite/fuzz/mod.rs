//! Whole connections of bytes, and frames, into the drivers: the seeds of `fuzz/corpus`, pieces of
//! them and seeded mutations. Guided by coverage the same runs from `fuzz/`, see its README.
//!
//! `ASHLAR_SEEDS=n` plays that many mutations of each driver.

mod harness;

use testkit::corpus::{Corpus, anywhere};

use crate::common::plant;

/// Mutations of each driver without `ASHLAR_SEEDS`.
const ROUNDS: u64 = 80;

/// Places at which each seed is cut off.
const TRUNCATIONS: usize = 8;

fn replay(name: &str, target: fn(&[u8])) {
    let corpus = Corpus::of(name, &target, 3);
    corpus.beginnings(|len| (1..=TRUNCATIONS).map(move |cut| len * cut / TRUNCATIONS));
    corpus.mutations(ROUNDS, anywhere);
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
