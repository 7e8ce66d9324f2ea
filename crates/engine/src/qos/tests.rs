//! The queue of a unit over random arrivals, ends and losses, checked against the invariants.

use super::*;
use crate::unit::kind::UnitKind;
use crate::unit::spec::DeviceSpec;
use geom::Edge;
use reactor::SeededRandom;
use std::collections::{BTreeSet, VecDeque};
use testkit::Seeds;

const POWER: u32 = 16;
const CLIENTS: usize = 5;

/// A request that waits or is below: seat, number, cost.
type Known = (usize, u64, u32);

struct Harness {
    flow: Rc<Flow>,
    clients: Vec<Rc<QosClient>>,
    below: Vec<Known>,
    /// By seat, in the order in which they have to start.
    waiting: Vec<VecDeque<(u64, u32)>>,
    /// Those of HEAD OF QUEUE; never so many in a row that the rest would have to be between.
    heads: BTreeSet<u64>,
    number: u64,
    /// Cost of the requests that each seat has sent.
    sent: Vec<u64>,
    largest: Vec<u64>,
    /// Costs sent by two seats at the time when both had begun to have requests waiting all the
    /// time.
    since: Vec<Vec<Option<(u64, u64)>>>,
}

impl Harness {
    fn new(limit: u32) -> Harness {
        let spec = DeviceSpec::new("d", "s", Edge(0), 1 << 20, 512);
        let device = Arc::new(Device::new(1, spec, UnitKind::Disk, Arc::default()));
        let flow = Rc::new(Flow::new(&device));
        flow.limit.set(limit);
        flow.power.set(POWER);
        // The limit is the test's.
        flow.next_report_ns.set(u64::MAX);
        Harness {
            clients: (0..CLIENTS).map(|_| QosClient::new(flow.clone())).collect(),
            flow,
            below: Vec::new(),
            waiting: vec![VecDeque::new(); CLIENTS],
            heads: BTreeSet::new(),
            number: 0,
            sent: vec![0; CLIENTS],
            largest: vec![0; CLIENTS],
            since: vec![vec![None; CLIENTS]; CLIENTS],
        }
    }

    fn dispatched(&mut self, known: Known) {
        self.sent[known.0] += u64::from(known.2);
        self.largest[known.0] = self.largest[known.0].max(u64::from(known.2));
        self.below.push(known);
    }

    /// A request arrives; true when it did not wait.
    fn arrive(&mut self, seat: usize, bytes: u64, head: bool) -> bool {
        self.number += 1;
        let (me, number) = (self.clients[seat].clone(), self.number);
        if let Some(cost) = self.flow.enter(&me, false, bytes) {
            self.dispatched((seat, number, cost));
            return true;
        }
        self.flow.queue(&me, Waiter::Command(seat as u64, number), bytes, head);
        let entry = (number, cost(bytes, POWER));
        let line = &mut self.waiting[seat];
        let at = match head {
            true => line.iter().take_while(|w| self.heads.contains(&w.0)).count(),
            false => line.len(),
        };
        line.insert(at, entry);
        if head {
            self.heads.insert(number);
        }
        false
    }

    fn pump(&mut self) {
        while let Some((_, waiter, cost)) = self.flow.next() {
            let Waiter::Command(seat, number) = waiter else { panic!("a task") };
            let first = self.waiting[seat as usize].pop_front();
            assert_eq!(first, Some((number, cost)), "L4: the order of a seat");
            self.dispatched((seat as usize, number, cost));
            self.compare();
        }
    }

    fn end(&mut self, at: usize) {
        let (seat, _, cost) = self.below.swap_remove(at);
        self.flow.leave(&self.clients[seat].clone(), cost, None, 0);
        self.pump();
    }

    fn lose(&mut self, seat: usize, at: usize) {
        let Some((number, _)) = self.waiting[seat].remove(at) else { return };
        let it = |w: &Waiter| matches!(w, Waiter::Command(_, n) if *n == number);
        assert!(self.flow.forget(&self.clients[seat], it));
        assert!(!self.flow.forget(&self.clients[seat], it), "once");
        self.pump();
    }

    /// L2.
    fn compare(&mut self) {
        for a in 0..CLIENTS {
            for b in 0..a {
                if self.waiting[a].is_empty() || self.waiting[b].is_empty() {
                    self.since[a][b] = None;
                    continue;
                }
                let now = (self.sent[a], self.sent[b]);
                let from = *self.since[a][b].get_or_insert(now);
                let apart = (now.0 - from.0).abs_diff(now.1 - from.1);
                let most = self.largest[a].max(256 * 3) + self.largest[b].max(256 * 3);
                assert!(apart <= most, "L2: {apart} of {most}");
            }
        }
    }

    fn check(&mut self) {
        self.compare();
        let below: u64 = self.below.iter().map(|b| u64::from(b.2)).sum();
        assert_eq!(u64::from(self.flow.below.get()), below);
        let waiting: usize = self.waiting.iter().map(VecDeque::len).sum();
        assert_eq!(self.flow.waiting.get() as usize, waiting);
        let busy = |n: &usize| !self.waiting[*n].is_empty() || self.below.iter().any(|b| b.0 == *n);
        assert_eq!(self.flow.active.get() as usize, (0..CLIENTS).filter(busy).count());
        if waiting > 0 {
            assert!(below > 0, "L1");
            let largest = self.waiting.iter().flatten().map(|w| u64::from(w.1)).max();
            let limit = u64::from(self.flow.limit.get());
            assert!(below + largest.unwrap_or(0) / 2 >= limit, "L4: {below} of {limit}");
        }
    }
}

/// L2 of qos/mod.rs, L3 of qos/mod.rs, L4 of qos/mod.rs.
#[test]
fn l1_to_l4_hold_under_random_arrivals_and_completions() {
    for seed in Seeds::of(60) {
        let mut random = SeededRandom::new(seed);
        let limit = UNIT * (1 + random.below(40) as u32);
        let mut line = Harness::new(limit);
        let sizes: Vec<u64> = (0..CLIENTS).map(|_| 4096 << random.below(6)).collect();
        for _ in 0..3000 {
            match random.below(9) {
                0..=4 => {
                    let seat = random.below(CLIENTS as u64) as usize;
                    let idle = line.waiting[seat].is_empty()
                        && line.below.iter().all(|b| b.0 != seat)
                        && line.clients[seat].virtual_time.get() <= line.flow.clock.get();
                    let share = limit / (line.flow.active.get() + 1);
                    if line.waiting[seat].len() < 50 {
                        let went = line.arrive(seat, sizes[seat], random.below(20) == 0);
                        assert!(went || !idle || share == 0, "L3, seed {seed}");
                    }
                }
                5..=7 if !line.below.is_empty() => {
                    let at = random.below(line.below.len() as u64) as usize;
                    line.end(at);
                }
                _ => {
                    let seat = random.below(CLIENTS as u64) as usize;
                    let many = line.waiting[seat].len() as u64;
                    if many > 0 && random.below(4) == 0 {
                        line.lose(seat, random.below(many) as usize);
                    }
                }
            }
            line.check();
        }
        while !line.below.is_empty() {
            line.end(0);
            line.check();
        }
        assert_eq!((line.flow.active.get(), line.flow.waiting.get()), (0, 0), "seed {seed}");
        assert!(line.flow.waiting_clients.borrow().is_empty());
    }
}

/// A seat that was idle or waited for an order has saved up no turns.
#[test]
fn an_idle_seat_accumulates_no_credit() {
    let mut line = Harness::new(2 * UNIT);
    // Two requests of seat 0 are always there, for a long while.
    for _ in 0..40 {
        line.arrive(0, 0, false);
    }
    for _ in 0..1000 {
        line.arrive(0, 0, false);
        line.end(0);
    }
    let before = line.sent[0];
    for _ in 0..100 {
        line.arrive(1, 0, false);
    }
    for _ in 0..60 {
        line.arrive(0, 0, false);
        line.end(0);
    }
    let (old, new) = (line.sent[0] - before, line.sent[1]);
    assert!(old.abs_diff(new) <= u64::from(3 * UNIT), "{old} {new}");
}
