//! What a request costs its medium: as much as so many commands that move nothing. Pure.
//!
//! A medium spends time on each request, whatever its size, and time on each byte. How many bytes
//! take as long as a request does by itself differs between a disk that turns, flash, and a link
//! to somewhere else; it is found from times that were measured: a line through times below over
//! sizes. Times below contain waiting, but as much of it for large requests as for small ones, so
//! the slope is that of the medium; and while there is a limit (`knee.rs`) there is little of it.
//!
//! Invariants
//!  P1  A cost is at least [`UNIT`] and grows with the bytes.
//!  P2  Without requests of different sizes nothing is learnt, and nothing is forgotten.
//!  P3  The number is a power of two and moves when the measured one is another by more than
//!      [`CLEARLY`]: what is counted in costs, a limit above all, keeps its meaning for long.

/// Cost of a request that moves nothing.
pub(crate) const UNIT: u32 = 256;

/// Bytes that cost as much as a request by itself, as a power of two: at first, at least, at most.
const FIRST: u32 = 16;
const LEAST: u32 = 12;
const MOST: u32 = 22;

/// Requests behind an estimate.
const ENOUGH: u64 = 64;

/// Sizes differ when their spread is at least so many sectors.
const SPREAD: f64 = 8.0;

/// Part of an estimate in what is known.
const WEIGHT: f64 = 0.25;

/// How far the power must be off before it moves, in powers of two.
const CLEARLY: f64 = 0.75;

/// Sizes are counted in so many bytes, times in so many ns: squares keep within 64 bits.
const SECTOR: u64 = 512;
const TICK_NS: u64 = 1000;

/// What was measured of requests that ended.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Sums {
    pub requests: u64,
    sectors: u64,
    ticks: u64,
    sectors_sectors: u64,
    sectors_ticks: u64,
}

impl Sums {
    /// A request of `bytes` took `ns`.
    pub fn add(&mut self, bytes: u64, ns: u64) {
        let (sectors, ticks) = (bytes / SECTOR, ns / TICK_NS);
        self.requests = self.requests.wrapping_add(1);
        self.sectors = self.sectors.wrapping_add(sectors);
        self.ticks = self.ticks.wrapping_add(ticks);
        self.sectors_sectors = self.sectors_sectors.wrapping_add(sectors.wrapping_mul(sectors));
        self.sectors_ticks = self.sectors_ticks.wrapping_add(sectors.wrapping_mul(ticks));
    }

    /// Those of another core.
    pub fn merge(&mut self, other: &Sums) {
        self.requests = self.requests.wrapping_add(other.requests);
        self.sectors = self.sectors.wrapping_add(other.sectors);
        self.ticks = self.ticks.wrapping_add(other.ticks);
        self.sectors_sectors = self.sectors_sectors.wrapping_add(other.sectors_sectors);
        self.sectors_ticks = self.sectors_ticks.wrapping_add(other.sectors_ticks);
    }

    /// Bytes that take as long as a request by itself; `None` when it cannot be seen (P2).
    fn par_bytes(&self) -> Option<f64> {
        if self.requests < ENOUGH {
            return None;
        }
        let n = self.requests as f64;
        let (x, y) = (self.sectors as f64 / n, self.ticks as f64 / n);
        let variance = self.sectors_sectors as f64 / n - x * x;
        if variance < SPREAD * SPREAD {
            return None;
        }
        let slope = (self.sectors_ticks as f64 / n - x * y) / variance;
        let alone = y - slope * x;
        let sectors = match (alone > 0.0, slope > 0.0) {
            (_, false) => f64::INFINITY,
            (false, true) => 0.0,
            (true, true) => alone / slope,
        };
        Some(sectors * SECTOR as f64)
    }
}

/// The price of bytes at one unit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Price {
    /// The power of two that is in use (P3), and the one that was measured.
    power: u32,
    known: f64,
}

impl Default for Price {
    fn default() -> Price {
        Price { power: FIRST, known: f64::from(FIRST) }
    }
}

impl Price {
    /// Bytes that cost as much as a request by itself, as a power of two.
    pub fn power(&self) -> u32 {
        self.power
    }

    /// Learns; true when costs are others from now on.
    pub fn learn(&mut self, sums: &Sums) -> bool {
        let Some(bytes) = sums.par_bytes() else { return false };
        let seen = bytes.max(1.0).log2().clamp(f64::from(LEAST), f64::from(MOST));
        self.known += (seen - self.known) * WEIGHT;
        if (self.known - f64::from(self.power)).abs() < CLEARLY {
            return false;
        }
        let was = self.power;
        self.power = (self.known.round() as u32).clamp(LEAST, MOST);
        was != self.power
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

    /// Requests of two sizes at a medium that takes `alone_ns` for each and `per_kib_ns` for each
    /// KiB, behind a queue of up to `wait_ns`.
    fn measured(seed: u64, alone_ns: u64, per_kib_ns: u64, wait_ns: u64) -> Price {
        let (mut random, mut price) = (SeededRandom::new(seed), Price::default());
        for _ in 0..60 {
            let mut sums = Sums::default();
            for _ in 0..400 {
                let bytes = if random.below(3) == 0 { 131_072 } else { 4096 };
                let wait = random.below(wait_ns.max(1));
                sums.add(bytes, alone_ns + bytes / 1024 * per_kib_ns + wait);
            }
            price.learn(&sums);
        }
        price
    }

    #[test]
    fn the_price_of_bytes_is_found_from_times() {
        for seed in 0..20 {
            // 1 ms and 10 us a KiB: 100 KiB are as much as a request.
            let even = measured(seed, 1_000_000, 10_000, 0).power();
            assert!((16..=17).contains(&even), "seed {seed}: {even}");
            let late = measured(seed, 1_000_000, 10_000, 500_000).power();
            assert!((16..=18).contains(&late), "seed {seed}: {late}");
            // A disk that turns: 8 ms and 7 us a KiB.
            assert!(measured(seed, 8_000_000, 7_000, 0).power() >= 20);
            // A thin wire: nothing but bytes.
            assert_eq!(measured(seed, 0, 50_000, 0).power(), LEAST);
        }
    }

    #[test]
    fn p2_one_size_teaches_nothing() {
        let mut price = measured(1, 8_000_000, 7_000, 0);
        let (was, mut sums) = (price, Sums::default());
        (0..1000).for_each(|n| sums.add(4096, 1_000_000 + n));
        assert!(!price.learn(&sums));
        assert_eq!(price, was);
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
