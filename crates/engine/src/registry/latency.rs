//! Latency histogram of one kind of command of a session.
//!
//! Invariant F1 of [`super::facts`]: the core of the session is the only writer. The array has a
//! fixed size, so that a command allocates nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use geom::{BUCKETS, bucket_of};

/// A histogram that its core writes and any thread reads.
pub(crate) struct LatencyHistogram {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        LatencyHistogram {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            sum_ns: AtomicU64::new(0),
        }
    }
}

/// The contents of a histogram at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyReading {
    /// Commands by their latency, in the buckets of [`geom::bucket_of`].
    pub buckets: [u64; BUCKETS],
    pub sum_ns: u64,
}

impl LatencyHistogram {
    /// A command has ended after so many ns.
    #[inline]
    pub(crate) fn record(&self, ns: u64) {
        let add = |counter: &AtomicU64, by: u64| {
            counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
        };
        if let Some(bucket) = self.buckets.get(bucket_of(ns)) {
            add(bucket, 1);
        }
        add(&self.sum_ns, ns);
    }

    pub(crate) fn read(&self) -> LatencyReading {
        LatencyReading {
            buckets: self.buckets.each_ref().map(|bucket| bucket.load(Relaxed)),
            sum_ns: self.sum_ns.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_is_counted_in_its_bucket() {
        let histogram = LatencyHistogram::default();
        [1000, 1000, 0, u64::MAX / 2].into_iter().for_each(|ns| histogram.record(ns));
        let read = histogram.read();
        assert_eq!(read.buckets.iter().sum::<u64>(), 4);
        assert_eq!((read.buckets[bucket_of(1000)], read.buckets[0]), (2, 1));
        assert_eq!(read.buckets[BUCKETS - 1], 1);
        assert_eq!(read.sum_ns, 2000 + u64::MAX / 2);
    }
}
