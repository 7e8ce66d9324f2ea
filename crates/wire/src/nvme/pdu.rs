//! Headers of PDUs (NVMe/TCP 3.6).

use super::codes::{fatal, pdu as kind, pdu_flag as flag};
use super::command::{COMMAND_LEN, COMPLETION_LEN, Command, Completion};
use super::page::{Page, field};

/// Bytes that every PDU begins with.
pub const COMMON_LEN: usize = 8;

pub const R2T_LEN: usize = 24;

/// Longest TermReq, bytes: its header and the header at fault.
pub const TERM_LEN_MAX: u32 = 152;

/// Largest PFV.
const VERSION: u16 = 0;

/// Largest HPDA and CPDA: data begins at a multiple of 128 bytes.
const ALIGNMENT_MAX: u8 = 31;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Common {
    /// PDU-Type.
    pub kind: u8,
    pub flags: u8,
    /// HLEN: bytes of the header without its digest.
    pub header_len: u8,
    /// PDO: where the data begins, bytes from the PDU's start.
    pub data_at: u8,
    /// PLEN: bytes of the whole PDU.
    pub len: u32,
}

impl Common {
    pub fn decode(b: &[u8; COMMON_LEN]) -> Common {
        let [kind, flags, header_len, data_at, len @ ..] = *b;
        Common { kind, flags, header_len, data_at, len: u32::from_le_bytes(len) }
    }

    pub fn encode(&self) -> [u8; COMMON_LEN] {
        let [a, b, c, d] = self.len.to_le_bytes();
        [self.kind, self.flags, self.header_len, self.data_at, a, b, c, d]
    }

    /// A flag is set.
    pub fn has(&self, bits: u8) -> bool {
        self.flags & bits != 0
    }
}

/// A fatal error of a connection, as a TermReq reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// FES, see [`fatal`].
    pub reason: u16,
    /// FEI: offset of the field at fault, where it is one.
    pub at: u32,
    /// For people.
    pub description: &'static str,
}

impl Fault {
    /// A field that may not have its value.
    pub const fn field(at: u32, what: &'static str) -> Fault {
        Fault { reason: fatal::HEADER_FIELD, at, description: what }
    }

    /// Something else.
    pub const fn of(reason: u16, what: &'static str) -> Fault {
        Fault { reason, at: 0, description: what }
    }
}

/// ICReq and ICResp, which have one shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Initialize {
    /// From a controller.
    pub response: bool,
    /// HPDA or CPDA: data sent to the sender of this PDU begins at a multiple of so many dwords,
    /// less one.
    pub alignment: u8,
    /// HDGST_ENABLE.
    pub header_digest: bool,
    /// DDGST_ENABLE.
    pub data_digest: bool,
    /// MAXR2T of a host: R2Ts for one command, less one. MAXH2CDATA of a controller: most data of
    /// one H2CData, bytes.
    pub most: u32,
}

impl Initialize {
    pub const LEN: usize = 128;

    pub fn decode(b: &[u8; Initialize::LEN]) -> Result<Initialize, Fault> {
        let [kind, _, ..] = *b;
        if u16::from_le_bytes(field(b, 8)) > VERSION {
            let reason = fatal::UNSUPPORTED;
            return Err(Fault {
                reason,
                at: 8,
                description: "PFV: a version of PDUs not served here",
            });
        }
        let [alignment, digests] = field(b, 10);
        if alignment > ALIGNMENT_MAX {
            return Err(Fault::field(10, "HPDA: at most 31"));
        }
        let (header_digest, data_digest) = (digests & 1 != 0, digests & 2 != 0);
        let (response, most) =
            (kind == kind::INITIALIZE_RESPONSE, u32::from_le_bytes(field(b, 12)));
        Ok(Initialize { response, alignment, header_digest, data_digest, most })
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut page = Page::new(Initialize::LEN);
        let kind = if self.response { kind::INITIALIZE_RESPONSE } else { kind::INITIALIZE_REQUEST };
        let common = Common { kind, header_len: 128, len: 128, ..Common::default() };
        let digests = u8::from(self.header_digest) | u8::from(self.data_digest) << 1;
        page.put(0, &common.encode()).u16(8, VERSION);
        page.u8(10, self.alignment).u8(11, digests).u32(12, self.most);
        page.done()
    }
}

/// H2CData, C2HData and R2T behind the common header: the data, or the requested range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// CCCID: the command's identifier.
    pub command: u16,
    /// TTAG: of the R2T; zero in C2HData.
    pub tag: u16,
    /// DATAO or R2TO: offset in the command's data, bytes.
    pub at: u32,
    /// DATAL or R2TL, bytes.
    pub len: u32,
}

impl Data {
    pub const LEN: usize = 24;

    pub fn decode(b: &[u8; Data::LEN]) -> Data {
        Data {
            command: u16::from_le_bytes(field(b, 8)),
            tag: u16::from_le_bytes(field(b, 10)),
            at: u32::from_le_bytes(field(b, 12)),
            len: u32::from_le_bytes(field(b, 16)),
        }
    }

    pub fn encode(&self, common: &Common) -> Vec<u8> {
        let mut page = Page::new(Data::LEN);
        page.put(0, &common.encode()).u16(8, self.command).u16(10, self.tag);
        page.u32(12, self.at).u32(16, self.len);
        page.done()
    }
}

/// An R2T without its digest.
pub fn r2t(wish: &Data, flags: u8) -> Vec<u8> {
    let digest = if flags & flag::HEADER_DIGEST != 0 { 4 } else { 0 };
    let (header_len, len) = (24, 24 + digest);
    wish.encode(&Common { kind: kind::READY, flags, header_len, data_at: 0, len })
}

/// H2CTermReq and C2HTermReq.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminate {
    pub controller: bool,
    /// FES.
    pub reason: u16,
    /// FEI.
    pub at: u32,
    /// The header at fault, as far as it is repeated.
    pub header: Vec<u8>,
}

impl Terminate {
    /// Bytes before the header at fault.
    pub const LEN: usize = 24;

    /// Reads a PDU, of which all bytes are here.
    pub fn decode(b: &[u8]) -> Option<Terminate> {
        let (head, rest) = b.split_first_chunk::<{ Terminate::LEN }>()?;
        Some(Terminate {
            controller: head.first() == Some(&kind::CONTROLLER_TERMINATES),
            reason: u16::from_le_bytes(field(head, 8)),
            at: u32::from_le_bytes(field(head, 10)),
            header: rest.iter().take(TERM_LEN_MAX as usize - Terminate::LEN).copied().collect(),
        })
    }

    pub fn encode(&self) -> Vec<u8> {
        let most = TERM_LEN_MAX as usize - Terminate::LEN;
        let header = self.header.get(..most).unwrap_or(&self.header);
        let kind = match self.controller {
            true => kind::CONTROLLER_TERMINATES,
            false => kind::HOST_TERMINATES,
        };
        let len = u32::try_from(Terminate::LEN + header.len()).unwrap_or(0);
        let mut page = Page::new(Terminate::LEN);
        page.put(0, &Common { kind, header_len: 24, len, ..Common::default() }.encode());
        page.u16(8, self.reason).u32(10, self.at);
        let mut out = page.done();
        out.extend(header);
        out
    }
}

/// A command capsule's header, with its own digest not yet behind it; `data` bytes follow.
pub fn command_capsule(command: &Command, flags: u8, data: u32) -> Vec<u8> {
    let header_len = 72u8;
    let digest = if flags & flag::HEADER_DIGEST != 0 { 4u8 } else { 0 };
    let tail = if flags & flag::DATA_DIGEST != 0 { 4 } else { 0 };
    let data_at = if data > 0 { header_len + digest } else { 0 };
    let head = u32::from(header_len + digest);
    let len = if data > 0 { head.saturating_add(data).saturating_add(tail) } else { head };
    let mut out = Common { kind: kind::COMMAND, flags, header_len, data_at, len }.encode().to_vec();
    out.extend(command.encode());
    debug_assert_eq!(out.len(), COMMON_LEN + COMMAND_LEN);
    out
}

/// A response capsule without its digest.
pub fn response_capsule(completion: &Completion, flags: u8) -> [u8; COMMON_LEN + COMPLETION_LEN] {
    let len = if flags & flag::HEADER_DIGEST != 0 { 28 } else { 24 };
    let common = Common { kind: kind::RESPONSE, flags, header_len: 24, data_at: 0, len };
    let mut out = [0; COMMON_LEN + COMPLETION_LEN];
    let bytes = common.encode().into_iter().chain(completion.encode());
    out.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn icreq_of_linux_matches_known_bytes() {
        let mut bytes = [0; 128];
        (bytes[2], bytes[4], bytes[11]) = (128, 128, 3);
        let read = Initialize::decode(&bytes).unwrap();
        let want = Initialize { header_digest: true, data_digest: true, ..Initialize::default() };
        assert_eq!(read, want);
        assert_eq!(want.encode(), bytes);
        bytes[8] = 1;
        assert_eq!(Initialize::decode(&bytes).unwrap_err().reason, fatal::UNSUPPORTED);
        (bytes[8], bytes[10]) = (0, 32);
        assert_eq!(Initialize::decode(&bytes).unwrap_err().at, 10);
    }

    #[test]
    fn termination_request_includes_a_bounded_header_copy() {
        let long = Terminate { controller: true, reason: 1, at: 9, header: vec![7; 500] };
        let bytes = long.encode();
        assert_eq!(bytes.len(), TERM_LEN_MAX as usize);
        let read = Terminate::decode(&bytes).unwrap();
        assert_eq!((read.reason, read.at, read.header.len()), (1, 9, 128));
    }
}
