//! Generic netlink, as far as the kernel's network block device needs it (RFC 3549 section 2.3;
//! linux/netlink.h, linux/genetlink.h, linux/nbd-netlink.h).
//!
//! ```text
//!   message    length 4, type 2, flags 2, sequence 4, port 4, command, version, 0 0, attributes
//!   attribute  length 2, type 2, value, up to 3 bytes to a multiple of 4
//! ```
//! Numbers are in the machine's byte order. The peer is the kernel, but its messages are checked
//! like those of an untrusted peer.

use crate::error::WireError;

/// Bytes before the attributes of a message of a family.
pub const HEAD: usize = 20;

/// Bytes of the header of every message.
const PLAIN_HEAD: usize = 16;

/// Longest message that is read, bytes; a longer one is an error.
pub const MESSAGE_MAX: usize = 64 * 1024;

/// Attributes read of one message; further ones are not looked at.
const ATTRIBUTES_MAX: usize = 256;

const ERROR: u16 = 2;
const REQUEST: u16 = 1;
const ACK: u16 = 4;
/// An attribute that holds attributes.
const NESTED: u16 = 1 << 15;
const KIND: u16 = 0x3FFF;

/// The family that knows the others.
pub mod control {
    /// Its number.
    pub const FAMILY: u16 = 16;
    /// Requests the number of a family.
    pub const GET_FAMILY: u8 = 3;
    /// Number of a family, 16 bits.
    pub const FAMILY_ID: u16 = 1;
    /// Its name, ended by NUL.
    pub const FAMILY_NAME: u16 = 2;
}

/// The network block device.
pub mod nbd {
    /// Name of its family.
    pub const FAMILY: &str = "nbd";
    /// Makes a device of sockets.
    pub const CONNECT: u8 = 1;
    /// Ends a device.
    pub const DISCONNECT: u8 = 2;
    /// Gives a device new sockets for dead ones, or another size.
    pub const RECONFIGURE: u8 = 3;
    /// Number of the device, 32 bits.
    pub const INDEX: u16 = 1;
    /// 64 bits.
    pub const SIZE_BYTES: u16 = 2;
    /// 64 bits; a power of two, 512 to a page.
    pub const BLOCK_SIZE_BYTES: u16 = 3;
    /// Seconds after which a request is sent once more, by another socket; 64 bits.
    pub const TIMEOUT: u16 = 4;
    /// Transmission flags of NBD, 64 bits.
    pub const SERVER_FLAGS: u16 = 5;
    /// Holds one `SOCK_ITEM` a socket, which holds a `SOCK_FD`.
    pub const SOCKETS: u16 = 7;
    /// Seconds that requests wait for a new socket when none is alive; 64 bits.
    pub const DEAD_CONN_TIMEOUT: u16 = 8;
    /// Words that RECONFIGURE has to repeat; Linux 5.14.
    pub const BACKEND_IDENTIFIER: u16 = 10;
    /// See [`SOCKETS`].
    pub const SOCK_ITEM: u16 = 1;
    /// A descriptor of the requesting process, 32 bits.
    pub const SOCK_FD: u16 = 1;
}

/// A message under construction.
pub struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// A command of a family (its number), which the kernel acknowledges with `sequence`.
    pub fn new(family: u16, command: u8, sequence: u32) -> Message {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(&0u32.to_ne_bytes());
        bytes.extend_from_slice(&family.to_ne_bytes());
        bytes.extend_from_slice(&(REQUEST | ACK).to_ne_bytes());
        bytes.extend_from_slice(&sequence.to_ne_bytes());
        bytes.extend_from_slice(&0u32.to_ne_bytes());
        bytes.extend_from_slice(&[command, 1, 0, 0]);
        Message { bytes }
    }

    /// Adds an attribute. A value of 64 KiB and more is cut.
    pub fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Message {
        let value = value.get(..value.len().min(usize::from(u16::MAX) - 8)).unwrap_or(&[]);
        let length = u16::try_from(value.len().saturating_add(4)).unwrap_or(u16::MAX);
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    /// Adds an attribute of 32 bits.
    pub fn u32(&mut self, kind: u16, value: u32) -> &mut Message {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// Adds an attribute of 64 bits.
    pub fn u64(&mut self, kind: u16, value: u64) -> &mut Message {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// Adds text, ended by NUL.
    pub fn text(&mut self, kind: u16, value: &str) -> &mut Message {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes)
    }

    /// Adds the sockets of a network block device: descriptors of this process.
    pub fn sockets(&mut self, fds: &[u32]) -> &mut Message {
        let mut all = Message { bytes: Vec::new() };
        for fd in fds {
            let mut one = Message { bytes: Vec::new() };
            one.u32(nbd::SOCK_FD, *fd);
            all.attribute(nbd::SOCK_ITEM | NESTED, &one.bytes);
        }
        self.attribute(nbd::SOCKETS | NESTED, &all.bytes)
    }

    /// The bytes to send.
    pub fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        if let Some(place) = self.bytes.get_mut(..4) {
            place.copy_from_slice(&length.to_ne_bytes());
        }
        self.bytes
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelMessage<'a> {
    /// A command was carried out, or refused with an errno.
    Ended {
        /// 0: carried out.
        errno: u32,
    },
    Message {
        family: u16,
        command: u8,
        /// For [`attribute`].
        attributes: &'a [u8],
    },
    /// Anything else; of no interest.
    Other,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let part = bytes.get(at..at.checked_add(2)?)?;
    part.try_into().ok().map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let part = bytes.get(at..at.checked_add(4)?)?;
    part.try_into().ok().map(u32::from_ne_bytes)
}

/// Decodes the first message of the received bytes: its sequence number, its contents, and the
/// rest.
pub fn decode(bytes: &[u8]) -> Result<(u32, KernelMessage<'_>, &[u8]), WireError> {
    let short = WireError::short("nlmsg_len", 0);
    let length = u32_at(bytes, 0).ok_or(short)?;
    let length = usize::try_from(length).map_err(|_| WireError::long("nlmsg_len", 0))?;
    if length < PLAIN_HEAD {
        return Err(WireError::bad("nlmsg_len", 0));
    }
    if length > MESSAGE_MAX {
        return Err(WireError::long("nlmsg_len", 0));
    }
    let message = bytes.get(..length).ok_or(short)?;
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    let kind = u16_at(message, 4).ok_or(short)?;
    let sequence = u32_at(message, 8).ok_or(short)?;
    let reply = match kind {
        ERROR => {
            let word = u32_at(message, PLAIN_HEAD).ok_or(WireError::short("error", 16))?;
            KernelMessage::Ended { errno: word.wrapping_neg() }
        }
        0..=15 => KernelMessage::Other,
        family => {
            let command = message.get(PLAIN_HEAD).copied().ok_or(WireError::short("cmd", 16))?;
            let attributes = message.get(HEAD..).ok_or(WireError::short("version", 17))?;
            KernelMessage::Message { family, command, attributes }
        }
    };
    Ok((sequence, reply, rest))
}

/// The value of the first attribute of that kind.
pub fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    for _ in 0..ATTRIBUTES_MAX {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & KIND;
        let value = bytes.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
    None
}

/// The same, of 16 bits.
pub fn attribute_u16(bytes: &[u8], wanted: u16) -> Option<u16> {
    attribute(bytes, wanted).and_then(|value| u16_at(value, 0))
}

/// The same, of 32 bits.
pub fn attribute_u32(bytes: &[u8], wanted: u16) -> Option<u32> {
    attribute(bytes, wanted).and_then(|value| u32_at(value, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_decode_as_encoded() {
        let mut message = Message::new(29, nbd::CONNECT, 7);
        message.u64(nbd::SIZE_BYTES, 1 << 40).text(nbd::BACKEND_IDENTIFIER, "abc");
        message.sockets(&[5, 6]).u32(nbd::INDEX, 3);
        let bytes = message.finish();
        let (sequence, reply, rest) = decode(&bytes).unwrap();
        assert_eq!((sequence, rest.len()), (7, 0));
        let KernelMessage::Message { family: 29, command: nbd::CONNECT, attributes } = reply else {
            panic!("{reply:?}");
        };
        assert_eq!(attribute_u32(attributes, nbd::INDEX), Some(3));
        assert_eq!(attribute(attributes, nbd::BACKEND_IDENTIFIER), Some(&b"abc\0"[..]));
        let sockets = attribute(attributes, nbd::SOCKETS).unwrap();
        assert_eq!(sockets.len(), 24, "two items of an item's and a descriptor's header");
        let first = attribute(sockets, nbd::SOCK_ITEM).unwrap();
        assert_eq!(attribute_u32(first, nbd::SOCK_FD), Some(5));
        assert_eq!(attribute(attributes, 99), None);
    }

    #[test]
    fn error_message_carries_an_errno() {
        let mut bytes = Message::new(ERROR, 0, 9).finish();
        bytes[16..20].copy_from_slice(&(-16i32).to_ne_bytes());
        assert_eq!(decode(&bytes).unwrap(), (9, KernelMessage::Ended { errno: 16 }, &[][..]));
        assert!(decode(&bytes[..12]).is_err() && decode(&[0; 16]).is_err());
    }
}
