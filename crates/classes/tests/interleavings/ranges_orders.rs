//! Range locks: R1 to R3 in every order of a rebuild and of users.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use bio::Ticket;
use shuttle::thread;

use crate::ranges::{LockResult, RangeLocks, Waiter};
use crate::{Wakeup, everything};

struct RangesTest {
    locks: RangeLocks,
    wakeups: Arc<Vec<Wakeup>>,
    /// Ranges that are held, and whether alone.
    held: Mutex<Vec<(usize, Range<u64>, bool)>>,
}

impl RangesTest {
    fn new(stride: u64, users: usize) -> Arc<RangesTest> {
        let bells: Arc<Vec<Wakeup>> = Arc::new((0..users).map(|_| Wakeup::default()).collect());
        let b = bells.clone();
        let locks = RangeLocks::new(stride, move |core, _| b[core].ring());
        Arc::new(RangesTest { locks, wakeups: bells, held: Mutex::default() })
    }

    fn hold(&self, who: usize, range: Range<u64>, alone: bool) {
        let bio = || Waiter::Bio(who, Ticket::from_words(who as u32, who as u64));
        let lock = match self.locks.lock(range.clone(), alone, bio) {
            LockResult::Now(lock) => lock,
            LockResult::Later(lock) => {
                self.wakeups[who].wait();
                assert!(self.locks.is_held(lock), "R3: woken too early");
                lock
            }
        };
        {
            let mut held = self.held.lock().expect("list");
            let minds = |h: &&(usize, Range<u64>, bool)| {
                (h.2 || alone) && h.1.start < range.end && range.start < h.1.end
            };
            assert_eq!(held.iter().find(minds), None, "R1: {who} holds {range:?}");
            held.push((who, range, alone));
        }
        thread::yield_now();
        self.held.lock().expect("list").retain(|h| h.0 != who);
        self.locks.unlock(lock);
    }
}

/// Each does its locks one after another; all of them at once.
fn together(stride: u64, all: &[&[(Range<u64>, bool)]]) {
    let place = RangesTest::new(stride, all.len());
    let threads: Vec<_> = all
        .iter()
        .enumerate()
        .map(|(who, wants)| {
            let (place, wants) = (place.clone(), wants.to_vec());
            thread::spawn(move || {
                wants.into_iter().for_each(|(range, alone)| place.hold(who, range, alone));
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().expect("R2: it was served"));
    assert!(place.held.lock().expect("list").is_empty());
}

#[test]
fn rebuild_locks_never_overlap_a_write() {
    everything("rebuild, write", 6, 2_000, || {
        together(0, &[&[(0..8, true), (8..16, true)], &[(4..12, false)]]);
    });
}

#[test]
fn two_writes_and_an_exclusive_rebuild_lock_are_all_served() {
    everything("rebuild, two writes", 3, 40_000, || {
        together(0, &[&[(0..8, true)], &[(0..4, false)], &[(2..8, false)]]);
    });
}

#[test]
fn exclusive_locks_of_one_stride_are_held_one_at_a_time() {
    everything("two of a stride", 6, 500, || {
        together(8, &[&[(0..8, true)], &[(4..8, true)]]);
    });
}

#[test]
fn three_users_and_a_rebuild_are_all_served() {
    everything("three users, a rebuild", 1, 5_000, || {
        together(
            0,
            &[
                &[(0..8, true), (8..16, true)],
                &[(4..12, false), (0..2, false)],
                &[(6..10, false)],
                &[(0..16, false)],
            ],
        );
    });
}

/// A task that gives up while it waits lets those behind it by.
#[test]
fn a_cancelled_waiter_blocks_no_later_request() {
    everything("gives up", 6, 300, || {
        let place = RangesTest::new(0, 2);
        let (holds, quits) = (place.clone(), place.clone());
        let holder = thread::spawn(move || holds.hold(0, 0..8, true));
        let quitter = thread::spawn(move || {
            let bio = || Waiter::Bio(1, Ticket::from_words(1, 1));
            let (LockResult::Now(lock) | LockResult::Later(lock)) =
                quits.locks.lock(4..12, true, bio);
            quits.locks.unlock(lock);
        });
        holder.join().expect("R2");
        quitter.join().expect("it never waits");
        let bio = || unreachable!("nobody holds it");
        assert!(matches!(place.locks.lock(0..16, true, bio), LockResult::Now(_)));
    });
}
