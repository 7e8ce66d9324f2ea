//! DELETE requests with several ranges.
//!
//! A device takes as long for one range as for many, so one DELETE may name several. Ranges are
//! relative to `offset`, so changing `offset` moves all of them.
//!
//! Invariants
//!  X1  A list has at least two ranges. They ascend, none is empty, none overlaps another; the
//!      first begins at `offset`, the last ends at `offset + length`.
//!  X2  A layer never sees a list with more ranges than it accepts, and a layer that accepts one
//!      range sees no list. The dispatcher cuts it before. Code that uses only `offset` and
//!      `length` therefore never deletes data between two ranges. A list may also request zeroes in
//!      place of deletion; no layer sees such a list.

use std::ops::Range;
use std::sync::Arc;

use crate::request::{Bio, Op};

/// The ranges of a request, counted from its `offset`.
#[derive(Clone, Debug)]
pub(crate) struct Scatter {
    ranges: Arc<[(u64, u64)]>,
    total: u64,
}

/// Appends a range to an ordered list. Ranges that are apart on the whole device may touch on a
/// member.
pub fn append_range(list: &mut Vec<Range<u64>>, range: Range<u64>) {
    match list.last_mut().filter(|last| last.end == range.start) {
        Some(last) => last.end = range.end,
        None => list.push(range),
    }
}

impl Bio {
    /// Makes it a DELETE of these ranges, which ascend and do not overlap; empty ones are passed
    /// over. False, and nothing is changed, when they are not in order or when there is none.
    pub fn delete_ranges(&mut self, ranges: &[Range<u64>]) -> bool {
        let mut ranges = ranges.iter().filter(|r| !r.is_empty()).peekable();
        let Some(first) = ranges.peek().map(|r| r.start) else { return false };
        let (mut list, mut total, mut end) = (Vec::with_capacity(ranges.size_hint().0), 0, first);
        for range in ranges {
            if range.start < end {
                return false;
            }
            (end, total) = (range.end, total + (range.end - range.start));
            list.push((range.start - first, range.end - first));
        }
        (self.op, self.offset, self.length) = (Op::Delete, first, end - first);
        self.scatter = (list.len() > 1).then(|| Scatter { ranges: list.into(), total });
        true
    }

    /// Takes over the ranges of another Bio; only bounds are copied.
    pub fn copy_range_from(&mut self, other: &Bio) {
        (self.offset, self.length) = (other.offset, other.length);
        self.scatter = other.scatter.clone();
    }

    /// It names several ranges (X1): not all from `offset` to `offset + length` is meant.
    #[inline]
    pub fn is_scattered(&self) -> bool {
        self.scatter.is_some()
    }

    /// How many ranges it names.
    pub fn range_count(&self) -> usize {
        self.scatter.as_ref().map_or(1, |s| s.ranges.len())
    }

    /// The ranges it names.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let several = self.scatter.iter().flat_map(|s| s.ranges.iter().copied());
        let one = self.scatter.is_none().then_some((0, self.length));
        let at = self.offset;
        one.into_iter().chain(several).map(move |(a, b)| at.saturating_add(a)..at.saturating_add(b))
    }

    /// Bytes that are meant: `length`, or less when it names several ranges.
    #[inline]
    pub fn bytes(&self) -> u64 {
        match &self.scatter {
            None => self.length,
            Some(several) => several.total,
        }
    }

    /// The piece that begins after `gone` of the requested bytes, at most `max` long: its offset
    /// and its length.
    pub fn piece(&self, mut gone: u64, max: u64) -> Option<(u64, u64)> {
        for range in self.ranges() {
            let len = range.end - range.start;
            if gone < len {
                return Some((range.start + gone, max.min(len - gone)));
            }
            gone -= len;
        }
        None
    }

    /// The ranges from the byte that `gone` bytes of those meant precede, as many as fit in `most`
    /// ranges and `max` bytes. The last one may be a part.
    pub fn pieces(&self, mut gone: u64, mut max: u64, most: usize) -> Vec<Range<u64>> {
        let mut pieces = Vec::new();
        for range in self.ranges() {
            let len = range.end - range.start;
            let skipped = gone.min(len);
            gone -= skipped;
            let taken = max.min(len - skipped);
            if pieces.len() == most || max == 0 {
                break;
            }
            if taken > 0 {
                let start = range.start + skipped;
                pieces.push(start..start + taken);
                max -= taken;
            }
        }
        pieces
    }

    /// Cuts off ranges beyond `room` bytes after `offset`.
    pub fn cut_off(&mut self, room: u64) {
        if self.length <= room {
            return;
        }
        self.length = room;
        let Some(several) = self.scatter.take() else { return };
        let left = several.ranges.iter().filter(|(start, _)| *start < room);
        let left: Vec<Range<u64>> =
            left.map(|(start, end)| self.offset + start..self.offset + end.min(&room)).collect();
        self.delete_ranges(&left);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Op, Slab};

    #[test]
    fn x1_ascending_ranges_are_accepted_and_others_refused() {
        let mut bio = Slab::new().alloc();
        assert!(!bio.delete_ranges(&[]) && !bio.delete_ranges(&[5..5, 9..9]));
        assert!(!bio.delete_ranges(&[5..9, 8..12]), "they overlap");
        assert!(!bio.delete_ranges(&[9..12, 5..8]), "they descend");
        assert_eq!(bio.op, Op::Read, "nothing was changed");
        assert!(bio.delete_ranges(&[10..20, 20..20]));
        assert!(!bio.is_scattered());
        assert_eq!((bio.offset, bio.length, bio.bytes(), bio.range_count()), (10, 10, 10, 1));
        assert!(bio.delete_ranges(&[10..20, 20..24, 40..50]));
        assert_eq!((bio.offset, bio.length, bio.bytes(), bio.range_count()), (10, 40, 24, 3));
        bio.offset += 1000;
        assert_eq!(bio.ranges().collect::<Vec<_>>(), [1010..1020, 1020..1024, 1040..1050]);
    }

    #[test]
    fn pieces_cover_the_ranges_once() {
        let mut bio = Slab::new().alloc();
        for ranges in [vec![7..8], vec![3..10, 12..13], vec![0..4, 4..6, 9..20, 30..31]] {
            bio.delete_ranges(&ranges);
            for max in 1..12 {
                let (mut gone, mut seen) = (0, Vec::new());
                while let Some((at, len)) = bio.piece(gone, max) {
                    assert!((1..=max).contains(&len));
                    seen.extend(at..at + len);
                    gone += len;
                }
                let all: Vec<u64> = ranges.iter().cloned().flatten().collect();
                assert_eq!((&seen, gone), (&all, bio.bytes()));
            }
        }
    }

    #[test]
    fn lists_of_pieces_cover_the_ranges_once_and_are_full() {
        let mut bio = Slab::new().alloc();
        bio.delete_ranges(&[0..4, 4..6, 9..20, 30..31, 40..41]);
        for (max, most) in (1..22).flat_map(|max| (1..7).map(move |most| (max, most))) {
            let (mut gone, mut seen) = (0, Vec::new());
            while gone < bio.bytes() {
                let list = bio.pieces(gone, max, most);
                let bytes: u64 = list.iter().map(|r| r.end - r.start).sum();
                assert!(!list.is_empty() && list.len() <= most && bytes <= max);
                gone += bytes;
                let full = bytes == max || list.len() == most;
                assert!(full || gone == bio.bytes(), "{max} {most}: {list:?}");
                seen.extend(list.into_iter().flatten());
            }
            assert_eq!(seen, bio.ranges().flatten().collect::<Vec<_>>());
        }
    }

    #[test]
    fn bytes_that_are_cut_off_are_in_no_range() {
        for room in 0..32u64 {
            let mut bio = Slab::new().alloc();
            bio.delete_ranges(&[100..104, 106..110, 120..130]);
            bio.cut_off(room);
            let all = (100..104).chain(106..110).chain(120..130u64);
            let left: Vec<u64> = all.filter(|at| at - 100 < room).collect();
            assert_eq!(bio.ranges().flatten().collect::<Vec<_>>(), left, "{room}");
            assert_eq!(bio.bytes(), left.len() as u64);
            assert!(bio.length <= room.min(30));
        }
    }
}
