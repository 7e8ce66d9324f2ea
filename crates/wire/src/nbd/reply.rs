//! Replies of transmission, piece by piece, as a client reads them.

use super::chunk::{self, Extent, OFFSET_LEN};
use super::codes::{DONE, Error, chunk_kind};
use super::transmission::Head;
use crate::error::WireError;

/// Longest body of a chunk other than data, bytes; a longer one ends the connection.
pub const BODY_MAX: u64 = 16 * 1024;

/// A piece of a reply. `last`: the reply ends with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A simple reply, with the error if there is one. The data of a READ follow.
    Simple {
        /// Of the request.
        cookie: u64,
        /// How it failed.
        error: Option<Error>,
    },
    /// Data of a READ follow.
    Data {
        /// Of the request.
        cookie: u64,
        /// Place in the export of the first byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// See above.
        last: bool,
    },
    /// Zeroes of a READ.
    Hole {
        /// Of the request.
        cookie: u64,
        /// Place in the export of the first byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// See above.
        last: bool,
    },
    /// Extents of a BLOCK_STATUS.
    Status {
        /// Of the request.
        cookie: u64,
        /// Number of the context.
        context: u32,
        /// Extents from the first byte of the request; at least one.
        extents: Vec<Extent>,
        /// See above.
        last: bool,
    },
    Failed {
        /// Of the request.
        cookie: u64,
        error: Error,
        /// See above.
        last: bool,
    },
    /// The reply ends; nothing is added.
    End {
        /// Of the request.
        cookie: u64,
    },
}

impl Piece {
    /// The request that it belongs to.
    pub fn cookie(&self) -> u64 {
        match *self {
            Piece::Simple { cookie, .. }
            | Piece::Data { cookie, .. }
            | Piece::Hole { cookie, .. }
            | Piece::Status { cookie, .. }
            | Piece::Failed { cookie, .. }
            | Piece::End { cookie } => cookie,
        }
    }
}

/// Reads the piece at the start of `bytes` and answers its length, without data that follow.
/// `Truncated`: more bytes are needed, never more than [`super::HEAD_MAX`] and [`BODY_MAX`].
pub fn piece(bytes: &[u8]) -> Result<(Piece, usize), WireError> {
    let (head, used) = Head::decode(bytes)?;
    let (flags, kind, cookie, len) = match head {
        Head::Simple { error, cookie } => {
            let error = (error != 0).then(|| Error::from_code(error));
            return Ok((Piece::Simple { cookie, error }, used));
        }
        Head::Chunk { flags, kind, cookie, len, .. } => (flags, kind, cookie, len),
    };
    let last = flags & DONE != 0;
    if kind == chunk_kind::OFFSET_DATA {
        let offset = bytes.get(used..used + OFFSET_LEN);
        let offset = offset.ok_or(WireError::short("offset", 0))?;
        let offset = u64::from_be_bytes(offset.try_into().unwrap_or_default());
        let data = len.checked_sub(OFFSET_LEN as u64).filter(|data| *data > 0);
        let len = data.ok_or(WireError::bad("length", 16))?;
        return Ok((Piece::Data { cookie, offset, len, last }, used + OFFSET_LEN));
    }
    if len > BODY_MAX {
        return Err(WireError::long("length", 16));
    }
    let end = used + usize::try_from(len).unwrap_or(usize::MAX);
    let body = bytes.get(used..end).ok_or(WireError::short("body", 0))?;
    let whole = |e: WireError| WireError::bad(e.field, e.at);
    let piece = match kind {
        chunk_kind::NONE if last && len == 0 => Piece::End { cookie },
        chunk_kind::OFFSET_HOLE => {
            let (offset, len) = chunk::parse_hole(body).map_err(whole)?;
            Piece::Hole { cookie, offset, len: u64::from(len), last }
        }
        chunk_kind::BLOCK_STATUS | chunk_kind::BLOCK_STATUS_EXT => {
            let wide = kind == chunk_kind::BLOCK_STATUS_EXT;
            let (context, extents) = chunk::parse_block_status(body, wide).map_err(whole)?;
            Piece::Status { cookie, context, extents, last }
        }
        // An error of a type that is not known is an error all the same.
        kind if kind & 0x8000 != 0 => {
            let (error, _text) = chunk::parse_error(body).map_err(whole)?;
            Piece::Failed { cookie, error, last }
        }
        _ => return Err(WireError::bad("type", 6)),
    };
    Ok((piece, end))
}

#[cfg(test)]
mod tests {
    use super::super::{Form, HEAD_MAX};
    use super::*;
    use crate::error::Kind;

    fn bytes(flags: u16, kind: u16, body: &[u8], form: Form) -> Vec<u8> {
        let mut head = [0; HEAD_MAX];
        let len = body.len() as u64;
        let n = Head::Chunk { flags, kind, cookie: 7, offset: 0, len }.encode(form, &mut head);
        [&head[..n], body].concat()
    }

    #[test]
    fn chunks_are_decoded_whole_or_wait_for_more() {
        let mut failed = Vec::new();
        chunk::error(Error::NoSpc, "full", &mut failed);
        let mut extents = Vec::new();
        chunk::block_status(1, &[Extent { len: 4096, flags: 3 }], &mut extents);
        for form in [Form::Structured, Form::Extended] {
            let all = [
                bytes(1, chunk_kind::NONE, &[], form),
                bytes(0, chunk_kind::OFFSET_HOLE, &chunk::hole(512, 4096), form),
                bytes(1, chunk_kind::ERROR, &failed, form),
                bytes(1, 0x8007, &failed, form),
                bytes(1, chunk_kind::BLOCK_STATUS, &extents, form),
            ];
            for one in all {
                let (piece, used) = self::piece(&one).unwrap();
                assert_eq!((used, piece.cookie()), (one.len(), 7));
                for cut in 0..one.len() {
                    assert_eq!(self::piece(&one[..cut]).unwrap_err().kind, Kind::Truncated);
                }
            }
            let body = [&512u64.to_be_bytes()[..], &[5; 4]].concat();
            let (piece, _) = self::piece(&bytes(1, chunk_kind::OFFSET_DATA, &body, form)).unwrap();
            assert_eq!(piece, Piece::Data { cookie: 7, offset: 512, len: 4, last: true });
        }
    }

    #[test]
    fn malformed_chunks_are_errors_at_once() {
        let form = Form::Structured;
        let bad = [
            bytes(0, chunk_kind::NONE, &[], form),
            bytes(1, chunk_kind::NONE, &[1], form),
            bytes(1, 77, &[], form),
            bytes(1, chunk_kind::OFFSET_DATA, &[0; 8], form),
            bytes(1, chunk_kind::OFFSET_HOLE, &[0; 11], form),
            bytes(1, chunk_kind::ERROR, &[0; 5], form),
            bytes(1, chunk_kind::BLOCK_STATUS, &[0; 4], form),
        ];
        for one in bad {
            assert_ne!(piece(&one).unwrap_err().kind, Kind::Truncated, "{one:?}");
        }
        let mut head = [0; HEAD_MAX];
        let long = Head::Chunk { flags: 1, kind: 0x8001, cookie: 0, offset: 0, len: BODY_MAX + 1 };
        let n = long.encode(form, &mut head);
        assert_eq!(piece(&head[..n]).unwrap_err().kind, Kind::TooLong);
    }
}
