//! Helpers that the tests of this folder share.

use extents::trim::Policy;

/// A small generator of chance (splitmix64), seeded.
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// A policy that sends at once every whole granule.
pub const EAGER: Policy = Policy {
    short: 0,
    batch_ranges: 1,
    quiet_ns: 0,
    expire_ns: 60_000_000_000,
    queued_max: 1024,
    stale_max: 1024,
    tries: 1,
    retry_ns: 0,
    doubt_ns: 60_000_000_000,
};
