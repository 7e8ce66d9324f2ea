//! Start-time fair queue over the clients of a disk, with limits. It is meant for flash.
//!
//! The cost of a request is a fixed part plus its bytes. Every client has a virtual time that
//! advances by the cost of its requests divided by its weight. The client with the lowest virtual
//! time is served next. A client that was idle restarts at the current virtual time and accumulates
//! no credit. Limits are times too (GCRA): each request advances the time at which the client has
//! used its allowance. A client may run ahead by the time in `burst_ms`, its own or the default.

use std::collections::VecDeque;

use super::{Algorithm, Kind, Knob, Knobs, Request, Share, Step};

const KNOBS: &[Knob] = &[
    Knob {
        name: "queue_depth",
        min: 1,
        default: 32,
        max: 4096,
        doc: "requests in the disk at once",
    },
    Knob {
        name: "op_cost",
        min: 0,
        default: 8192,
        max: 1 << 20,
        doc: "bytes added to the size of each request",
    },
    Knob {
        name: "burst_ms",
        min: 1,
        default: 100,
        max: 60_000,
        doc: "ms for which unused limits accumulate",
    },
];
const QUEUE_DEPTH: usize = 0;
const OP_COST: usize = 1;
const BURST: usize = 2;

/// Virtual time of a byte at weight one.
const SCALE: u64 = 1 << 10;

pub(super) const KIND: Kind = Kind {
    name: "fair",
    doc: "shares by weight, limits of requests and bytes per second",
    knobs: KNOBS,
    shares: true,
    make: |knobs| Box::new(Fair::new(knobs)),
};

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(u32, u64)>,
    share: Share,
    time: u64,
    /// From when it has its requests, and its bytes, ns.
    ops_ns: u64,
    bytes_ns: u64,
}

struct Fair {
    knobs: Knobs,
    queues: Vec<Queue>,
    /// Clients of whom something waits.
    active: Vec<u16>,
    /// The virtual time of the last request sent.
    time: u64,
    in_flight: u32,
    limited: u64,
}

impl Fair {
    fn new(knobs: Knobs) -> Fair {
        Fair { knobs, queues: Vec::new(), active: Vec::new(), time: 0, in_flight: 0, limited: 0 }
    }

    fn queue(&mut self, client: u16) -> &mut Queue {
        let at = usize::from(client);
        if self.queues.len() <= at {
            self.queues.resize_with(at + 1, Queue::default);
        }
        // There is one: it was made.
        &mut self.queues[at]
    }
}

impl Queue {
    /// The time from which its limits allow a request, ns.
    fn free_ns(&self, burst: u64) -> u64 {
        let burst = match self.share.burst_ms {
            0 => burst,
            own => own.saturating_mul(1_000_000),
        };
        let ops = if self.share.iops == 0 { 0 } else { self.ops_ns };
        let bytes = if self.share.kbps == 0 { 0 } else { self.bytes_ns };
        ops.max(bytes).saturating_sub(burst)
    }

    fn pay(&mut self, bytes: u64, now: u64) {
        let Share { iops, kbps, .. } = self.share;
        if let Some(ns) = 1_000_000_000u64.checked_div(iops) {
            self.ops_ns = self.ops_ns.max(now).saturating_add(ns);
        }
        if kbps > 0 {
            let ns = u128::from(bytes) * 1_000_000_000 / (u128::from(kbps) * 1024);
            let ns = u64::try_from(ns).unwrap_or(u64::MAX);
            self.bytes_ns = self.bytes_ns.max(now).saturating_add(ns);
        }
    }
}

impl Algorithm for Fair {
    fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    fn knobs_mut(&mut self) -> &mut Knobs {
        &mut self.knobs
    }

    fn client(&mut self, client: u16, share: Share, is_new: bool) {
        let queue = self.queue(client);
        queue.share = share;
        if is_new {
            (queue.ops_ns, queue.bytes_ns) = (0, 0);
        }
    }

    fn adopt(&mut self, in_flight: u32) {
        self.in_flight = in_flight;
    }

    fn arrived(&mut self, request: Request, _: u64) {
        let time = self.time;
        let queue = self.queue(request.client);
        let first = queue.waiting.is_empty();
        if first {
            queue.time = queue.time.max(time);
        }
        queue.waiting.push_back((request.id, request.bytes));
        if first {
            self.active.push(request.client);
        }
    }

    fn next(&mut self, now: u64, hurry: bool) -> Step {
        if u64::from(self.in_flight) >= self.knobs.get(QUEUE_DEPTH) || self.active.is_empty() {
            return Step::Nothing;
        }
        let burst = self.knobs.ns(BURST);
        let (mut best, mut soonest) = (None, u64::MAX);
        for (at, client) in self.active.iter().enumerate() {
            let Some(queue) = self.queues.get(usize::from(*client)) else { continue };
            let free = queue.free_ns(burst);
            if free > now && !hurry {
                soonest = soonest.min(free);
            } else if best.is_none_or(|(_, _, time)| queue.time < time) {
                best = Some((at, *client, queue.time));
            }
        }
        let Some((at, client, time)) = best else {
            self.limited += 1;
            return Step::Until(soonest);
        };
        let op_cost = self.knobs.get(OP_COST);
        let queue = self.queue(client);
        let Some((id, bytes)) = queue.waiting.pop_front() else { return Step::Nothing };
        let cost = bytes.saturating_add(op_cost).max(1).saturating_mul(SCALE);
        queue.time = time.saturating_add((cost / queue.share.weight.max(1)).max(1));
        queue.pay(bytes, now);
        if queue.waiting.is_empty() {
            self.active.swap_remove(at);
        }
        self.time = self.time.max(time);
        self.in_flight += 1;
        Step::Start(id)
    }

    fn ended(&mut self, _: &Request, _: u64) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("limited", self.limited)]
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::request;
    use super::*;
    use testkit::clock::S;

    fn fair(shares: &[Share]) -> Box<dyn Algorithm> {
        let mut a = super::super::make("fair").expect("it is there").1;
        for (client, share) in (0..).zip(shares) {
            a.client(client, *share, true);
        }
        a
    }

    /// Serves one request after the other, each client having `depth` waiting at all times;
    /// `sizes` are their bytes. What each got.
    fn serve(a: &mut dyn Algorithm, sizes: &[u64], rounds: u64, step_ns: u64) -> Vec<u64> {
        let clients = sizes.len() as u32;
        let mut got = vec![0; sizes.len()];
        for id in 0..clients * 4 {
            let c = id % clients;
            a.arrived(request(id, c as u16, 0, sizes[c as usize]), 0);
        }
        let mut now = 0;
        for _ in 0..rounds {
            now += step_ns;
            let Step::Start(id) = a.next(now, false) else { continue };
            let c = id % clients;
            let r = request(id, c as u16, 0, sizes[c as usize]);
            got[c as usize] += r.bytes + 8192;
            a.ended(&r, now);
            a.arrived(r, now);
        }
        got
    }

    fn share(weight: u64, iops: u64, kbps: u64) -> Share {
        Share { weight, iops, kbps, ..Share::default() }
    }

    #[test]
    fn equal_weights_get_equal_shares_for_any_request_size() {
        let mut a = fair(&[share(100, 0, 0), share(100, 0, 0)]);
        let got = serve(&mut *a, &[4096, 1 << 17], 20_000, 1000);
        let ratio = got[0] as f64 / got[1] as f64;
        assert!((0.95..1.05).contains(&ratio), "{got:?}");
    }

    #[test]
    fn weights_are_honoured() {
        let mut a = fair(&[share(100, 0, 0), share(200, 0, 0), share(700, 0, 0)]);
        let got = serve(&mut *a, &[65536, 4096, 16384], 50_000, 1000);
        let all: u64 = got.iter().sum();
        for (got, part) in got.iter().zip([0.1, 0.2, 0.7]) {
            let is = *got as f64 / all as f64 / part;
            assert!((0.95..1.05).contains(&is), "{is}");
        }
    }

    #[test]
    fn limits_hold_and_leave_the_rest_to_others() {
        let mut a = fair(&[share(100, 100, 0), share(100, 0, 0), share(100, 0, 1024)]);
        // Ten seconds, a request every 100 us.
        let got = serve(&mut *a, &[4096, 4096, 65536], 100_000, S / 10_000);
        let ops = got[0] / (4096 + 8192);
        assert!((1000..=1012).contains(&ops), "{ops} requests of 100 a second");
        let bytes = got[2] / (65536 + 8192) * 65536;
        assert!((10 << 20..=(10 << 20) + (1 << 18)).contains(&bytes), "{bytes} of 1 MiB a second");
        assert!(got[1] / (4096 + 8192) > 98_000, "{}", got[1]);
    }

    #[test]
    fn limited_client_waits_until_a_known_time_unless_hurried() {
        let mut a = fair(&[share(100, 10, 0)]);
        for id in 0..4 {
            a.arrived(request(id, 0, 0, 4096), S);
        }
        assert_eq!(a.next(S, false), Step::Start(0));
        assert_eq!(a.next(S, false), Step::Start(1), "saved up");
        assert_eq!(a.next(S, false), Step::Until(S + S / 10));
        assert_eq!(a.next(S + S / 10, false), Step::Start(2));
        assert_eq!(a.next(S + S / 10, true), Step::Start(3));
    }

    #[test]
    fn burst_time_can_be_set_for_one_client() {
        let own = |burst_ms| Share { burst_ms, ..share(100, 10, 0) };
        // Ten a second: the first is free, and each 100 ms that are saved up one more.
        for (burst_ms, most) in [(0, 2), (1, 1), (100, 2), (1000, 11)] {
            let mut a = fair(&[own(burst_ms), own(0)]);
            for id in 0..20 {
                a.arrived(request(id, 0, 0, 4096), S);
            }
            let went = super::super::bench::started(&mut *a, S).len();
            assert_eq!(went, most, "{burst_ms} ms");
        }
    }

    #[test]
    fn idle_client_accumulates_no_credit() {
        let mut a = fair(&[share(100, 0, 0), share(100, 0, 0)]);
        serve(&mut *a, &[4096], 1000, 1000);
        for id in 10..20 {
            a.arrived(request(id, 1, 0, 4096), 0);
        }
        let order: Vec<bool> = (0..6)
            .filter_map(|_| match a.next(0, false) {
                Step::Start(id) => Some(id >= 10),
                _ => None,
            })
            .collect();
        assert!(order.iter().filter(|other| **other).count() <= 4, "{order:?}");
    }
}
