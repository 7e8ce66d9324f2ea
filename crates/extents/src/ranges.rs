//! Ranges with a note each.
//!
//! Invariants
//!  M1  Ranges are not empty and no two of them overlap or touch: touching ranges are merged.
//!  M2  [`RangeMap::total`] is the sum of their lengths.

use std::collections::BTreeMap;
use std::ops::Range;

/// Merges the notes of two ranges that become one.
pub trait Merge: Copy {
    /// Their common note.
    fn merge(self, other: Self) -> Self;
}

impl Merge for () {
    fn merge(self, (): ()) {}
}

/// See the module.
#[derive(Clone, Debug)]
pub struct RangeMap<V = ()> {
    /// By first unit: end, note.
    map: BTreeMap<u64, (u64, V)>,
    total: u64,
}

impl<V> Default for RangeMap<V> {
    fn default() -> Self {
        RangeMap { map: BTreeMap::new(), total: 0 }
    }
}

impl<V: Merge> RangeMap<V> {
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Units in all of them.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.map.clear();
        self.total = 0;
    }

    pub fn iter(&self) -> impl Iterator<Item = (Range<u64>, V)> + '_ {
        self.map.iter().map(|(start, (end, note))| (*start..*end, *note))
    }

    /// Ranges that begin at `at` or later, in order.
    pub fn starting_at(&self, at: u64) -> impl Iterator<Item = (Range<u64>, V)> + '_ {
        self.map.range(at..).map(|(start, (end, note))| (*start..*end, *note))
    }

    /// Ranges with at least one unit in `range`, in order, whole.
    pub fn overlapping(&self, range: &Range<u64>) -> impl Iterator<Item = (Range<u64>, V)> + '_ {
        let before = self.map.range(..range.start).next_back();
        let before = before.filter(|(_, (end, _))| *end > range.start);
        let inside = self.map.range(range.start..range.end.max(range.start));
        let empty = range.is_empty();
        before
            .into_iter()
            .chain(inside)
            .map(|(start, (end, note))| (*start..*end, *note))
            .take_while(move |_| !empty)
    }

    /// Whether a unit of `range` is in one of them.
    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        self.overlapping(range).next().is_some()
    }

    /// The ranges that `range` would become one with: those that overlap or touch it.
    pub fn adjacent(&self, range: &Range<u64>) -> Vec<(Range<u64>, V)> {
        let wide = range.start.saturating_sub(1)..range.end.saturating_add(1);
        let touches = |r: &Range<u64>| r.start <= range.end && r.end >= range.start;
        self.overlapping(&wide).filter(|(r, _)| touches(r)).collect()
    }

    fn put(&mut self, range: Range<u64>, note: V) {
        if !range.is_empty() {
            self.total = self.total.saturating_add(range.end - range.start);
            self.map.insert(range.start, (range.end, note));
        }
    }

    fn pull(&mut self, start: u64) -> Option<(Range<u64>, V)> {
        let (end, note) = self.map.remove(&start)?;
        self.total = self.total.saturating_sub(end - start);
        Some((start..end, note))
    }

    /// Adds a range; merges it with the ranges that it overlaps or touches.
    pub fn insert(&mut self, range: Range<u64>, note: V) {
        if range.is_empty() {
            return;
        }
        let (mut whole, mut note) = (range.clone(), note);
        for (old, its) in self.adjacent(&range) {
            self.pull(old.start);
            whole = whole.start.min(old.start)..whole.end.max(old.end);
            note = note.merge(its);
        }
        self.put(whole, note);
    }

    /// Takes the units of `range` out; returns those that were there.
    pub fn cut(&mut self, range: &Range<u64>) -> Vec<(Range<u64>, V)> {
        let hit: Vec<_> = self.overlapping(range).collect();
        let mut gone = Vec::with_capacity(hit.len());
        for (old, note) in hit {
            self.pull(old.start);
            self.put(old.start..range.start.max(old.start).min(old.end), note);
            self.put(range.end.min(old.end).max(old.start)..old.end, note);
            gone.push((old.start.max(range.start)..old.end.min(range.end), note));
        }
        gone
    }
}

impl RangeMap<()> {
    /// Adds a range without a note.
    pub fn add(&mut self, range: Range<u64>) {
        self.insert(range, ());
    }
}

pub(crate) fn len(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every order of three changes in a space of six units, beside an array.
    /// M1, M2.
    #[test]
    fn range_map_matches_an_array_of_bits() {
        let ranges: Vec<Range<u64>> =
            (0..6).flat_map(|a| (a..=6).map(move |b| a..b)).filter(|r| !r.is_empty()).collect();
        let mut tried = 0;
        for a in &ranges {
            for b in &ranges {
                for c in &ranges {
                    for kinds in 0..8u32 {
                        let (mut map, mut bits) = (RangeMap::<()>::default(), [false; 6]);
                        for (i, r) in [a, b, c].into_iter().enumerate() {
                            let adds = kinds >> i & 1 == 0;
                            let was = (r.start..r.end).filter(|u| bits[*u as usize]).count();
                            (r.start..r.end).for_each(|u| bits[u as usize] = adds);
                            match adds {
                                true => map.add(r.clone()),
                                false => {
                                    let gone = map.cut(r);
                                    let n: u64 = gone.iter().map(|(g, ())| len(g)).sum();
                                    assert_eq!(n, was as u64);
                                }
                            }
                        }
                        agree(&map, &bits);
                        tried += 1;
                    }
                }
            }
        }
        assert_eq!(tried, 21 * 21 * 21 * 8);
    }

    fn agree(map: &RangeMap<()>, bits: &[bool; 6]) {
        let mut seen = [false; 6];
        let mut end = None;
        for (r, ()) in map.iter() {
            assert!(!r.is_empty() && end.is_none_or(|end| r.start > end), "M1: {map:?}");
            end = Some(r.end);
            (r.start..r.end).for_each(|u| seen[u as usize] = true);
        }
        assert_eq!(seen, *bits);
        assert_eq!(map.total(), bits.iter().filter(|b| **b).count() as u64, "M2");
        for a in 0..6u64 {
            for b in a..=6 {
                let within = (a..b).filter(|u| bits[*u as usize]).count() as u64;
                assert_eq!(map.overlaps(&(a..b)), within > 0);
            }
        }
    }
}
