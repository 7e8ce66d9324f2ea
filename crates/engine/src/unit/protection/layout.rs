//! Layout of the tail of a protected unit's provider, where its tuples are stored.
//!
//! ```text
//!   | data: `blocks` blocks | tuples, whole blocks | map of regions, 4096 bytes | ... | header |
//! ```
//! The header is the last block of the provider that the tail was made for. A provider that has
//! grown since has it in its middle. A tuple is stored inverted: zeroes, which a disk also returns
//! for freed space, then are tuples that disable checking.

use wire::iscsi::crc32c;
use wire::scsi::{ProtectionType, TUPLE_LEN};

pub const MAGIC: &[u8; 8] = b"ASHPROT1";

/// Version of the data after the magic.
const VERSION: u32 = 1;

/// Length of the data under the checksum: magic, version, type, block length, provider's blocks,
/// data blocks.
const HEADER_LEN: usize = 8 + 4 + 4 + 8 + 8 + 8;

/// The same with the checksum.
const RECORD_LEN: usize = HEADER_LEN + 4;

/// Bytes of the map; a bit a region.
pub(super) const MAP_BYTES: u64 = 4096;

/// Smallest region, bytes of data.
const REGION_BYTES: u64 = 1 << 20;

/// Marked regions at which those that rest are cleaned, for a large unit; a small one has fewer.
const MARKED_MAX: u64 = 64;

/// The same for the smallest unit.
const MARKED_MIN: u64 = 4;

/// A provider divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes of a block; a power of two.
    pub unit: u64,
    /// Blocks of data: the capacity that initiators see.
    pub blocks: u64,
    /// Blocks of the provider.
    pub total: u64,
}

/// Offset of the header that a record of the state store describes, bytes; `None`: the record
/// describes no header.
pub fn header_offset(record: &[u8]) -> Option<u64> {
    Header::read(record).map(|(layout, _)| layout.header_at())
}

/// Contents of the last block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// It is no header.
    Absent,
    /// It is one, but damaged, of another version or of another provider.
    Bad,
    /// How the unit is formatted, and where its tail is; `None` is without protection.
    Format(Layout, Option<ProtectionType>),
}

impl Layout {
    /// `None` when there is no space, or blocks are of no size that tuples divide.
    pub fn new(media_bytes: u64, unit: u32) -> Option<Layout> {
        let unit = u64::from(unit);
        if unit < 512 || !unit.is_power_of_two() {
            return None;
        }
        let total = media_bytes / unit;
        let rest = total.checked_sub(1 + MAP_BYTES.div_ceil(unit))?;
        let per = unit / TUPLE_LEN as u64;
        let blocks = u128::from(rest) * u128::from(per) / u128::from(per + 1);
        let blocks = u64::try_from(blocks).ok().filter(|n| *n > 0)?;
        Some(Layout { unit, blocks, total })
    }

    /// Tuples in a block of tuples.
    pub fn per_block(&self) -> u64 {
        self.unit / TUPLE_LEN as u64
    }

    fn tuples_at(&self) -> u64 {
        self.blocks * self.unit
    }

    pub fn tuples_len(&self) -> u64 {
        self.blocks.div_ceil(self.per_block()) * self.unit
    }

    /// Offset and length, whole blocks, of the tuples of some blocks of data, and where the first
    /// of them begins in there.
    pub fn tuples_of(&self, lba: u64, blocks: u64) -> (u64, u64, usize) {
        let per = self.per_block();
        let (first, end) = (lba / per, lba.saturating_add(blocks).div_ceil(per));
        let skip = (lba % per) * TUPLE_LEN as u64;
        let at = self.tuples_at() + first * self.unit;
        (at, end.saturating_sub(first) * self.unit, usize::try_from(skip).unwrap_or(0))
    }

    /// Offset and length of the map.
    pub fn map(&self) -> (u64, u64) {
        (self.tuples_at() + self.tuples_len(), MAP_BYTES.next_multiple_of(self.unit))
    }

    pub fn header_at(&self) -> u64 {
        (self.total - 1) * self.unit
    }

    /// Blocks of data in a region; a power of two, and whole blocks of tuples.
    pub fn region_blocks(&self) -> u64 {
        let least = REGION_BYTES / self.unit;
        let spread = self.blocks.div_ceil(MAP_BYTES * 8).next_power_of_two();
        least.max(spread).max(self.per_block())
    }

    /// Marked regions at which those that rest are cleaned. More may be marked while they are busy;
    /// this number bounds the work after a power cut.
    pub fn marked_max(&self) -> usize {
        let quarter = self.blocks.div_ceil(self.region_blocks()) / 4;
        usize::try_from(quarter.clamp(MARKED_MIN, MARKED_MAX)).unwrap_or(usize::MAX)
    }

    /// The header's block.
    pub fn encode(&self, kind: Option<ProtectionType>) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(VERSION.to_be_bytes());
        out.extend(kind.map_or(0, |kind| kind as u32).to_be_bytes());
        for number in [self.unit, self.total, self.blocks] {
            out.extend(number.to_be_bytes());
        }
        out.extend(crc32c(&out).to_be_bytes());
        out.resize(usize::try_from(self.unit).unwrap_or(out.len()), 0);
        out
    }

    /// The used part of the header.
    pub fn record(&self, kind: Option<ProtectionType>) -> Vec<u8> {
        let mut out = self.encode(kind);
        out.truncate(RECORD_LEN);
        out
    }
}

impl Header {
    /// Reads a block that may be the header of a provider of at most `provider` blocks of `unit`
    /// bytes. Other people's bytes: anything may be there.
    pub fn decode(bytes: &[u8], unit: u64, provider: u64) -> Header {
        if !bytes.starts_with(MAGIC) {
            return Header::Absent;
        }
        match Header::read(bytes) {
            Some((layout, kind)) if layout.unit == unit && layout.total <= provider => {
                Header::Format(layout, kind)
            }
            _ => Header::Bad,
        }
    }

    /// Contents of a header, if it is whole.
    pub fn read(bytes: &[u8]) -> Option<(Layout, Option<ProtectionType>)> {
        let number = |at: usize| {
            let bytes = bytes.get(at..)?.first_chunk::<8>()?;
            Some(u64::from_be_bytes(*bytes))
        };
        let layout = Layout { unit: number(16)?, total: number(24)?, blocks: number(32)? };
        let total_bytes = layout.total.checked_mul(layout.unit)?;
        if Layout::new(total_bytes, u32::try_from(layout.unit).ok()?) != Some(layout) {
            return None;
        }
        // Version and type, and the checksum: only these four are whole.
        let kinds = [None, Some(1), Some(2), Some(3)];
        let found = kinds.into_iter().find_map(|number| {
            let kind = number.and_then(ProtectionType::from_number);
            (bytes.get(..RECORD_LEN)? == layout.record(kind)).then_some(kind)
        });
        found.map(|kind| (layout, kind))
    }
}

#[cfg(test)]
mod tests {
    use testkit::formats::FieldTable;

    use super::*;

    #[test]
    fn regions_of_the_layout_do_not_overlap_and_waste_little() {
        for unit in [512u32, 1024, 4096] {
            for total in [10u64, 11, 100, 1000, 1001, 65_535, 1 << 33] {
                let unit64 = u64::from(unit);
                let Some(l) = Layout::new(total * unit64, unit) else {
                    assert!(total < 12, "{unit} {total}");
                    continue;
                };
                let (map, map_len) = l.map();
                assert!(map + map_len <= l.header_at());
                assert!(l.header_at() - map - map_len <= 2 * unit64, "{unit} {total}");
                let (at, len, skip) = l.tuples_of(l.blocks - 1, 1);
                assert_eq!((at + len, len), (map, unit64));
                assert_eq!(skip as u64, (l.blocks - 1) % l.per_block() * 8);
                assert!(l.blocks.div_ceil(l.region_blocks()) <= MAP_BYTES * 8);
                assert_eq!(l.region_blocks() % l.per_block(), 0);
            }
        }
        assert_eq!(Layout::new(1 << 30, 520), None);
        assert_eq!(Layout::new(4096, 512), None);
    }

    #[test]
    fn headers_round_trip_and_every_flipped_bit_is_detected() {
        let l = Layout::new(1 << 20, 512).unwrap();
        for number in 0..4 {
            let kind = ProtectionType::from_number(number);
            let bytes = l.encode(kind);
            let decode = |bytes: &[u8]| Header::decode(bytes, 512, l.total);
            assert_eq!((bytes.len(), decode(&bytes)), (512, Header::Format(l, kind)));
            assert_eq!(header_offset(&l.record(kind)), Some(l.header_at()));
            for bit in 0..RECORD_LEN * 8 {
                let mut bytes = bytes.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let want = if bit < 64 { Header::Absent } else { Header::Bad };
                assert_eq!(decode(&bytes), want, "{bit}");
            }
            assert_eq!(decode(&bytes[..20]), Header::Bad);
            assert_eq!(Header::read(&l.record(kind)), Some((l, kind)));
            // A provider that has grown, one that is too short, and other blocks.
            assert_eq!(Header::decode(&bytes, 512, l.total + 1), Header::Format(l, kind));
            assert_eq!(Header::decode(&bytes, 512, l.total - 1), Header::Bad);
            assert_eq!(Header::decode(&bytes, 4096, l.total), Header::Bad);
        }
        assert_eq!(Header::decode(&[0; 512], 512, l.total), Header::Absent);
    }

    #[test]
    fn fields_are_where_the_page_of_formats_has_them() {
        let l = Layout::new(1 << 20, 512).unwrap();
        let record = l.record(ProtectionType::from_number(2));
        let values: [(&str, &[u8]); 7] = [
            ("magic", MAGIC),
            ("version", &VERSION.to_be_bytes()),
            ("type", &2u32.to_be_bytes()),
            ("block size", &512u64.to_be_bytes()),
            ("provider blocks", &l.total.to_be_bytes()),
            ("data blocks", &l.blocks.to_be_bytes()),
            ("checksum", &crc32c(&record[..HEADER_LEN]).to_be_bytes()),
        ];
        FieldTable::of("## Protection information", "offset", 0).assert_holds(&record, &values);
    }
}
