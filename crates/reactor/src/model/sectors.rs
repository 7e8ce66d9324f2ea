//! Contents of a modelled disk, sparse, with the versions that a power cut may restore.

use std::collections::BTreeMap;

use crate::random::SeededRandom;

/// Versions of one sector remembered since the last flush; of more, those in the middle are
/// forgotten, which a power cut can then not restore.
const VERSIONS_MAX: usize = 4;

/// The bytes of a sector. None: it holds nothing and reads as zeros; no byte at all: zeros that
/// were written.
type Content = Option<Box<[u8]>>;

pub(super) struct Sectors {
    unit: usize,
    stable: BTreeMap<u64, Box<[u8]>>,
    /// Written since the last flush, oldest first, never empty.
    dirty: BTreeMap<u64, Vec<Content>>,
}

impl Sectors {
    pub(super) fn new(unit: u32) -> Sectors {
        Sectors { unit: unit as usize, stable: BTreeMap::new(), dirty: BTreeMap::new() }
    }

    pub(super) fn used(&self) -> usize {
        self.stable.len() + self.dirty.len()
    }

    pub(super) fn dirty(&self) -> usize {
        self.dirty.len()
    }

    fn now(&self, sector: u64) -> Option<&[u8]> {
        match self.dirty.get(&sector) {
            Some(versions) => versions.last().and_then(|v| v.as_deref()),
            None => self.stable.get(&sector).map(|b| &**b),
        }
    }

    /// Whether the sector of a byte holds something, and how many bytes from there on that is so
    /// for; at most `len`.
    pub(super) fn run_at(&self, offset: u64, len: u64) -> (bool, u64) {
        let (unit, end) = (self.unit as u64, offset.saturating_add(len));
        let first = offset / unit;
        let is_held = self.now(first).is_some();
        let next = match is_held {
            true => (first..end.div_ceil(unit)).find(|sector| self.now(*sector).is_none()),
            false => {
                let stable = self.stable.range(first..).map(|(sector, _)| *sector);
                let dirty = self.dirty.range(first..).map(|(sector, _)| *sector);
                let held = |sector: &u64| self.now(*sector).is_some();
                stable.clone().find(held).into_iter().chain(dirty.clone().find(held)).min()
            }
        };
        let stop = next.map_or(end, |sector| sector.saturating_mul(unit).min(end));
        (is_held, stop.saturating_sub(offset))
    }

    pub(super) fn read(&self, offset: u64, out: &mut [u8]) {
        let (unit, end) = (self.unit as u64, offset.saturating_add(out.len() as u64));
        let held = offset / unit..end.div_ceil(unit);
        out.fill(0);
        for (sector, bytes) in self.stable.range(held.clone()) {
            self.copy_part(*sector, bytes, offset, out);
        }
        for (sector, versions) in self.dirty.range(held) {
            let bytes = versions.last().and_then(|v| v.as_deref());
            self.copy_part(*sector, bytes.unwrap_or_default(), offset, out);
        }
    }

    /// Copies the part of a sector that is in `out`, which begins at `offset`. A sector without
    /// bytes is zeros.
    fn copy_part(&self, sector: u64, bytes: &[u8], offset: u64, out: &mut [u8]) {
        let begins = sector.saturating_mul(self.unit as u64);
        let (start, at) = (offset.saturating_sub(begins), begins.saturating_sub(offset));
        let (start, at) = (start as usize, at as usize);
        let len = (self.unit - start).min(out.len() - at);
        let Some(to) = out.get_mut(at..at + len) else { return };
        match bytes.get(start..start + len) {
            Some(from) => to.copy_from_slice(from),
            None => to.fill(0),
        }
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8], stable: bool) {
        self.change(offset, data.len() as u64, stable, |at, to| {
            if let Some(from) = data.get(at..at + to.len()) {
                to.copy_from_slice(from);
            }
        });
    }

    /// Only stored sectors are visited, so a whole large disk is zeroed at once.
    pub(super) fn zero(&mut self, offset: u64, len: u64, stable: bool) {
        let (unit, end) = (self.unit as u64, offset.saturating_add(len));
        let (first, last) = (offset.div_ceil(unit), end / unit);
        if first >= last {
            return self.change(offset, len, stable, |_, to| to.fill(0));
        }
        self.change(offset, first * unit - offset, stable, |_, to| to.fill(0));
        self.change(last * unit, end - last * unit, stable, |_, to| to.fill(0));
        let mut sectors: Vec<u64> = self.stable.range(first..last).map(|(s, _)| *s).collect();
        sectors.extend(self.dirty.range(first..last).map(|(s, _)| *s));
        sectors.sort_unstable();
        sectors.dedup();
        for sector in sectors {
            self.put(sector, None, stable);
        }
    }

    fn change(&mut self, offset: u64, len: u64, stable: bool, f: impl Fn(usize, &mut [u8])) {
        for (sector, start, at, n) in pieces(self.unit as u64, offset, len) {
            // A whole sector keeps nothing.
            let kept = if n < self.unit { self.now(sector) } else { None };
            let mut bytes: Box<[u8]> = match kept {
                Some(b) if !b.is_empty() => b.into(),
                _ => vec![0; self.unit].into(),
            };
            if let Some(part) = bytes.get_mut(start..start + n) {
                f(at, part);
            }
            let is_zero = bytes.iter().all(|b| *b == 0);
            self.put(sector, Some(if is_zero { Box::default() } else { bytes }), stable);
        }
    }

    fn put(&mut self, sector: u64, content: Content, stable: bool) {
        if stable {
            self.dirty.remove(&sector);
            self.settle(sector, content);
            return;
        }
        let versions = self.dirty.entry(sector).or_default();
        if versions.len() == VERSIONS_MAX {
            versions.remove(VERSIONS_MAX / 2);
        }
        versions.push(content);
    }

    fn settle(&mut self, sector: u64, content: Content) {
        match content {
            Some(bytes) => self.stable.insert(sector, bytes),
            None => self.stable.remove(&sector),
        };
    }

    pub(super) fn flush(&mut self) {
        for (sector, mut versions) in std::mem::take(&mut self.dirty) {
            if let Some(last) = versions.pop() {
                self.settle(sector, last);
            }
        }
    }

    pub(super) fn power_cut(&mut self, random: &mut SeededRandom) {
        for (sector, mut versions) in std::mem::take(&mut self.dirty) {
            // One choice more than there are versions: the stable content.
            let choice = random.below(versions.len() as u64 + 1) as usize;
            if choice < versions.len() {
                self.settle(sector, versions.swap_remove(choice));
            }
        }
    }

    /// Forgets everything from byte `size` on.
    pub(super) fn cut_off(&mut self, size: u64) {
        let unit = self.unit as u64;
        let tail = size % unit;
        if tail != 0 {
            self.zero(size, unit - tail, false);
        }
        let first = size.div_ceil(unit);
        self.stable.split_off(&first);
        self.dirty.split_off(&first);
    }
}

/// The sectors of a range: number, start in it, bytes of the range before it, bytes in it.
fn pieces(unit: u64, offset: u64, len: u64) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let (at, before) = (offset.saturating_add(done), done);
        let start = at % unit;
        let n = (unit - start).min(len - before);
        done += n;
        (n > 0).then_some((at / unit, start as usize, before as usize, n as usize))
    })
}
