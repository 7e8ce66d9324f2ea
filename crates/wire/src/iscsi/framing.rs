//! PDU boundaries and digest verification.
//!
//! A connection collects bytes and calls [`Framer::header`] for the next step. With header digests
//! on, the digest is verified before DataSegmentLength or the opcode is used. Only TotalAHSLength,
//! which is at most 1020 bytes, is used earlier, to locate the digest.
//!
//! ```text
//! | BHS 48 | AHS 0..1020 | header digest 0/4 |  data  | pad 0..3 | data digest 0/4 |
//! |<------------- header_len --------------->|<data_len>|                          |
//! |<--------------------------------- total_len ---------------------------------->|
//! ```

use super::bhs::{BHS_LEN, Bhs, ahs_len_of, data_len_of};
use super::negotiate::SessionParams;
use crate::digest::{Crc32c, crc32c, pad_len};
use crate::error::{Kind, WireError};

/// The negotiated parameters of a connection that affect framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framer {
    /// HeaderDigest=CRC32C.
    pub header_digest: bool,
    /// DataDigest=CRC32C.
    pub data_digest: bool,
    /// Largest data segment accepted: the MaxRecvDataSegmentLength this side declared. A longer one
    /// is an error and the connection must be dropped, for its bytes would have to be stored.
    pub data_len_max: u32,
    /// Largest sum of additional headers accepted, bytes.
    pub ahs_len_max: u16,
}

/// Before login is over: no digests, no additional headers, 8192 bytes of text.
pub const PRE_LOGIN: Framer =
    Framer { header_digest: false, data_digest: false, data_len_max: 8192, ahs_len_max: 0 };

/// The requirement of the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// This many bytes from the PDU's start, before the header can be understood.
    Bytes(usize),
    /// The header is whole and its digest agrees.
    Header(Frame),
}

/// The lengths of one PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Bytes of additional headers.
    pub ahs_len: usize,
    /// Bytes up to the data: headers and header digest.
    pub header_len: usize,
    pub data_len: usize,
    /// Bytes of padding after the data, 0 to 3.
    pub pad_len: usize,
    /// Bytes of data digest: 0 or 4. A PDU without data has none.
    pub digest_len: usize,
}

impl Frame {
    /// Bytes of the whole PDU.
    pub fn total_len(&self) -> usize {
        self.header_len + self.data_len + self.pad_len + self.digest_len
    }

    /// Bytes after the header: data, padding and digest.
    pub fn tail_len(&self) -> usize {
        self.data_len + self.pad_len + self.digest_len
    }
}

impl Framer {
    /// Framing of the PDUs that this side receives after a login, without additional headers.
    pub fn of(params: &SessionParams) -> Framer {
        Framer {
            header_digest: params.header_digest,
            data_digest: params.data_digest,
            data_len_max: params.recv_data_len_max,
            ahs_len_max: 0,
        }
    }

    /// Looks at the bytes of a PDU from its start. Returns how many bytes are needed, or gives the
    /// lengths once the header is whole and verified. Errors: HeaderDigest (the connection cannot
    /// be resynchronised), TotalAHSLength or DataSegmentLength above the limit.
    pub fn header(&self, bytes: &[u8]) -> Result<Need, WireError> {
        let Some(bhs) = bytes.first_chunk::<BHS_LEN>() else {
            return Ok(Need::Bytes(BHS_LEN));
        };
        let ahs_len = ahs_len_of(bhs);
        if !self.header_digest && ahs_len > usize::from(self.ahs_len_max) {
            return Err(WireError::long("TotalAHSLength", 4));
        }
        let signed_len = BHS_LEN + ahs_len;
        let header_len = signed_len + if self.header_digest { 4 } else { 0 };
        let Some(header) = bytes.get(..header_len) else {
            return Ok(Need::Bytes(header_len));
        };
        if let (true, Some((signed, digest))) = (self.header_digest, header.split_last_chunk::<4>())
        {
            check(signed, *digest, "HeaderDigest")?;
            if ahs_len > usize::from(self.ahs_len_max) {
                return Err(WireError::long("TotalAHSLength", 4));
            }
        }
        self.lengths(bhs, ahs_len, header_len).map(Need::Header)
    }

    fn lengths(&self, bhs: &Bhs, ahs_len: usize, header_len: usize) -> Result<Frame, WireError> {
        let data_len = data_len_of(bhs);
        if data_len > self.data_len_max {
            return Err(WireError::long("DataSegmentLength", 5));
        }
        Ok(Frame {
            ahs_len,
            header_len,
            // At most 24 bits.
            data_len: usize::try_from(data_len).unwrap_or(usize::MAX),
            pad_len: pad_len(data_len),
            digest_len: if self.data_digest && data_len > 0 { 4 } else { 0 },
        })
    }

    /// Verifies the data digest of a PDU whose tail (data, padding, digest) is in one piece.
    /// Without a digest only the length is checked.
    pub fn data<'a>(&self, frame: &Frame, tail: &'a [u8]) -> Result<&'a [u8], WireError> {
        let padded_len = frame.data_len + frame.pad_len;
        let padded = tail.get(..padded_len).ok_or(WireError::short("data segment", 0))?;
        if frame.digest_len > 0 {
            let digest = tail.get(padded_len..).and_then(|rest| rest.first_chunk::<4>());
            check(padded, *digest.ok_or(WireError::short("DataDigest", 0))?, "DataDigest")?;
        }
        padded.get(..frame.data_len).ok_or(WireError::short("data segment", 0))
    }

    /// Verifies a data digest that was computed piece by piece.
    pub fn check_data(&self, crc: Crc32c, digest: [u8; 4]) -> Result<(), WireError> {
        if crc.wire() == digest {
            Ok(())
        } else {
            Err(WireError::new(Kind::Digest, "DataDigest", 0))
        }
    }
}

fn check(bytes: &[u8], digest: [u8; 4], field: &'static str) -> Result<(), WireError> {
    if crc32c(bytes).to_le_bytes() == digest {
        Ok(())
    } else {
        Err(WireError::new(Kind::Digest, field, u32::try_from(bytes.len()).unwrap_or(u32::MAX)))
    }
}

#[cfg(test)]
#[path = "framing_tests.rs"]
mod tests;
