//! Rules R1 to R5 of the ledger.

use bio::Errno;
use testkit::clock::S;

use super::{Bounds, Link, Outcome, RequestTable};

const BOUNDS: Bounds =
    Bounds { deadline_ns: 20 * S, timeout_ns: 30 * S, retries: 4, request_deadline_ns: 60 * S };

fn ledger() -> RequestTable<u32> {
    RequestTable::new(BOUNDS, 0)
}

/// Sends all that may be sent; answers the jobs.
fn send(l: &mut RequestTable<u32>, now: u64) -> Vec<u32> {
    let mut out = Vec::new();
    while let Some(cookie) = l.next(now) {
        l.sent(cookie);
        out.push(*l.job(cookie).unwrap());
    }
    out
}

fn fates(l: &mut RequestTable<u32>, ended: Vec<u64>) -> Vec<(u32, Result<(), Errno>)> {
    let fate = |cookie| l.take(cookie).map(|(job, outcome)| (job, outcome.status)).unwrap();
    ended.into_iter().map(fate).collect()
}

/// R2 of remote/request_table.rs.
#[test]
fn r1_second_answer_to_a_request_is_an_error() {
    let mut l = ledger();
    let cookie = l.begin(1, false, 0).unwrap();
    assert!(l.answer(cookie, Outcome::GOOD).is_err(), "it was not sent");
    l.connected();
    assert_eq!(l.next(0), Some(cookie));
    assert_eq!(l.answer(cookie, Outcome::GOOD), Ok(false), "R2: its memory is being sent");
    assert!(l.answer(cookie, Outcome::GOOD).is_err());
    assert!(l.take(cookie).is_none());
    assert!(l.sent(cookie));
    assert_eq!(l.take(cookie), Some((1, Outcome::GOOD)));
    assert!(l.answer(cookie, Outcome::GOOD).is_err());
    let next = l.begin(2, false, 0).unwrap();
    assert_ne!(next, cookie, "a late answer finds nothing");
}

#[test]
fn changed_timeout_and_retries_apply_to_requests_under_way() {
    let mut l = ledger();
    l.connected();
    l.begin(1, false, 0).unwrap();
    assert!(!l.is_empty());
    assert_eq!(send(&mut l, 0), [1]);
    assert!(!l.is_overdue(29 * S));
    l.set_bounds(Bounds { timeout_ns: 5 * S, retries: 0, ..BOUNDS });
    assert!(l.is_overdue(5 * S));
    let ended = l.dropped(5 * S);
    assert_eq!(fates(&mut l, ended), [(1, Err(Errno::RemoteIo))]);
    assert!(l.is_empty());
}

#[test]
fn r3_unanswered_requests_are_resent_first_and_in_order() {
    let mut l = ledger();
    l.connected();
    let cookies: Vec<u64> = (0..5).map(|n| l.begin(n, false, 0).unwrap()).collect();
    assert_eq!(send(&mut l, 0), [0, 1, 2, 3, 4]);
    assert_eq!(l.answer(cookies[1], Outcome::GOOD), Ok(true));
    assert!(l.dropped(S).is_empty());
    l.begin(9, false, S).unwrap();
    assert!(send(&mut l, S).is_empty(), "there is no connection");
    l.connected();
    assert_eq!(send(&mut l, S), [0, 2, 3, 4, 9]);
}

#[test]
fn r4_fail_fast_requests_do_not_wait_for_a_connection() {
    let mut l = ledger();
    l.begin(0, true, 0).unwrap();
    l.connected();
    assert_eq!(send(&mut l, 0), [0]);
    let ended = l.dropped(S);
    assert_eq!(fates(&mut l, ended), [(0, Err(Errno::Again))]);
    assert_eq!(l.begin(1, true, S), Err(Errno::Again));
    assert!(l.begin(2, false, S).is_ok());
}

#[test]
fn r5_request_that_ends_every_connection_fails_alone() {
    let mut l = ledger();
    for n in 0..4 {
        l.begin(n, false, 0).unwrap();
    }
    let mut failed = Vec::new();
    let mut answered = Vec::new();
    for round in 0..20u64 {
        l.connected();
        let mut sent = Vec::new();
        while let Some(cookie) = l.next(round) {
            l.sent(cookie);
            sent.push(cookie);
        }
        // The server ends at request 2 and answers no request that arrived beside it.
        let killed = sent.iter().any(|c| l.job(*c) == Some(&mut 2));
        if !killed {
            for cookie in sent {
                l.answer(cookie, Outcome::GOOD).unwrap();
                answered.extend(l.take(cookie).map(|(job, _)| job));
            }
            continue;
        }
        let ended = l.dropped(round);
        failed.extend(fates(&mut l, ended));
    }
    answered.sort_unstable();
    assert_eq!((answered, failed), (vec![0, 1, 3], vec![(2, Err(Errno::RemoteIo))]));
}

#[test]
fn deadlines_end_waiting_requests() {
    let mut l = ledger();
    l.connected();
    l.begin(0, false, 0).unwrap();
    assert_eq!(send(&mut l, 0), [0]);
    assert!(!l.is_overdue(30 * S - 1) && l.is_overdue(30 * S));
    assert!(l.dropped(30 * S).is_empty());
    assert!(l.expire(50 * S - 1).is_empty());
    let ended = l.expire(50 * S);
    assert_eq!(fates(&mut l, ended), [(0, Err(Errno::NxIo))], "no connection for 20 s");
    assert_eq!(l.link(), Link::Lost);
    assert_eq!(l.begin(1, false, 51 * S), Err(Errno::NxIo));
    let mut l = ledger();
    l.connected();
    l.begin(0, false, 0).unwrap();
    for n in 1..4 {
        send(&mut l, n * 29 * S);
        let ended = l.dropped(n * 29 * S);
        match n {
            3 => assert_eq!(fates(&mut l, ended), [(0, Err(Errno::TimedOut))]),
            _ => assert!(ended.is_empty()),
        }
        l.connected();
    }
}
