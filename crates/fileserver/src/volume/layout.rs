//! The layout of a cache device.
//!
//! ```text
//!   | header | header again | journal ring | pages of the table, two copies each | slots ... |
//! ```
//! Everything is counted in blocks of the volume's size. The header is written when the volume is
//! made and when the device grows, never while it runs.

use super::fence::Owner;
use super::seal::{self, Decoder, Encoder};
use crate::fault::Fault;

const MAGIC: [u8; 4] = *b"ASHC";
const VERSION: u32 = 1;
/// Block sizes that a volume may have, bytes.
pub const BLOCKS: [u32; 4] = [4096, 8192, 16 << 10, 64 << 10];
/// Blocks of the header's copies.
const HEADERS: u64 = 2;
/// The ring is this part of the device ...
const RING_PART: u64 = 64;
/// ... but at least and at most so much.
const RING_BYTES: (u64, u64) = (512 << 10, 256 << 20);
/// The table has space for so many times the slots that a new volume's device holds: it may grow.
const GROWTH: u64 = 4;
/// Bytes of a slot in the table: address, checksum.
pub const ENTRY: usize = 12;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The owner of these blocks; chosen by chance when the volume was made.
    pub volume: u64,
    /// Marks journal and table as those of this use of the device; chosen when it was formatted.
    pub format_id: u64,
    /// The server that the device belongs to, as the fence knows it.
    pub owner: Owner,
    /// Bytes of a block.
    pub block: u32,
    /// First block of the journal, and how many.
    pub ring: (u64, u64),
    /// First block of the table's pages, and the most of them (two blocks each).
    pub pages: (u64, u64),
    /// First block of the slots, and how many.
    pub slots: (u64, u64),
}

impl Layout {
    /// For a new volume on a device of `size` bytes.
    pub fn plan(
        size: u64,
        block: u32,
        (volume, life): (u64, u64),
        owner: Owner,
    ) -> Result<Layout, Fault> {
        if !BLOCKS.contains(&block) {
            return Err(Fault::Invalid(
                "block: a volume's blocks have 4096, 8192, 16384 or 65536 bytes",
            ));
        }
        let wide = u64::from(block);
        let all = size / wide;
        let bytes = (size / RING_PART).clamp(RING_BYTES.0, RING_BYTES.1);
        let ring = (HEADERS, bytes.div_ceil(wide).max(16));
        let left = all.saturating_sub(ring.0 + ring.1);
        let per_page = ((block as usize - seal::SEAL) / ENTRY) as u64;
        // A page and its copy serve `per_page` slots.
        let pages = (left * GROWTH).div_ceil(per_page + 2 * GROWTH);
        let first = ring.0 + ring.1;
        let slots = left.saturating_sub(2 * pages).min(u64::from(u32::MAX));
        if slots < 32 {
            return Err(Fault::NoSpace("the cache device is too small to hold a volume"));
        }
        let slots = (first + 2 * pages, slots);
        Ok(Layout { volume, format_id: life, owner, block, ring, pages: (first, pages), slots })
    }

    /// With the slots that a device of `size` bytes has; none: no more than before.
    pub fn grown(&self, size: u64) -> Option<Layout> {
        let present = (size / u64::from(self.block)).saturating_sub(self.slots.0);
        let capacity = self.pages.1.saturating_mul(self.per_page() as u64);
        let slots = present.min(capacity).min(u64::from(u32::MAX));
        (slots > self.slots.1).then_some(Layout { slots: (self.slots.0, slots), ..*self })
    }

    /// Pages that describe slots.
    pub fn pages_used(&self) -> usize {
        (self.slots.1 as usize).div_ceil(self.per_page())
    }

    /// Slots that one page of the table describes.
    pub fn per_page(&self) -> usize {
        (self.block as usize - seal::SEAL) / ENTRY
    }

    /// Byte offset of a block of the device.
    pub fn at(&self, block: u64) -> u64 {
        block * u64::from(self.block)
    }

    /// Byte offset of a slot.
    pub fn slot_at(&self, slot: u32) -> u64 {
        self.at(self.slots.0 + u64::from(slot))
    }

    /// The header, as a block.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Encoder::default();
        body.u32(VERSION).u32(self.block).u64(self.format_id);
        for (first, n) in [self.ring, self.pages, self.slots] {
            body.u64(first).u64(n);
        }
        body.0.extend_from_slice(&self.owner);
        let mut out = vec![0; self.block as usize];
        seal::seal(&mut out, MAGIC, self.volume, 0, &body.0);
        out
    }

    /// From the first bytes of a device of `size` bytes. The error has the reason.
    pub fn decode(bytes: &[u8], size: u64) -> Result<Layout, &'static str> {
        let sealed = seal::open(bytes, MAGIC)?;
        let mut t = Decoder(sealed.body);
        if t.u32() != VERSION {
            return Err("a later version made it");
        }
        let (volume, block, life) = (sealed.volume, t.u32(), t.u64());
        let mut pair = || (t.u64(), t.u64());
        let (ring, pages, slots) = (pair(), pair(), pair());
        let mut owner = Owner::default();
        owner.iter_mut().zip(t.bytes(16)).for_each(|(to, b)| *to = *b);
        let l = Layout { volume, format_id: life, owner, block, ring, pages, slots };
        if !BLOCKS.contains(&block) {
            return Err("its block size makes no sense");
        }
        let all = size / u64::from(block);
        let ends = [l.ring, l.pages, l.slots].map(|(first, n)| first.checked_add(n));
        let pages_end = l.pages.1.checked_mul(2).and_then(|n| l.pages.0.checked_add(n));
        let per_page = l.per_page() as u64;
        let fits = ends.iter().all(|e| e.is_some_and(|e| e <= all))
            && l.ring.0 >= HEADERS
            && l.ring.1 >= 4
            && ends[0].is_some_and(|e| e <= l.pages.0)
            && pages_end.is_some_and(|e| e <= l.slots.0)
            && l.slots.1 > 0
            && l.slots.1 <= u64::from(u32::MAX)
            && l.pages.1.checked_mul(per_page).is_some_and(|n| n >= l.slots.1);
        if fits { Ok(l) } else { Err("its parts do not fit the device") }
    }
}

#[cfg(test)]
mod tests {
    use testkit::formats::FieldTable;

    use super::*;

    #[test]
    fn layout_fits_every_device_size_and_decodes_unchanged() {
        for size in [1 << 20, 3_000_001, 64 << 20, 25 << 30, 40_u64 << 40] {
            for block in BLOCKS {
                let Ok(l) = Layout::plan(size, block, (77, 5), [9; 16]) else {
                    assert!(size < 16 * RING_BYTES.0, "{size} {block}");
                    continue;
                };
                assert_eq!(Layout::decode(&l.encode(), size), Ok(l), "{size} {block}");
                assert!(Layout::decode(&l.encode(), l.at(l.slots.0 + l.slots.1) - 1).is_err());
                assert!(l.slots.1 * u64::from(block) > size * 3 / 10, "{size} {block}: {l:?}");
                assert_eq!(l.grown(size), None);
                let Some(grown) = l.grown(size * 3) else {
                    assert_eq!(l.slots.1, u64::from(u32::MAX));
                    continue;
                };
                let most = (2 * l.slots.1).min(u64::from(u32::MAX) - 1);
                assert!(grown.slots.1 > most, "{l:?} {grown:?}");
                assert_eq!(Layout::decode(&grown.encode(), size * 3), Ok(grown));
                assert!(Layout::decode(&grown.encode(), size).is_err());
            }
        }
    }

    #[test]
    fn fields_are_where_the_page_of_formats_has_them() {
        let l = Layout::plan(64 << 20, 4096, (77, 5), [9; 16]).expect("it is large enough");
        let block = l.encode();
        let seal: [(&str, &[u8]); 4] = [
            ("magic", &MAGIC),
            ("volume", &77u64.to_le_bytes()),
            ("number", &0u64.to_le_bytes()),
            ("length", &80u32.to_le_bytes()),
        ];
        FieldTable::of("## Volume of a file server", "offset", 0).assert_holds(&block, &seal);
        let two = |(first, n): (u64, u64)| [first.to_le_bytes(), n.to_le_bytes()].concat();
        let values: [(&str, &[u8]); 7] = [
            ("version", &VERSION.to_le_bytes()),
            ("block size", &4096u32.to_le_bytes()),
            ("format id", &5u64.to_le_bytes()),
            ("journal", &two(l.ring)),
            ("table", &two(l.pages)),
            ("slots", &two(l.slots)),
            ("owner", &[9; 16]),
        ];
        FieldTable::of("### Cache device", "offset", 0).assert_holds(&block, &values);
    }
}
