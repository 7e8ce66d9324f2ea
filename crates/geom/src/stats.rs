//! Statistics of one provider or consumer on one core.
//!
//! Invariant M1: a meter has one writer, its core; readers elsewhere may see counters of slightly
//! different moments, never a torn counter. So an update is a plain load and store.
//!
//! Invariant M2: the data that one core writes is on cache lines of its own, two at a time as
//! processors fetch them. Two cores that count side by side would take the line from each other for
//! every request, and that costs more than the request.
//!
//! Invariant M3: a provider's queue counts those of its consumers that have requests inside. It
//! does not count the requests: their number is the sum over its consumers. The busy time is the
//! same, a request pays for one queue, and a consumer that joins or leaves changes sums only.
//!
//! Invariant M4: a request that returns up in the walk that took it down is in no queue. It takes
//! no time, its core does not look at the queues meanwhile (`core::accounts`), and other cores see
//! the moment before or after (M1). It is counted when it has ended, like any other.
//!
//! Invariant M5: a request is counted before its bytes and its latency. So a reader leaves out the
//! bytes and histograms of requests whose number is zero: most objects of a large graph have had
//! none.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bio::Op;

/// Buckets of a latency histogram: two to a power of two, from 1 ns to 18 minutes.
pub const BUCKETS: usize = 80;

/// Histograms kept: reads, and everything that writes.
const KINDS: usize = 2;

/// Number of entries, and the time with at least one: requests of a consumer, consumers of a
/// provider (M3).
#[derive(Default)]
#[repr(align(128))]
pub struct Queue {
    inside: AtomicU64,
    busy_since_ns: AtomicU64,
    busy_ns: AtomicU64,
}

impl Queue {
    /// Counts a request in; true when the queue was empty before.
    #[inline]
    fn enter(&self, now_ns: u64) -> bool {
        let was = self.inside.load(Relaxed);
        if was == 0 {
            self.busy_since_ns.store(now_ns, Relaxed);
        }
        self.inside.store(was + 1, Relaxed);
        was == 0
    }

    /// Counts a request out; true when the queue is empty now.
    #[inline]
    fn leave(&self, now_ns: u64) -> bool {
        let was = self.inside.load(Relaxed);
        debug_assert!(was > 0, "a request left that had not entered");
        let left = was.wrapping_sub(1);
        self.inside.store(left, Relaxed);
        if left == 0 {
            add(&self.busy_ns, now_ns.wrapping_sub(self.busy_since_ns.load(Relaxed)));
        }
        left == 0
    }

    /// In and not out.
    #[inline]
    pub fn inside(&self) -> u64 {
        self.inside.load(Relaxed)
    }

    /// Time with at least one inside, ns; `now_ns` closes an interval still open.
    pub fn busy_ns(&self, now_ns: u64) -> u64 {
        let open = match self.inside() {
            0 => 0,
            _ => now_ns.saturating_sub(self.busy_since_ns.load(Relaxed)),
        };
        self.busy_ns.load(Relaxed) + open
    }
}

/// Counters that the dispatcher keeps for every consumer. A provider's are the sums of its
/// consumers', so that a crossing pays for one meter only. The time it is busy is its own (M3).
#[repr(align(128))]
pub struct Meter {
    queue: Queue,
    errors: AtomicU64,
    /// Requests that ended after they had been in the queue.
    queued: [AtomicU64; Op::COUNT],
    /// Those that had not (M4): their latencies are not in the histograms, they are all zero.
    unqueued: [AtomicU64; Op::COUNT],
    bytes: [AtomicU64; Op::COUNT],
    latency: [[AtomicU64; BUCKETS]; KINDS],
    latency_ns: [AtomicU64; KINDS],
}

impl Default for Meter {
    fn default() -> Self {
        Meter {
            queue: Queue::default(),
            errors: AtomicU64::new(0),
            queued: Default::default(),
            unqueued: Default::default(),
            bytes: Default::default(),
            latency: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
            latency_ns: Default::default(),
        }
    }
}

#[inline(always)]
fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
}

/// The bucket of a latency.
#[inline]
pub fn bucket_of(ns: u64) -> usize {
    if ns < 2 {
        return 0;
    }
    let power = 63 - ns.leading_zeros() as usize;
    let half = (ns >> (power - 1)) as usize & 1;
    (power * 2 + half).min(BUCKETS - 1)
}

/// The largest latency that falls into a bucket, in ns.
pub fn bucket_top_ns(bucket: usize) -> u64 {
    let (power, half) = (bucket / 2, (bucket & 1) as u64);
    match power {
        0 => 1,
        _ => (1u64 << power) + (half + 1) * (1u64 << (power - 1)) - 1,
    }
}

impl Meter {
    /// Counts in a request that will stay for a while; `provider` is the queue of the provider that
    /// it enters.
    #[inline]
    pub(crate) fn enter(&self, now_ns: u64, provider: &Queue) {
        if self.queue.enter(now_ns) {
            provider.enter(now_ns);
        }
    }

    /// Counts out a request that [entered](Meter::enter): it has ended, or will enter again.
    #[inline]
    pub(crate) fn leave(&self, now_ns: u64, provider: &Queue) {
        if self.queue.leave(now_ns) {
            provider.leave(now_ns);
        }
    }

    /// A request that had entered has ended, `ns` later.
    #[inline]
    pub(crate) fn record_queued(&self, ns: u64, op: Op, bytes: u64, ok: bool) {
        add(&self.queued[op as usize], 1);
        self.record_bytes(op, bytes, ok);
        let kind = kind_of(op);
        add(&self.latency_ns[kind], ns);
        add(&self.latency[kind][bucket_of(ns)], 1);
    }

    /// A request has ended that never entered (M4).
    #[inline]
    pub(crate) fn record_unqueued(&self, op: Op, bytes: u64, ok: bool) {
        add(&self.unqueued[op as usize], 1);
        self.record_bytes(op, bytes, ok);
    }

    #[inline(always)]
    fn record_bytes(&self, op: Op, bytes: u64, ok: bool) {
        add(&self.bytes[op as usize], bytes);
        if !ok {
            add(&self.errors, 1);
        }
    }

    /// Requests in and not out.
    #[inline]
    pub fn in_flight(&self) -> u64 {
        self.queue.inside()
    }
}

/// The histogram of an operation.
#[inline(always)]
fn kind_of(op: Op) -> usize {
    usize::from(op != Op::Read)
}

/// Meters of all cores read at one moment and added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Requests in and not out.
    pub in_flight: u64,
    /// Time with at least one request in flight, in ns; the largest over the cores.
    pub busy_ns: u64,
    /// Requests that ended with an error.
    pub errors: u64,
    /// Requests ended, by `Op as usize`.
    pub ops: [u64; Op::COUNT],
    /// Bytes moved, by `Op as usize`.
    pub bytes: [u64; Op::COUNT],
    /// Latencies of reads, see [`bucket_top_ns`].
    pub read_latency: [u64; BUCKETS],
    /// Latencies of everything else.
    pub write_latency: [u64; BUCKETS],
    /// Sum of the latencies of reads, ns.
    pub read_latency_ns: u64,
    /// Sum of the latencies of everything else, ns.
    pub write_latency_ns: u64,
}

impl Default for Reading {
    fn default() -> Self {
        Reading {
            in_flight: 0,
            busy_ns: 0,
            errors: 0,
            ops: [0; Op::COUNT],
            bytes: [0; Op::COUNT],
            read_latency: [0; BUCKETS],
            write_latency: [0; BUCKETS],
            read_latency_ns: 0,
            write_latency_ns: 0,
        }
    }
}

impl Reading {
    /// Adds one core's meter; `now_ns` closes a busy interval that is still open.
    pub fn add(&mut self, m: &Meter, now_ns: u64) {
        self.in_flight += m.in_flight();
        self.busy_ns = self.busy_ns.max(m.queue.busy_ns(now_ns));
        self.errors += m.errors.load(Relaxed);
        let mut queued = [0; KINDS];
        for op in Op::ALL {
            let (at, passed) = (op as usize, m.unqueued[op as usize].load(Relaxed));
            let waited = m.queued[at].load(Relaxed);
            // M5.
            if waited + passed == 0 {
                continue;
            }
            queued[kind_of(op)] += waited;
            self.ops[at] += waited + passed;
            self.bytes[at] += m.bytes[at].load(Relaxed);
            match kind_of(op) {
                0 => self.read_latency[bucket_of(0)] += passed,
                _ => self.write_latency[bucket_of(0)] += passed,
            }
        }
        let sums = [
            (&mut self.read_latency, &mut self.read_latency_ns),
            (&mut self.write_latency, &mut self.write_latency_ns),
        ];
        for (kind, (buckets, sum_ns)) in sums.into_iter().enumerate() {
            // M5.
            if queued[kind] > 0 {
                let read = m.latency[kind].iter().map(|bucket| bucket.load(Relaxed));
                buckets.iter_mut().zip(read).for_each(|(sum, count)| *sum += count);
                *sum_ns += m.latency_ns[kind].load(Relaxed);
            }
        }
    }

    /// Whether no request has ended.
    pub fn is_unused(&self) -> bool {
        self.ops == [0; Op::COUNT]
    }

    /// Adds the counters of another reading (not its queue or busy time).
    pub fn add_counts(&mut self, other: &Reading) {
        self.combine(other, u64::wrapping_add);
    }

    /// Takes the counters of an earlier reading away.
    pub fn sub_counts(&mut self, earlier: &Reading) {
        self.combine(earlier, u64::wrapping_sub);
    }

    fn combine(&mut self, other: &Reading, f: impl Fn(u64, u64) -> u64) {
        // M5.
        if other.is_unused() {
            return;
        }
        let each = |a: &mut [u64], b: &[u64]| {
            a.iter_mut().zip(b).for_each(|(x, y)| *x = f(*x, *y));
        };
        self.errors = f(self.errors, other.errors);
        each(&mut self.ops, &other.ops);
        each(&mut self.bytes, &other.bytes);
        each(&mut self.read_latency, &other.read_latency);
        each(&mut self.write_latency, &other.write_latency);
        self.read_latency_ns = f(self.read_latency_ns, other.read_latency_ns);
        self.write_latency_ns = f(self.write_latency_ns, other.write_latency_ns);
    }
}

/// The latency below which `percent` of the requests in a histogram ended, ns; `None` when empty.
pub fn percentile_ns(buckets: &[u64], percent: f64) -> Option<u64> {
    let total: u64 = buckets.iter().sum();
    if total == 0 {
        return None;
    }
    let wanted = ((total as f64) * percent / 100.0).ceil().max(1.0) as u64;
    let mut seen = 0;
    for (i, n) in buckets.iter().enumerate() {
        seen += n;
        if seen >= wanted {
            return Some(bucket_top_ns(i));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_is_within_the_bounds_of_its_bucket() {
        for ns in (0..10_000u64).chain([1 << 30, (1 << 30) + 1, 3 << 29]) {
            let b = bucket_of(ns);
            assert!(ns <= bucket_top_ns(b), "{ns} in {b}");
            if b > 0 && ns > 1 {
                assert!(ns > bucket_top_ns(b - 1) || bucket_top_ns(b - 1) < 2, "{ns} in {b}");
            }
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn busy_time_counts_overlap_once() {
        let (m, provider) = (Meter::default(), Queue::default());
        m.enter(10, &provider);
        m.enter(20, &provider);
        m.leave(30, &provider);
        m.record_queued(20, Op::Read, 512, true);
        m.leave(50, &provider);
        m.record_queued(30, Op::Write, 512, false);
        let mut r = Reading::default();
        r.add(&m, 60);
        assert_eq!((r.busy_ns, r.in_flight, r.errors), (40, 0, 1));
        assert_eq!((r.ops[Op::Read as usize], r.ops[Op::Write as usize]), (1, 1));
        assert_eq!(percentile_ns(&r.read_latency, 50.0), Some(23));
        assert_eq!((provider.inside(), provider.busy_ns(60)), (0, 40));
    }

    #[test]
    fn m5_latencies_are_read_of_the_kinds_that_had_requests() {
        let m = Meter::default();
        let reading = || {
            let mut r = Reading::default();
            r.add(&m, 0);
            let counts = |buckets: &[u64]| buckets.iter().sum::<u64>();
            let latency = (r.read_latency_ns, r.write_latency_ns);
            let counts = (counts(&r.read_latency), counts(&r.write_latency));
            let (mut sum, zero) = (Reading::default(), Reading::default());
            sum.add_counts(&r);
            assert_eq!(Reading { in_flight: r.in_flight, busy_ns: r.busy_ns, ..sum.clone() }, r);
            sum.sub_counts(&r);
            assert_eq!(sum, zero);
            (r.is_unused(), counts, latency)
        };
        assert_eq!(reading(), (true, (0, 0), (0, 0)));
        m.record_queued(20, Op::Write, 512, true);
        assert_eq!(reading(), (false, (0, 1), (0, 20)));
        m.record_queued(5, Op::Read, 512, false);
        m.record_queued(7, Op::Flush, 0, true);
        m.record_unqueued(Op::Read, 512, true);
        assert_eq!(reading(), (false, (2, 2), (5, 27)));
    }

    #[test]
    fn provider_is_busy_while_any_of_its_consumers_is() {
        let (a, b, provider) = (Meter::default(), Meter::default(), Queue::default());
        a.enter(10, &provider);
        a.enter(12, &provider);
        assert_eq!(provider.inside(), 1);
        b.enter(20, &provider);
        a.leave(25, &provider);
        a.leave(30, &provider);
        assert_eq!((provider.inside(), provider.busy_ns(35)), (1, 25));
        b.leave(40, &provider);
        assert_eq!((provider.inside(), provider.busy_ns(99)), (0, 30));
        b.enter(50, &provider);
        b.leave(51, &provider);
        assert_eq!((a.queue.busy_ns(99), b.queue.busy_ns(99), provider.busy_ns(99)), (20, 21, 31));
    }

    #[test]
    fn request_that_completes_at_once_counts_like_a_queued_one() {
        let m = Meter::default();
        m.record_unqueued(Op::Read, 512, true);
        m.record_unqueued(Op::Write, 0, false);
        m.record_unqueued(Op::Flush, 0, true);
        m.record_queued(0, Op::Read, 512, true);
        let mut r = Reading::default();
        r.add(&m, 0);
        assert_eq!((r.ops[Op::Read as usize], r.bytes[Op::Read as usize]), (2, 1024));
        assert_eq!((r.read_latency[0], r.write_latency[0], r.errors), (2, 2, 1));
        assert_eq!((r.read_latency.iter().sum::<u64>(), r.write_latency_ns), (2, 0));
    }
}
