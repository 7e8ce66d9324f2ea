//! ATA over Ethernet (AoEr11: the header in section 2, its commands in section 3).
//!
//! ```text
//!   0  destination 6, source 6, 0x88A2
//!  14  version 4 bits, flags 4 bits (R 8: a response, E 4: an error)
//!  15  error, shelf 2, slot, command, tag 4
//!  24  the command's fields: ata 12 and data, config 8 and a string, masks 4 and a list,
//!      reserve 2 and a list
//! ```
//! A frame is read in two steps: [`Header`], which is enough to answer with an error, then by its
//! command one of [`Ata`], [`Config`], [`Masks`], [`Reserve`]. A frame is at least [`FRAME_MIN`]
//! bytes long; padding is ignored. An unknown command is no error of the codec: a target answers it
//! with [`error::COMMAND`].

mod ata;
mod config;
mod header;
mod list;

#[cfg(test)]
mod tests;

pub use ata::{ATA_LEN, Ata};
pub use config::{CONFIG_LEN, Config, STRING_MAX, directive};
pub use header::{Address, BROADCAST, HEADER_LEN, Header, Mac};
pub use list::{MASKS_LEN, Masks, RESERVE_LEN, Reserve, mask, reserve};

/// The protocol's number in an Ethernet header.
pub const ETHERTYPE: u16 = 0x88A2;

pub const VERSION: u8 = 1;

/// Shortest frame, bytes: shorter ones are filled up with zeroes.
pub const FRAME_MIN: usize = 60;

/// Bytes of a sector on the wire, regardless of the disk's own.
pub const SECTOR: usize = 512;

pub mod command {
    pub const ATA: u8 = 0;
    /// Discovers targets; reads and sets the config string.
    pub const CONFIG: u8 = 1;
    /// Reads and edits the list of permitted initiators.
    pub const MASKS: u8 = 2;
    /// Reads and sets the list of initiators for which the target is reserved.
    pub const RESERVE: u8 = 3;
    /// First of those that vendors use as they like.
    pub const VENDOR: u8 = 0xF0;
}

pub mod error {
    /// The command is not known.
    pub const COMMAND: u8 = 1;
    /// A field has a value that is not allowed.
    pub const ARGUMENT: u8 = 2;
    /// The device cannot be reached now.
    pub const UNAVAILABLE: u8 = 3;
    /// There is a config string already.
    pub const CONFIG_PRESENT: u8 = 4;
    /// The version is not known.
    pub const VERSION: u8 = 5;
    /// The target is reserved for others.
    pub const RESERVED: u8 = 6;
}

/// Most sectors of data that a frame carries on a link of this MTU, 255 at most.
///
/// ```
/// assert_eq!([1500, 4200, 9000].map(wire::aoe::sectors_of_mtu), [2, 8, 17]);
/// ```
pub fn sectors_of_mtu(mtu: usize) -> u8 {
    // The MTU counts from behind the Ethernet header.
    let head = HEADER_LEN + ATA_LEN;
    u8::try_from(mtu.saturating_sub(head) / SECTOR).unwrap_or(u8::MAX)
}
