//! Query Config Information: discovery of targets, and their config string.

use super::VERSION;
use crate::error::WireError;

/// Bytes before the string.
pub const CONFIG_LEN: usize = 8;

/// Longest config string, bytes.
pub const STRING_MAX: usize = 1024;

/// Operations on the config string; a request whose test fails is not answered.
pub mod directive {
    /// Reads it.
    pub const READ: u8 = 0;
    /// Answers when it is the one in the request.
    pub const TEST: u8 = 1;
    /// Answers when it begins with the one in the request.
    pub const PREFIX: u8 = 2;
    /// Sets it when there is none.
    pub const SET: u8 = 3;
    /// Sets it.
    pub const FORCE: u8 = 4;
}

/// A config request or its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Config<'a> {
    /// Frames that the target can hold at a time. Linux starts with half of them: 1 hangs it.
    pub buffers: u16,
    pub firmware: u16,
    /// Most sectors of data in a frame; 0 means 2.
    pub sectors: u8,
    /// The AoE version that the target speaks.
    pub version: u8,
    /// One of [`directive`].
    pub directive: u8,
    /// The string; [`STRING_MAX`] at most.
    pub string: &'a [u8],
}

impl<'a> Config<'a> {
    /// Reads the bytes after the header.
    pub fn decode(body: &'a [u8]) -> Result<Config<'a>, WireError> {
        let short = WireError::short("config", 24);
        let (head, rest) = body.split_first_chunk::<CONFIG_LEN>().ok_or(short)?;
        let [b0, b1, f0, f1, sectors, both, l0, l1] = *head;
        let len = usize::from(u16::from_be_bytes([l0, l1]));
        if len > STRING_MAX {
            return Err(WireError::long("config string length", 30));
        }
        Ok(Config {
            buffers: u16::from_be_bytes([b0, b1]),
            firmware: u16::from_be_bytes([f0, f1]),
            sectors,
            version: both >> 4,
            directive: both & 0x0F,
            string: rest.get(..len).ok_or(WireError::short("config string", 32))?,
        })
    }

    /// The bytes before the string. A string that is too long is cut at the limit.
    pub fn encode(&self) -> [u8; CONFIG_LEN] {
        let [b0, b1] = self.buffers.to_be_bytes();
        let [f0, f1] = self.firmware.to_be_bytes();
        let len = self.string.len().min(STRING_MAX);
        let [l0, l1] = u16::try_from(len).unwrap_or_default().to_be_bytes();
        [b0, b1, f0, f1, self.sectors, self.version << 4 | self.directive & 0x0F, l0, l1]
    }

    /// The initiator's request.
    pub fn request(directive: u8, string: &'a [u8]) -> Config<'a> {
        Config { directive, string, ..Config::default() }
    }

    /// The target's answer.
    pub fn response(buffers: u16, firmware: u16, sectors: u8, string: &'a [u8]) -> Config<'a> {
        Config { buffers, firmware, sectors, version: VERSION, directive: 0, string }
    }
}
