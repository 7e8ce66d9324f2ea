//! Tests of the write gate with several threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;

use bio::Ticket;
use bio::sync::Mutex;

use super::write_gate::{GateEntry, GateNotice, WriteGate};

fn ticket(n: u32) -> Ticket {
    Ticket::from_words(n, u64::from(n))
}

struct Message {
    gate: WriteGate,
    words: Arc<Mutex<Vec<GateNotice>>>,
    woken: Arc<Mutex<Vec<(usize, Ticket)>>>,
}

fn gate(cores: usize) -> Message {
    let (words, woken) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<Mutex<Vec<_>>>::default());
    let (w, r) = (words.clone(), woken.clone());
    let gate = WriteGate::new(
        cores,
        move |word| w.lock().push(word),
        move |core, ticket| r.lock().push((core, ticket)),
    );
    Message { gate, words, woken }
}

impl Message {
    fn words(&self) -> Vec<GateNotice> {
        std::mem::take(&mut *self.words.lock())
    }

    fn woken(&self) -> Vec<(usize, Ticket)> {
        std::mem::take(&mut *self.woken.lock())
    }
}

#[test]
fn first_waiting_write_notifies_the_geom_and_open_wakes_all() {
    let t = gate(2);
    assert_eq!(t.gate.enter(0, || ticket(1)), GateEntry::Wait);
    assert_eq!(t.gate.enter(1, || ticket(2)), GateEntry::Wait);
    assert_eq!(t.words(), [GateNotice::WriteWaiting], "once");
    assert!(!t.gate.is_open());
    t.gate.open();
    assert_eq!(t.woken(), [(0, ticket(1)), (1, ticket(2))], "in order of arrival");
    assert_eq!(t.gate.enter(0, || panic!("no ticket is needed")), GateEntry::Pass);
    assert_eq!(t.gate.inside(), 1);
}

#[test]
fn shut_reports_drained_when_the_last_write_leaves() {
    let t = gate(2);
    t.gate.open();
    assert_eq!(t.gate.enter(0, || ticket(1)), GateEntry::Pass);
    assert_eq!(t.gate.enter(1, || ticket(2)), GateEntry::Pass);
    t.gate.shut();
    assert_eq!(t.gate.enter(1, || ticket(3)), GateEntry::Wait);
    assert_eq!(t.words(), [GateNotice::WriteWaiting]);
    t.gate.leave(0);
    assert!(t.words().is_empty());
    t.gate.leave(1);
    assert_eq!(t.words(), [GateNotice::Drained]);
    t.gate.shut();
    assert!(t.words().is_empty(), "it was shut already");
    t.gate.open();
    t.gate.shut();
    assert_eq!(t.words(), [GateNotice::Drained], "nobody was inside");
}

#[test]
fn waiting_writes_are_evicted_when_the_geom_is_removed() {
    let t = gate(1);
    assert_eq!(t.gate.enter(0, || ticket(7)), GateEntry::Wait);
    assert_eq!(t.gate.close(), [(0, ticket(7))]);
    t.gate.open();
    assert!(t.woken().is_empty());
}

/// Threads that write, and one that shuts and opens: no write is inside while the gate is shut and
/// drained.
#[test]
fn no_write_is_inside_between_drained_and_open() {
    const WRITERS: usize = 3;
    let (drained, inside) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let woken = Arc::new(Mutex::new(Vec::<usize>::new()));
    let (d, w) = (drained.clone(), woken.clone());
    let gate = Arc::new(WriteGate::new(
        WRITERS,
        move |word| {
            if word == GateNotice::Drained {
                d.store(true, SeqCst);
            }
        },
        move |core, _| w.lock().push(core),
    ));
    let stop = Arc::new(AtomicBool::new(false));
    let passed = Arc::new(AtomicU32::new(0));
    let writers: Vec<_> = (0..WRITERS)
        .map(|core| {
            let (gate, inside, stop) = (gate.clone(), inside.clone(), stop.clone());
            let (woken, passed) = (woken.clone(), passed.clone());
            thread::spawn(move || {
                while !stop.load(SeqCst) {
                    if gate.enter(core, || ticket(core as u32)) == GateEntry::Pass {
                        inside.fetch_add(1, SeqCst);
                        passed.fetch_add(1, SeqCst);
                        inside.fetch_sub(1, SeqCst);
                        gate.leave(core);
                        continue;
                    }
                    // It waits until it is woken, as a Bio would.
                    loop {
                        let mut all = woken.lock();
                        if let Some(at) = all.iter().position(|c| *c == core) {
                            all.swap_remove(at);
                            break;
                        }
                        drop(all);
                        if stop.load(SeqCst) {
                            return;
                        }
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    // A busy machine may leave every open gate without a writer: then there are more rounds.
    for round in 0..1_000_000 {
        if round >= 300 && passed.load(SeqCst) > 0 {
            break;
        }
        drained.store(false, SeqCst);
        gate.open();
        thread::yield_now();
        gate.shut();
        while !drained.load(SeqCst) {
            thread::yield_now();
        }
        // A write that is being restarted counts itself for a moment, so the gate's own sum proves
        // nothing.
        assert_eq!(inside.load(SeqCst), 0, "somebody was inside a shut gate");
    }
    stop.store(true, SeqCst);
    writers.into_iter().for_each(|w| w.join().expect("a writer"));
    assert!(passed.load(SeqCst) > 0);
}
