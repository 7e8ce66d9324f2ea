//! Seeds that found something once, on the way to what the mirror is now.

use super::run::Tally;

/// Of mirrors on disks: stale members that looked complete, records that were cleared from the
/// last member, writes that only a rebuilt member had, a rebuild that ended twice; 7844: a member's
/// record cleared before those of the others said that it was out.
const MIRRORS: [u64; 15] =
    [110, 120, 194, 276, 454, 468, 492, 795, 849, 905, 988, 1074, 1186, 1387, 7844];

#[test]
fn mirrors_that_failed_once() {
    let mut tally = Tally::default();
    for seed in MIRRORS {
        super::one(seed, &super::mirror, &mut tally);
    }
    assert!(tally.acked > 0, "nothing was done: {tally:?}");
}

/// Of stacks: 250: a mirror started with a stale mirror while the newer one still waited for a
/// member of its own.
const STACKS: [u64; 1] = [250];

#[test]
fn stacks_that_failed_once() {
    let mut tally = Tally::default();
    for seed in STACKS {
        super::one(seed, &super::plan::Plan::three, &mut tally);
    }
    assert!(tally.acked > 0, "nothing was done: {tally:?}");
}

/// Of arrays: 139: a write that a needed disk failed left parity that solved for what a missing
/// disk held wrongly; 5233: a write waited for records that stood behind the wait for that write.
const ARRAYS: [u64; 2] = [139, 5233];

#[test]
fn arrays_that_failed_once() {
    let mut tally = Tally::default();
    for seed in ARRAYS {
        super::raids::run(seed, 4, &mut tally);
    }
    assert!(tally.acked > 0, "nothing was done: {tally:?}");
}
