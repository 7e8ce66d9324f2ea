//! Write-intent bitmap: the regions in which the members of a mirror may differ after a crash.
//!
//! ```text
//!   write --> bit durable? --yes-----------------------------------------------> start
//!                   \--no--> wait --> Job::Mark: all bitmaps written --> bit set --^
//!   idle, or too many bits: gate drained --> members flushed --> bitmaps cleared
//! ```
//!
//! Each member keeps the bitmap before its last sector, a bit a region, the lowest bit of a byte
//! first. A mirror with one has records of version 5, which FreeBSD refuses as too new.
//!
//! Invariants
//!  B1  A write reaches a member only when the bits of its regions are durable on all members.
//!  B2  Bits are cleared only while no write is in flight, after all members were flushed, and
//!      while no member is rebuilt by them.
//!  B3  Regions whose bits are clear on a complete member are equal on all complete members,
//!      whenever the power fails.
//!  B4  While a provider grows, it has exactly one record at any time. Where the bitmap's new place
//!      is that of the old record, a record without a bitmap is written to the new end first. The
//!      old place is then not cleared, because it holds bits.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use bio::Ticket;

/// Most bytes of a bitmap: the size that one write to each member updates.
pub(super) const BYTES_MAX: u64 = 4096;
/// Smallest region, bytes: below that bits would be written more often than data.
pub(super) const REGION_MIN: u64 = 4096;
/// The region when none is requested, bytes, unless the mirror is too large for so small ones.
const REGION: u64 = 1 << 20;

/// Place and size of a member's bitmap, and the size of its regions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    /// Bytes of a region, as a power of two.
    pub(super) shift: u8,
    /// Bytes of the bitmap: whole sectors, before the last one.
    pub(super) bytes: u32,
}

impl Shape {
    /// The bitmap of a mirror of so many bytes; `region` bytes each, or as it fits.
    pub(super) fn of(media_bytes: u64, sector_bytes: u32, region: Option<u64>) -> Option<Shape> {
        let least = media_bytes.div_ceil(BYTES_MAX * 8).max(REGION_MIN);
        let region = region.unwrap_or(REGION.max(least));
        if region < least || !region.is_power_of_two() {
            return None;
        }
        let bits = media_bytes.div_ceil(region).max(1);
        let sector = u64::from(sector_bytes).max(512);
        let bytes = bits.div_ceil(8).div_ceil(sector) * sector;
        Some(Shape { shift: region.trailing_zeros() as u8, bytes: u32::try_from(bytes).ok()? })
    }

    /// True when it has a bit for each region.
    pub(super) fn covers(&self, media_bytes: u64) -> bool {
        media_bytes.div_ceil(self.region()) <= u64::from(self.bytes) * 8
    }

    pub(super) fn region(&self) -> u64 {
        1u64.checked_shl(u32::from(self.shift)).unwrap_or(u64::MAX)
    }

    /// The regions that a range touches.
    fn regions(&self, offset: u64, length: u64) -> Range<u64> {
        let last = offset.saturating_add(length.saturating_sub(1));
        offset >> self.shift..(last >> self.shift) + 1
    }
}

/// Bits that are durable on all members, for the cores.
#[derive(Debug)]
pub(super) struct Bits {
    shape: Shape,
    words: Box<[AtomicU64]>,
}

impl Bits {
    pub(super) fn new(shape: Shape) -> Bits {
        let words = (0..(shape.bytes as usize).div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        Bits { shape, words }
    }

    fn has(&self, region: u64) -> bool {
        let word = self.words.get((region / 64) as usize);
        word.is_some_and(|word| word.load(SeqCst) >> (region % 64) & 1 == 1)
    }

    /// B1: true when a write there may start.
    pub(super) fn covers(&self, offset: u64, length: u64) -> bool {
        self.shape.regions(offset, length).all(|region| self.has(region))
    }

    /// The image is durable.
    pub(super) fn set(&self, image: &Image) {
        for (word, bytes) in self.words.iter().zip(image.bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            word.store(u64::from_le_bytes(padded), SeqCst);
        }
    }
}

/// The content of the bitmaps on the members, or the content to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Image {
    pub(super) shape: Shape,
    pub(super) bytes: Vec<u8>,
}

impl Image {
    /// Nothing differs.
    pub(super) fn clear(shape: Shape) -> Image {
        Image { shape, bytes: vec![0; shape.bytes as usize] }
    }

    /// A write to the region is about to start.
    pub(super) fn mark(&mut self, offset: u64, length: u64) {
        for region in self.shape.regions(offset, length) {
            if let Some(byte) = self.bytes.get_mut((region / 8) as usize) {
                *byte |= 1 << (region % 8);
            }
        }
    }

    /// Adds the bits of another bitmap. Bits beyond its end, or of one that could not be read,
    /// count as set.
    pub(super) fn join(&mut self, other: &[u8]) {
        let others = other.iter().copied().chain(std::iter::repeat(0xff));
        self.bytes.iter_mut().zip(others).for_each(|(own, other)| *own |= other);
    }

    /// Bits that are set.
    pub(super) fn count(&self) -> u64 {
        self.bytes.iter().map(|b| u64::from(b.count_ones())).sum()
    }

    /// Whether so many bits are set that a crash would cost much: an eighth of all.
    pub(super) fn is_mostly_set(&self, media_bytes: u64) -> bool {
        self.count() > media_bytes.div_ceil(self.shape.region()) / 8
    }

    /// The bytes of the mirror that may differ, as runs.
    pub(super) fn runs(&self, media_bytes: u64) -> Vec<Range<u64>> {
        let mut out: Vec<Range<u64>> = Vec::new();
        let region = self.shape.region();
        let count = media_bytes.div_ceil(region).min(self.bytes.len() as u64 * 8);
        for at in 0..count {
            let byte = self.bytes.get((at / 8) as usize).copied().unwrap_or(0xff);
            if byte >> (at % 8) & 1 == 0 {
                continue;
            }
            let (start, end) = (at * region, ((at + 1) * region).min(media_bytes));
            match out.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => out.push(start..end),
            }
        }
        out
    }
}

/// Writes that wait for bits.
#[derive(Default)]
pub(super) struct MarkQueue {
    /// Ranges to mark, bytes, and the waiting writes.
    pub(super) wanted: Vec<(u64, u64)>,
    pub(super) waiting: Vec<(usize, Ticket)>,
    /// The geom is removed: no request waits any more.
    pub(super) closed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_a_bit_for_each_region_and_fit_one_write() {
        for media in [512, 65536, 1 << 30, 1 << 40, 1 << 44, 1 << 50] {
            let shape = Shape::of(media, 512, None).expect("a shape");
            assert!(shape.covers(media), "{media}");
            assert!(
                u64::from(shape.bytes) <= BYTES_MAX && shape.bytes.is_multiple_of(512),
                "{media}"
            );
        }
        let shape = Shape { shift: 12, bytes: 512 };
        assert_eq!(Shape::of(65536, 512, Some(4096)), Some(shape));
        assert_eq!(Shape::of(65536, 512, Some(4095)), None);
        assert_eq!(Shape::of(1 << 40, 512, Some(4096)), None, "too many regions");
    }

    #[test]
    fn marks_cover_written_ranges_and_runs_match_the_marks() {
        let shape = Shape { shift: 12, bytes: 512 };
        let (mut image, bits) = (Image::clear(shape), Bits::new(shape));
        assert!(!bits.covers(0, 512));
        image.mark(4095, 2);
        image.mark(40960, 4096);
        bits.set(&image);
        assert!(bits.covers(0, 8192) && bits.covers(40960, 1));
        assert!(!bits.covers(0, 8193) && !bits.covers(45056, 1));
        assert_eq!(image.runs(43000), [0..8192, 40960..43000]);
        assert_eq!(image.count(), 3);
    }

    #[test]
    fn unreadable_bitmap_marks_every_region() {
        let shape = Shape { shift: 12, bytes: 512 };
        let mut image = Image::clear(shape);
        image.join(&[]);
        assert_eq!(image.count(), 8 * 512);
        assert_eq!(image.runs(10_000), std::slice::from_ref(&(0..10_000)));
    }
}
