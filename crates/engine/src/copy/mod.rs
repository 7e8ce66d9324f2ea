//! The copy manager: moves data from unit to unit without passing it through the initiator.
//!
//! | file | holds |
//! | --- | --- |
//! | `reach` | which units a list may name, and what may be done to them |
//! | `transfer` | moving blocks and bytes in chunks, several at a time |
//! | `extended` | EXTENDED COPY |
//! | `offload` | POPULATE TOKEN and WRITE USING TOKEN |
//!
//! The copies that run and the live tokens are state of a unit: `unit/copies`.
//!
//! Invariants
//!  Y1  A copy reaches only units of the LUN map of the session that requested it, with the rights
//!      of that session's own nexuses at them.
//!  Y2  A token represents the data as it was when POPULATE TOKEN ended, or it is revoked. A write
//!      to blocks of a live token revokes the token before the write reaches the medium. Data
//!      that was read for a token is written only while the token is not revoked.
//!  Y3  The memory of an operation is bounded: [`OUTSTANDING`] chunks of `CHUNK_BYTES` each.
//!  Y4  A function that ends an operation waits for it. The operation keeps its command's place in
//!      the session until no part of it can touch a medium, whenever its status was sent.

pub(crate) mod extended;
pub(crate) mod offload;
mod reach;
mod transfer;

/// Chunks of one operation that are under way at once.
pub(crate) const OUTSTANDING: usize = 4;

/// Longest parameter list that is taken from an initiator, bytes. A longer one is refused with
/// PARAMETER LIST LENGTH ERROR before any of it is sent.
pub(crate) const LIST_LEN_MAX: u32 = 64 * 1024;
