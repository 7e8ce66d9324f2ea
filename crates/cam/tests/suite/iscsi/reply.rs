//! Answers of the target in place of the usual ones.

use wire::iscsi::ScsiCommand;

/// An answer in place of the usual one.
pub enum Odd {
    Usual,
    Data(Vec<u8>),
    /// A status, and sense data.
    Status(u8, Vec<u8>),
    /// Carried out or not, it is never answered.
    Mute,
}

/// Looks at a command before it is carried out.
pub type Oddity = Box<dyn FnMut(&ScsiCommand) -> Odd>;

/// Sense data as they stand in a response, behind their length.
pub fn sense_of(key: u8, asc: u8, ascq: u8) -> Vec<u8> {
    [&[0, 18, 0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq][..], &[0; 4]].concat()
}
