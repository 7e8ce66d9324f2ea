//! Cost of a request at its medium, in equivalent commands that move nothing. Pure.
//!
//! A medium spends time on each request, regardless of its size, and time on each byte. The number
//! of bytes that take as long as one request differs between a rotating disk, flash, and a network
//! link. It is found from the throughput of a busy medium. Time per request over bytes per request
//! is a line, and each change of the mix of sizes gives another point of it. Times of single
//! requests would not do: most of such a time is waiting.
//!
//! Invariants
//!  P1  A cost is at least [`UNIT`] and grows with the bytes.
//!  P2  While the mix stays as it is nothing is learnt, and nothing is forgotten.
//!  P3  The number is a power of two and moves when the measured one differs by more than
//!      [`CLEARLY`]. Values counted in costs, a limit above all, keep their meaning for long.

/// Cost of a request that moves nothing.
pub(crate) const UNIT: u32 = 256;

/// Bytes that cost as much as a request by itself, as a power of two: at first, at least, at most.
const FIRST: u32 = 17;
const LEAST: u32 = 12;
const MOST: u32 = 22;

/// Remaining weight of an older point beside a new one.
const FADE: f64 = 0.9;

/// The mix is another when mean sizes spread by this part of their mean.
const SPREAD: f64 = 0.1;

/// How far the power must be off before it moves, in powers of two.
const CLEARLY: f64 = 0.75;

/// The price of bytes at one unit: weighted sums of the points that were seen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct CostModel {
    power: u32,
    weight: f64,
    bytes: f64,
    ns: f64,
    bytes_bytes: f64,
    bytes_ns: f64,
}

impl Default for CostModel {
    fn default() -> CostModel {
        let (weight, bytes, ns, bytes_bytes, bytes_ns) = (0.0, 0.0, 0.0, 0.0, 0.0);
        CostModel { power: FIRST, weight, bytes, ns, bytes_bytes, bytes_ns }
    }
}

impl CostModel {
    /// Bytes that cost as much as a request by itself, as a power of two.
    pub fn power(&self) -> u32 {
        self.power
    }

    /// A medium that had enough to do served so many requests of so many bytes in that time. True
    /// when costs are others from now on.
    pub fn learn(&mut self, requests: u64, bytes: u64, ns: u64) -> bool {
        let n = requests.max(1) as f64;
        let (x, y) = (bytes as f64 / n, ns as f64 / n);
        let mut seen = *self;
        for (sum, new) in [
            (&mut seen.weight, 1.0),
            (&mut seen.bytes, x),
            (&mut seen.ns, y),
            (&mut seen.bytes_bytes, x * x),
            (&mut seen.bytes_ns, x * y),
        ] {
            *sum = *sum * FADE + new;
        }
        *self = seen;
        let Some(par) = self.par_bytes() else { return false };
        let (least, most) = (f64::from(LEAST), f64::from(MOST));
        let power = par.max(1.0).log2().clamp(least, most);
        if (power - f64::from(self.power)).abs() < CLEARLY {
            return false;
        }
        self.power = (power.round() as u32).clamp(LEAST, MOST);
        true
    }

    /// Bytes that take as long as a request by itself; `None` when it cannot be seen (P2).
    fn par_bytes(&self) -> Option<f64> {
        let (x, y) = (self.bytes / self.weight, self.ns / self.weight);
        let variance = self.bytes_bytes / self.weight - x * x;
        let spread = (x * SPREAD).max(1.0);
        // Also false for NaN.
        let is_confident = variance >= spread * spread;
        if !is_confident {
            return None;
        }
        let slope = (self.bytes_ns / self.weight - x * y) / variance;
        let alone = y - slope * x;
        Some(match (alone > 0.0, slope > 0.0) {
            (_, false) => f64::INFINITY,
            (false, true) => 0.0,
            (true, true) => alone / slope,
        })
    }
}

/// Cost of a request of so many bytes, when two to the `power` bytes cost [`UNIT`].
#[inline]
pub(crate) fn cost(bytes: u64, power: u32) -> u32 {
    let moved = (bytes.min(u64::from(u32::MAX)) * u64::from(UNIT)) >> power.clamp(LEAST, MOST);
    u32::try_from(moved).unwrap_or(u32::MAX / 2).min(u32::MAX / 2) + UNIT
}

/// The same for many requests together.
pub(crate) fn cost_of_all(requests: u64, bytes: u64, power: u32) -> u64 {
    let unit = u64::from(UNIT);
    let moved = (u128::from(bytes) * u128::from(unit)) >> power.clamp(LEAST, MOST);
    u64::try_from(moved).unwrap_or(u64::MAX).saturating_add(requests.saturating_mul(unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use reactor::SeededRandom;
    use testkit::Seeds;

    /// A medium that takes `alone_ns` for each request and `kib_ns` for each KiB, a little more or
    /// less, with a mix of 4 KiB and 128 KiB that is sometimes another.
    fn measured(seed: u64, alone_ns: u64, kib_ns: u64) -> CostModel {
        let (mut random, mut price) = (SeededRandom::new(seed), CostModel::default());
        let mut large = 10;
        for look in 0..100 {
            if look % 8 == 0 {
                large = 1 + random.below(90);
            }
            let (requests, kib) = (1000, large * 10 * 128 + (100 - large) * 10 * 4);
            let ns = requests * alone_ns + kib * kib_ns;
            price.learn(requests, kib * 1024, ns * (990 + random.below(20)) / 1000);
        }
        price
    }

    #[test]
    fn the_cost_of_bytes_is_estimated_from_completed_requests() {
        for seed in Seeds::of(1000) {
            // 1 ms and 10 us a KiB: 100 KiB are as much as a request.
            let even = measured(seed, 1_000_000, 10_000).power();
            assert!((16..=17).contains(&even), "seed {seed}: {even}");
            // A disk that turns: 8 ms and 7 us a KiB.
            let disk = measured(seed, 8_000_000, 7_000).power();
            assert!((19..=21).contains(&disk), "seed {seed}: {disk}");
            // A thin wire: 0.2 ms and 50 us a KiB.
            let wire = measured(seed, 200_000, 50_000).power();
            assert!((LEAST..=13).contains(&wire), "seed {seed}: {wire}");
        }
    }

    #[test]
    fn p2_an_unchanged_mix_of_sizes_changes_no_estimate() {
        let mut price = measured(1, 8_000_000, 7_000);
        let was = price.power();
        // A disk that is slower for a while is not one to which bytes matter more.
        for n in 0..1000 {
            price.learn(1000, 4_096_000, 8_000_000_000 + n * 1_000_000);
        }
        assert_eq!(price.power(), was);
    }

    #[test]
    fn p3_estimate_moves_only_when_it_differs_clearly() {
        // A request costs as much as so many bytes, at 1 ns for a byte.
        let learned = |par_bytes: u64| {
            let mut price = CostModel::default();
            for look in 0..20 {
                let bytes = if look % 2 == 0 { 4096 } else { 65_536 };
                price.learn(1000, 1000 * bytes, 1000 * (par_bytes + bytes));
            }
            price.power()
        };
        assert_eq!(learned(1 << FIRST), FIRST);
        assert_eq!(learned(185_364), FIRST, "2 to the 17.5");
        assert_eq!(learned(1 << (FIRST + 1)), FIRST + 1);
    }

    #[test]
    fn p1_costs_grow_and_never_overflow() {
        for power in 0..64 {
            let mut last = 0;
            for bytes in [0, 512, 4096, 131_072, 32 << 20, u64::MAX] {
                let c = cost(bytes, power);
                assert!(c >= UNIT && c >= last, "{power} {bytes}");
                last = c;
            }
            cost_of_all(u64::MAX, u64::MAX, power);
        }
        assert_eq!(cost(1 << 16, 16), 2 * UNIT);
        assert_eq!(cost_of_all(3, 3 << 16, 16), 6 * u64::from(UNIT));
    }
}
