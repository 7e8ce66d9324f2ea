//! Counts of waiting requests by disk area: a fast test that rules out overlaps.

/// A place on the disk by which overlaps are looked for first: so many bytes, as a shift.
const BUCKET_SHIFT: u32 = 17;
const BUCKETS: usize = 256;
/// A request over more places than this overlaps everything, at first sight.
const SPAN_MAX: u64 = 16;

/// Where requests that wait are, roughly: how many in each part of the disk.
pub(super) struct RegionCounts {
    all: [u32; BUCKETS],
    writes: [u32; BUCKETS],
    wide: u32,
}

/// Offset and length of a request, bytes, and whether it writes.
type RequestSpan = (u64, u64, bool);

impl RegionCounts {
    pub(super) fn new() -> RegionCounts {
        RegionCounts { all: [0; BUCKETS], writes: [0; BUCKETS], wide: 0 }
    }

    fn span(offset: u64, length: u64) -> Option<std::ops::RangeInclusive<u64>> {
        let (first, last) = (offset, offset.saturating_add(length.saturating_sub(1)));
        let (first, last) = (first >> BUCKET_SHIFT, last >> BUCKET_SHIFT);
        (last - first < SPAN_MAX).then_some(first..=last)
    }

    pub(super) fn change(&mut self, (offset, length, writes): RequestSpan, more: bool) {
        let by = |n: &mut u32| *n = if more { *n + 1 } else { n.saturating_sub(1) };
        let Some(span) = RegionCounts::span(offset, length) else {
            return by(&mut self.wide);
        };
        for part in span {
            let part = part as usize % BUCKETS;
            self.all.get_mut(part).map(by);
            if writes {
                self.writes.get_mut(part).map(by);
            }
        }
    }

    /// False only if none of them overlaps this one with one of the two writing.
    pub(super) fn may_overlap(&self, (offset, length, writes): RequestSpan) -> bool {
        let table = if writes { &self.all } else { &self.writes };
        match RegionCounts::span(offset, length) {
            _ if self.wide > 0 => true,
            None => true,
            Some(mut span) => span.any(|p| table.get(p as usize % BUCKETS).is_some_and(|n| *n > 0)),
        }
    }
}
