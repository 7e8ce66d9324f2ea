//! Ranges of DATA SET MANAGEMENT with TRIM (ACS-3 section 7.5.3): 48 bits of LBA and 16 of length
//! each, little-endian. Those without length are not looked at.

use crate::error::WireError;

/// Ranges are sent in blocks of so many bytes.
pub const TRIM_BLOCK: usize = 512;

pub const TRIM_RANGES_A_BLOCK: usize = TRIM_BLOCK / 8;

pub const TRIM_RANGE_MAX: u64 = 0xFFFF;

const LBA_BITS: u32 = 48;
const LBA_END: u64 = 1 << LBA_BITS;

/// First sector and number of sectors of every range, in their order.
pub fn trim_ranges(bytes: &[u8]) -> Result<impl Iterator<Item = (u64, u64)>, WireError> {
    let (entries, rest) = bytes.as_chunks();
    if !rest.is_empty() || !bytes.len().is_multiple_of(TRIM_BLOCK) {
        return Err(WireError::short("TRIM ranges", u32::try_from(bytes.len()).unwrap_or(0)));
    }
    let entries = entries.iter().map(|entry| u64::from_le_bytes(*entry));
    let range = |entry: u64| (entry % LBA_END, entry >> LBA_BITS);
    Ok(entries.map(range).filter(|(_, sectors)| *sectors > 0))
}

/// Blocks of ranges for up to `blocks_max` blocks, and how many of the sectors, counted over all
/// ranges from the first, are in them. Longer ranges are cut; one that 48 bits do not reach ends
/// the list.
pub fn trim_blocks(ranges: &[(u64, u64)], blocks_max: usize) -> (Vec<u8>, u64) {
    let room = blocks_max.saturating_mul(TRIM_RANGES_A_BLOCK);
    let (mut bytes, mut covered) = (Vec::new(), 0u64);
    'all: for (first, sectors) in ranges {
        let (mut at, mut left) = (*first, *sectors);
        while left > 0 {
            let now = left.min(TRIM_RANGE_MAX);
            if bytes.len() / 8 == room || at.checked_add(now).is_none_or(|end| end > LBA_END) {
                break 'all;
            }
            bytes.extend((now << LBA_BITS | at).to_le_bytes());
            (at, left, covered) = (at + now, left - now, covered + now);
        }
    }
    bytes.resize(bytes.len().next_multiple_of(TRIM_BLOCK), 0);
    (bytes, covered)
}
