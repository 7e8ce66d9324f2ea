//! Buckets of latency histograms, as Prometheus has them: classic and native.
//!
//! Latencies are counted in two buckets to a power of two of nanoseconds ([`geom::bucket_of`]).
//!
//! Invariants
//!  X3  All series of a histogram have the same classic buckets, for any samples. Otherwise a sum
//!      over series by `le` would not be monotone, and its percentiles would be false.
//!  X4  The zero bucket and the other buckets of a native histogram count each request once. A
//!      native bucket has the requests of one counted bucket, whose bounds are 7 % to 14 % higher.

use crate::api::Histogram;
use geom::bucket_of;
use std::collections::BTreeMap;

/// Bounds of the classic buckets of every histogram, as powers of two of nanoseconds: from 1 us to
/// 34 s.
const BOUNDS: std::ops::RangeInclusive<u32> = 10..=35;

/// Series of a classic histogram: its buckets, `+Inf`, sum and count.
pub(super) const HISTOGRAM_SERIES: usize = 26 + 3;

/// Two native buckets to a power of two.
pub(super) const NATIVE_SCHEMA: i64 = 1;

/// Greatest latency of the zero bucket, in seconds. A request that never waited took no time.
pub(super) const ZERO_SECONDS: f64 = 1e-9;

/// Number of the counted bucket whose native bucket is number 0, which ends at one second. 2^30 ns
/// is about a second, and the bucket below it is number 59.
const NATIVE_SHIFT: i64 = 59;

/// Upper bounds in nanoseconds, each with the number of requests up to it.
pub(super) fn classic(h: &Histogram) -> impl Iterator<Item = (u64, u64)> {
    BOUNDS.map(move |power| {
        let bound_ns = 1u64 << power;
        let below = h.buckets.iter().filter(|b| b.upper_ns <= bound_ns);
        (bound_ns, below.map(|b| b.count).sum::<u64>())
    })
}

/// Buckets of a native histogram.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NativeBuckets {
    /// Requests of the zero bucket.
    pub(super) zero: u64,
    /// Requests by the number of their bucket: number n has those above 2^((n-1)/2) seconds and up
    /// to 2^(n/2) seconds.
    pub(super) counts: BTreeMap<i64, u64>,
}

impl NativeBuckets {
    pub(super) fn of(h: &Histogram) -> NativeBuckets {
        let mut native = NativeBuckets::default();
        for bucket in &h.buckets {
            let counted = bucket_of(bucket.upper_ns);
            let count = match counted {
                0 => &mut native.zero,
                _ => native.counts.entry(counted as i64 - NATIVE_SHIFT).or_default(),
            };
            *count = count.saturating_add(bucket.count);
        }
        native
    }

    /// Runs of successive buckets: the number of the first one, and the requests of each.
    pub(super) fn runs(&self) -> Vec<(i64, Vec<u64>)> {
        let mut runs: Vec<(i64, Vec<u64>)> = Vec::new();
        for (&number, &count) in &self.counts {
            let is_next =
                |(first, counts): &&mut (i64, Vec<u64>)| *first + counts.len() as i64 == number;
            match runs.last_mut().filter(is_next) {
                Some((_, counts)) => counts.push(count),
                None => runs.push((number, vec![count])),
            }
        }
        runs
    }
}
