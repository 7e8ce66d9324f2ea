//! PDU boundaries and header errors (NVMe/TCP 3.3).
//!
//! ```text
//! | common 8 | rest of the header | digest 0/4 | pad | data | digest 0/4 |
//! |<-------- header_len -------->|
//! |<---------------- data_at --------------------->|
//! |<------------------------------ len ------------------------------->|
//! ```
//! In a bad PDU the lengths may contradict each other, so all values derived from them are computed
//! with checks.

use super::codes::{fatal, pdu as kind, pdu_flag as flag};
use super::pdu::{COMMON_LEN, Common, Fault, Initialize, TERM_LEN_MAX};
use crate::digest::crc32c;

/// The negotiated parameters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framer {
    /// True for PDUs of a controller, false for those of a host.
    pub from_controller: bool,
    pub header_digest: bool,
    pub data_digest: bool,
}

/// The lengths of a PDU, which are right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    pub common: Common,
    /// Bytes of the header with its digest.
    pub header_len: usize,
    /// Bytes between header and data.
    pub pad_len: usize,
    pub data_len: usize,
    /// Bytes of the data's digest: 0 or 4.
    pub digest_len: usize,
}

impl Frame {
    /// Bytes of the PDU.
    pub fn total_len(&self) -> usize {
        self.header_len + self.pad_len + self.data_len + self.digest_len
    }
}

/// HLEN of a type of PDU, and whether it may have data.
fn shape(kind: u8, from_controller: bool) -> Option<(u8, bool)> {
    Some(match (kind, from_controller) {
        (kind::INITIALIZE_REQUEST, false) | (kind::INITIALIZE_RESPONSE, true) => (128, false),
        (kind::HOST_TERMINATES, false) | (kind::CONTROLLER_TERMINATES, true) => (24, true),
        (kind::COMMAND, false) => (72, true),
        (kind::HOST_DATA, false) | (kind::CONTROLLER_DATA, true) => (24, true),
        (kind::RESPONSE | kind::READY, true) => (24, false),
        _ => return None,
    })
}

impl Framer {
    /// The lengths that a common header means.
    pub fn frame(&self, b: &[u8; COMMON_LEN]) -> Result<Frame, Fault> {
        let common = Common::decode(b);
        let Some((header_len, may_have_data)) = shape(common.kind, self.from_controller) else {
            return Err(Fault::field(0, "PDU-Type: unknown here"));
        };
        if common.header_len != header_len {
            return Err(Fault::field(2, "HLEN: not what the type has"));
        }
        let bare = matches!(common.kind, kind::INITIALIZE_REQUEST | kind::INITIALIZE_RESPONSE);
        if bare && common.len != u32::from(header_len) {
            return Err(Fault::field(4, "PLEN: not what the type has"));
        }
        let last_word = matches!(common.kind, kind::HOST_TERMINATES | kind::CONTROLLER_TERMINATES);
        if bare || last_word {
            return Framer::plain(common, last_word);
        }
        if common.has(flag::HEADER_DIGEST) != self.header_digest {
            return Err(Fault::field(1, "HDGSTF: not what was agreed on"));
        }
        let head = usize::from(header_len) + if self.header_digest { 4 } else { 0 };
        let len = usize::try_from(common.len).unwrap_or(usize::MAX);
        if len == head {
            return Ok(Frame { common, header_len: head, ..Frame::default() });
        }
        if len < head || !may_have_data {
            return Err(Fault::field(4, "PLEN: not what the type has"));
        }
        self.with_data(common, head, len)
    }

    /// ICReq and TermReq have no digests, regardless of the negotiated digests.
    fn plain(common: Common, last_word: bool) -> Result<Frame, Fault> {
        let header_len = usize::from(common.header_len);
        let len = usize::try_from(common.len).unwrap_or(usize::MAX);
        let data_len = match len.checked_sub(header_len) {
            Some(0) => 0,
            Some(n) if last_word && common.len <= TERM_LEN_MAX => n,
            _ => return Err(Fault::field(4, "PLEN: not what the type has")),
        };
        Ok(Frame { common, header_len, data_len, ..Frame::default() })
    }

    fn with_data(&self, common: Common, head: usize, len: usize) -> Result<Frame, Fault> {
        let at = usize::from(common.data_at);
        if at < head || at >= len || !at.is_multiple_of(4) {
            return Err(Fault::field(
                3,
                "PDO: within the header, beyond the PDU, or no multiple of 4",
            ));
        }
        if common.has(flag::DATA_DIGEST) != self.data_digest {
            return Err(Fault::field(1, "DDGSTF: not what was agreed on"));
        }
        let digest_len = if self.data_digest { 4 } else { 0 };
        let data_len = (len - at).checked_sub(digest_len).filter(|n| *n > 0);
        let data_len =
            data_len.ok_or(Fault::field(4, "PLEN: too small for data and its digest"))?;
        Ok(Frame { common, header_len: head, pad_len: at - head, data_len, digest_len })
    }

    /// Compares a header's digest, where there is one; `header` has it behind.
    pub fn check(&self, frame: &Frame, header: &[u8]) -> Result<(), Fault> {
        if frame.header_len == usize::from(frame.common.header_len) {
            return Ok(());
        }
        let agrees = header
            .split_last_chunk::<4>()
            .is_some_and(|(signed, digest)| crc32c(signed).to_le_bytes() == *digest);
        let what = "the header digest does not agree";
        if agrees { Ok(()) } else { Err(Fault::of(fatal::HEADER_DIGEST, what)) }
    }
}

const _: () = assert!(Initialize::LEN == 128);

#[cfg(test)]
mod tests {
    use super::*;

    fn common(kind: u8, flags: u8, header_len: u8, data_at: u8, len: u32) -> [u8; 8] {
        Common { kind, flags, header_len, data_at, len }.encode()
    }

    #[test]
    fn contradictory_lengths_are_refused_with_their_offset() {
        let both = Framer { header_digest: true, data_digest: true, ..Framer::default() };
        let good = both.frame(&common(4, 3, 72, 76, 76 + 512 + 4)).unwrap();
        assert_eq!((good.header_len, good.data_len, good.total_len()), (76, 512, 592));
        for (bytes, at) in [
            (common(8, 3, 24, 0, 28), 0),
            (common(7, 3, 24, 28, 40), 0),
            (common(4, 3, 71, 76, 592), 2),
            (common(4, 2, 72, 76, 592), 1),
            (common(4, 1, 72, 76, 592), 1),
            (common(4, 3, 72, 72, 592), 3),
            (common(4, 3, 72, 78, 592), 3),
            (common(4, 3, 72, 252, 100), 3),
            // Only the digest, and less than its length: the remaining length would wrap.
            (common(4, 3, 72, 76, 80), 4),
            (common(6, 3, 24, 28, 31), 4),
            (common(4, 3, 72, 76, 40), 4),
            (common(0, 0, 128, 0, 129), 4),
            (common(2, 0, 24, 0, 153), 4),
            (common(2, 0, 24, 0, 23), 4),
        ] {
            assert_eq!(both.frame(&bytes).unwrap_err().at, at, "{bytes:x?}");
        }
        let plain = Framer::default();
        assert_eq!(plain.frame(&common(4, 0, 72, 0, 72)).unwrap().data_len, 0);
        assert_eq!(plain.frame(&common(4, 0, 72, 96, 100)).unwrap().pad_len, 24);
        assert_eq!(both.frame(&common(2, 0, 24, 0, 152)).unwrap().data_len, 128);
    }

    #[test]
    fn a_header_digest_covers_the_header() {
        let framer = Framer { header_digest: true, ..Framer::default() };
        let mut header = vec![0x5a; 72];
        header.splice(..8, common(4, 1, 72, 0, 76));
        header.extend(crc32c(&header).to_le_bytes());
        let frame = framer.frame(header.first_chunk().unwrap()).unwrap();
        assert_eq!(framer.check(&frame, &header), Ok(()));
        header[40] ^= 1;
        assert_eq!(framer.check(&frame, &header).unwrap_err().reason, fatal::HEADER_DIGEST);
    }
}
