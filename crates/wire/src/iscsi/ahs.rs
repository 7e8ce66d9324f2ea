//! Additional header segments of a SCSI Command (RFC 7143 section 11.2.2): the rest of a CDB of
//! more than 16 bytes, and the read length of a bidirectional command.
//!
//! ```text
//! byte 0 .. 1: AHSLength   2: AHSType   3 ..: AHSLength bytes, then zeros to a multiple of four
//!   type 1: one reserved byte, then CDB bytes 16 ..       type 2: one reserved byte, then 4 bytes
//! ```

use crate::bytes::Reader;
use crate::error::{Kind, WireError};

/// Largest sum of additional headers: TotalAHSLength counts up to 255 words of four bytes.
pub const AHS_LEN_MAX: usize = 255 * 4;

/// Longest CDB: a variable-length CDB has 8 bytes and at most 252 more (SPC-4 4.3.3). A longer
/// extended CDB is refused.
pub const CDB_LEN_MAX: usize = 260;

const TYPE_EXTENDED_CDB: u8 = 1;
const TYPE_READ_LENGTH: u8 = 2;

/// The contents of the additional headers of a SCSI Command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ahs<'a> {
    pub cdb_rest: &'a [u8],
    pub read_len: Option<u32>,
}

/// Reads all segments; they must fill `bytes` exactly, and each type may occur once.
pub(crate) fn decode(bytes: &[u8]) -> Result<Ahs<'_>, WireError> {
    let mut out = Ahs::default();
    let mut reader = Reader::new(bytes);
    while !reader.rest().is_empty() {
        let at = reader.at();
        let len = usize::from(reader.u16("AHSLength")?);
        let kind = reader.u8("AHSType")? & 0x3f;
        if len < 2 {
            return Err(WireError::bad("AHSLength", at));
        }
        reader.take(1, "AHS reserved byte")?;
        let body = reader.take(len - 1, "AHS")?;
        reader.take((4 - (3 + len) % 4) % 4, "AHS padding")?;
        match kind {
            TYPE_EXTENDED_CDB if !out.cdb_rest.is_empty() => {
                return Err(WireError::new(Kind::Duplicate, "extended CDB AHS", at));
            }
            TYPE_EXTENDED_CDB if body.len() > CDB_LEN_MAX - 16 => {
                return Err(WireError::long("extended CDB AHS", at));
            }
            TYPE_EXTENDED_CDB => out.cdb_rest = body,
            TYPE_READ_LENGTH if out.read_len.is_some() => {
                return Err(WireError::new(Kind::Duplicate, "read length AHS", at));
            }
            TYPE_READ_LENGTH => {
                let body: [u8; 4] =
                    body.try_into().map_err(|_| WireError::bad("read length AHS", at))?;
                out.read_len = Some(u32::from_be_bytes(body));
            }
            _ => return Err(WireError::bad("AHSType", at + 2)),
        }
    }
    Ok(out)
}

/// Writes the segments for the CDB bytes after the sixteenth and for a bidirectional read length
/// (bytes). Answers the bytes written, a multiple of four; `out` too small or a CDB above
/// [`CDB_LEN_MAX`] is an error.
pub fn encode_ahs(
    cdb_rest: &[u8],
    read_len: Option<u32>,
    out: &mut [u8],
) -> Result<usize, WireError> {
    let mut used = 0;
    if cdb_rest.len() > CDB_LEN_MAX - 16 {
        return Err(WireError::long("extended CDB AHS", 0));
    }
    if !cdb_rest.is_empty() {
        used += segment(TYPE_EXTENDED_CDB, cdb_rest, out, used)?;
    }
    if let Some(len) = read_len {
        used += segment(TYPE_READ_LENGTH, &len.to_be_bytes(), out, used)?;
    }
    Ok(used)
}

fn segment(kind: u8, body: &[u8], out: &mut [u8], at: usize) -> Result<usize, WireError> {
    let total = (4 + body.len()).next_multiple_of(4);
    let room = out.get_mut(at..at + total).ok_or(WireError::short("AHS", 0))?;
    room.fill(0);
    let len = u16::try_from(body.len() + 1).map_err(|_| WireError::long("AHS", 0))?;
    let parts = len.to_be_bytes().into_iter().chain([kind, 0]).chain(body.iter().copied());
    for (to, from) in room.iter_mut().zip(parts) {
        *to = from;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_header_segments_decode_as_encoded() {
        let rest: Vec<u8> = (0..17).collect();
        let mut out = [0xffu8; 64];
        let n = encode_ahs(&rest, Some(0x0102_0304), &mut out).unwrap();
        // 4 + 17 -> 24, then 4 + 4 = 8.
        assert_eq!(n, 32);
        assert_eq!(out[..4], [0, 18, 1, 0]);
        assert_eq!(out[21..24], [0, 0, 0]);
        assert_eq!(out[24..32], [0, 5, 2, 0, 1, 2, 3, 4]);
        let ahs = decode(&out[..n]).unwrap();
        assert_eq!(ahs.cdb_rest, &rest[..]);
        assert_eq!(ahs.read_len, Some(0x0102_0304));
        for cut in 1..n {
            let short = decode(&out[..cut]);
            assert!(short.is_err() || cut == 24, "cut at {cut}");
        }
    }

    #[test]
    fn malformed_header_segments_are_refused() {
        // Length zero, length beyond the end, unknown type, same type twice, wrong read length.
        assert_eq!(decode(&[0, 0, 1, 0]).unwrap_err().field, "AHSLength");
        assert_eq!(decode(&[0xff, 0xff, 1, 0]).unwrap_err().field, "AHS");
        assert_eq!(decode(&[0, 5, 3, 0, 1, 2, 3, 4]).unwrap_err().field, "AHSType");
        let twice = [0, 5, 2, 0, 0, 0, 0, 1, 0, 5, 2, 0, 0, 0, 0, 1];
        assert_eq!(decode(&twice).unwrap_err().kind, Kind::Duplicate);
        assert_eq!(decode(&[0, 4, 2, 0, 0, 0, 1, 0]).unwrap_err().field, "read length AHS");
        assert!(encode_ahs(&[0; 245], None, &mut [0; 300]).is_err());
        assert!(encode_ahs(&[0; 20], None, &mut [0; 8]).is_err());
    }
}
