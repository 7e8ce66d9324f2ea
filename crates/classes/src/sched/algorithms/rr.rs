//! Round-robin scheduler over clients, with anticipation.
//!
//! Every client has a queue of its own, ordered by offset. The active client is served until its
//! turn is over: a number of bytes, or a time since its first request ended. If its queue runs
//! empty before, the disk waits a little for its next request even while others wait. A sequential
//! reader sends its next request at once, and two seeks cost more than the wait. The disk does not
//! wait for a client whose usual think time is longer than that.
//!
//! A client with random requests gains nothing from a wait. But if its turn ended with each of its
//! requests, it would get one request for each eight megabytes of a reader. Random clients
//! therefore share a turn: while one thinks, the next has the disk, and each adds its time to the
//! turn. If none of them has a request, the disk waits for a time that is short compared with one
//! request.
//!
//! ```text
//!   none --first of the ring--> serving --nothing waits, one in the disk--> busy
//!     ^                          |  ^ ^                                       | it ended
//!     |    turn over             |  | +--------- its next request ----------- idling
//!     |                          |  +--- it jumps, and one waits that does too ---|
//!     +--------------------------+---- not worth a wait, or waited long enough ---+
//! ```

use std::collections::VecDeque;

use super::elevator::Elevator;
use super::{Algorithm, Kind, Knob, Knobs, Request, Share, Step};

const KNOBS: &[Knob] = &[
    Knob { name: "queue_depth", min: 1, default: 1, max: 50, doc: "requests in the disk at once" },
    Knob { name: "wait_ms", min: 1, default: 10, max: 30, doc: "ms to wait for the next request" },
    Knob { name: "quantum_ms", min: 1, default: 100, max: 500, doc: "ms of a turn" },
    Knob { name: "quantum_kb", min: 16, default: 8192, max: 65536, doc: "KiB of a turn" },
    Knob { name: "w_anticipate", min: 0, default: 1, max: 1, doc: "wait after writes too" },
];
const QUEUE_DEPTH: usize = 0;
const WAIT: usize = 1;
const QUANTUM_TIME: usize = 2;
const QUANTUM_BYTES: usize = 3;
const AFTER_WRITES: usize = 4;

/// A client whose requests lie farther apart than this, on average, jumps, bytes.
const NEAR: u64 = 8192;
/// A jump counts as no more than this, so that one jump in eight still is near, bytes.
const JUMP_MAX: u64 = 65536;
/// A pause counts as no more than so many waits.
const PAUSES_MAX: u64 = 8;
/// A client that jumps is waited for so small a part of what its requests take in the disk. If it
/// does not follow, no more of the disk's time is lost.
const MOMENT: u64 = 8;
/// Upper limit of a shared turn of random clients, in turns. Without it a reader beside very many
/// of them would be starved for a long time.
const SHARED_MAX: u64 = 4;
/// Samples before an average is believed.
const SAMPLES: u32 = 8;

pub(super) const KIND: Kind = Kind {
    name: "rr",
    doc: "round robin among clients, with anticipation",
    knobs: KNOBS,
    shares: true,
    make: |knobs| Box::new(RoundRobin::new(knobs)),
};

/// A running average: each sample counts an eighth.
#[derive(Clone, Copy, Default)]
struct Average {
    /// Eight times the average.
    sum: u64,
    samples: u32,
}

impl Average {
    fn add(&mut self, sample: u64) {
        self.samples = self.samples.saturating_add(1);
        self.sum = match self.samples {
            1 => sample.saturating_mul(8),
            _ => self.sum.saturating_sub(self.sum / 8).saturating_add(sample),
        };
    }

    fn mean(&self) -> Option<u64> {
        (self.samples >= SAMPLES).then_some(self.sum / 8)
    }

    fn is_more_than(&self, limit: u64) -> bool {
        self.mean().is_some_and(|mean| mean > limit)
    }
}

#[derive(Default)]
struct Queue {
    waiting: Elevator,
    /// It is in the ring.
    listed: bool,
    in_disk: u32,
    /// Where its newest request ended, bytes; None before the first.
    last_end: Option<u64>,
    last_write: bool,
    last_done_ns: Option<u64>,
    think_time: Average,
    seek_distance: Average,
    /// When its newest request was sent to the disk, and how long they take there.
    started_ns: u64,
    service_time: Average,
    /// The number of the newest turn that it had or shared.
    slice_number: u64,
}

impl Queue {
    fn seeks(&self) -> bool {
        self.seek_distance.is_more_than(NEAR)
    }
}

struct TimeSlice {
    client: u16,
    /// Whose time it is made of.
    shares: u64,
    bytes: u64,
    /// When its first request ended.
    since_ns: Option<u64>,
}

struct RoundRobin {
    knobs: Knobs,
    queues: Vec<Queue>,
    ring: VecDeque<u16>,
    slice: Option<TimeSlice>,
    in_flight: u32,
    slices: u64,
    hits: u64,
    misses: u64,
    /// The active client is being waited for.
    idling: bool,
}

impl RoundRobin {
    fn new(knobs: Knobs) -> RoundRobin {
        RoundRobin {
            knobs,
            queues: Vec::new(),
            ring: VecDeque::new(),
            slice: None,
            in_flight: 0,
            slices: 0,
            hits: 0,
            misses: 0,
            idling: false,
        }
    }

    fn queue(&mut self, client: u16) -> &mut Queue {
        let at = usize::from(client);
        if self.queues.len() <= at {
            self.queues.resize_with(at + 1, Queue::default);
        }
        // There is one: it was made.
        &mut self.queues[at]
    }

    fn is_over(&self, turn: &TimeSlice, now: u64) -> bool {
        let time = self.knobs.ns(QUANTUM_TIME).saturating_mul(turn.shares);
        let bytes = self.knobs.kib(QUANTUM_BYTES).saturating_mul(turn.shares);
        let late = |since: u64| now.saturating_sub(since) >= time;
        turn.bytes >= bytes || turn.since_ns.is_some_and(late)
    }

    /// Until when the active client, of which nothing waits, is worth waiting for.
    fn idle_until(&self, client: u16, now: u64) -> Option<u64> {
        let queue = self.queues.get(usize::from(client))?;
        let wait = match queue.seeks() {
            true => self.knobs.ns(WAIT).min(queue.service_time.mean()? / MOMENT),
            false => self.knobs.ns(WAIT),
        };
        let thinks = queue.think_time.is_more_than(wait);
        let writes = queue.last_write && self.knobs.get(AFTER_WRITES) == 0;
        let until = queue.last_done_ns?.saturating_add(wait);
        (!thinks && !writes && now < until).then_some(until)
    }

    /// Of a turn of one that jumps: another that does continues with it. False when none waits.
    fn share(&mut self) -> bool {
        let jumps = |c: &u16| self.queues.get(usize::from(*c)).is_some_and(Queue::seeks);
        let Some(at) = self.ring.iter().position(jumps) else { return false };
        let (Some(client), turns) = (self.ring.remove(at), self.slices) else { return false };
        let queue = self.queue(client);
        queue.listed = false;
        let joins = std::mem::replace(&mut queue.slice_number, turns) != turns;
        self.idling = false;
        if let Some(turn) = &mut self.slice {
            turn.client = client;
            turn.shares = (turn.shares + u64::from(joins)).min(SHARED_MAX);
        }
        true
    }

    fn end_slice(&mut self) {
        self.idling = false;
        let Some(TimeSlice { client, .. }) = self.slice.take() else { return };
        let queue = self.queue(client);
        if !queue.waiting.is_empty() {
            queue.listed = true;
            self.ring.push_back(client);
        }
    }

    fn begin(&mut self) -> bool {
        let Some(client) = self.ring.pop_front() else { return false };
        self.slices += 1;
        let turns = self.slices;
        let queue = self.queue(client);
        (queue.listed, queue.slice_number) = (false, turns);
        self.slice = Some(TimeSlice { client, shares: 1, bytes: 0, since_ns: None });
        true
    }
}

impl Algorithm for RoundRobin {
    fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    fn knobs_mut(&mut self) -> &mut Knobs {
        &mut self.knobs
    }

    fn client(&mut self, client: u16, _: Share, is_new: bool) {
        if is_new {
            let queue = self.queue(client);
            (queue.last_end, queue.last_done_ns) = (None, None);
            (queue.think_time, queue.seek_distance) = (Average::default(), Average::default());
            queue.service_time = Average::default();
        }
    }

    fn adopt(&mut self, in_flight: u32) {
        self.in_flight = in_flight;
    }

    fn arrived(&mut self, request: Request, now: u64) {
        let pause_max = self.knobs.ns(WAIT).saturating_mul(PAUSES_MAX);
        let active = self.slice.as_ref().is_some_and(|t| t.client == request.client);
        let queue = self.queue(request.client);
        if let (true, 0, Some(done)) = (queue.waiting.is_empty(), queue.in_disk, queue.last_done_ns)
        {
            queue.think_time.add(now.saturating_sub(done).min(pause_max));
        }
        if let Some(end) = queue.last_end {
            queue.seek_distance.add(end.abs_diff(request.offset).min(JUMP_MAX));
        }
        queue.last_end = Some(request.end());
        queue.waiting.push(request);
        if !active && !queue.listed {
            queue.listed = true;
            self.ring.push_back(request.client);
        }
        if active && std::mem::take(&mut self.idling) {
            self.hits += 1;
        }
    }

    fn next(&mut self, now: u64, hurry: bool) -> Step {
        if u64::from(self.in_flight) >= self.knobs.get(QUEUE_DEPTH) {
            return Step::Nothing;
        }
        loop {
            let Some(turn) = &self.slice else {
                if self.begin() {
                    continue;
                }
                return Step::Nothing;
            };
            let client = turn.client;
            if self.is_over(turn, now) {
                self.end_slice();
                continue;
            }
            let queue = self.queue(client);
            let (in_disk, jumps) = (queue.in_disk, queue.seeks());
            if let Some(request) = queue.waiting.pop() {
                queue.in_disk += 1;
                queue.started_ns = now;
                queue.last_write = request.write;
                self.in_flight += 1;
                if let Some(turn) = &mut self.slice {
                    turn.bytes = turn.bytes.saturating_add(request.bytes);
                }
                return Step::Start(request.id);
            }
            if self.ring.is_empty() {
                // No other client: the turn continues.
                return Step::Nothing;
            }
            if in_disk > 0 && !hurry {
                return Step::Nothing;
            }
            if jumps && self.share() {
                continue;
            }
            match self.idle_until(client, now) {
                Some(until) if !hurry => {
                    self.idling = true;
                    return Step::Until(until);
                }
                _ => {
                    self.misses += u64::from(self.idling);
                    self.end_slice();
                }
            }
        }
    }

    fn ended(&mut self, request: &Request, now: u64) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let queue = self.queue(request.client);
        queue.in_disk = queue.in_disk.saturating_sub(1);
        queue.last_done_ns = Some(now);
        queue.service_time.add(now.saturating_sub(queue.started_ns));
        // The way to where a reader continues is not its time; for one that jumps it is all.
        let since = if queue.seeks() { queue.started_ns } else { now };
        if let Some(turn) = &mut self.slice
            && turn.client == request.client
            && turn.since_ns.is_none()
        {
            turn.since_ns = Some(since);
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("turns", self.slices), ("wait_hit", self.hits), ("wait_miss", self.misses)]
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{request, started};
    use super::*;
    use testkit::clock::MS;

    const K128: u64 = 128 << 10;

    fn rr() -> Box<dyn Algorithm> {
        super::super::make("rr").expect("it is there").1
    }

    /// One request of a sequential reader, from arrival to end.
    fn reads(a: &mut dyn Algorithm, id: u32, now: u64) {
        let r = request(id, 0, u64::from(id) * K128, K128);
        a.arrived(r, now);
        assert_eq!(a.next(now, false), Step::Start(id));
        a.ended(&r, now + MS);
    }

    #[test]
    fn reader_is_anticipated_while_another_client_waits() {
        let mut a = rr();
        reads(&mut *a, 0, 0);
        a.arrived(request(900, 1, 1 << 40, 4096), MS);
        assert_eq!(a.next(MS, false), Step::Until(11 * MS), "the wait has an end");
        reads(&mut *a, 1, 2 * MS);
        assert_eq!(a.next(3 * MS, false), Step::Until(13 * MS));
        assert_eq!(a.next(13 * MS, false), Step::Start(900), "it did not come");
        let counted = a.counters();
        assert!(counted.contains(&("wait_hit", 1)) && counted.contains(&("wait_miss", 1)));
    }

    #[test]
    fn slow_client_is_not_anticipated_and_a_random_one_briefly() {
        let until = |from: u64| Step::Until(from + MS / 8);
        for (jump, think, want) in [
            (1 << 30, MS / 10, until(20 * MS + 19 * MS / 10)),
            (1 << 30, MS, Step::Start(900)),
            (0, 20 * MS, Step::Start(900)),
        ] {
            let mut a = rr();
            let (mut now, mut at) = (0, 0);
            for id in 0..20 {
                let r = request(id, 0, at, 4096);
                a.arrived(r, now);
                assert_eq!(a.next(now, false), Step::Start(id));
                now += MS;
                a.ended(&r, now);
                now += if id < 19 { think } else { 0 };
                at = r.end() + jump;
            }
            a.arrived(request(900, 1, 0, 4096), now);
            assert_eq!(a.next(now, false), want, "{jump} {think}");
            if want != Step::Start(900) {
                assert_eq!(a.next(now + 10 * MS, false), Step::Start(900), "{jump} {think}");
            }
        }
    }

    #[test]
    fn a_turn_ends_by_bytes_and_by_time() {
        for (knob, value, turns) in [("quantum_kb", 512, 4), ("quantum_ms", 3, 4)] {
            let mut a = rr();
            a.knobs_mut().set(knob, value).expect("a knob");
            for id in 0..20 {
                a.arrived(request(id, 0, u64::from(id) * K128, K128), 0);
                a.arrived(request(100 + id, 1, (1 << 40) + u64::from(id) * K128, K128), 0);
            }
            let (mut now, mut order) = (0, Vec::new());
            while let Step::Start(id) = a.next(now, false) {
                let client = if id >= 100 { 1 } else { 0 };
                order.push(client);
                now += MS;
                a.ended(&request(id, client, 0, K128), now);
            }
            assert_eq!(order.len(), 40);
            let lengths: Vec<usize> = order.chunk_by(|a, b| a == b).map(<[u16]>::len).collect();
            assert!(lengths.iter().all(|n| *n == turns), "{knob}: {lengths:?}");
        }
    }

    #[test]
    fn sole_or_hurried_client_is_not_anticipated() {
        let mut a = rr();
        for id in 0..100 {
            reads(&mut *a, id, u64::from(id) * 2 * MS);
            assert_eq!(a.next(u64::from(id) * 2 * MS + MS, false), Step::Nothing);
        }
        a.arrived(request(900, 1, 1 << 40, 4096), 199 * MS);
        assert_eq!(a.next(199 * MS, true), Step::Start(900));
    }

    /// Q7 of sched/mod.rs.
    #[test]
    fn queue_depth_includes_requests_of_the_previous_algorithm() {
        let mut a = rr();
        a.knobs_mut().set("queue_depth", 3).expect("a depth");
        a.adopt(2);
        for id in 0..5 {
            a.arrived(request(id, 0, u64::from(id) << 20, 4096), 0);
        }
        assert_eq!(started(&mut *a, 0), [0]);
        a.ended(&request(700, 9, 0, 4096), 1);
        assert_eq!(started(&mut *a, 1), [1]);
    }
}
