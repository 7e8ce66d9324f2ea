//! Payloads of structured reply chunks.

use super::codes::Error;
use crate::bytes::Reader;
use crate::error::WireError;

/// Bytes before the data of an OFFSET_DATA chunk.
pub const OFFSET_LEN: usize = 8;

/// Longest text in an error chunk, bytes; a longer one is cut.
pub const TEXT_MAX: usize = 255;

/// Extents beyond 32 bits are cut to this length, bytes: a multiple of 64 KiB.
const LONG_EXTENT: u32 = 0xffff_0000;

/// A run of bytes with one state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub len: u64,
    /// Flags of its context.
    pub flags: u32,
}

pub fn hole(offset: u64, len: u32) -> [u8; 12] {
    let mut out = [0; 12];
    let bytes = offset.to_be_bytes().into_iter().chain(len.to_be_bytes());
    out.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    out
}

pub fn parse_hole(body: &[u8]) -> Result<(u64, u32), WireError> {
    let mut r = Reader::new(body);
    let hole = (r.u64("offset")?, r.u32("hole size")?);
    if r.rest().is_empty() { Ok(hole) } else { Err(WireError::long("hole", r.at())) }
}

pub fn error(error: Error, text: &str, out: &mut Vec<u8>) {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = text.get(..end).unwrap_or("");
    out.extend(error.code().to_be_bytes());
    out.extend(u16::try_from(text.len()).unwrap_or(0).to_be_bytes());
    out.extend(text.as_bytes());
}

/// Reads the body of an ERROR chunk, or the beginning of an ERROR_OFFSET chunk's.
pub fn parse_error(body: &[u8]) -> Result<(Error, String), WireError> {
    let mut r = Reader::new(body);
    let code = Error::from_code(r.u32("error")?);
    let len = usize::from(r.u16("message length")?);
    let text = String::from_utf8_lossy(r.take(len, "message")?).into_owned();
    Ok((code, text))
}

/// Body of a BLOCK_STATUS chunk. Extents longer than 32 bits are cut to a multiple of 64 KiB, and
/// nothing follows them: the client repeats the request for the rest.
pub fn block_status(context: u32, extents: &[Extent], out: &mut Vec<u8>) {
    out.extend(context.to_be_bytes());
    for extent in extents {
        let short = u32::try_from(extent.len);
        out.extend(short.unwrap_or(LONG_EXTENT).to_be_bytes());
        out.extend(extent.flags.to_be_bytes());
        if short.is_err() {
            return;
        }
    }
}

pub fn block_status_ext(context: u32, extents: &[Extent], out: &mut Vec<u8>) {
    let count = u32::try_from(extents.len()).unwrap_or(u32::MAX);
    out.extend(context.to_be_bytes());
    out.extend(count.to_be_bytes());
    for extent in extents {
        out.extend(extent.len.to_be_bytes());
        out.extend(u64::from(extent.flags).to_be_bytes());
    }
}

/// Reads the body of a BLOCK_STATUS chunk, or of a BLOCK_STATUS_EXT chunk when `wide`: the number
/// of the context and its extents.
pub fn parse_block_status(body: &[u8], wide: bool) -> Result<(u32, Vec<Extent>), WireError> {
    let mut r = Reader::new(body);
    let context = r.u32("context")?;
    let unit = if wide { 16 } else { 8 };
    if wide && u64::from(r.u32("count")?) != (r.rest().len() / unit) as u64 {
        return Err(WireError::bad("count", 4));
    }
    if r.rest().is_empty() || !r.rest().len().is_multiple_of(unit) {
        return Err(WireError::short("extents", r.at()));
    }
    let mut out = Vec::with_capacity(r.rest().len() / unit);
    while !r.rest().is_empty() {
        let extent = match wide {
            true => Extent {
                len: r.u64("length")?,
                flags: u32::try_from(r.u64("status")?).map_err(|_| WireError::long("status", 0))?,
            },
            false => Extent { len: u64::from(r.u32("length")?), flags: r.u32("status")? },
        };
        out.push(extent);
    }
    Ok((context, out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_decode_as_encoded() {
        let extents = [Extent { len: 4096, flags: 3 }, Extent { len: 1 << 20, flags: 0 }];
        let (mut short, mut wide) = (Vec::new(), Vec::new());
        block_status(1, &extents, &mut short);
        block_status_ext(1, &extents, &mut wide);
        assert_eq!(short.len(), 4 + 16);
        assert_eq!(wide.len(), 8 + 32);
        assert_eq!(parse_block_status(&short, false), Ok((1, extents.to_vec())));
        assert_eq!(parse_block_status(&wide, true), Ok((1, extents.to_vec())));
        wide[7] = 1;
        assert!(parse_block_status(&wide, true).is_err());
        assert!(parse_block_status(&short[..4], false).is_err(), "no extent");
    }

    #[test]
    fn long_extent_is_truncated_and_is_the_last() {
        let extents = [Extent { len: 1 << 40, flags: 3 }, Extent { len: 1, flags: 0 }];
        let mut out = Vec::new();
        block_status(1, &extents, &mut out);
        let (_, back) = parse_block_status(&out, false).unwrap();
        assert_eq!(back, [Extent { len: 0xffff_0000, flags: 3 }]);
    }

    #[test]
    fn errors_and_holes_decode_as_encoded() {
        let mut out = Vec::new();
        error(Error::NoSpc, &"ü".repeat(200), &mut out);
        let (code, text) = parse_error(&out).unwrap();
        assert_eq!((code, text.len()), (Error::NoSpc, TEXT_MAX - 1));
        assert_eq!(parse_hole(&hole(1 << 40, 4096)), Ok((1 << 40, 4096)));
        assert!(parse_hole(&[0; 11]).is_err() && parse_hole(&[0; 13]).is_err());
    }
}
