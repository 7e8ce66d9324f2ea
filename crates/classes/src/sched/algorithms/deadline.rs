//! Deadline scheduler: by offset, reads before writes, with a maximum waiting time.
//!
//! Requests are sent in batches of one direction. A batch proceeds upwards from the position of the
//! head, or, when the oldest of its direction has waited longer than it may, from there. Reads are
//! first, but not more than `writes_starved` batches while writes wait.

use super::elevator::Elevator;
use super::{Algorithm, Kind, Knob, Knobs, Request, Step};

const KNOBS: &[Knob] = &[
    Knob { name: "queue_depth", min: 1, default: 1, max: 256, doc: "requests in the disk at once" },
    Knob {
        name: "read_expire_ms",
        min: 1,
        default: 500,
        max: 60_000,
        doc: "ms after which a read precedes all others",
    },
    Knob {
        name: "write_expire_ms",
        min: 1,
        default: 5_000,
        max: 600_000,
        doc: "ms after which a write precedes all others",
    },
    Knob {
        name: "batch",
        min: 1,
        default: 16,
        max: 1024,
        doc: "requests of one direction in a batch",
    },
    Knob {
        name: "writes_starved",
        min: 1,
        default: 2,
        max: 64,
        doc: "batches of reads before waiting writes",
    },
];
const QUEUE_DEPTH: usize = 0;
const READ_EXPIRE: usize = 1;
const WRITE_EXPIRE: usize = 2;
const BATCH: usize = 3;
const WRITES_STARVED: usize = 4;

pub(super) const KIND: Kind = Kind {
    name: "deadline",
    doc: "in order of disk addresses, reads first, with a deadline for each request",
    knobs: KNOBS,
    shares: false,
    make: |knobs| Box::new(Deadline::new(knobs)),
};

struct Deadline {
    knobs: Knobs,
    reads: Elevator,
    writes: Elevator,
    /// The present batch: of writes, and how many more.
    writing: bool,
    left: u64,
    /// Batches of reads since the last one of writes, while writes waited.
    starved: u64,
    head: u64,
    in_flight: u32,
    expired: u64,
}

impl Deadline {
    fn new(knobs: Knobs) -> Deadline {
        Deadline {
            knobs,
            reads: Elevator::default(),
            writes: Elevator::default(),
            writing: false,
            left: 0,
            starved: 0,
            head: 0,
            in_flight: 0,
            expired: 0,
        }
    }

    fn queue(&mut self, writes: bool) -> &mut Elevator {
        if writes { &mut self.writes } else { &mut self.reads }
    }

    fn is_late(&self, writes: bool, now: u64) -> bool {
        let (queue, may) = match writes {
            true => (&self.writes, self.knobs.ns(WRITE_EXPIRE)),
            false => (&self.reads, self.knobs.ns(READ_EXPIRE)),
        };
        queue.oldest().is_some_and(|r| now.saturating_sub(r.arrived_ns) >= may)
    }

    /// The first of a new batch; which direction it has.
    fn start_batch(&mut self, now: u64) -> Option<Request> {
        let starved = self.starved >= self.knobs.get(WRITES_STARVED);
        let late = self.is_late(true, now);
        self.writing = match (self.reads.is_empty(), self.writes.is_empty()) {
            (true, true) => return None,
            (reads, false) => reads || starved || late,
            (false, true) => false,
        };
        self.starved = match (self.writing, self.writes.is_empty()) {
            (false, false) => self.starved + 1,
            _ => 0,
        };
        self.left = self.knobs.get(BATCH);
        let (writing, head) = (self.writing, self.head);
        let late = self.is_late(writing, now);
        self.expired += u64::from(late);
        let queue = self.queue(writing);
        queue.head_at(head);
        if late { queue.pop_oldest() } else { queue.pop() }
    }
}

impl Algorithm for Deadline {
    fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    fn knobs_mut(&mut self) -> &mut Knobs {
        &mut self.knobs
    }

    fn adopt(&mut self, in_flight: u32) {
        self.in_flight = in_flight;
    }

    fn arrived(&mut self, request: Request, _: u64) {
        self.queue(request.write).push(request);
    }

    fn next(&mut self, now: u64, _: bool) -> Step {
        if u64::from(self.in_flight) >= self.knobs.get(QUEUE_DEPTH) {
            return Step::Nothing;
        }
        let (writing, head) = (self.writing, self.head);
        let going_on = self.left > 0 && !self.queue(writing).is_empty();
        let chosen = if going_on {
            let queue = self.queue(writing);
            queue.head_at(head);
            queue.pop()
        } else {
            self.start_batch(now)
        };
        let Some(request) = chosen else { return Step::Nothing };
        self.left = self.left.saturating_sub(1);
        self.head = request.end();
        self.in_flight += 1;
        Step::Start(request.id)
    }

    fn ended(&mut self, _: &Request, _: u64) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("expired", self.expired)]
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{one_by_one, request, write};
    use super::*;
    use testkit::clock::MS;

    #[test]
    fn reads_precede_writes_without_starving_them() {
        let (_, mut d) = super::super::make("deadline").expect("it is there");
        d.knobs_mut().set("batch", 2).expect("a batch");
        for id in 0..8 {
            d.arrived(request(id, 0, u64::from(id) << 20, 4096), 0);
        }
        for id in 10..14 {
            d.arrived(write(id, 1, u64::from(id) << 30, 4096), 0);
        }
        assert_eq!(one_by_one(&mut *d, 0), [0, 1, 2, 3, 10, 11, 4, 5, 6, 7, 12, 13]);
    }

    #[test]
    fn expired_request_is_next_regardless_of_its_offset() {
        let (_, mut d) = super::super::make("deadline").expect("it is there");
        d.knobs_mut().set("batch", 1).expect("a batch");
        d.arrived(request(1, 0, 1 << 20, 4096), 0);
        assert_eq!(d.next(0, false), Step::Start(1));
        d.arrived(request(2, 0, 0, 4096), 0);
        for id in 3..6 {
            let near =
                Request { arrived_ns: 499 * MS, ..request(id, 0, u64::from(id) << 20, 4096) };
            d.arrived(near, 499 * MS);
        }
        d.ended(&request(1, 0, 0, 4096), 499 * MS);
        assert_eq!(d.next(499 * MS, false), Step::Start(3), "nearest");
        d.ended(&request(3, 0, 0, 4096), 500 * MS);
        assert_eq!(d.next(500 * MS, false), Step::Start(2), "its time is up");
        assert_eq!(d.counters(), [("expired", 1)]);
    }
}
