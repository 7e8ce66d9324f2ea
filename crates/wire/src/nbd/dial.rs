//! The client's side of the handshake, message by message: for tests and tools.

use super::codes::{MAGIC, OPTION_MAGIC, handshake_flag};
use crate::bytes::Reader;
use crate::error::WireError;

/// Bytes of the server's greeting.
pub const GREETING_LEN: usize = 18;

/// Reads the server's greeting; answers its handshake flags.
pub fn greeting(bytes: &[u8]) -> Result<u16, WireError> {
    let mut r = Reader::new(bytes);
    if r.u64("NBDMAGIC")? != MAGIC {
        return Err(WireError::bad("NBDMAGIC", 0));
    }
    if r.u64("IHAVEOPT")? != OPTION_MAGIC {
        return Err(WireError::bad("IHAVEOPT", 8));
    }
    r.u16("handshake flags")
}

/// Client flags: fixed newstyle, no zeroes.
pub fn flags() -> [u8; 4] {
    u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES).to_be_bytes()
}

pub fn option(option: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + payload.len());
    out.extend(OPTION_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(payload);
    out
}

fn string(text: &str, out: &mut Vec<u8>) {
    out.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(text.as_bytes());
}

/// Payload of INFO and GO.
pub fn info(name: &str, requests: &[u16]) -> Vec<u8> {
    let mut out = Vec::new();
    string(name, &mut out);
    out.extend(u16::try_from(requests.len()).unwrap_or(u16::MAX).to_be_bytes());
    requests.iter().for_each(|r| out.extend(r.to_be_bytes()));
    out
}

/// Payload of the options about metadata contexts.
pub fn contexts(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    string(name, &mut out);
    out.extend(u32::try_from(queries.len()).unwrap_or(u32::MAX).to_be_bytes());
    queries.iter().for_each(|q| string(q, &mut out));
    out
}
