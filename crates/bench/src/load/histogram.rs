//! Latencies, counted in buckets of less than two percent width.

/// Buckets an octave.
const STEPS: usize = 64;
/// Octaves above the first: up to 2^40 ns, 18 minutes; longer ones count as that.
const OCTAVES: usize = 35;

/// Counts of latencies in ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; STEPS * (OCTAVES + 1)], total: 0 }
    }
}

impl Histogram {
    /// Counts one.
    pub fn record(&mut self, ns: u64) {
        let last = self.counts.len() - 1;
        if let Some(count) = self.counts.get_mut(index(ns).min(last)) {
            *count += 1;
        }
        self.total += 1;
    }

    pub fn add(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(to, from)| *to += from);
        self.total += other.total;
    }

    pub fn count(&self) -> u64 {
        self.total
    }

    /// The latency in ns that `part` of all do not exceed (0.5: the median); the upper end of its
    /// bucket. None when nothing was counted.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        if self.total == 0 {
            return None;
        }
        let wanted = (self.total as f64 * part.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map(upper_end)
    }
}

/// Up to 63 ns a bucket each; above, 64 buckets an octave.
fn index(ns: u64) -> usize {
    let octave = (64 - ns.leading_zeros() as usize).saturating_sub(7);
    let shifted = (ns >> octave) as usize;
    octave * STEPS + shifted
}

fn upper_end(index: usize) -> u64 {
    // The first 128 are exact; after that an index is octave * 64 + (64..128).
    if index < 2 * STEPS {
        return index as u64;
    }
    let octave = index / STEPS - 1;
    let step = (index % STEPS + STEPS) as u64;
    ((step + 1) << octave) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_has_a_bucket_with_a_close_upper_bound() {
        let mut last = 0;
        for exponent in 0..40 {
            for odd in [0u64, 1, 3] {
                let ns = (1u64 << exponent) + (odd << exponent >> 2);
                let (at, end) = (index(ns), upper_end(index(ns)));
                assert!(at >= last, "{ns}");
                assert!(end >= ns && end - ns <= ns / 50, "{ns} {end}");
                last = at;
            }
        }
    }

    #[test]
    fn quantiles_are_exact_for_small_latencies() {
        let mut h = Histogram::default();
        assert_eq!(h.quantile(0.5), None);
        (1..=100).for_each(|ns| h.record(ns));
        assert_eq!(
            (h.quantile(0.5), h.quantile(0.99), h.quantile(1.0)),
            (Some(50), Some(99), Some(100))
        );
        h.record(u64::MAX);
        assert_eq!(h.count(), 101);
    }
}
