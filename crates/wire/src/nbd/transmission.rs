//! Headers of requests and replies.

use super::codes::{
    EXTENDED_REPLY_MAGIC, EXTENDED_REQUEST_MAGIC, REQUEST_MAGIC, SIMPLE_REPLY_MAGIC,
    STRUCTURED_REPLY_MAGIC, command_flag, kind,
};
use crate::bytes::Reader;
use crate::error::WireError;

pub const REQUEST_LEN: usize = 28;

pub const EXTENDED_REQUEST_LEN: usize = 32;

/// Bytes of the longest header of a reply.
pub const HEAD_MAX: usize = 32;

/// Which headers a connection has agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Simple replies only.
    #[default]
    Simple,
    Structured,
    /// Extended headers both ways.
    Extended,
}

pub fn request_len(form: Form) -> usize {
    match form {
        Form::Extended => EXTENDED_REQUEST_LEN,
        _ => REQUEST_LEN,
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub flags: u16,
    /// Type.
    pub kind: u16,
    /// The client's name for it, given back with every reply.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl Request {
    /// Reads a header of [`request_len`] bytes; further bytes are ignored.
    pub fn decode(form: Form, bytes: &[u8]) -> Result<Request, WireError> {
        let mut r = Reader::new(bytes);
        let extended = form == Form::Extended;
        let magic = if extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC };
        if r.u32("magic")? != magic {
            return Err(WireError::bad("magic", 0));
        }
        Ok(Request {
            flags: r.u16("flags")?,
            kind: r.u16("type")?,
            cookie: r.u64("cookie")?,
            offset: r.u64("offset")?,
            len: if extended { r.u64("length")? } else { u64::from(r.u32("length")?) },
        })
    }

    /// Appends the header. A length beyond 32 bits does not fit in a header that is not extended
    /// and is written as the largest one.
    pub fn encode(&self, form: Form, out: &mut Vec<u8>) {
        let extended = form == Form::Extended;
        let magic = if extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC };
        out.extend(magic.to_be_bytes());
        out.extend(self.flags.to_be_bytes());
        out.extend(self.kind.to_be_bytes());
        out.extend(self.cookie.to_be_bytes());
        out.extend(self.offset.to_be_bytes());
        match extended {
            true => out.extend(self.len.to_be_bytes()),
            false => out.extend(u32::try_from(self.len).unwrap_or(u32::MAX).to_be_bytes()),
        }
    }

    /// True with all bits of `flag`.
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag == flag
    }

    /// Bytes that follow the header.
    pub fn payload_len(&self, form: Form) -> u64 {
        let announced = form == Form::Extended && self.has(command_flag::PAYLOAD_LEN);
        if self.kind == kind::WRITE || announced { self.len } else { 0 }
    }
}

/// The header of a simple reply or of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// The whole of a simple reply, but for the data of a READ without error.
    Simple {
        /// Zero or an error's number.
        error: u32,
        /// Of the request.
        cookie: u64,
    },
    Chunk {
        flags: u16,
        /// Type.
        kind: u16,
        /// Of the request.
        cookie: u64,
        /// Of the request; zero without extended headers.
        offset: u64,
        /// Bytes that follow.
        len: u64,
    },
}

impl Head {
    /// Writes the header to the start of `out`; answers its bytes. A chunk's length beyond 32 bits
    /// does not fit in a header that is not extended and is written as the largest one.
    pub fn encode(&self, form: Form, out: &mut [u8; HEAD_MAX]) -> usize {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out.iter_mut().skip(at).zip(bytes).for_each(|(to, from)| *to = *from);
            at += bytes.len();
        };
        match *self {
            Head::Simple { error, cookie } => {
                put(&SIMPLE_REPLY_MAGIC.to_be_bytes());
                put(&error.to_be_bytes());
                put(&cookie.to_be_bytes());
            }
            Head::Chunk { flags, kind, cookie, offset, len } => {
                let extended = form == Form::Extended;
                let magic = if extended { EXTENDED_REPLY_MAGIC } else { STRUCTURED_REPLY_MAGIC };
                put(&magic.to_be_bytes());
                put(&flags.to_be_bytes());
                put(&kind.to_be_bytes());
                put(&cookie.to_be_bytes());
                if extended {
                    put(&offset.to_be_bytes());
                    put(&len.to_be_bytes());
                } else {
                    put(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
                }
            }
        }
        at
    }

    /// Reads a header at the start of `bytes`, for clients, and returns its length too. The first
    /// word identifies the kind of reply.
    pub fn decode(bytes: &[u8]) -> Result<(Head, usize), WireError> {
        let mut r = Reader::new(bytes);
        let head = match r.u32("magic")? {
            SIMPLE_REPLY_MAGIC => Head::Simple { error: r.u32("error")?, cookie: r.u64("cookie")? },
            magic @ (STRUCTURED_REPLY_MAGIC | EXTENDED_REPLY_MAGIC) => {
                let (flags, kind) = (r.u16("flags")?, r.u16("type")?);
                let cookie = r.u64("cookie")?;
                let (offset, len) = match magic {
                    EXTENDED_REPLY_MAGIC => (r.u64("offset")?, r.u64("length")?),
                    _ => (0, u64::from(r.u32("length")?)),
                };
                Head::Chunk { flags, kind, cookie, offset, len }
            }
            _ => return Err(WireError::bad("magic", 0)),
        };
        let used = usize::try_from(r.at()).unwrap_or(0);
        Ok((head, used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_lengths_of_the_specification() {
        let request = Request { flags: 1, kind: 1, cookie: 7, offset: 9, len: 1 << 33 };
        for form in [Form::Simple, Form::Structured, Form::Extended] {
            let mut bytes = Vec::new();
            request.encode(form, &mut bytes);
            assert_eq!(bytes.len(), request_len(form));
            let back = Request::decode(form, &bytes).unwrap();
            let len = if form == Form::Extended { 1 << 33 } else { u64::from(u32::MAX) };
            assert_eq!(back, Request { len, ..request });
            for cut in 0..bytes.len() {
                assert!(Request::decode(form, &bytes[..cut]).is_err(), "{cut}");
            }
            bytes[0] ^= 1;
            assert!(Request::decode(form, &bytes).is_err());
        }
    }

    #[test]
    fn only_requests_with_a_payload_have_a_payload_length() {
        let of = |kind, flags, form| {
            Request { kind, flags, len: 5, ..Request::default() }.payload_len(form)
        };
        assert_eq!(of(kind::WRITE, 0, Form::Simple), 5);
        assert_eq!(of(kind::READ, 0, Form::Simple), 0);
        assert_eq!(of(kind::READ, command_flag::PAYLOAD_LEN, Form::Simple), 0);
        assert_eq!(of(kind::BLOCK_STATUS, command_flag::PAYLOAD_LEN, Form::Extended), 5);
    }

    #[test]
    fn reply_headers_have_16_20_or_32_bytes() {
        let simple = Head::Simple { error: 5, cookie: 1 };
        let chunk = Head::Chunk { flags: 1, kind: 1, cookie: 2, offset: 3, len: 4 };
        for (head, form, len) in [
            (simple, Form::Simple, 16),
            (Head::Chunk { flags: 1, kind: 1, cookie: 2, offset: 0, len: 4 }, Form::Structured, 20),
            (chunk, Form::Extended, 32),
        ] {
            let mut out = [0; HEAD_MAX];
            assert_eq!(head.encode(form, &mut out), len);
            assert_eq!(Head::decode(&out[..len]), Ok((head, len)));
            assert!(Head::decode(&out[..len - 1]).is_err());
        }
        assert!(Head::decode(&[0; 32]).is_err());
    }
}
