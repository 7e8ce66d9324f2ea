//! Compact form of counters: numbers of seven bits a byte, and only the parts that are not zero.
//!
//! ```text
//! in_flight busy_ns kinds { ops bytes errors sum_ns buckets { gap count } }
//! ```
//! `kinds` has a bit for each kind of request that follows, in the order of [`Stats::kinds`].
//! A bucket is stored as the gap between its index and the previous one.

use crate::api::{Bucket, Histogram, OpStats, Stats};
use geom::{bucket_of, bucket_top_ns};

/// Bits of a number in each byte; the highest bit is set while further bytes follow.
const BITS: u32 = 7;

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 1 << BITS {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= BITS;
    }
    out.push(number as u8);
}

/// The next number; 0 at the end.
fn take(bytes: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0u64, 0);
    while let Some((&byte, rest)) = bytes.split_first() {
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        shift += BITS;
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
}

fn put_op(out: &mut Vec<u8>, op: &OpStats) {
    for number in [op.ops, op.bytes, op.errors, op.latency.sum_ns] {
        put(out, number);
    }
    // Bounds between those of the daemon's buckets are rounded up to the next one.
    let mut buckets: Vec<(usize, u64)> = Vec::with_capacity(op.latency.buckets.len());
    for bucket in &op.latency.buckets {
        let at = bucket_of(bucket.upper_ns);
        match buckets.last_mut() {
            Some((last, count)) if *last == at => *count = count.saturating_add(bucket.count),
            _ => buckets.push((at, bucket.count)),
        }
    }
    put(out, buckets.len() as u64);
    let mut before = 0;
    for (at, count) in buckets {
        put(out, at.saturating_sub(before) as u64);
        put(out, count);
        before = at;
    }
}

fn take_op(bytes: &mut &[u8]) -> OpStats {
    let [ops, moved, errors, sum_ns] = [(); 4].map(|()| take(bytes));
    let number = take(bytes);
    let (mut at, mut buckets) = (0usize, Vec::new());
    for _ in 0..number {
        at = at.saturating_add(usize::try_from(take(bytes)).unwrap_or(0));
        buckets.push(Bucket { upper_ns: bucket_top_ns(at), count: take(bytes) });
    }
    OpStats { ops, bytes: moved, errors, latency: Histogram { buckets, sum_ns } }
}

/// The bytes of counters.
pub fn encode(stats: &Stats) -> Box<[u8]> {
    let mut out = Vec::with_capacity(64);
    put(&mut out, stats.in_flight);
    put(&mut out, stats.busy_ns);
    let is_used = |op: &OpStats| *op != OpStats::default();
    let kinds = stats.kinds();
    let used = kinds.iter().enumerate().filter(|(_, (_, op))| is_used(op));
    put(&mut out, used.fold(0, |bits, (at, _)| bits | (1 << at)));
    kinds.iter().filter(|(_, op)| is_used(op)).for_each(|(_, op)| put_op(&mut out, op));
    out.into_boxed_slice()
}

/// The counters of these bytes; none of no bytes.
pub fn decode(mut bytes: &[u8]) -> Stats {
    let (in_flight, busy_ns) = (take(&mut bytes), take(&mut bytes));
    let mut out = Stats { in_flight, busy_ns, ..Stats::default() };
    let used = take(&mut bytes);
    let kinds = [&mut out.read, &mut out.write, &mut out.delete, &mut out.flush, &mut out.other];
    for (at, op) in kinds.into_iter().enumerate() {
        if (used >> at) & 1 == 1 {
            *op = take_op(&mut bytes);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_the_same_after_encoding() {
        let bucket = |n| Bucket { upper_ns: bucket_top_ns(n), count: 300 };
        let buckets = [0, 3, 40, 79].map(bucket).to_vec();
        let latency = Histogram { buckets, sum_ns: u64::MAX };
        let read = OpStats { ops: 1200, bytes: u64::MAX, errors: 127, latency };
        let flush = OpStats { ops: 128, ..OpStats::default() };
        let stats = Stats { read, flush, in_flight: 1 << 40, busy_ns: 5, ..Stats::default() };
        assert_eq!(decode(&encode(&stats)), stats);
        assert_eq!(decode(&encode(&Stats::default())), Stats::default());
        assert_eq!(decode(&[]), Stats::default());
    }

    #[test]
    fn bounds_of_other_buckets_are_rounded_up_and_joined() {
        let bucket = |upper_ns, count| Bucket { upper_ns, count };
        let buckets = vec![bucket(1_000_000, 2), bucket(1_000_001, 3)];
        let latency = Histogram { buckets, sum_ns: 5_000_000 };
        let read = OpStats { ops: 5, latency, ..OpStats::default() };
        let stats = Stats { read, ..Stats::default() };
        let found = decode(&encode(&stats)).read.latency;
        assert_eq!(found.buckets, [bucket(bucket_top_ns(bucket_of(1_000_000)), 5)]);
    }

    #[test]
    fn sample_of_a_busy_disk_takes_less_than_a_hundred_bytes() {
        let buckets = (24..34).map(|n| Bucket { upper_ns: bucket_top_ns(n), count: 9_000 });
        let latency = Histogram { buckets: buckets.collect(), sum_ns: 9_000_000_000 };
        let op = OpStats { ops: 90_000, bytes: 368_640_000, errors: 0, latency };
        let busy_ns = 9_900_000_000;
        let stats =
            Stats { read: op.clone(), write: op, in_flight: 32, busy_ns, ..Stats::default() };
        assert!(encode(&stats).len() < 100, "{}", encode(&stats).len());
    }
}
