//! Third-party copy: the parameter lists and parameter data of EXTENDED COPY, RECEIVE COPY RESULTS
//! and the token commands (SPC-4 6.4 to 6.6 and 6.17 to 6.22, SBC-3 5.7 and 5.47), and VPD page
//! 8Fh.
//!
//! | file | holds |
//! | --- | --- |
//! | `list` | the EXTENDED COPY parameter list, LID1 and LID4, and its descriptors |
//! | `odx` | POPULATE TOKEN and WRITE USING TOKEN parameter lists |
//! | `token` | the 512-byte ROD token |
//! | `results` | the parameter data of the RECEIVE commands |
//! | `page` | VPD page 8Fh |

mod list;
mod odx;
mod page;
mod results;
mod token;

pub use list::{CSCD_LEN, CSCD_THIS_UNIT, CopyForm, CopyList, Cscd, ListUsage, Segment, SegmentAt};
pub use odx::{BlockRange, PopulateToken, WriteToken, encode_populate, encode_write_token};
pub use page::third_party_page;
pub use results::{
    CopyProgress, CopyState, TokenInfo, copy_status_lid1, copy_status_lid4, failed_segment,
    held_data, operating_parameters, report_rod_tokens, rod_token_information,
};
pub use token::{ROD_TOKEN_LEN, RodToken, RodType, TOKEN_SECRET_LEN};

/// The limits of a copy manager. Each one is reported in VPD page 8Fh or by RECEIVE COPY OPERATING
/// PARAMETERS, and enforced by the parsers here or by the copy manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyLimits {
    /// Most CSCD descriptors of a list; more are refused with TOO MANY TARGET DESCRIPTORS.
    pub cscds: u16,
    /// Most segment descriptors; more are refused with TOO MANY SEGMENT DESCRIPTORS.
    pub segments: u16,
    /// Most bytes of both descriptor lists; more are refused with PARAMETER LIST LENGTH ERROR.
    pub descriptors_len: u32,
    /// Most bytes of inline data; more are refused with INLINE DATA LENGTH EXCEEDED.
    pub inline_len: u32,
    /// Most bytes held for RECEIVE COPY DATA; the oldest are thrown away beyond it.
    pub held_len: u32,
    /// Copies that the copy manager runs at once, for all units together.
    pub concurrent: u16,
    /// Copies of one unit that have a list identifier, running or remembered.
    pub identified: u8,
    /// Most range descriptors of a token command; more are refused.
    pub ranges: u16,
    /// Longest inactivity timeout of a token, seconds; a longer one is refused.
    pub timeout_max_s: u32,
    /// Inactivity timeout of a token without a requested one, seconds.
    pub timeout_default_s: u32,
    /// Most bytes that a token represents; more are refused.
    pub token_bytes: u64,
    /// Bytes read and written at a time: the best size of a request.
    pub chunk_bytes: u32,
}

/// Descriptor type codes that are served, growing: block to block, verify, block to block with
/// offsets, block to block with held data, identification.
pub const DESCRIPTOR_TYPES: [u8; 5] = [0x02, 0x07, 0x0a, 0x0d, 0xe4];

/// Service actions of operation code 83h that are served.
pub const COPY_OUT_ACTIONS: [u8; 5] = [0x00, 0x01, 0x10, 0x11, 0x1c];

/// Service actions of operation code 84h that are served.
pub const COPY_IN_ACTIONS: [u8; 7] = [0x00, 0x01, 0x03, 0x04, 0x05, 0x07, 0x08];

/// A big-endian field of a slice whose length is unchecked.
fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

fn field16(bytes: &[u8], at: usize) -> Option<u16> {
    field(bytes, at).map(u16::from_be_bytes)
}

fn field32(bytes: &[u8], at: usize) -> Option<u32> {
    field(bytes, at).map(u32::from_be_bytes)
}

fn field64(bytes: &[u8], at: usize) -> Option<u64> {
    field(bytes, at).map(u64::from_be_bytes)
}

/// An offset for a field pointer.
fn at16(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}

/// Puts the number of bytes behind the first four into them.
fn count_rest(out: &mut [u8]) {
    let rest = u32::try_from(out.len().saturating_sub(4)).unwrap_or(u32::MAX);
    if let Some(head) = out.first_chunk_mut::<4>() {
        *head = rest.to_be_bytes();
    }
}

#[cfg(test)]
pub(crate) const TEST_LIMITS: CopyLimits = CopyLimits {
    cscds: 4,
    segments: 8,
    descriptors_len: 320,
    inline_len: 0,
    held_len: 4096,
    concurrent: 16,
    identified: 8,
    ranges: 4,
    timeout_max_s: 600,
    timeout_default_s: 60,
    token_bytes: 1 << 40,
    chunk_bytes: 1 << 20,
};
