//! Division by a number that stays the same: of a member's strips, of the members.

/// A divisor of requests. The processor's division takes longer than all other work of a layer on a
/// request; a multiplication whose upper half is used does not. Powers of two get no path of their
/// own: a branch and a shift beside it cost registers and save no time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Divisor {
    by: u64,
    /// `2^64 / by`, rounded up. For a dividend below this value, the upper half of the product is
    /// the exact quotient: the rounding adds less than `1 / by`. Zero for a divisor of one, so that
    /// no dividend is below it.
    times: u64,
}

impl Divisor {
    /// Zero counts as one.
    pub(crate) const fn new(by: u64) -> Divisor {
        match by {
            0 | 1 => Divisor { by: 1, times: 0 },
            _ => Divisor { by, times: u64::MAX / by + 1 },
        }
    }

    pub(crate) const fn by(self) -> u64 {
        self.by
    }

    /// Quotient and rest.
    #[inline]
    pub(crate) fn split(self, of: u64) -> (u64, u64) {
        self.split_at_once(of).unwrap_or_else(|| (of / self.by, of % self.by))
    }

    /// The same where no division of the processor is needed, which is nearly everywhere.
    #[inline(always)]
    pub(crate) fn split_at_once(self, of: u64) -> Option<(u64, u64)> {
        // Beyond it the rounding may show.
        if of >= self.times {
            return None;
        }
        let quotient = ((u128::from(of) * u128::from(self.times)) >> 64) as u64;
        Some((quotient, of - quotient * self.by))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_equals_division_and_remainder() {
        let edge = |by: u64| u64::MAX / by;
        for by in (1..70).chain([511, 512, 3 << 14, 65_536, u64::MAX / 3, 1 << 63, u64::MAX]) {
            let d = Divisor::new(by);
            let near =
                |x: u64| (0..4).flat_map(move |i| [x.saturating_sub(i), x.saturating_add(i)]);
            let some = [0, by, edge(by), edge(by) / 2, edge(by) / by * by, u64::MAX, 1 << 58];
            let rows = (0..200u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            for x in some.into_iter().flat_map(near).chain(rows) {
                assert_eq!(d.split(x), (x / by, x % by), "{x} / {by}");
                assert_eq!(d.split(x >> 9), ((x >> 9) / by, (x >> 9) % by), "{x} / {by}");
            }
        }
        assert_eq!(Divisor::new(0).split(7), (7, 0));
    }
}
