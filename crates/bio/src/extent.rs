//! Byte ranges whose arithmetic cannot overflow.

/// `len` bytes from `start`. `start + len` fits in a `u64` by construction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Extent {
    start: u64,
    len: u64,
}

impl Extent {
    /// `None` when the end would not fit in 64 bits.
    pub const fn new(start: u64, len: u64) -> Option<Extent> {
        match start.checked_add(len) {
            Some(_) => Some(Extent { start, len }),
            None => None,
        }
    }

    /// First byte.
    pub const fn start(self) -> u64 {
        self.start
    }

    /// Bytes.
    pub const fn len(self) -> u64 {
        self.len
    }

    /// First byte after the range.
    pub const fn end(self) -> u64 {
        self.start + self.len
    }

    /// True when there is no byte in it.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// True when every byte of `other` lies in `self`.
    pub const fn contains(self, other: Extent) -> bool {
        other.start >= self.start && other.end() <= self.end()
    }

    /// True when at least one byte lies in both.
    pub const fn overlaps(self, other: Extent) -> bool {
        self.start < other.end()
            && other.start < self.end()
            && !self.is_empty()
            && !other.is_empty()
    }

    /// The bytes in both, if any.
    pub fn intersection(self, other: Extent) -> Option<Extent> {
        let start = self.start.max(other.start);
        let end = self.end().min(other.end());
        (start < end).then(|| Extent { start, len: end - start })
    }

    /// The largest range inside `self` that starts and ends on a multiple of `unit` (not zero).
    pub fn aligned_inside(self, unit: u64) -> Option<Extent> {
        let start = self.start.checked_next_multiple_of(unit)?;
        let end = self.end() / unit * unit;
        (start < end).then(|| Extent { start, len: end - start })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_never_overflows() {
        assert!(Extent::new(u64::MAX, 1).is_none());
        assert_eq!(Extent::new(u64::MAX, 0).map(Extent::end), Some(u64::MAX));
    }

    #[test]
    fn aligned_inside_shrinks_and_may_be_empty() {
        let e = |s, l| Extent::new(s, l).unwrap();
        assert_eq!(e(1, 4096 * 2).aligned_inside(4096), Some(e(4096, 4096)));
        assert_eq!(e(1, 4096).aligned_inside(4096), None);
        assert_eq!(e(8192, 4096).aligned_inside(4096), Some(e(8192, 4096)));
    }

    #[test]
    fn overlap_and_intersection_agree() {
        for a in 0..6u64 {
            for al in 0..4u64 {
                for b in 0..6u64 {
                    for bl in 0..4u64 {
                        let (x, y) = (Extent::new(a, al).unwrap(), Extent::new(b, bl).unwrap());
                        assert_eq!(x.overlaps(y), x.intersection(y).is_some(), "{x:?} {y:?}");
                    }
                }
            }
        }
    }
}
