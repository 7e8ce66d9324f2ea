//! The races R1 to R10 of a queue of trims, one test each but for R9. R1 with threads, in every
//! order of their steps, is in `classes/tests/interleavings`; R2 and R7 with a whole stack in
//! `classes/tests/suite/class_trim`.

// Commands are made of lists of one range.
#![allow(clippy::single_range_in_vec_init)]

use extents::trim::{Limits, Outcome, Policy, Queue, WriteCheck};
use testkit::Seeds;
use testkit::clock::S;

use crate::stage::{Chance, EAGER};

const ONE: Limits =
    Limits { granule: 1, offset: 0, ranges: 64, range_max: 1000, command_max: 1000 };

fn queue() -> Queue {
    Queue::new(ONE, EAGER)
}

/// Q2.
#[test]
fn r1_block_of_a_writer_is_in_no_command_and_vice_versa() {
    let mut q = queue();
    q.free(0..4, 0);
    assert_eq!(q.before_write(&(1..2)), WriteCheck::Clear);
    let command = q.take(1).unwrap();
    assert_eq!(command.ranges, [0..1, 2..4], "without the block of the writer");
    assert_eq!(q.before_write(&(2..3)), WriteCheck::Wait);
    q.ended(command.number, Outcome::Done, 2);
    assert_eq!(q.before_write(&(2..3)), WriteCheck::Clear);
    q.check().unwrap();
}

#[test]
fn r2_write_waits_only_for_an_older_trim_of_its_own_blocks() {
    let mut q = queue();
    q.free(10..20, 0);
    let command = q.take(0).unwrap();
    assert_eq!(q.before_write(&(0..10)), WriteCheck::Clear);
    assert_eq!(q.before_write(&(19..30)), WriteCheck::Wait);
    assert_eq!(q.totals().waits, 1);
    q.ended(command.number, Outcome::Done, 5);
    assert_eq!(q.before_write(&(19..30)), WriteCheck::Clear);
}

#[test]
fn r3_rewritten_block_is_removed_from_the_trim_queue() {
    let mut q = queue();
    q.free(3..4, 0);
    assert_eq!(q.before_write(&(3..4)), WriteCheck::Clear);
    assert_eq!(q.take(5 * S), None, "nothing is left to trim");
    assert_eq!(q.totals().taken_back, 1);
}

#[test]
fn exposing_20_r4_adjacent_ranges_merge_and_are_cut_to_the_limits() {
    let limits = Limits { range_max: 4, command_max: 8, ranges: 3, ..ONE };
    let mut q = Queue::new(limits, EAGER);
    for range in [0..2, 4..6, 2..4, 6..10] {
        q.free(range, 0);
    }
    assert_eq!(q.queued(), (1, 10));
    let first = q.take(0).unwrap();
    assert_eq!(first.ranges, [0..4, 4..8]);
    assert_eq!(q.take(0), None, "one at a time");
    q.ended(first.number, Outcome::Done, 0);
    assert_eq!(q.take(0).unwrap().ranges, vec![8..10]);
}

#[test]
fn r5_fragments_wait_for_a_whole_granule_even_when_stale() {
    let limits = Limits { granule: 8, ..ONE };
    let policy = Policy { expire_ns: 10 * S, ..EAGER };
    let mut q = Queue::new(limits, policy);
    q.free(0..3, 0);
    assert_eq!(q.take(S), None);
    q.free(5..8, S);
    assert_eq!(q.take(2 * S), None);
    q.free(3..5, 2 * S);
    assert_eq!(q.take(2 * S).map(|c| c.ranges), Some(vec![0..8]));
    q.ended(1, Outcome::Done, 2 * S);
    q.free(8..12, 3 * S);
    q.expire(20 * S);
    assert_eq!((q.queued(), q.stale()), ((0, 0), (1, 4)));
    q.free(12..16, 21 * S);
    assert_eq!(q.take(21 * S).map(|c| c.ranges), Some(vec![8..16]));
    assert_eq!(q.stale(), (0, 0));
}

/// Q5: a block that a writer waits for, or one beyond the new end, is not sent again after a
/// command that failed, and not kept for later either. The writer need not be quicker than the next
/// command.
#[test]
fn q5_range_that_a_writer_waits_for_is_never_retried() {
    for cuts_off in [false, true] {
        for outcome in [Outcome::Failed, Outcome::Unsupported, Outcome::Unknown] {
            let mut q = queue();
            q.free(0..10, 0);
            let command = q.take(0).unwrap();
            assert_eq!(command.ranges, [0..10]);
            let left = if cuts_off {
                q.cut_off(6);
                vec![0..6]
            } else {
                assert_eq!(q.before_write(&(4..6)), WriteCheck::Wait);
                vec![0..4, 6..10]
            };
            q.ended(command.number, outcome, 1);
            q.expire(1000 * S);
            for gone in if cuts_off { vec![6..10] } else { vec![4..6] } {
                assert!(!q.tracks(&gone), "{outcome:?}: {gone:?} is kept");
            }
            if outcome != Outcome::Unsupported {
                q.start_full_trim(1000 * S);
                let again = q.take(1000 * S).expect("what is left is sent");
                assert_eq!(again.ranges, left, "{outcome:?}");
            }
        }
    }
}

#[test]
fn r6_device_without_trim_support_gets_no_more_commands() {
    let mut q = queue();
    q.free(0..10, 0);
    q.free(20..30, 0);
    let command = q.take(0).unwrap();
    q.ended(command.number, Outcome::Unsupported, 1);
    assert!(q.is_unsupported());
    assert_eq!((q.stale(), q.queued()), ((2, 20), (0, 0)));
    q.free(40..50, 2);
    q.start_full_trim(3);
    assert_eq!((q.take(100 * S), q.next_at(100 * S)), (None, None));
    assert_eq!(q.before_write(&(0..100)), WriteCheck::Clear);
    assert!(q.is_empty());
}

/// Q4.
#[test]
fn r7_command_of_unknown_outcome_stays_in_flight_until_it_expires() {
    let mut q = queue();
    q.free(0..4, 0);
    let command = q.take(0).unwrap();
    q.ended(command.number, Outcome::Unknown, S);
    assert!(q.in_doubt() && q.overlaps_in_flight(&(0..4)));
    q.expire(61 * S - 1);
    assert!(q.overlaps_in_flight(&(0..4)), "a nanosecond is missing");
    assert_eq!(q.next_at(60 * S), Some(61 * S));
    q.expire(61 * S);
    assert_eq!(q.stale(), (1, 4), "whether it was done is not known");
    assert_eq!(q.before_write(&(0..4)), WriteCheck::Clear);
    q.check().unwrap();
}

#[test]
fn r8_shutdown_waits_for_the_command_in_flight_and_drops_the_rest() {
    let mut q = queue();
    q.free(0..10, 0);
    let command = q.take(0).unwrap();
    q.free(20..30, 0);
    q.forget();
    assert_eq!(q.before_write(&(0..1)), WriteCheck::Wait, "it is still under way");
    assert_eq!(q.take(100 * S), None);
    q.ended(command.number, Outcome::Failed, 1);
    assert!(q.is_empty(), "and is not sent again");
}

#[test]
fn r10_partial_granules_are_neither_sent_nor_recorded_as_trimmed() {
    let limits = Limits { granule: 8, offset: 3, ..ONE };
    let mut q = Queue::new(limits, EAGER);
    q.free(1..32, 0);
    let command = q.take(0).unwrap();
    assert_eq!(command.ranges, [3..27]);
    q.ended(command.number, Outcome::Done, 1);
    assert_eq!(q.queued(), (2, 7));
    assert!(q.tracks(&(1..3)) && q.tracks(&(27..32)) && !q.tracks(&(3..27)));
    q.free(32..35, 2);
    assert_eq!(q.take(2).map(|c| c.ranges), Some(vec![27..35]), "the edge found its granule");
}

/// A verb that waits for a full trim waits for `is_full_trim_active` to end.
/// Q8.
#[test]
fn full_trim_ends_when_its_ranges_are_removed_in_any_way() {
    type Way = fn(&mut Queue);
    let ways: [(&str, Way); 4] = [
        ("a write takes it back", |q| assert_eq!(q.before_write(&(0..20)), WriteCheck::Clear)),
        ("the medium becomes smaller", |q| q.cut_off(10)),
        ("it is given up", |q| q.set_policy(Policy { queued_max: 0, ..EAGER })),
        ("the operator ends it", |q| q.end_full_trim()),
    ];
    for (what, way) in ways {
        let mut q = Queue::new(ONE, Policy { short: 100, ..EAGER });
        q.free(10..20, 1);
        q.start_full_trim(2);
        assert!(q.is_full_trim_active(), "{what}");
        way(&mut q);
        assert!(!q.is_full_trim_active(), "{what}");
        assert_eq!(q.full_trim_left(), 0, "{what}");
    }
}

/// Q8: deletes that arrive without pause do not prolong it, regardless of failures.
/// Q8.
#[test]
fn a_full_trim_ends_while_deletes_arrive_without_pause() {
    const BLOCKS: u64 = 512;
    let limits = Limits { granule: 4, offset: 1, ranges: 2, range_max: 16, command_max: 24 };
    let policy = Policy { short: 32, tries: 3, retry_ns: 1, ..EAGER };
    for seed in Seeds::of(1000) {
        let mut chance = Chance(seed);
        let mut q = Queue::new(limits, policy);
        let some = |q: &mut Queue, chance: &mut Chance, now: u64| {
            let from = chance.below(BLOCKS - 64);
            q.free(from..from + 1 + chance.below(64), now);
            q.check().unwrap();
        };
        (0..20).for_each(|_| some(&mut q, &mut chance, 0));
        q.start_full_trim(1);
        // Each granule is sent at most so often, and a command has one at least.
        let mut left = BLOCKS / limits.granule * 3;
        let mut now = 1;
        while !q.is_fully_trimmed() {
            assert!(left > 0, "seed {seed}: {} units are left to be sent", q.full_trim_left());
            left -= 1;
            now += 2;
            (0..3).for_each(|_| some(&mut q, &mut chance, now));
            let Some(command) = q.take(now) else { continue };
            some(&mut q, &mut chance, now);
            let outcome = if chance.below(3) == 0 { Outcome::Failed } else { Outcome::Done };
            q.ended(command.number, outcome, now);
            q.check().unwrap();
        }
        assert!(q.queued().0 > 0, "seed {seed}: newer deletes wait");
    }
}
