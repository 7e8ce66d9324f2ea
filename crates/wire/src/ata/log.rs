//! General purpose log 10h: the queued command that failed, and its error (ACS-3 9.15).

use super::TRIM_BLOCK;
use crate::error::{Kind, WireError};

pub const NCQ_ERROR_LOG: u8 = 0x10;

/// Byte 0: the error is of a command that was not queued.
const NOT_QUEUED: u8 = 0x80;

/// The data of READ LOG EXT about the command that stopped the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NcqError {
    /// Its tag; `None`: it was none of the queue's.
    pub tag: Option<u8>,
    pub status: u8,
    pub error: u8,
    /// LBA, 48 bits: the first sector that could not be had.
    pub lba: u64,
    pub device: u8,
    pub count: u16,
}

impl NcqError {
    pub fn decode(bytes: &[u8]) -> Result<NcqError, WireError> {
        let short = WireError::short("NCQ Command Error log", 0);
        let page: &[u8; TRIM_BLOCK] = bytes.first_chunk().ok_or(short)?;
        if page.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) != 0 {
            return Err(WireError::new(Kind::Digest, "NCQ Command Error log", 511));
        }
        let [first, _, status, error, a, b, c, device, d, e, f, _, low, high, ..] = *page;
        Ok(NcqError {
            tag: (first & NOT_QUEUED == 0).then_some(first & 0x1f),
            status,
            error,
            lba: u64::from_le_bytes([a, b, c, d, e, f, 0, 0]),
            device,
            count: u16::from_le_bytes([low, high]),
        })
    }

    /// The page of a device with these values.
    pub fn encode(&self) -> [u8; TRIM_BLOCK] {
        let mut page = [0; TRIM_BLOCK];
        let [a, b, c, d, e, f, ..] = self.lba.to_le_bytes();
        let [low, high] = self.count.to_le_bytes();
        let first = self.tag.map_or(NOT_QUEUED, |tag| tag & 0x1f);
        let fields =
            [first, 0, self.status, self.error, a, b, c, self.device, d, e, f, 0, low, high];
        page.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        let sum = page.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        page[TRIM_BLOCK - 1] = sum.wrapping_neg();
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ncq_error_log_matches_known_bytes() {
        let mut page = [0; TRIM_BLOCK];
        page[..14].copy_from_slice(&[5, 0, 0x41, 0x40, 1, 2, 3, 0x40, 4, 5, 6, 0, 8, 1]);
        assert_eq!(NcqError::decode(&page).unwrap_err().kind, Kind::Digest);
        let sum = page.iter().fold(0u8, |s, b| s.wrapping_add(*b));
        page[511] = sum.wrapping_neg();
        let decoded = NcqError::decode(&page).unwrap();
        assert_eq!((decoded.tag, decoded.status, decoded.error), (Some(5), 0x41, 0x40));
        assert_eq!((decoded.lba, decoded.device, decoded.count), (0x0605_0403_0201, 0x40, 0x108));
        assert_eq!(decoded.encode(), page);
        assert!(NcqError::decode(&page[..511]).is_err());
        let other = NcqError { tag: None, ..decoded };
        assert_eq!(NcqError::decode(&other.encode()), Ok(other));
    }
}
