//! The shared state of a trim queue: E1 to E5 in every order of users and of the issuer, on four
//! blocks. R1 and R2 of the races that a queue of trims has.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use bio::Ticket;
use extents::trim::{Limits, Load, Outcome, Pacing, Policy, Queue};
use shuttle::thread;

use crate::queue::{DeleteDecision, DeleteQueue, Entry, Step};
use crate::{Wakeup, everything};

/// The content of a trimmed block as a reader finds it.
const GARBAGE: u8 = 0xee;

/// The acts of a user, one after the other.
#[derive(Clone)]
enum Act {
    Delete(Range<u64>),
    Write(Range<u64>, u8),
}
use Act::{Delete, Write};

struct TrimTest {
    delete_queue: DeleteQueue,
    media: Mutex<[u8; 4]>,
    /// Blocks that a command in flight covers, a bit each.
    flies: AtomicU32,
    wakeups: Arc<Vec<Wakeup>>,
    issuer: Arc<Wakeup>,
}

fn bits(range: &Range<u64>) -> u32 {
    range.clone().fold(0, |all, b| all | 1 << b)
}

impl TrimTest {
    fn new(users: usize) -> Arc<TrimTest> {
        let limits = Limits { granule: 1, offset: 0, ranges: 4, range_max: 4, command_max: 4 };
        let policy = Policy {
            short: 0,
            batch_ranges: 1,
            quiet_ns: 0,
            expire_ns: u64::MAX,
            queued_max: 8,
            stale_max: 8,
            tries: 2,
            retry_ns: 0,
            doubt_ns: 1,
        };
        let bells: Arc<Vec<Wakeup>> = Arc::new((0..users).map(|_| Wakeup::default()).collect());
        let issuer = Arc::new(Wakeup::default());
        let (b, i) = (bells.clone(), issuer.clone());
        let ring = Box::new(move || i.ring());
        let restart = Box::new(move |core: usize, _| b[core].ring());
        let queue = Queue::new(limits, policy);
        let delete_queue = DeleteQueue::new(4, queue, Pacing { share: 100 }, ring, restart);
        delete_queue.set_open(true);
        let (media, flies) = (Mutex::new([1; 4]), AtomicU32::new(0));
        Arc::new(TrimTest { delete_queue, media, flies, wakeups: bells, issuer })
    }

    fn user(&self, core: usize, acts: &[Act]) {
        for act in acts {
            match act {
                Delete(range) => {
                    if self.delete_queue.delete(std::iter::once(range.clone()), 1)
                        == DeleteDecision::Pass
                    {
                        self.enter(core, range);
                        self.set(range, GARBAGE);
                    }
                }
                Write(range, value) => {
                    self.enter(core, range);
                    thread::yield_now();
                    let flies = self.flies.load(SeqCst);
                    assert_eq!(flies & bits(range), 0, "E2: {range:?} beside a command");
                    self.set(range, *value);
                }
            }
        }
    }

    fn enter(&self, core: usize, range: &Range<u64>) {
        let ticket = || Ticket::from_words(core as u32, core as u64);
        while self.delete_queue.near(range)
            && self.delete_queue.write(range, core, ticket) == Entry::Wait
        {
            self.wakeups[core].wait();
        }
    }

    fn set(&self, range: &Range<u64>, value: u8) {
        let mut media = self.media.lock().expect("media");
        range.clone().for_each(|b| media[b as usize] = value);
    }

    /// Sends until it is stopped; `fails` commands fail first.
    fn issue(&self, mut fails: u32) {
        loop {
            match self.delete_queue.step(1, Load::default()) {
                Step::Stop => return,
                Step::Rest => self.issuer.wait(),
                Step::Until(at) => panic!("until {at}: everything is due"),
                Step::Send(command) => {
                    let all = command.ranges.iter().fold(0, |all, r| all | bits(r));
                    self.flies.store(all, SeqCst);
                    thread::yield_now();
                    let outcome = if fails > 0 { Outcome::Failed } else { Outcome::Done };
                    fails = fails.saturating_sub(1);
                    if outcome == Outcome::Done {
                        command.ranges.iter().for_each(|r| self.set(r, GARBAGE));
                    }
                    self.flies.store(0, SeqCst);
                    self.delete_queue.ended(command.number, outcome, 1, Load::default());
                }
            }
        }
    }
}

/// Users at once beside an issuer; in the end the media is `wanted`, where that is given.
fn scene(users: &[&[Act]], fails: u32, wanted: [Option<u8>; 4]) {
    let place = TrimTest::new(users.len());
    let own = place.clone();
    let issuer = thread::spawn(move || own.issue(fails));
    let threads: Vec<_> = users
        .iter()
        .enumerate()
        .map(|(core, acts)| {
            let (place, acts) = (place.clone(), acts.to_vec());
            thread::spawn(move || place.user(core, &acts))
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().expect("E3: a user was served"));
    place.delete_queue.stop();
    issuer.join().expect("E5: the issuer ends");
    let media = *place.media.lock().expect("media");
    for (block, wanted) in wanted.into_iter().enumerate() {
        if let Some(wanted) = wanted {
            assert_eq!(media[block], wanted, "block {block} of {media:?}");
        }
    }
    for block in 0..4u64 {
        let fill = place.delete_queue.fill();
        assert!(
            place.delete_queue.near(&(block..block + 1)) || fill.queued.1 + fill.stale.1 < 4,
            "E1"
        );
    }
}

/// E2 of trim/queue.rs.
#[test]
fn a_write_after_a_delete_is_kept_while_the_issuer_runs() {
    everything("delete, write", 5, 1_000, || {
        scene(&[&[Delete(0..4), Write(1..3, 7)]], 0, [None, Some(7), Some(7), None]);
    });
}

#[test]
fn the_last_write_is_kept_when_blocks_are_deleted_and_written_twice() {
    everything("delete, write, delete, write", 3, 1_000, || {
        let acts = [Delete(0..4), Write(1..2, 7), Delete(0..2), Write(0..4, 8)];
        scene(&[&acts], 0, [Some(8); 4]);
    });
}

/// E3 of trim/queue.rs.
#[test]
fn a_failed_command_is_not_repeated_over_a_waiting_write() {
    everything("delete, write, a command fails", 4, 1_000, || {
        scene(&[&[Delete(0..4), Write(1..3, 7)]], 1, [None, Some(7), Some(7), None]);
    });
}

#[test]
fn writes_of_two_users_are_kept_when_their_deletes_merge() {
    everything("two users", 2, 1_000, || {
        let one = [Delete(0..2), Write(1..2, 7)];
        let two = [Delete(2..4), Write(2..3, 9)];
        scene(&[&one, &two], 0, [None, Some(7), Some(9), None]);
    });
}

/// E4: the queue is shut beside a user: it waits for deletes in flight, and sends none afterwards.
#[test]
fn e4_shutting_the_queue_waits_for_deletes_in_flight_and_sends_no_more() {
    everything("shut", 3, 500, || {
        let place = TrimTest::new(1);
        let (own, user) = (place.clone(), place.clone());
        let issuer = thread::spawn(move || own.issue(0));
        let user = thread::spawn(move || user.user(0, &[Delete(0..4), Write(1..3, 7)]));
        let flies = place.delete_queue.set_open(false);
        user.join().expect("a user");
        place.delete_queue.stop();
        issuer.join().expect("the issuer");
        assert_eq!(place.delete_queue.drained(), flies, "drained is said once, if anything flew");
        let (media, fill) = (*place.media.lock().expect("media"), place.delete_queue.fill());
        assert_eq!(media[1..3], [7, 7]);
        assert_eq!((fill.queued.0, fill.in_flight.0), (0, 0));
    });
}
