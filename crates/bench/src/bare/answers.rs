//! Answers to the commands that Linux sends to a disk before its first READ. They are enough for
//! `sd` to take the unit, and no more (SPC-4 6.4, 6.11, 6.33; SBC-3 5.15, 5.16).

use super::unit::BLOCK;

/// Fixed-format sense data: ILLEGAL REQUEST, INVALID FIELD IN CDB.
pub(super) const SENSE: [u8; 18] = {
    let mut sense = [0; 18];
    (sense[0], sense[2], sense[7], sense[12]) = (0x70, 0x05, 10, 0x24);
    sense
};

/// Pages of vital product data.
const SUPPORTED: u8 = 0x00;
const IDENTIFICATION: u8 = 0x83;
const BLOCK_LIMITS: u8 = 0xb0;
/// A write cache that is on: page 08h with WCE.
const CACHING: [u8; 20] = {
    let mut page = [0; 20];
    (page[0], page[1], page[2]) = (0x08, 18, 0x04);
    page
};

/// The data that a command without blocks requests; None: refuse it.
pub(super) fn answer(cdb: &[u8], blocks: u64) -> Option<Vec<u8>> {
    let last = blocks.saturating_sub(1);
    let block = (BLOCK as u32).to_be_bytes();
    match (*cdb.first()?, *cdb.get(1)?) {
        (0x12, evpd) if evpd & 1 == 0 => Some(inquiry()),
        (0x12, _) => vital(*cdb.get(2)?),
        (0x1a, _) => Some([&[23, 0, 0, 0][..], &CACHING].concat()),
        (0x5a, _) => Some([&[0, 26, 0, 0, 0, 0, 0, 0][..], &CACHING].concat()),
        (0x25, _) => {
            let last = u32::try_from(last).unwrap_or(u32::MAX).to_be_bytes();
            Some([last, block].concat())
        }
        (0x9e, 0x10) => {
            let mut data = vec![0; 32];
            data.get_mut(..8)?.copy_from_slice(&last.to_be_bytes());
            data.get_mut(8..12)?.copy_from_slice(&block);
            Some(data)
        }
        (0xa0, _) => Some([&[0, 0, 0, 8][..], &[0; 12]].concat()),
        _ => None,
    }
}

/// Standard INQUIRY data: a disk of SPC-4 with a queue.
fn inquiry() -> Vec<u8> {
    [&[0, 0, 6, 2, 31, 0, 0, 2][..], b"ASHLAR  BARE            1   "].concat()
}

fn vital(page: u8) -> Option<Vec<u8>> {
    let data: &[u8] = match page {
        SUPPORTED => &[SUPPORTED, IDENTIFICATION, BLOCK_LIMITS],
        // One designator: T10 vendor ID, for the unit.
        IDENTIFICATION => b"\x02\x01\x00\x0cASHLAR  BARE",
        BLOCK_LIMITS => &[0; 60],
        _ => return None,
    };
    let len = u8::try_from(data.len()).unwrap_or(u8::MAX);
    Some([&[0, page, 0, len][..], data].concat())
}
