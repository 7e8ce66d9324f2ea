//! Entry points for fuzzing: ordinary functions that take any bytes.

/// A small seeded generator for tests (xorshift64*); not for secrets.
pub struct Prng(u64);

impl Prng {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Prng {
        Prng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        let wide = u64::try_from(n.max(1)).unwrap_or(u64::MAX);
        usize::try_from((self.next_u64() >> 11) % wide).unwrap_or(0)
    }

    /// Fills `out`.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            for (to, from) in chunk.iter_mut().zip(self.next_u64().to_le_bytes()) {
                *to = from;
            }
        }
    }
}
