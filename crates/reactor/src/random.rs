//! Random numbers, from the kernel's generator or from a seed.

use rustix::rand::{GetRandomFlags, getrandom};

/// Bytes fetched from the kernel at a time: one call for 64 numbers.
const STOCK_BYTES: usize = 512;

/// A generator for simulations: xoshiro256**, seeded through splitmix64. Not for secrets.
#[derive(Clone, Debug)]
pub struct SeededRandom([u64; 4]);

impl SeededRandom {
    /// The same seed gives the same numbers on every machine.
    pub fn new(seed: u64) -> SeededRandom {
        let mut z = seed;
        SeededRandom(std::array::from_fn(|_| {
            z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut x = z;
            x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^ (x >> 31)
        }))
    }

    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let out = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// A number below `bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True `per_mille` times out of 1000.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < u64::from(per_mille)
    }
}

pub(crate) enum Random {
    Kernel { stock: Box<[u8; STOCK_BYTES]>, left: usize },
    Seeded(SeededRandom),
}

impl Random {
    pub(crate) fn kernel() -> Random {
        Random::Kernel { stock: Box::new([0; STOCK_BYTES]), left: 0 }
    }

    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        match self {
            Random::Seeded(r) => {
                for piece in out.chunks_mut(8) {
                    piece.copy_from_slice(&r.next_u64().to_le_bytes()[..piece.len()]);
                }
            }
            Random::Kernel { stock, left } => {
                for piece in out.chunks_mut(STOCK_BYTES) {
                    if *left < piece.len() {
                        refill(&mut stock[..]);
                        *left = STOCK_BYTES;
                    }
                    let from = &mut stock[*left - piece.len()..*left];
                    piece.copy_from_slice(from);
                    from.fill(0); // what was handed out is not kept
                    *left -= piece.len();
                }
            }
        }
    }
}

/// getrandom(2) does not fail once the pool is initialised. Requests up to 256 bytes are never cut
/// short by a signal, longer ones may be.
fn refill(mut stock: &mut [u8]) {
    while !stock.is_empty() {
        if let Ok(n) = getrandom(&mut *stock, GetRandomFlags::empty()) {
            stock = &mut stock[n..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_bytes_are_not_handed_out_twice() {
        let mut r = Random::kernel();
        let mut seen = std::collections::BTreeSet::new();
        for len in [8usize, 8, 500, 8, 2000, 16] {
            let mut out = vec![0; len];
            r.fill(&mut out);
            for word in out.chunks_exact(8) {
                assert!(seen.insert(word.to_vec()), "64 random bits do not repeat");
            }
        }
    }

    #[test]
    fn below_stays_below_and_reaches_every_value() {
        let mut r = SeededRandom::new(3);
        let mut hit = [false; 7];
        for _ in 0..500 {
            hit[r.below(7) as usize] = true;
        }
        assert!(hit.iter().all(|h| *h));
        assert_eq!(r.below(0), 0);
    }
}
