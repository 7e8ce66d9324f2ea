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

    /// True when every byte of `other` is in `self`.
    pub const fn contains(self, other: Extent) -> bool {
        other.start >= self.start && other.end() <= self.end()
    }

    /// True when at least one byte is in both.
    pub const fn overlaps(self, other: Extent) -> bool {
        self.start < other.end()
            && other.start < self.end()
            && !self.is_empty()
            && !other.is_empty()
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
}
