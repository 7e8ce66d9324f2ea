//! Parameter data that describes capacity, logical units and ports (SBC-3 5.15, 5.16, 5.6; SPC-4
//! 6.33, 6.37). Builders answer the whole data; [`super::truncate`] cuts it to the allocation
//! length.

use super::lun::{Addressing, Lun};
use super::protection::ProtectionType;
use crate::bytes::{Reader, get_array, get16, get32};
use crate::error::WireError;

/// Size and layout of a medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Number of logical blocks.
    pub blocks: u64,
    pub block_len: u32,
    /// Logical blocks per physical block, as an exponent of two, 0 to 15.
    pub physical_exponent: u8,
    /// First aligned logical block, 0 to 16383.
    pub lowest_aligned: u16,
    /// PROT_EN and P_TYPE: the protection information that the medium is formatted with.
    pub protection: Option<ProtectionType>,
    /// LBPME: the unit can unmap.
    pub thin: bool,
    /// LBPRZ: unmapped blocks read as zeros.
    pub zeros: bool,
}

/// READ CAPACITY(10): last LBA (ffffffffh when it needs READ CAPACITY(16)) and block length. A
/// medium without blocks reports 0, the smallest possible value.
pub fn read_capacity10(capacity: &Capacity) -> [u8; 8] {
    let last = capacity.blocks.saturating_sub(1);
    let last = u32::try_from(last).unwrap_or(u32::MAX).to_be_bytes();
    let len = capacity.block_len.to_be_bytes();
    let mut out = [0; 8];
    out.iter_mut().zip(last.into_iter().chain(len)).for_each(|(to, from)| *to = from);
    out
}

pub fn read_capacity16(capacity: &Capacity) -> [u8; 32] {
    let mut out = [0; 32];
    let last = capacity.blocks.saturating_sub(1).to_be_bytes();
    let bits = if capacity.thin { 0x8000 } else { 0 } | if capacity.zeros { 0x4000 } else { 0 };
    let tail = (bits | (capacity.lowest_aligned & 0x3fff)).to_be_bytes();
    let protection = capacity.protection.map_or(0, |kind| kind.p_type() << 1 | 1);
    // P_I_EXPONENT is zero: one interval a block.
    let middle = [protection, capacity.physical_exponent & 0x0f];
    let parts = last.into_iter().chain(capacity.block_len.to_be_bytes()).chain(middle).chain(tail);
    out.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
    out
}

/// Reads READ CAPACITY(10) data. A last LBA of ffffffffh, which requests READ CAPACITY(16), gives
/// 2^32 blocks.
pub fn parse_capacity10(data: &[u8]) -> Result<Capacity, WireError> {
    let mut reader = Reader::new(data);
    let blocks = u64::from(reader.u32("RETURNED LOGICAL BLOCK ADDRESS")?) + 1;
    let block_len = reader.u32("LOGICAL BLOCK LENGTH")?;
    Ok(Capacity { blocks, block_len, ..Capacity::default() })
}

/// Reads READ CAPACITY(16) data; at least 16 bytes.
pub fn parse_capacity16(data: &[u8]) -> Result<Capacity, WireError> {
    let mut reader = Reader::new(data);
    let last = reader.u64("RETURNED LOGICAL BLOCK ADDRESS")?;
    let blocks = last.checked_add(1).ok_or(WireError::bad("RETURNED LOGICAL BLOCK ADDRESS", 0))?;
    let block_len = reader.u32("LOGICAL BLOCK LENGTH")?;
    let protection = match reader.u8("P_TYPE")? & 0x0f {
        bits if bits & 1 == 0 => None,
        bits => match ProtectionType::from_number((bits >> 1) + 1) {
            None => return Err(WireError::bad("P_TYPE", 12)),
            kind => kind,
        },
    };
    let physical_exponent = reader.u8("LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT")? & 0x0f;
    let bits = reader.u16("LBPME")?;
    Ok(Capacity {
        blocks,
        block_len,
        protection,
        physical_exponent,
        lowest_aligned: bits & 0x3fff,
        thin: bits & 0x8000 != 0,
        zeros: bits & 0x4000 != 0,
    })
}

/// REPORT LUNS: the list, in the order given.
pub fn report_luns(luns: impl IntoIterator<Item = Lun>) -> Vec<u8> {
    let mut out = Vec::new();
    report_luns_into(&mut out, luns, Addressing::Peripheral);
    out
}

/// The same, appended to `out`, each number written by a method of addressing.
pub fn report_luns_into(
    out: &mut Vec<u8>,
    luns: impl IntoIterator<Item = Lun>,
    addressing: Addressing,
) {
    let start = out.len();
    out.extend([0; 8]);
    luns.into_iter().for_each(|lun| out.extend(lun.encode_as(addressing)));
    let len = u32::try_from(out.len() - start - 8).unwrap_or(u32::MAX);
    if let Some(head) = out.get_mut(start..).and_then(|rest| rest.first_chunk_mut::<4>()) {
        *head = len.to_be_bytes();
    }
}

/// Reads REPORT LUNS data: the numbers it holds and the length in bytes that a whole list needs.
/// Forms that are not served are left out.
pub fn parse_luns(data: &[u8]) -> Result<(Vec<Lun>, u32), WireError> {
    let mut reader = Reader::new(data);
    let len = reader.u32("LUN LIST LENGTH")?;
    reader.take(4, "REPORT LUNS header")?;
    let held = usize::try_from(len).unwrap_or(usize::MAX);
    let rest = reader.rest();
    let (entries, _) = rest.get(..held).unwrap_or(rest).as_chunks::<8>();
    let luns = entries.iter().filter_map(|entry| Lun::decode(*entry).ok()).collect();
    Ok((luns, len.saturating_add(8)))
}

/// Whether blocks hold data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LbaState {
    /// Mapped, or not known.
    Mapped,
    Deallocated,
    Anchored,
}

/// A run of blocks of one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaExtent {
    /// First logical block.
    pub lba: u64,
    /// Number of blocks.
    pub blocks: u32,
    pub state: LbaState,
}

/// GET LBA STATUS: runs in ascending order, the first beginning at the requested LBA.
pub fn lba_status(extents: &[LbaExtent]) -> Vec<u8> {
    let mut out = vec![0; 8];
    for extent in extents {
        out.extend(extent.lba.to_be_bytes());
        out.extend(extent.blocks.to_be_bytes());
        out.extend([extent.state as u8, 0, 0, 0]);
    }
    // PARAMETER DATA LENGTH counts the bytes after it.
    let len = u32::try_from(out.len() - 4).unwrap_or(u32::MAX);
    if let Some(head) = out.first_chunk_mut::<4>() {
        *head = len.to_be_bytes();
    }
    out
}

/// Reads one LBA status descriptor of 16 bytes, for initiators.
pub fn parse_lba_extent(bytes: &[u8; 16]) -> Result<LbaExtent, WireError> {
    let state = match get16::<12, 16>(bytes) >> 8 & 0x0f {
        0 => LbaState::Mapped,
        1 => LbaState::Deallocated,
        2 => LbaState::Anchored,
        _ => return Err(WireError::bad("PROVISIONING STATUS", 12)),
    };
    let lba = u64::from_be_bytes(get_array::<0, 8, 16>(bytes));
    Ok(LbaExtent { lba, blocks: get32::<8, 16>(bytes), state })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_data_decode_as_encoded() {
        let small = Capacity {
            blocks: 0x1000,
            block_len: 512,
            physical_exponent: 3,
            lowest_aligned: 1,
            protection: None,
            thin: true,
            zeros: true,
        };
        assert_eq!(read_capacity10(&small), [0, 0, 0x0f, 0xff, 0, 0, 2, 0]);
        let long = read_capacity16(&small);
        assert_eq!(long[..16], [0, 0, 0, 0, 0, 0, 0x0f, 0xff, 0, 0, 2, 0, 0, 3, 0xc0, 1]);
        assert_eq!(parse_capacity16(&long), Ok(small));
        for (kind, byte) in [(1, 0x01), (2, 0x03), (3, 0x05)] {
            let protection = ProtectionType::from_number(kind);
            let data = read_capacity16(&Capacity { protection, ..small });
            assert_eq!(data[12], byte);
            assert_eq!(parse_capacity16(&data), Ok(Capacity { protection, ..small }));
        }
        let large = Capacity { blocks: 1 << 32, block_len: 4096, ..Capacity::default() };
        assert_eq!(read_capacity10(&large)[..4], [0xff; 4]);
        assert_eq!(read_capacity10(&Capacity { blocks: 1 << 40, ..large })[..4], [0xff; 4]);
        assert_eq!(parse_capacity10(&read_capacity10(&large)).unwrap().blocks, 1 << 32);
        assert_eq!(parse_capacity16(&read_capacity16(&large)), Ok(large));
        for cut in 0..16 {
            assert!(parse_capacity16(&long[..cut]).is_err());
        }
        assert!(parse_capacity16(&[0xff; 32]).is_err());
    }

    #[test]
    fn lun_lists_are_encoded_and_truncated_lists_decoded() {
        let luns: Vec<Lun> = [0, 1, 300, 70_000].into_iter().filter_map(Lun::new).collect();
        let data = report_luns(luns.iter().copied());
        assert_eq!(data[..8], [0, 0, 0, 32, 0, 0, 0, 0]);
        assert_eq!(parse_luns(&data), Ok((luns.clone(), 40)));
        assert_eq!(parse_luns(&data[..17]), Ok((luns[..1].to_vec(), 40)));
        assert!(parse_luns(&data[..7]).is_err());
        assert_eq!(report_luns([]), [0; 8]);
    }

    #[test]
    fn lba_status_matches_known_bytes() {
        let extent = LbaExtent { lba: 5, blocks: 6, state: LbaState::Deallocated };
        let data = lba_status(&[extent]);
        assert_eq!(data[..8], [0, 0, 0, 20, 0, 0, 0, 0]);
        assert_eq!(parse_lba_extent(data[8..].try_into().unwrap()), Ok(extent));
    }
}
