//! Tests of the hub alone: states, fences, overlaps, core slots; and random tests with a small
//! model.

use std::sync::Arc;

use bio::{BioId, Origin, Ticket};
use testkit::Seeds;

use super::clients::Classify;
use super::queue::{Arrival, DiskQueue, Dispatch, algorithm};

fn disk_queue(name: &str, options: &[(&str, u64)], cores: usize) -> DiskQueue {
    let options: Vec<(String, u64)> = options.iter().map(|(k, v)| (k.to_string(), *v)).collect();
    DiskQueue::new(
        algorithm(name, &options).expect("an algorithm"),
        Classify::Session,
        (cores, Arc::default()),
    )
}

fn arrival(tag: u64, core: usize, offset: u64) -> Arrival {
    Arrival {
        core,
        ticket: Ticket::from_words(1, tag),
        dispatch: Dispatch::Queue,
        origin: Origin(core as u32 + 1),
        write: true,
        offset,
        length: 4096,
        cost: 4096,
    }
}

/// Takes one in as a layer does; whether it starts at once.
fn arrive(hub: &mut DiskQueue, a: Arrival, now: u64) -> (u32, bool) {
    let came = hub.arrive(a, now).expect("a core of ours");
    hub.check();
    came
}

/// Q2 of sched/mod.rs.
#[test]
fn no_request_passes_a_fence_in_either_direction() {
    let mut hub = disk_queue("fifo", &[("queue_depth", 1)], 1);
    let (first, goes) = arrive(&mut hub, arrival(1, 0, 0), 0);
    assert!(goes);
    let (_, goes) = arrive(&mut hub, arrival(2, 0, 1 << 20), 0);
    assert!(!goes, "the disk is full");
    let (fence, goes) =
        arrive(&mut hub, Arrival { dispatch: Dispatch::Fence, ..arrival(3, 0, 0) }, 0);
    assert!(!goes && !hub.is_unfenced());
    let (_, goes) = arrive(&mut hub, Arrival { dispatch: Dispatch::Direct, ..arrival(4, 0, 0) }, 0);
    assert!(!goes, "not past the fence");
    hub.ended(first, (0, 4096), 0, 1);
    let (called, ticket) = hub.call(0).expect("the second");
    assert_eq!(ticket.id().to_word(), 2);
    assert!(hub.call(0).is_none(), "the fence waits until it has gone down");
    assert_eq!(hub.take_called(BioId::from_word(2), 0, 1), Some(called));
    let (id, ticket) = hub.call(0).expect("the fence");
    assert_eq!((id, ticket.id().to_word()), (fence, 3));
    assert!(hub.call(0).is_none());
    hub.take_called(BioId::from_word(3), 0, 1);
    assert_eq!(hub.call(0).map(|(_, t)| t.id().to_word()), Some(4));
    assert!(hub.is_unfenced());
    hub.check();
}

#[test]
fn q4_overlapping_requests_keep_their_order_in_every_algorithm() {
    for name in ["rr", "as", "deadline"] {
        let mut hub = disk_queue(name, &[], 1);
        let (first, goes) = arrive(&mut hub, arrival(1, 0, 1 << 30), 0);
        assert!(goes);
        // Backwards, so that the order of the disk is the other one.
        arrive(&mut hub, arrival(2, 0, 8192), 0);
        arrive(&mut hub, arrival(3, 0, 4096 + 2048), 0);
        arrive(&mut hub, Arrival { length: 8192, ..arrival(4, 0, 0) }, 0);
        let (mut id, mut order) = (first, Vec::new());
        loop {
            hub.ended(id, (0, 0), 0, 1);
            hub.check();
            let Some((next, ticket)) = hub.call(0) else { break };
            order.push(ticket.id().to_word());
            hub.take_called(ticket.id(), 0, 1);
            id = next;
        }
        assert_eq!(order, [2, 3, 4], "{name}");
    }
}

#[test]
fn requests_of_another_core_stay_in_its_lane_and_wake_it() {
    struct Rung;
    impl std::task::Wake for Rung {
        fn wake(self: std::sync::Arc<Self>) {}
    }
    let mut hub = disk_queue("fifo", &[("queue_depth", 1)], 2);
    let waker = std::task::Waker::from(std::sync::Arc::new(Rung));
    assert!(!hub.poll_signal(1, &waker));
    let (first, _) = arrive(&mut hub, arrival(1, 0, 0), 0);
    arrive(&mut hub, arrival(2, 1, 1 << 20), 0);
    assert!(hub.next_waker().is_none());
    hub.ended(first, (0, 0), 0, 1);
    assert!(hub.next_waker().is_some() && hub.next_waker().is_none(), "once");
    assert!(hub.poll_signal(1, &waker) && hub.call(0).is_none());
    assert_eq!(hub.call(1).map(|(_, t)| t.id().to_word()), Some(2));
}

/// Q5 of sched/mod.rs.
#[test]
fn anticipation_timer_runs_on_the_core_that_asked_and_expires() {
    let mut hub = disk_queue("rr", &[], 2);
    let (first, _) = arrive(&mut hub, arrival(1, 0, 0), 0);
    arrive(&mut hub, arrival(2, 1, 1 << 30), 0);
    hub.ended(first, (0, 0), 0, 1000);
    let due = hub.poll_core(0, 1000).expect("core 0 asked");
    assert_eq!(hub.poll_core(1, 1000), None);
    assert_eq!(hub.poll_core(0, due), None);
    assert_eq!(hub.call(1).map(|(_, t)| t.id().to_word()), Some(2));
}

/// A small generator of chance (splitmix64).
struct Seed(u64);

impl Seed {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// A request that arrived, in order, and whether it has been sent down.
struct Sent {
    arrival: Arrival,
    down: bool,
}

/// Rules for a request: it passes neither a fence of its own core nor an overlapping request of any
/// core.
fn may_go(sent: &[Sent], at: usize) -> bool {
    let me = &sent[at].arrival;
    sent[..at].iter().filter(|s| !s.down).all(|s| {
        let other = &s.arrival;
        let fenced = other.dispatch == Dispatch::Fence || me.dispatch == Dispatch::Fence;
        let queued = other.dispatch == Dispatch::Queue && me.dispatch == Dispatch::Queue;
        let overlap =
            other.offset < me.offset + me.length && me.offset < other.offset + other.length;
        !(fenced && other.core == me.core) && !(queued && overlap && (other.write || me.write))
    })
}

fn run_seed(seed: u64) {
    let mut chance = Seed(seed);
    let names = super::algorithms::NAMES;
    let cores = 1 + chance.below(3) as usize;
    let mut hub = disk_queue(names[chance.below(5) as usize], &[], cores);
    let (mut sent, mut below, mut now) = (Vec::<Sent>::new(), Vec::<u32>::new(), 0u64);
    let mut called: Vec<Vec<u64>> = vec![Vec::new(); cores];
    let down = |sent: &mut Vec<Sent>, tag: usize| {
        assert!(may_go(sent, tag), "seed {seed}: {tag} passes somebody");
        assert!(!std::mem::replace(&mut sent[tag].down, true), "seed {seed}: {tag} goes twice");
    };
    for step in 0.. {
        now += chance.below(2_000_000);
        let core = chance.below(cores as u64) as usize;
        match chance.below(12) {
            0..=3 if step < 300 => {
                let tag = sent.len();
                let manner = match chance.below(16) {
                    0 => Dispatch::Fence,
                    1 if !hub.is_unfenced() => Dispatch::Direct,
                    _ => Dispatch::Queue,
                };
                let (offset, length) = (chance.below(64) * 65536, (1 + chance.below(64)) * 4096);
                let write = chance.below(2) == 0;
                let origin = Origin(chance.below(5) as u32);
                let a = Arrival {
                    dispatch: manner,
                    offset,
                    length,
                    write,
                    origin,
                    ..arrival(0, core, 0)
                };
                let a = Arrival { ticket: Ticket::from_words(1, tag as u64), ..a };
                sent.push(Sent { arrival: a, down: false });
                let (id, goes) = arrive(&mut hub, a, now);
                if goes {
                    down(&mut sent, tag);
                    below.push(id);
                }
            }
            4 if step < 300 => {
                let new = algorithm(names[chance.below(5) as usize], &[]).expect("one of the list");
                hub.change(new, now);
            }
            5 => hub.set_draining(chance.below(2) == 0),
            6 | 7 => {
                if let Some((_, ticket)) = hub.call(core) {
                    called[core].push(ticket.id().to_word());
                }
            }
            8 | 9 if !called[core].is_empty() => {
                let tag = called[core].remove(0);
                down(&mut sent, tag as usize);
                below.push(
                    hub.take_called(BioId::from_word(tag), core, now).expect("it was called"),
                );
            }
            10 if !below.is_empty() => {
                let at = chance.below(below.len() as u64) as usize;
                hub.ended(below.swap_remove(at), (1, 0), core, now);
            }
            _ => drop(hub.poll_core(core, now)),
        }
        hub.check();
        if step > 300 && sent.iter().all(|s| s.down) && below.is_empty() {
            let standing = hub.counts();
            assert_eq!((standing.waiting, standing.in_flight, standing.fenced), (0, 0, 0));
            assert_eq!(hub.clients.sum().requests, sent.len() as u64, "seed {seed}");
            return;
        }
        assert!(step < 100_000, "seed {seed}: somebody waits for ever");
    }
}

/// Q1 of sched/mod.rs.
#[test]
fn random_requests_are_sent_once_and_in_a_permitted_order() {
    Seeds::of(1000).each(run_seed);
}
