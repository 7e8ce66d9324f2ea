//! 9P2000 (Plan 9 manual, section 5): messages between a file server and its clients.
//!
//! ```text
//!   | size 4 | type 1 | tag 2 | fields ...     integers little-endian, strings with a count of 2
//! ```
//! Decoding borrows, and only small fields are copied. The data of a Twrite and of an Rread is not
//! moved: [`write_head`] and [`read_head`] are the bytes before it.

mod message;
mod shown;
mod stat;
#[cfg(test)]
mod tests;

pub use message::{Names, R, T, read_head, write_head};
pub use stat::{Qid, Stat, mode, qtype};

use crate::error::WireError;

/// Bytes before the fields of a message.
pub const HEAD: usize = 7;
/// Bytes before the data of a Twrite; Plan 9 counts 24 for reads and writes alike.
pub const WRITE_HEAD: usize = 23;
/// Bytes of a message that are not data, at most, in the larger of Twrite and Rread.
pub const IOHDR: u32 = 24;
/// No tag: that of Tversion.
pub const NOTAG: u16 = 0xffff;
pub const NOFID: u32 = 0xffff_ffff;
/// Names in a Twalk, at most.
pub const WALK_MAX: usize = 16;
/// Bytes of an error's text that every client takes.
pub const ERROR_MAX: usize = 127;

/// The access mode of Topen and Tcreate.
pub mod open {
    /// To read.
    pub const READ: u8 = 0;
    /// To write.
    pub const WRITE: u8 = 1;
    /// Both.
    pub const RDWR: u8 = 2;
    /// To read, with permission to execute.
    pub const EXEC: u8 = 3;
    /// Cut to nothing first.
    pub const TRUNC: u8 = 0x10;
    /// Remove when the fid is clunked.
    pub const RCLOSE: u8 = 0x40;
}

/// Types of messages; a reply's is its request's plus one.
pub(crate) mod kind {
    pub const TVERSION: u8 = 100;
    pub const TAUTH: u8 = 102;
    pub const TATTACH: u8 = 104;
    pub const RERROR: u8 = 107;
    pub const TFLUSH: u8 = 108;
    pub const TWALK: u8 = 110;
    pub const TOPEN: u8 = 112;
    pub const TCREATE: u8 = 114;
    pub const TREAD: u8 = 116;
    pub const TWRITE: u8 = 118;
    pub const TCLUNK: u8 = 120;
    pub const TREMOVE: u8 = 122;
    pub const TSTAT: u8 = 124;
    pub const TWSTAT: u8 = 126;
}

/// Size, type and tag of the message that begins with these bytes. Size includes itself. A message
/// that is shorter than the head or longer than `msize` ends the connection, because the start of
/// the next message is unknown.
pub fn head(b: &[u8; HEAD], msize: u32) -> Result<(u32, u8, u16), WireError> {
    let size = u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    if (size as usize) < HEAD {
        return Err(WireError::short("size", 0));
    }
    if size > msize {
        return Err(WireError::long("size", 0));
    }
    Ok((size, b[4], u16::from_le_bytes([b[5], b[6]])))
}

/// Little-endian fields front to back.
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    pub fn new(bytes: &'a [u8], at: usize) -> Fields<'a> {
        Fields { bytes, at }
    }

    pub fn place(&self) -> u32 {
        u32::try_from(self.at).unwrap_or(u32::MAX)
    }

    pub fn take(&mut self, n: usize, field: &'static str) -> Result<&'a [u8], WireError> {
        let short = WireError::short(field, self.place());
        let end = self.at.checked_add(n).ok_or(short)?;
        let out = self.bytes.get(self.at..end).ok_or(short)?;
        self.at = end;
        Ok(out)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WireError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N, field)?);
        Ok(out)
    }

    pub fn u8(&mut self, field: &'static str) -> Result<u8, WireError> {
        Ok(u8::from_le_bytes(self.array(field)?))
    }

    pub fn u16(&mut self, field: &'static str) -> Result<u16, WireError> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    pub fn u32(&mut self, field: &'static str) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    pub fn u64(&mut self, field: &'static str) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    /// A string: counted, UTF-8, without zeros.
    pub fn text(&mut self, field: &'static str) -> Result<&'a str, WireError> {
        let at = self.place();
        let len = self.u16(field)?;
        let bytes = self.take(usize::from(len), field)?;
        match std::str::from_utf8(bytes) {
            Ok(s) if !s.contains('\0') => Ok(s),
            _ => Err(WireError::bad(field, at)),
        }
    }

    /// Nothing may be left.
    pub fn end(&self, field: &'static str) -> Result<(), WireError> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(WireError::long(field, self.place())) }
    }
}

/// Appends a string; a string too long for its count is cut at a character.
pub(crate) fn put_text(out: &mut Vec<u8>, s: &str) {
    let mut end = s.len().min(usize::from(u16::MAX));
    while !s.is_char_boundary(end) {
        end -= 1;
    }
    out.extend_from_slice(&(end as u16).to_le_bytes());
    out.extend_from_slice(&s.as_bytes()[..end]);
}
