//! Counters of one provider, consumer, session or core, as the daemon reports them.
//!
//! Invariants
//!  S1  Counters only grow while the daemon lives; a rate is a difference of two snapshots.
//!  S2  Buckets are sorted by `upper_ns`, never repeat one, and hold no zero counts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One bucket of a histogram: the number of samples above the bound of the previous bucket and up
/// to `upper_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bucket {
    /// Upper bound of the bucket, in nanoseconds, inclusive.
    pub upper_ns: u64,
    /// Samples in this bucket alone (not cumulative).
    pub count: u64,
}

/// Percentiles of a histogram, each the upper bound of its bucket, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Percentiles {
    /// Median.
    pub p50_ns: u64,
    /// 95th percentile.
    pub p95_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Greatest sample.
    pub max_ns: u64,
}

/// Latency histogram. Empty buckets are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Histogram {
    /// Buckets, sorted by `upper_ns`.
    pub buckets: Vec<Bucket>,
    /// Sum of all samples, in nanoseconds.
    pub sum_ns: u64,
}

impl Histogram {
    /// How many samples it holds.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, b| sum.saturating_add(b.count))
    }

    /// The upper bound of the bucket in which the sample at `permille` of the order is, in
    /// nanoseconds; `None` when there are no samples.
    pub fn quantile_ns(&self, permille: u64) -> Option<u64> {
        let total = self.count();
        if total == 0 {
            return None;
        }
        let permille = permille.min(1000);
        let wanted = (u128::from(total) * u128::from(permille)).div_ceil(1000).max(1);
        let mut seen = 0u128;
        for bucket in &self.buckets {
            seen += u128::from(bucket.count);
            if seen >= wanted {
                return Some(bucket.upper_ns);
            }
        }
        self.buckets.last().map(|b| b.upper_ns)
    }

    /// The percentiles that tables and charts show; `None` when there are no samples.
    pub fn percentiles(&self) -> Option<Percentiles> {
        Some(Percentiles {
            p50_ns: self.quantile_ns(500)?,
            p95_ns: self.quantile_ns(950)?,
            p99_ns: self.quantile_ns(990)?,
            max_ns: self.quantile_ns(1000)?,
        })
    }

    /// Half of the samples were at most this long, in nanoseconds.
    pub fn p50_ns(&self) -> Option<u64> {
        self.quantile_ns(500)
    }

    /// All but one in a hundred samples were at most this long, in nanoseconds.
    pub fn p99_ns(&self) -> Option<u64> {
        self.quantile_ns(990)
    }

    /// The mean, in nanoseconds; `None` when there are no samples.
    pub fn mean_ns(&self) -> Option<u64> {
        self.sum_ns.checked_div(self.count())
    }

    /// The samples of both.
    pub fn plus(&self, other: &Histogram) -> Histogram {
        let mut buckets: Vec<Bucket> = self.buckets.iter().chain(&other.buckets).copied().collect();
        buckets.sort_by_key(|b| b.upper_ns);
        buckets.dedup_by(|next, kept| {
            let is_same = next.upper_ns == kept.upper_ns;
            if is_same {
                kept.count = kept.count.saturating_add(next.count);
            }
            is_same
        });
        Histogram { buckets, sum_ns: self.sum_ns.saturating_add(other.sum_ns) }
    }

    /// The samples that were added since `earlier`, a snapshot of the same histogram.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let before = |upper: u64| {
            let found = earlier.buckets.binary_search_by_key(&upper, |b| b.upper_ns);
            found.ok().and_then(|i| earlier.buckets.get(i)).map_or(0, |b| b.count)
        };
        let left = |b: &Bucket| Bucket {
            upper_ns: b.upper_ns,
            count: b.count.saturating_sub(before(b.upper_ns)),
        };
        Histogram {
            buckets: self.buckets.iter().map(left).filter(|b| b.count > 0).collect(),
            sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns),
        }
    }
}

/// Counters of one kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OpStats {
    /// Completed requests, with or without an error.
    pub ops: u64,
    /// Bytes of the completed requests.
    pub bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Latency from start to completion.
    pub latency: Histogram,
}

impl OpStats {
    /// The operations of both.
    pub fn plus(&self, other: &OpStats) -> OpStats {
        OpStats {
            ops: self.ops.saturating_add(other.ops),
            bytes: self.bytes.saturating_add(other.bytes),
            errors: self.errors.saturating_add(other.errors),
            latency: self.latency.plus(&other.latency),
        }
    }

    /// The operations since `earlier`.
    pub fn since(&self, earlier: &OpStats) -> OpStats {
        OpStats {
            ops: self.ops.saturating_sub(earlier.ops),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            errors: self.errors.saturating_sub(earlier.errors),
            latency: self.latency.since(&earlier.latency),
        }
    }
}

/// Counters of the requests of one provider, consumer or session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stats {
    /// READ.
    pub read: OpStats,
    /// WRITE and WRITE ZEROES.
    pub write: OpStats,
    /// DELETE (trim, unmap).
    pub delete: OpStats,
    /// FLUSH.
    pub flush: OpStats,
    /// Everything else (GETATTR, commands without data).
    pub other: OpStats,
    /// Requests that are started and not yet completed.
    pub in_flight: u64,
    /// Time with at least one request in flight, in nanoseconds.
    pub busy_ns: u64,
}

impl Stats {
    /// The kinds with their names, in the order of display.
    pub fn kinds(&self) -> [(&'static str, &OpStats); 5] {
        [
            ("read", &self.read),
            ("write", &self.write),
            ("delete", &self.delete),
            ("flush", &self.flush),
            ("other", &self.other),
        ]
    }

    /// Requests completed, of every kind.
    pub fn ops(&self) -> u64 {
        self.kinds().iter().fold(0, |sum, (_, op)| sum.saturating_add(op.ops))
    }

    /// Requests that failed, of every kind.
    pub fn errors(&self) -> u64 {
        self.kinds().iter().fold(0, |sum, (_, op)| sum.saturating_add(op.errors))
    }

    /// Counters of two objects at one moment. The busy time is that of the busier one.
    pub fn plus(&self, other: &Stats) -> Stats {
        Stats {
            in_flight: self.in_flight.saturating_add(other.in_flight),
            busy_ns: self.busy_ns.max(other.busy_ns),
            ..self.operations_of_both(other)
        }
    }

    /// Operations of one object in two successive intervals; `in_flight` is the higher number.
    pub fn then(&self, later: &Stats) -> Stats {
        Stats {
            in_flight: self.in_flight.max(later.in_flight),
            busy_ns: self.busy_ns.saturating_add(later.busy_ns),
            ..self.operations_of_both(later)
        }
    }

    fn operations_of_both(&self, other: &Stats) -> Stats {
        Stats {
            read: self.read.plus(&other.read),
            write: self.write.plus(&other.write),
            delete: self.delete.plus(&other.delete),
            flush: self.flush.plus(&other.flush),
            other: self.other.plus(&other.other),
            ..Stats::default()
        }
    }

    /// The operations since `earlier`; `in_flight` is the present number.
    pub fn since(&self, earlier: &Stats) -> Stats {
        Stats {
            read: self.read.since(&earlier.read),
            write: self.write.since(&earlier.write),
            delete: self.delete.since(&earlier.delete),
            flush: self.flush.since(&earlier.flush),
            other: self.other.since(&earlier.other),
            in_flight: self.in_flight,
            busy_ns: self.busy_ns.saturating_sub(earlier.busy_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(pairs: &[(u64, u64)]) -> Histogram {
        let buckets = pairs.iter().map(|&(upper_ns, count)| Bucket { upper_ns, count });
        Histogram { buckets: buckets.collect(), sum_ns: pairs.iter().map(|p| p.0 * p.1).sum() }
    }

    #[test]
    fn quantiles_are_the_upper_bound_of_the_sample_bucket() {
        let h = histogram(&[(10, 50), (20, 49), (1000, 1)]);
        assert_eq!(h.p50_ns(), Some(10));
        assert_eq!(h.p99_ns(), Some(20));
        assert_eq!(h.quantile_ns(1000), Some(1000));
        assert_eq!(h.quantile_ns(0), Some(10));
        assert_eq!(Histogram::default().p50_ns(), None);
        assert_eq!(Histogram::default().mean_ns(), None);
    }

    #[test]
    fn percentiles_are_absent_without_samples() {
        let h = histogram(&[(10, 50), (20, 44), (30, 4), (1000, 2)]);
        let (p50_ns, p95_ns, p99_ns, max_ns) = (10, 30, 1000, 1000);
        assert_eq!(h.percentiles(), Some(Percentiles { p50_ns, p95_ns, p99_ns, max_ns }));
        assert_eq!(Histogram::default().percentiles(), None);
    }

    /// S2.
    #[test]
    fn sum_of_two_histograms_has_each_bucket_once() {
        let sum = histogram(&[(10, 5), (20, 1)]).plus(&histogram(&[(5, 1), (20, 2)]));
        assert_eq!(sum, histogram(&[(5, 1), (10, 5), (20, 3)]));
    }

    #[test]
    fn intervals_add_busy_time_and_objects_add_requests_in_flight() {
        let one = Stats { in_flight: 3, busy_ns: 10, ..Stats::default() };
        let other = Stats { in_flight: 4, busy_ns: 20, ..Stats::default() };
        assert_eq!((one.plus(&other).in_flight, one.plus(&other).busy_ns), (7, 20));
        assert_eq!((one.then(&other).in_flight, one.then(&other).busy_ns), (4, 30));
    }

    /// S2.
    #[test]
    fn difference_of_two_histograms_has_only_new_samples() {
        let earlier = histogram(&[(10, 5), (20, 1)]);
        let now = histogram(&[(10, 5), (20, 4), (40, 2)]);
        let d = now.since(&earlier);
        assert_eq!(
            d.buckets.iter().map(|b| (b.upper_ns, b.count)).collect::<Vec<_>>(),
            [(20, 3), (40, 2)]
        );
        assert_eq!(d.mean_ns(), Some((3 * 20 + 2 * 40) / 5));
    }
}
