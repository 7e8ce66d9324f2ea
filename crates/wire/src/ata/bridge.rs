//! Enclosure bridges (SEMB) and port multipliers on a SATA link.

use crate::bytes::{Reader, padded, text};
use crate::error::WireError;

/// SEP_ATTN: a command to an enclosure behind a bridge.
pub const SEP_ATTN: u8 = 0x67;
/// LBA of SEP_ATTN: IDENTIFY SEP, a page to be received, a page to be sent.
pub mod sep {
    /// Identifies the SAF-TE or SES device.
    pub const IDENTIFY: u8 = 0x00;
    /// RECEIVE DIAGNOSTIC RESULTS.
    pub const RECEIVE: u8 = 0x02;
    /// SEND DIAGNOSTIC.
    pub const SEND: u8 = 0x82;
}
/// READ PORT MULTIPLIER: FEATURES is the register, DEVICE the port. The value is in COUNT (its
/// lowest byte) and LBA.
pub const READ_PORT_MULTIPLIER: u8 = 0xe4;
/// WRITE PORT MULTIPLIER: the value has the layout of READ PORT MULTIPLIER.
pub const WRITE_PORT_MULTIPLIER: u8 = 0xe8;
/// The port of a multiplier that is the multiplier itself.
pub const CONTROL_PORT: u8 = 15;
/// General registers: product, revision, number of ports, and features.
pub mod gscr {
    /// Product and vendor.
    pub const PRODUCT: u16 = 0;
    pub const REVISION: u16 = 1;
    /// Ports, bits 3:0.
    pub const PORTS: u16 = 2;
    /// Ports whose SError is not 0, a bit each.
    pub const ERRORS: u16 = 32;
    pub const FEATURES: u16 = 64;
    pub const ENABLED: u16 = 96;
    /// Bit of these two: it sends notifications of events at its ports.
    pub const NOTIFIES: u32 = 1 << 3;
}
/// Registers of a port: those of a SATA link (SStatus, SError, SControl).
pub mod pscr {
    /// SStatus: detection in bits 3:0, speed in 7:4.
    pub const STATUS: u16 = 0;
    /// SError; ones that are written clear.
    pub const ERROR: u16 = 1;
    /// SControl: detection in bits 3:0.
    pub const CONTROL: u16 = 2;

    /// Detection, of both registers.
    pub const DET: u32 = 0x0f;
    /// SStatus: a device is seen, and the link is not up.
    pub const SEEN: u32 = 1;
    /// SStatus: a device is there and the link is up.
    pub const UP: u32 = 3;
    /// SControl: COMRESET is sent as long as this value is set.
    pub const RESET: u32 = 1;
    /// Both: the port is off.
    pub const OFF: u32 = 4;
    /// SError: the link state changed.
    pub const LINK_CHANGED: u32 = 1 << 16;
    /// SError: a device was connected, or connected again; it is not reached until this is cleared.
    pub const EXCHANGED: u32 = 1 << 26;
}
/// Splits a value into COUNT and LBA.
pub const fn pm_registers(value: u32) -> (u16, u64) {
    ((value & 0xff) as u16, (value >> 8) as u64)
}
/// The inverse of [`pm_registers`].
pub const fn pm_value((count, lba): (u16, u64)) -> u32 {
    ((lba & 0x00ff_ffff) as u32) << 8 | (count & 0xff) as u32
}

/// Bytes of the longest IDENTIFY SEP data.
pub const SEP_IDENTIFY_LEN: usize = 68;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SepIdentify {
    /// ENCLOSURE LOGICAL IDENTIFIER.
    pub id: u64,
    /// ENCLOSURE VENDOR IDENTIFICATION.
    pub vendor: String,
    /// PRODUCT IDENTIFICATION.
    pub product: String,
    /// PRODUCT REVISION LEVEL.
    pub revision: String,
    /// FIRMWARE REVISION LEVEL.
    pub firmware: String,
    /// INTERFACE IDENTIFICATION: `S-E-S` or `SAF-TE`.
    pub interface: String,
}

impl SepIdentify {
    pub fn decode(data: &[u8]) -> Result<SepIdentify, WireError> {
        let mut reader = Reader::new(data);
        reader.take(2, "IDENTIFY SEP LENGTH")?;
        let id = reader.u64("ENCLOSURE LOGICAL IDENTIFIER")?;
        let vendor = text(reader.take(8, "ENCLOSURE VENDOR IDENTIFICATION")?);
        let product = text(reader.take(16, "PRODUCT IDENTIFICATION")?);
        let revision = text(reader.take(4, "PRODUCT REVISION LEVEL")?);
        reader.take(1, "CHANNEL IDENTIFIER")?;
        let firmware = text(reader.take(4, "FIRMWARE REVISION LEVEL")?);
        let interface = text(reader.take(6, "INTERFACE IDENTIFICATION")?);
        Ok(SepIdentify { id, vendor, product, revision, firmware, interface })
    }

    /// The data of a bridge with these values.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![SEP_IDENTIFY_LEN as u8, 0];
        out.extend(self.id.to_be_bytes());
        for (text, len) in [(&self.vendor, 8), (&self.product, 16), (&self.revision, 4)] {
            out.extend(padded(text, len));
        }
        out.push(0);
        out.extend(padded(&self.firmware, 4));
        out.extend(padded(&self.interface, 6));
        out.resize(SEP_IDENTIFY_LEN, 0);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sep_identify_matches_known_bytes() {
        let mut data = vec![68, 0, 0, 0, 0, 0, 0, 0, 0, 5];
        data.extend(b"AMI     MG9071          1.00\x000011S-E-S ");
        let decoded = SepIdentify::decode(&data).unwrap();
        assert_eq!(
            (decoded.id, decoded.vendor.as_str(), decoded.product.as_str()),
            (5, "AMI", "MG9071")
        );
        assert_eq!((decoded.revision.as_str(), decoded.firmware.as_str()), ("1.00", "0011"));
        assert_eq!(decoded.interface, "S-E-S");
        assert_eq!(SepIdentify::decode(&decoded.encode()), Ok(decoded));
        assert_eq!(SepIdentify::decode(&data[..36]).unwrap_err().field, "PRODUCT REVISION LEVEL");
    }
}
