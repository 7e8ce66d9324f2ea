//! The header of every frame.

use std::fmt;
use std::str::FromStr;

use super::ETHERTYPE;
use crate::bytes::{get_array, get16, get32, put};
use crate::error::WireError;

/// Bytes of a header, those of Ethernet included.
pub const HEADER_LEN: usize = 24;

const RESPONSE: u8 = 8;
const ERROR: u8 = 4;

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mac(pub [u8; 6]);

pub const BROADCAST: Mac = Mac([0xFF; 6]);

impl Mac {
    /// True for group addresses, broadcast included; no station sends from one.
    pub fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Mac {
    type Err = WireError;

    /// Six pairs of hexadecimal digits with colons between, or all twelve digits together.
    fn from_str(text: &str) -> Result<Mac, WireError> {
        let bad = WireError::bad("MAC address", 0);
        let pairs: Vec<&str> = match text.len() {
            17 => text.split(':').collect(),
            12 => (0..6).filter_map(|i| text.get(i * 2..i * 2 + 2)).collect(),
            _ => return Err(bad),
        };
        let digits = |pair: &&str| pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit());
        if pairs.len() != 6 || !pairs.iter().all(digits) {
            return Err(bad);
        }
        let mut mac = Mac::default();
        for (to, pair) in mac.0.iter_mut().zip(pairs) {
            *to = u8::from_str_radix(pair, 16).map_err(|_| bad)?;
        }
        Ok(mac)
    }
}

/// Shelf and slot: a target's name on its network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    /// Major; 65535 addresses all shelves and belongs to none.
    pub shelf: u16,
    /// Minor; 255 addresses all slots and belongs to none.
    pub slot: u8,
}

impl Address {
    /// All targets.
    pub const ALL: Address = Address { shelf: u16::MAX, slot: u8::MAX };

    /// Whether a frame for `self` is one for the target at `own`.
    pub fn reaches(self, own: Address) -> bool {
        (self.shelf == u16::MAX || self.shelf == own.shelf)
            && (self.slot == u8::MAX || self.slot == own.slot)
    }

    /// Whether a target may have it.
    pub fn is_single(self) -> bool {
        self.shelf != u16::MAX && self.slot != u8::MAX
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}.{}", self.shelf, self.slot)
    }
}

impl FromStr for Address {
    type Err = WireError;

    /// `SHELF.SLOT`, with or without an `e` in front; of one target.
    fn from_str(text: &str) -> Result<Address, WireError> {
        let rest = text.strip_prefix('e').unwrap_or(text);
        let (shelf, slot) = rest.split_once('.').ok_or(WireError::bad("SHELF.SLOT", 0))?;
        let digits = |word: &str| word.bytes().all(|b| b.is_ascii_digit());
        let number = |word: &str, field, at| match word.parse::<u16>() {
            Ok(number) if digits(word) => Ok(number),
            _ => Err(WireError::bad(field, at)),
        };
        let shelf = number(shelf, "shelf", 0)?;
        let slot = number(slot, "slot", 0)
            .and_then(|slot| u8::try_from(slot).map_err(|_| WireError::bad("slot", 0)))?;
        let address = Address { shelf, slot };
        match (address.is_single(), shelf) {
            (true, _) => Ok(address),
            (false, u16::MAX) => Err(WireError::bad("shelf", 0)),
            (false, _) => Err(WireError::bad("slot", 0)),
        }
    }
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The destination.
    pub to: Mac,
    /// The source.
    pub from: Mac,
    /// [`super::VERSION`]; a target answers another with [`super::error::VERSION`].
    pub version: u8,
    /// R: an answer. A target answers none of these.
    pub response: bool,
    /// E: the error, one of [`super::error`].
    pub error: Option<u8>,
    /// The target.
    pub address: Address,
    /// One of [`super::command`].
    pub command: u8,
    /// The initiator's name for the frame; 0 in frames that do not answer a request.
    pub tag: u32,
}

impl Header {
    /// Reads a frame's header; returns the rest of the frame too.
    pub fn decode(frame: &[u8]) -> Result<(Header, &[u8]), WireError> {
        let (b, rest) = frame.split_first_chunk().ok_or(WireError::short("AoE header", 0))?;
        let b: &[u8; HEADER_LEN] = b;
        if get16::<12, HEADER_LEN>(b) != ETHERTYPE {
            return Err(WireError::bad("Ethernet type", 12));
        }
        let flags = b[14] & 0x0F;
        let header = Header {
            to: Mac(get_array::<0, 6, HEADER_LEN>(b)),
            from: Mac(get_array::<6, 6, HEADER_LEN>(b)),
            version: b[14] >> 4,
            response: flags & RESPONSE != 0,
            error: (flags & ERROR != 0).then_some(b[15]),
            address: Address { shelf: get16::<16, HEADER_LEN>(b), slot: b[18] },
            command: b[19],
            tag: get32::<20, HEADER_LEN>(b),
        };
        Ok((header, rest))
    }

    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        put::<0, 6, HEADER_LEN>(&mut b, self.to.0);
        put::<6, 6, HEADER_LEN>(&mut b, self.from.0);
        put::<12, 2, HEADER_LEN>(&mut b, ETHERTYPE.to_be_bytes());
        let response = if self.response { RESPONSE } else { 0 };
        let error = if self.error.is_some() { ERROR } else { 0 };
        b[14] = self.version << 4 | response | error;
        b[15] = self.error.unwrap_or_default();
        put::<16, 2, HEADER_LEN>(&mut b, self.address.shelf.to_be_bytes());
        (b[18], b[19]) = (self.address.slot, self.command);
        put::<20, 4, HEADER_LEN>(&mut b, self.tag.to_be_bytes());
        b
    }

    /// The header of a request for the target at `address`.
    pub fn request(to: Mac, from: Mac, address: Address, command: u8, tag: u32) -> Header {
        let version = super::VERSION;
        Header { to, from, version, response: false, error: None, address, command, tag }
    }

    /// The header of an answer by the target at `own`, sent from `from`: the other way round, with
    /// the target's own name even in the answer to a broadcast, and the tag as it was.
    pub fn answer(&self, from: Mac, own: Address) -> Header {
        let (to, version) = (self.from, super::VERSION);
        Header { to, from, version, response: true, error: None, address: own, ..*self }
    }
}
