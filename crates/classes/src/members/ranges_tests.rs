//! Tests of the range locks: order, abandoned waits, and random locks beside a model.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use bio::Ticket;
use bio::sync::Mutex;
use testkit::Seeds;

use super::ranges::{LockId, LockResult, RangeLocks, Waiter};

type Woken = Arc<Mutex<Vec<u64>>>;

fn locks(stride: u64) -> (RangeLocks, Woken) {
    let woken = Woken::default();
    let w = woken.clone();
    let restart = move |_, ticket: Ticket| w.lock().push(ticket.to_words().1);
    (RangeLocks::new(stride, restart), woken)
}

fn bio(n: u64) -> Waiter {
    Waiter::Bio(0, Ticket::from_words(1, n))
}

fn taken(woken: &Woken) -> Vec<u64> {
    std::mem::take(&mut *woken.lock())
}

fn now(locked: LockResult) -> LockId {
    match locked {
        LockResult::Now(held) => held,
        LockResult::Later(_) => panic!("it had to wait"),
    }
}

fn later(locked: LockResult) -> LockId {
    match locked {
        LockResult::Later(held) => held,
        LockResult::Now(_) => panic!("it did not wait"),
    }
}

#[test]
fn shared_locks_overlap_and_an_exclusive_lock_waits_for_all() {
    let (locks, woken) = locks(0);
    let a = now(locks.lock(0..8, false, || bio(1)));
    let b = now(locks.lock(4..12, false, || bio(2)));
    let c = later(locks.lock(6..10, true, || bio(3)));
    assert!(!locks.is_held(c));
    locks.unlock(a);
    assert!(taken(&woken).is_empty());
    locks.unlock(b);
    assert_eq!(taken(&woken), [3]);
    assert!(locks.is_held(c));
}

#[test]
fn later_lock_does_not_pass_an_overlapping_waiting_one() {
    let (locks, woken) = locks(0);
    let a = now(locks.lock(0..8, false, || bio(1)));
    let b = later(locks.lock(4..12, true, || bio(2)));
    let c = later(locks.lock(10..20, false, || bio(3)));
    now(locks.lock(20..30, false, || bio(4)));
    locks.unlock(a);
    assert_eq!(taken(&woken), [2], "the third overlaps the second, which came before");
    locks.unlock(b);
    assert_eq!(taken(&woken), [3]);
    locks.unlock(c);
}

#[test]
fn abandoned_wait_lets_later_locks_proceed() {
    let (locks, woken) = locks(0);
    let a = now(locks.lock(0..8, false, || bio(1)));
    let b = later(locks.lock(0..8, true, || bio(2)));
    later(locks.lock(0..8, false, || bio(3)));
    locks.unlock(b);
    assert_eq!(taken(&woken), [3]);
    locks.unlock(a);
}

/// A model with every lock that is held: R1, R2 for overlapping ones, R3.
#[test]
fn random_locks_and_unlocks_match_the_model() {
    struct Known {
        held: LockId,
        range: Range<u64>,
        alone: bool,
        granted: bool,
        number: u64,
    }
    let minds = |a: &Known, b: &Known| {
        (a.alone || b.alone) && a.range.start < b.range.end && b.range.start < a.range.end
    };
    for seed in Seeds::of(1000) {
        let (locks, woken) = locks(if seed % 2 == 0 { 0 } else { 64 });
        let mut all: Vec<Known> = Vec::new();
        let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = move |n: u64| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x % n
        };
        for step in 0..60 {
            if random(5) < 3 {
                let (stride, at) = (random(3) * 64, random(48));
                let range = stride + at..stride + at + 1 + random(15);
                let alone = random(3) == 0;
                let locked = locks.lock(range.clone(), alone, || bio(step));
                let (held, granted) = match locked {
                    LockResult::Now(held) => (held, true),
                    LockResult::Later(held) => (held, false),
                };
                let new = Known { held, range, alone, granted, number: step };
                let in_the_way = all.iter().any(|k| minds(k, &new));
                assert_eq!(granted, !in_the_way, "seed {seed} step {step}");
                all.push(new);
            } else if !all.is_empty() {
                let gone = all.remove(random(all.len() as u64) as usize);
                locks.unlock(gone.held);
            }
            let mut news: BTreeSet<u64> = taken(&woken).into_iter().collect();
            // In order of arrival, each is granted when no earlier range conflicts with it.
            for i in 0..all.len() {
                let free = !all[..i].iter().any(|k| minds(k, &all[i]));
                let after = all[i + 1..].iter().any(|k| k.granted && minds(k, &all[i]));
                let may = free && !after;
                if may && !all[i].granted {
                    assert!(news.remove(&all[i].number), "seed {seed}: one was not woken");
                    all[i].granted = true;
                }
                assert_eq!(locks.is_held(all[i].held), all[i].granted, "seed {seed}");
            }
            assert!(news.is_empty(), "seed {seed}: woken too early: {news:?}");
        }
    }
}

/// R4
#[test]
fn several_ranges_are_granted_together_and_gaps_stay_free() {
    let (locks, woken) = locks(0);
    let all = |list: &[Range<u64>]| list.to_vec().into_boxed_slice();
    let between = now(locks.lock(10..20, true, || bio(1)));
    let a = now(locks.lock_all(all(&[0..10, 20..30, 50..51]), true, || bio(2)));
    now(locks.lock(30..50, true, || bio(3)));
    let b = later(locks.lock_all(all(&[5..8, 60..70]), true, || bio(4)));
    let c = later(locks.lock(65..66, true, || bio(5)));
    assert!(!locks.is_held(b) && !locks.is_held(c), "it waits behind one that holds nothing yet");
    let d = later(locks.lock_all(all(&[15..16, 29..30]), true, || bio(6)));
    locks.unlock(a);
    assert_eq!(taken(&woken), [4]);
    locks.unlock(b);
    assert_eq!(taken(&woken), [5]);
    assert!(!locks.is_held(d));
    locks.unlock(between);
    assert_eq!(taken(&woken), [6]);
}
