//! The copy manager: moves data from unit to unit without passing it through the initiator.
//!
//! | file | holds |
//! | --- | --- |
//! | `operations` | copies that run, and results of those that ended |
//! | `reach` | which units a list may name, and what may be done to them |
//! | `transfer` | moving blocks and bytes in chunks, several at a time |
//! | `extended` | EXTENDED COPY |
//! | `tokens` | ROD tokens that live, and the units that watch over their data |
//! | `offload` | POPULATE TOKEN and WRITE USING TOKEN |
//!
//! Invariants
//!  Y1  A copy reaches only units of the LUN map of the session that asked for it, with the rights
//!      of that session's own nexuses at them.
//!  Y2  A token represents the data as it was when POPULATE TOKEN ended, or it is revoked. A write
//!      to blocks of a live token revokes the token before the write reaches the medium, and data
//!      that was read for a token is written only while the token is not revoked.
//!  Y3  The memory of an operation is bounded: [`OUTSTANDING`] chunks of [`CHUNK_BYTES`] each.
//!  Y4  A function that ends an operation waits for it. The operation keeps its command's place in
//!      the session until no part of it can touch a medium, whenever its status was sent.

pub(crate) mod extended;
pub(crate) mod offload;
pub(crate) mod operations;
mod reach;
pub(crate) mod tokens;
mod transfer;

pub(crate) use operations::Operations;
pub(crate) use tokens::{Tokens, Watch};

use wire::scsi::CopyLimits;

/// Bytes read and written at a time.
pub(crate) const CHUNK_BYTES: u32 = 512 * 1024;

/// Chunks of one operation that are under way at once.
pub(crate) const OUTSTANDING: usize = 4;

/// Longest parameter list that is taken from an initiator, bytes; a longer one is refused with
/// PARAMETER LIST LENGTH ERROR before any of it is sent.
pub(crate) const LIST_LEN_MAX: u32 = 64 * 1024;

/// Limits that the copy manager enforces and reports.
pub(crate) const LIMITS: CopyLimits = CopyLimits {
    cscds: 32,
    segments: 256,
    descriptors_len: 8192,
    inline_len: 0,
    held_len: 64 * 1024,
    concurrent: 64,
    identified: 16,
    ranges: 64,
    timeout_max_s: 600,
    timeout_default_s: 60,
    token_bytes: 1 << 40,
    chunk_bytes: CHUNK_BYTES,
};
