//! ISO 9660 (ECMA-119 8.4): the primary volume descriptor at byte 32768 (01 "CD001" 01 00, name
//! +40, created +813, modified +830). The id is the time of modification, or else of creation,
//! as Linux tools have it.

use super::Volume;
use crate::probe::{ProbeStop, Sectors, span};

/// Byte offset of the descriptor.
const AT: u64 = 0x8000;
const LEN: usize = 2048;

pub(crate) fn probe(sectors: &Sectors) -> Result<Volume, ProbeStop> {
    let wanted = b"\x01CD001\x01\0";
    let block = super::magic(sectors, AT, LEN, (0, wanted), "ISO 9660 volume descriptor")?;
    let time = |at| stamp(span(block, at, 16));
    Ok(Volume::of_media(sectors, span(block, 40, 32), time(830).or_else(|| time(813))))
}

/// `YYYYMMDDHHMMSScc` with dashes; none when it is not digits, or no time.
fn stamp(digits: &[u8]) -> Option<String> {
    let real = digits.iter().all(u8::is_ascii_digit) && digits.iter().any(|&byte| byte != b'0');
    if digits.len() != 16 || !real {
        return None;
    }
    let mut text = String::with_capacity(22);
    for (place, &byte) in digits.iter().enumerate() {
        if place >= 4 && place % 2 == 0 {
            text.push('-');
        }
        text.push(char::from(byte));
    }
    Some(text)
}
