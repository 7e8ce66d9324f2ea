//! Anticipatory scheduler (`as`): one queue in the order of the disk; after each request it waits a
//! little for the same client.
//!
//! When a request has ended, its client's next one is waited for, regardless of its place, unless
//! it is there already. Then the next in the order of the disk starts: the client's, if it
//! continues where it was. After so many bytes of one client there is no wait, once.

use super::elevator::Elevator;
use super::{Algorithm, Kind, Knob, Knobs, Request, Step};

const KNOBS: &[Knob] = &[
    Knob { name: "wait_ms", min: 1, default: 5, max: 30, doc: "ms to wait for the next request" },
    Knob {
        name: "batch_kb",
        min: 16,
        default: 8192,
        max: 65536,
        doc: "KiB of one client, after which others are served",
    },
];
const WAIT: usize = 0;
const BATCH: usize = 1;

pub(super) const KIND: Kind = Kind {
    name: "as",
    doc: "anticipatory: waits briefly after a request for the next one of its client",
    knobs: KNOBS,
    shares: false,
    make: |knobs| Box::new(Anticipatory::new(knobs)),
};

/// For whom the disk waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    NoClient,
    /// Its request is in the disk.
    Served(u16),
    /// Until a time, ns.
    Idle(u16, u64),
}

struct Anticipatory {
    knobs: Knobs,
    queue: Elevator,
    wait: Wait,
    batch: u64,
    in_flight: u32,
    hits: u64,
    misses: u64,
}

impl Anticipatory {
    fn new(knobs: Knobs) -> Anticipatory {
        Anticipatory {
            knobs,
            queue: Elevator::default(),
            wait: Wait::NoClient,
            batch: 0,
            in_flight: 0,
            hits: 0,
            misses: 0,
        }
    }

    fn start(&mut self, request: Request) -> Step {
        let same = matches!(self.wait, Wait::Idle(client, _) if client == request.client);
        self.batch = if same { self.batch } else { 0 }.saturating_add(request.bytes);
        self.wait = match self.batch >= self.knobs.kib(BATCH) {
            true => Wait::NoClient,
            false => Wait::Served(request.client),
        };
        self.in_flight += 1;
        Step::Start(request.id)
    }
}

impl Algorithm for Anticipatory {
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
        self.queue.push(request);
    }

    fn next(&mut self, now: u64, hurry: bool) -> Step {
        if self.in_flight > 0 || self.queue.is_empty() {
            return Step::Nothing;
        }
        if let Wait::Idle(client, until) = self.wait
            && !hurry
        {
            match self.queue.has(client) {
                true => self.hits += 1,
                false if now < until => return Step::Until(until),
                false => self.misses += 1,
            }
        }
        if hurry {
            self.wait = Wait::NoClient;
        }
        match self.queue.pop() {
            Some(request) => self.start(request),
            None => Step::Nothing,
        }
    }

    fn ended(&mut self, request: &Request, now: u64) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.wait == Wait::Served(request.client) {
            self.wait = Wait::Idle(request.client, now.saturating_add(self.knobs.ns(WAIT)));
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("wait_hit", self.hits), ("wait_miss", self.misses)]
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::request;
    use super::*;
    use testkit::clock::MS;

    #[test]
    fn next_request_of_a_client_is_anticipated_for_a_limited_time() {
        let (_, mut a) = super::super::make("as").expect("it is there");
        let first = request(0, 0, 0, 128 << 10);
        a.arrived(first, 0);
        assert_eq!(a.next(0, false), Step::Start(0));
        a.arrived(request(1, 1, 1 << 20, 4096), 0);
        assert_eq!(a.next(0, false), Step::Nothing, "one at a time");
        a.ended(&first, MS);
        assert_eq!(a.next(MS, false), Step::Until(6 * MS));
        a.arrived(request(2, 0, 128 << 10, 128 << 10), 2 * MS);
        assert_eq!(a.next(2 * MS, false), Step::Start(2));
        a.ended(&request(2, 0, 0, 4096), 3 * MS);
        assert_eq!(a.next(3 * MS, true), Step::Start(1), "in a hurry");
        a.ended(&request(1, 1, 0, 4096), 4 * MS);
        a.arrived(request(3, 0, 0, 4096), 4 * MS);
        assert_eq!(a.next(4 * MS, false), Step::Until(9 * MS), "it waits for anybody");
        assert_eq!(a.next(9 * MS, false), Step::Start(3));
    }

    #[test]
    fn no_request_is_anticipated_after_a_full_batch() {
        let (_, mut a) = super::super::make("as").expect("it is there");
        a.knobs_mut().set("batch_kb", 256).expect("a batch");
        a.arrived(request(90, 1, 1 << 40, 4096), 0);
        for (id, wait) in [(0, true), (1, false)] {
            let r = request(id, 0, u64::from(id) << 17, 128 << 10);
            a.arrived(r, 0);
            assert_eq!(a.next(0, false), Step::Start(id));
            a.ended(&r, MS);
            let waits = matches!(a.next(MS, false), Step::Until(_));
            assert_eq!(waits, wait, "{id}");
        }
    }
}
