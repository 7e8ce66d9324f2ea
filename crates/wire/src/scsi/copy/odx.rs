//! The parameter lists of POPULATE TOKEN and WRITE USING TOKEN (SBC-3 5.7.2, 5.47.2).

use super::token::{ROD_TOKEN_LEN, RodType};
use super::{CopyLimits, at16, field, field16, field32, field64};
use crate::scsi::codes::asc;
use crate::scsi::sense::Sense;

const RANGE_LEN: usize = 16;
/// Where the ranges begin, and their length field.
const POPULATE_RANGES: usize = 16;
const WRITE_RANGES: usize = 536;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockRange {
    pub lba: u64,
    /// Number of blocks; 0 means none.
    pub blocks: u32,
}

impl BlockRange {
    /// The block after the last; None when it does not fit in 64 bits.
    pub fn end(&self) -> Option<u64> {
        self.lba.checked_add(u64::from(self.blocks))
    }
}

/// A checked POPULATE TOKEN list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PopulateToken {
    /// Status is sent before the token is made.
    pub immed: bool,
    /// Seconds after which an unused token dies; 0 selects the default.
    pub timeout_s: u32,
    /// The ranges that the token represents, in this order; no block twice.
    pub ranges: Vec<BlockRange>,
}

impl PopulateToken {
    /// Reads a list; an empty one is None and has no request.
    pub fn parse(data: &[u8], limits: &CopyLimits) -> Result<Option<PopulateToken>, Sense> {
        if data.is_empty() {
            return Ok(None);
        }
        let cut = Sense::new(asc::PARAMETER_LIST_LEN);
        let [flags] = field(data, 2).ok_or(cut)?;
        let timeout_s = field32(data, 4).ok_or(cut)?;
        let kind = field32(data, 8).ok_or(cut)?;
        // RTV: the list contains the required type of the token.
        if flags & 2 != 0
            && !matches!(
                RodType::from_code(kind),
                Some(RodType::ChangeVulnerable | RodType::AnyPointInTime)
            )
        {
            let sense = Sense::list_field(8, None);
            return Err(Sense { code: asc::TOKEN_TYPE, ..sense });
        }
        if timeout_s > limits.timeout_max_s {
            return Err(Sense::list_field(4, None));
        }
        let ranges = parse_ranges(data, POPULATE_RANGES, limits)?;
        Ok(Some(PopulateToken { immed: flags & 1 != 0, timeout_s, ranges }))
    }
}

/// A checked WRITE USING TOKEN list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteToken {
    /// Status is sent before the data is written.
    pub immed: bool,
    /// The token is not needed any more when the command ends.
    pub delete: bool,
    /// First block within the data of the token, in blocks of its creator.
    pub offset: u64,
    pub token: [u8; ROD_TOKEN_LEN],
    /// Where to write, in this order; no block twice.
    pub ranges: Vec<BlockRange>,
}

impl WriteToken {
    /// Reads a list; an empty one is None and has no request.
    pub fn parse(data: &[u8], limits: &CopyLimits) -> Result<Option<WriteToken>, Sense> {
        if data.is_empty() {
            return Ok(None);
        }
        let cut = Sense::new(asc::PARAMETER_LIST_LEN);
        let [flags] = field(data, 2).ok_or(cut)?;
        let offset = field64(data, 8).ok_or(cut)?;
        let token = field(data, 16).ok_or(cut)?;
        let ranges = parse_ranges(data, WRITE_RANGES, limits)?;
        let (immed, delete) = (flags & 1 != 0, flags & 2 != 0);
        Ok(Some(WriteToken { immed, delete, offset, token, ranges }))
    }
}

/// The ranges from byte `at` on; the two bytes before hold their length.
fn parse_ranges(data: &[u8], at: usize, limits: &CopyLimits) -> Result<Vec<BlockRange>, Sense> {
    let cut = Sense::new(asc::PARAMETER_LIST_LEN);
    let len_at = at.saturating_sub(2);
    let len = usize::from(field16(data, len_at).ok_or(cut)?);
    // The first field counts the bytes after it.
    let declared_len = usize::from(field16(data, 0).ok_or(cut)?);
    if declared_len.saturating_add(2) < at.saturating_add(len) {
        return Err(Sense::list_field(0, None));
    }
    if len == 0 || !len.is_multiple_of(RANGE_LEN) {
        return Err(Sense::list_field(at16(len_at), None));
    }
    if len / RANGE_LEN > usize::from(limits.ranges) {
        return Err(Sense::new(asc::TOO_MANY_SEGMENTS));
    }
    let bytes = data.get(at..at.saturating_add(len)).ok_or(cut)?;
    let (descriptors, _) = bytes.as_chunks::<RANGE_LEN>();
    let mut ranges = Vec::with_capacity(descriptors.len());
    for descriptor in descriptors {
        ranges.push(BlockRange {
            lba: u64::from_be_bytes(crate::bytes::get_array::<0, 8, RANGE_LEN>(descriptor)),
            blocks: crate::bytes::get32::<8, RANGE_LEN>(descriptor),
        });
    }
    match overlap(&ranges) {
        Some(i) => Err(Sense::list_field(at16(at.saturating_add(i * RANGE_LEN)), None)),
        None => Ok(ranges),
    }
}

/// The place of a range that shares a block with another one.
fn overlap(ranges: &[BlockRange]) -> Option<usize> {
    let mut sorted: Vec<(u64, u64, usize)> = Vec::with_capacity(ranges.len());
    for (i, range) in ranges.iter().enumerate().filter(|(_, r)| r.blocks > 0) {
        // A run beyond 64 bits is out of every medium's range; another check reports that.
        sorted.push((range.lba, range.end().unwrap_or(u64::MAX), i));
    }
    sorted.sort_unstable();
    sorted.windows(2).find_map(|two| match two {
        [(_, end, _), (next, _, i)] if next < end => Some(*i),
        _ => None,
    })
}

fn put_ranges(out: &mut Vec<u8>, ranges: &[BlockRange]) {
    let len = u16::try_from(ranges.len() * RANGE_LEN).unwrap_or(0);
    out.extend(len.to_be_bytes());
    for range in ranges.iter().take(usize::from(len) / RANGE_LEN) {
        out.extend(range.lba.to_be_bytes());
        out.extend(range.blocks.to_be_bytes());
        out.extend([0; 4]);
    }
    let declared_len = u16::try_from(out.len().saturating_sub(2)).unwrap_or(u16::MAX);
    if let Some(head) = out.first_chunk_mut::<2>() {
        *head = declared_len.to_be_bytes();
    }
}

/// Writes a POPULATE TOKEN list without a ROD type, for initiators.
pub fn encode_populate(list: &PopulateToken) -> Vec<u8> {
    let mut out = vec![0, 0, u8::from(list.immed), 0];
    out.extend(list.timeout_s.to_be_bytes());
    out.extend([0; 6]);
    put_ranges(&mut out, &list.ranges);
    out
}

pub fn encode_write_token(list: &WriteToken) -> Vec<u8> {
    let mut out = vec![0, 0, u8::from(list.immed) | u8::from(list.delete) << 1];
    out.extend([0; 5]);
    out.extend(list.offset.to_be_bytes());
    out.extend(list.token);
    out.extend([0; 6]);
    put_ranges(&mut out, &list.ranges);
    out
}

#[cfg(test)]
mod tests {
    use super::super::TEST_LIMITS;
    use super::*;

    fn range(lba: u64, blocks: u32) -> BlockRange {
        BlockRange { lba, blocks }
    }

    /// SBC-3 table 71, byte by byte.
    #[test]
    fn populate_token_list_matches_known_bytes() {
        let mut bytes = vec![0, 46, 0x03, 0, 0, 0, 0, 30, 0x00, 0x80, 0xff, 0xff, 0, 0, 0, 32];
        bytes.extend([0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 8, 0, 0, 0, 0]);
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0, 0, 0]);
        // Blocks 2 to 257 and 256 to 263 overlap.
        assert_eq!(PopulateToken::parse(&bytes, &TEST_LIMITS), Err(Sense::list_field(16, None)));
        bytes[42] = 0;
        let list = PopulateToken::parse(&bytes, &TEST_LIMITS).unwrap().unwrap();
        assert_eq!((list.immed, list.timeout_s), (true, 30));
        assert_eq!(list.ranges, [range(256, 8), range(2, 0)]);
        for (kind, good) in [(0x0080_0001u32, true), (0x0001_0000, false), (0x0080_0000, false)] {
            bytes[8..12].copy_from_slice(&kind.to_be_bytes());
            assert_eq!(PopulateToken::parse(&bytes, &TEST_LIMITS).is_ok(), good, "{kind:x}");
        }
        bytes[2] = 1;
        assert!(PopulateToken::parse(&bytes, &TEST_LIMITS).is_ok(), "no type is asked for");
    }

    #[test]
    fn malformed_populate_lists_are_refused_with_a_field_pointer() {
        let list = PopulateToken { immed: false, timeout_s: 0, ranges: vec![range(1, 2); 1] };
        let good = encode_populate(&list);
        assert_eq!(PopulateToken::parse(&good, &TEST_LIMITS), Ok(Some(list.clone())));
        assert_eq!(PopulateToken::parse(&[], &TEST_LIMITS), Ok(None));
        for cut in 1..good.len() {
            let sense = PopulateToken::parse(&good[..cut], &TEST_LIMITS).unwrap_err();
            assert_eq!(sense.code, asc::PARAMETER_LIST_LEN, "cut at {cut}");
        }
        let broken = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            PopulateToken::parse(&bytes, &TEST_LIMITS).unwrap_err()
        };
        assert_eq!(broken(1, 29), Sense::list_field(0, None));
        assert_eq!(broken(15, 15), Sense::list_field(14, None));
        assert_eq!(broken(15, 0), Sense::list_field(14, None));
        assert_eq!(broken(4, 1), Sense::list_field(4, None));
        let many = PopulateToken { ranges: vec![range(0, 0); 5], ..list };
        let sense = PopulateToken::parse(&encode_populate(&many), &TEST_LIMITS).unwrap_err();
        assert_eq!(sense.code, asc::TOO_MANY_SEGMENTS);
    }

    #[test]
    fn write_using_token_list_matches_known_bytes() {
        let token: [u8; ROD_TOKEN_LEN] = std::array::from_fn(|i| i as u8);
        let mut bytes = vec![0x02, 0x26, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
        bytes.extend(token);
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 16]);
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 3, 0, 0, 0, 0]);
        let want =
            WriteToken { immed: false, delete: true, offset: 7, token, ranges: vec![range(9, 3)] };
        assert_eq!(WriteToken::parse(&bytes, &TEST_LIMITS), Ok(Some(want.clone())));
        assert_eq!(encode_write_token(&want), bytes);
        for cut in 1..bytes.len() {
            assert!(WriteToken::parse(&bytes[..cut], &TEST_LIMITS).is_err(), "cut at {cut}");
        }
    }
}
