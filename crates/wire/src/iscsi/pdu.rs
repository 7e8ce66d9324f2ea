//! The trait of all typed PDUs.

use super::bhs::Bhs;
use crate::error::WireError;

/// A typed PDU that knows how to write and read its basic header segment.
///
/// `decode` looks at the header alone; additional header segments and data are the caller's.
/// Reserved bits are ignored on reading and zero on writing (RFC 7143 section 11.1).
pub trait Pdu: Sized {
    /// The operation code, without the immediate bit.
    const OPCODE: u8;

    /// Writes the whole header, reserved fields included.
    fn encode(&self, out: &mut Bhs);

    /// Reads the fields and checks those that have illegal values. The operation code must be
    /// [`Self::OPCODE`].
    fn decode(bhs: &Bhs) -> Result<Self, WireError>;
}
