//! Payloads of options and of the replies to them.

use super::codes::{OPTION_REPLY_MAGIC, info, rep};
use crate::bytes::Reader;
use crate::error::WireError;

/// Longest payload of an option, bytes; that of a longer one is read, dropped and answered TOO_BIG.
pub const OPTION_MAX: usize = 16 * 1024;

/// Longest payload that is read to be dropped, bytes; a longer one ends the connection.
pub const DRAIN_MAX: u32 = 1 << 20;

/// Options of one connection; a further one ends it.
pub const OPTIONS_MAX: u32 = 64;

/// Longest name of an export or a context, bytes (the document's limit); a longer one is INVALID.
pub const NAME_MAX: usize = 4096;

/// Queries in one option about metadata contexts; more are INVALID.
pub const QUERIES_MAX: u32 = 64;

/// Exports that LIST names; further ones are left out.
pub const LISTED_MAX: usize = 10_000;

/// The payload of INFO and GO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked<'a> {
    pub name: &'a str,
    pub wants_name: bool,
    pub wants_description: bool,
    pub wants_block_size: bool,
}

/// The payload of LIST_META_CONTEXT and SET_META_CONTEXT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contexts<'a> {
    pub name: &'a str,
    pub queries: Vec<&'a str>,
}

fn name_of<'a>(bytes: &'a [u8], field: &'static str) -> Result<&'a str, WireError> {
    if bytes.len() > NAME_MAX {
        return Err(WireError::long(field, 0));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| WireError::bad(field, 0))?;
    if text.contains('\0') { Err(WireError::bad(field, 0)) } else { Ok(text) }
}

fn string<'a>(r: &mut Reader<'a>, field: &'static str) -> Result<&'a str, WireError> {
    let len = usize::try_from(r.u32(field)?).map_err(|_| WireError::long(field, r.at()))?;
    name_of(r.take(len, field)?, field)
}

pub(super) fn export_name(payload: &[u8]) -> Result<&str, WireError> {
    name_of(payload, "export name")
}

pub(super) fn asked(payload: &[u8]) -> Result<Asked<'_>, WireError> {
    let mut r = Reader::new(payload);
    let name = string(&mut r, "export name")?;
    let mut out =
        Asked { name, wants_name: false, wants_description: false, wants_block_size: false };
    for _ in 0..r.u16("number of information requests")? {
        match r.u16("information request")? {
            info::NAME => out.wants_name = true,
            info::DESCRIPTION => out.wants_description = true,
            info::BLOCK_SIZE => out.wants_block_size = true,
            // Unknown ones are skipped, as the document specifies.
            _ => {}
        }
    }
    if r.rest().is_empty() { Ok(out) } else { Err(WireError::long("option", r.at())) }
}

pub(super) fn contexts(payload: &[u8]) -> Result<Contexts<'_>, WireError> {
    let mut r = Reader::new(payload);
    let name = string(&mut r, "export name")?;
    let count = r.u32("number of queries")?;
    if count > QUERIES_MAX {
        return Err(WireError::long("number of queries", r.at()));
    }
    let mut queries = Vec::new();
    for _ in 0..count {
        queries.push(string(&mut r, "query")?);
    }
    match r.rest().is_empty() {
        true => Ok(Contexts { name, queries }),
        false => Err(WireError::long("option", r.at())),
    }
}

pub(super) fn reply(option: u32, kind: u32, parts: &[&[u8]], out: &mut Vec<u8>) {
    let len: usize = parts.iter().map(|p| p.len()).sum();
    out.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend(u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
    parts.iter().for_each(|part| out.extend(*part));
}

/// A reply to an option, as a client reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionReply<'a> {
    pub option: u32,
    /// Type.
    pub kind: u32,
    pub payload: &'a [u8],
}

impl<'a> OptionReply<'a> {
    pub const HEADER_LEN: usize = 20;

    /// Reads a reply from the start of `bytes`; answers its bytes too. Truncated: read more.
    pub fn decode(bytes: &'a [u8]) -> Result<(OptionReply<'a>, usize), WireError> {
        let mut r = Reader::new(bytes);
        if r.u64("magic")? != OPTION_REPLY_MAGIC {
            return Err(WireError::bad("magic", 0));
        }
        let (option, kind) = (r.u32("option")?, r.u32("type")?);
        let len = usize::try_from(r.u32("length")?).unwrap_or(usize::MAX);
        let payload = r.take(len, "payload")?;
        Ok((OptionReply { option, kind, payload }, Self::HEADER_LEN + len))
    }

    pub fn is_error(&self) -> bool {
        self.kind >= rep::ERR_UNSUP - 1
    }
}
