//! Partial failures of writes: C1 to C3 in every order of failed writes and of the geom's decision.

use std::sync::{Arc, Mutex};

use shuttle::sync::mpsc;
use shuttle::thread;

use crate::everything;
use crate::partial_failures::PartialFailures;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WriteResult {
    Good,
    Failed,
}

enum Message {
    Accused,
    AllReported(u64),
}

/// Writes that a member failed, and a geom that decides whether the member stays (`stays`). With
/// `goes`, the geom is removed before it has received everything.
fn judged(writes: usize, stays: bool, goes: bool) {
    let failures = Arc::new(PartialFailures::<usize>::default());
    let answers = Arc::new(Mutex::new(vec![None; writes]));
    let (say, hears) = mpsc::channel();
    let threads: Vec<_> = (0..writes)
        .map(|who| {
            let (failures, say, answers) = (failures.clone(), say.clone(), answers.clone());
            thread::spawn(move || match failures.open(1, who) {
                None => answers.lock().expect("list")[who] = Some(WriteResult::Failed),
                Some(number) => {
                    // The geom may have been removed.
                    let _ = say.send(Message::Accused);
                    let _ = say.send(Message::AllReported(number));
                }
            })
        })
        .collect();
    drop(say);
    let answer = |all: Vec<usize>, answer| {
        for who in all {
            let old = answers.lock().expect("list")[who].replace(answer);
            assert_eq!(old, None, "C3: one answer");
        }
    };
    let mut doubted = 0;
    for (n, word) in hears.iter().enumerate() {
        match word {
            Message::Accused if stays => {
                answer(failures.refused(1), WriteResult::Failed);
            }
            // It is doubted until its record marks it as removed, which completes the decision.
            Message::Accused => doubted = 1,
            Message::AllReported(number) => {
                failures.set_reported(number);
                answer(failures.released(doubted), WriteResult::Good);
                doubted = 0;
                answer(failures.released(0), WriteResult::Good);
            }
        }
        if goes && n == 1 {
            break;
        }
    }
    drop(hears);
    answer(failures.closed(), WriteResult::Failed);
    threads.into_iter().for_each(|t| t.join().expect("a write"));
    for (who, one) in answers.lock().expect("list").iter().enumerate() {
        let one = one.unwrap_or_else(|| panic!("C3: write {who} has no answer"));
        assert!(!(stays && one == WriteResult::Good), "C1: good, and a member that stays lacks it");
    }
}

#[test]
fn c1_a_write_that_a_remaining_member_failed_is_not_acknowledged() {
    everything("a write, stays", 8, 16, || judged(1, true, false));
}

#[test]
fn c1_two_writes_that_a_remaining_member_failed_are_not_acknowledged() {
    everything("two writes, stays", 4, 5_000, || judged(2, true, false));
}

#[test]
fn c2_two_writes_that_a_dropped_member_failed_are_each_answered_once() {
    everything("two writes, out", 4, 5_000, || judged(2, false, false));
}

#[test]
fn c3_two_failed_writes_are_each_answered_once_when_the_geom_is_removed() {
    everything("two writes, gone", 4, 5_000, || judged(2, true, true));
}
