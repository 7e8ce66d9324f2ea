//! The write gate: G1 to G5 in every order of writes and of the geom's operations on the gate.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use bio::Ticket;
use shuttle::thread::{self, JoinHandle};

use crate::write_gate::{GateEntry, GateNotice, WriteGate};
use crate::{Wakeup, everything};

/// A gate, writes on cores of their own, and the notifications that the geom received.
struct GateTest {
    gate: WriteGate,
    /// One a core: rung when its request is restarted.
    wakeups: Arc<Vec<Wakeup>>,
    drained: Arc<Wakeup>,
    notifications: Arc<AtomicU32>,
    /// From `Drained` to the next `open`: no write may be inside.
    closed: AtomicBool,
    inside: AtomicU32,
    evicted: Mutex<Vec<usize>>,
}

impl GateTest {
    fn new(cores: usize) -> Arc<GateTest> {
        let bells: Arc<Vec<Wakeup>> = Arc::new((0..cores).map(|_| Wakeup::default()).collect());
        let (drained, knocks) = (Arc::new(Wakeup::default()), Arc::new(AtomicU32::new(0)));
        let (b, d, k) = (bells.clone(), drained.clone(), knocks.clone());
        let tell = move |word| match word {
            GateNotice::Drained => d.ring(),
            GateNotice::WriteWaiting => drop(k.fetch_add(1, SeqCst)),
        };
        Arc::new(GateTest {
            gate: WriteGate::new(cores, tell, move |core, _| b[core].ring()),
            wakeups: bells,
            drained,
            notifications: knocks,
            closed: AtomicBool::new(false),
            inside: AtomicU32::new(0),
            evicted: Mutex::default(),
        })
    }

    /// One write: how often it had to wait. `None` when its geom was removed.
    fn write(&self, core: usize) -> Option<u32> {
        for waits in 0.. {
            let ticket = || Ticket::from_words(core as u32, core as u64);
            if self.gate.enter(core, ticket) == GateEntry::Pass {
                self.inside.fetch_add(1, SeqCst);
                assert!(!self.closed.load(SeqCst), "inside a gate that said drained");
                thread::yield_now();
                assert!(!self.closed.load(SeqCst), "drained was said with a write inside");
                self.inside.fetch_sub(1, SeqCst);
                self.gate.leave(core);
                return Some(waits);
            }
            self.wakeups[core].wait();
            if self.evicted.lock().expect("list").contains(&core) {
                return None;
            }
            assert!(waits < 4, "restarted for nothing, again and again");
        }
        None
    }

    fn writers(self: &Arc<GateTest>, cores: usize) -> Vec<JoinHandle<Option<u32>>> {
        let writer = |core| {
            let place = self.clone();
            thread::spawn(move || place.write(core))
        };
        (0..cores).map(writer).collect()
    }

    /// Shuts, waits until it is empty, and opens again.
    fn shut_and_open(&self) {
        self.gate.shut();
        self.drained.wait();
        assert_eq!(self.inside.load(SeqCst), 0, "G2");
        self.closed.store(true, SeqCst);
        thread::yield_now();
        self.closed.store(false, SeqCst);
        self.gate.open();
    }
}

fn shut_between_writes(cores: usize) {
    let place = GateTest::new(cores);
    place.gate.open();
    let writers = place.writers(cores);
    place.shut_and_open();
    let waits: u32 = writers.into_iter().map(|w| w.join().expect("a write").expect("G3")).sum();
    let knocks = place.notifications.load(SeqCst);
    assert_eq!(knocks, waits.min(1), "G4: one knock a shut, if anybody waited");
}

#[test]
fn g1_to_g4_hold_when_the_gate_shuts_during_a_write() {
    everything("write, shut, open", 6, 5_000, || shut_between_writes(1));
}

#[test]
fn g1_to_g4_hold_when_the_gate_shuts_during_three_writes() {
    everything("three writes, shut, open", 1, 5_000, || shut_between_writes(3));
}

/// A gate that is shut at first: as a mirror's before its first write.
fn first_writes(cores: usize) {
    let place = GateTest::new(cores);
    let writers = place.writers(cores);
    place.gate.open();
    for writer in writers {
        assert!(writer.join().expect("a write").is_some(), "G3");
    }
    assert!(place.notifications.load(SeqCst) <= 1, "G4");
}

#[test]
fn g3_a_write_that_arrives_as_the_gate_opens_is_admitted() {
    everything("write, open", 8, 100, || first_writes(1));
}

#[test]
fn g3_two_writes_that_arrive_as_the_gate_opens_are_admitted() {
    everything("two writes, open", 3, 10_000, || first_writes(2));
}

/// Two that leave a shut gate at once.
#[test]
fn g2_drained_is_sent_when_two_writes_leave_at_once() {
    everything("two leave", 4, 5_000, || {
        let place = GateTest::new(2);
        place.gate.open();
        for core in 0..2 {
            assert_eq!(place.gate.enter(core, || unreachable!("it is open")), GateEntry::Pass);
        }
        place.gate.shut();
        let leave = |core| {
            let place = place.clone();
            thread::spawn(move || place.gate.leave(core))
        };
        let both = [leave(0), leave(1)];
        place.drained.wait();
        both.into_iter().for_each(|t| t.join().expect("a write"));
    });
}

/// G5: a geom is removed while a write arrives; the write does not wait for ever.
#[test]
fn g5_no_write_waits_at_the_gate_of_a_removed_geom() {
    everything("write, evict", 8, 60, || {
        let place = GateTest::new(1);
        let (comes, gone) = (place.clone(), Arc::new(AtomicBool::new(false)));
        let is_gone = gone.clone();
        let writer = thread::spawn(move || {
            let ticket = || Ticket::from_words(1, 1);
            assert_eq!(comes.gate.enter(0, ticket), GateEntry::Wait, "it was never open");
            comes.wakeups[0].wait();
            assert!(is_gone.load(SeqCst), "woken for nothing");
        });
        gone.store(true, SeqCst);
        for (core, _) in place.gate.close() {
            place.wakeups[core].ring();
        }
        writer.join().expect("a write");
    });
}

/// G4: writes that are sent back enter again and are admitted.
#[test]
fn g4_a_write_that_is_sent_back_enters_again() {
    everything("write, turn away, open", 6, 500, || {
        let place = GateTest::new(1);
        let writers = place.writers(1);
        place.gate.restart_waiting();
        place.gate.open();
        for writer in writers {
            let waits = writer.join().expect("a write").expect("G3");
            assert_eq!(place.notifications.load(SeqCst), waits, "G4");
        }
    });
}
