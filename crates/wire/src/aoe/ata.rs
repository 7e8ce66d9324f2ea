//! An ATA command and its answer: the registers.

use crate::error::WireError;

/// Bytes of the registers on the wire; the data follow them.
pub const ATA_LEN: usize = 12;

/// The command has data for the device.
const WRITE: u8 = 0x01;
const ASYNC: u8 = 0x02;
const DEVICE: u8 = 0x10;
const EXTENDED: u8 = 0x40;
/// Bits of an LBA that has 28.
const LBA28: u64 = 0x0FFF_FFFF;

/// Registers, to the device or from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ata {
    /// W: data is sent to the device.
    pub write: bool,
    /// A: the device may answer before the data are on its medium.
    pub asynchronous: bool,
    /// D: bit 4 of the device register of a command with 28 bits of LBA.
    pub device: bool,
    /// E: 48 bits of LBA.
    pub extended: bool,
    /// To the device: features; from it: error.
    pub feature: u8,
    /// To the device: sectors, 1 and more; from it: sectors that are left.
    pub sectors: u8,
    /// To the device: the command; from it: status.
    pub command: u8,
    /// All six bytes of the address registers; see [`Ata::lba`].
    pub registers: u64,
}

impl Ata {
    /// The first sector: 48 bits, or 28 of the registers when the command is not extended.
    pub fn lba(&self) -> u64 {
        if self.extended { self.registers } else { self.registers & LBA28 }
    }

    /// Reads registers; gives the data, with the padding of a short frame.
    pub fn decode(body: &[u8]) -> Result<(Ata, &[u8]), WireError> {
        let (b, data) = body.split_first_chunk().ok_or(WireError::short("ATA registers", 24))?;
        let b: &[u8; ATA_LEN] = b;
        let [flags, feature, sectors, command, l0, l1, l2, l3, l4, l5, _, _] = *b;
        let ata = Ata {
            write: flags & WRITE != 0,
            asynchronous: flags & ASYNC != 0,
            device: flags & DEVICE != 0,
            extended: flags & EXTENDED != 0,
            feature,
            sectors,
            command,
            registers: u64::from_le_bytes([l0, l1, l2, l3, l4, l5, 0, 0]),
        };
        Ok((ata, data))
    }

    pub fn encode(&self) -> [u8; ATA_LEN] {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = flag(self.write, WRITE)
            | flag(self.asynchronous, ASYNC)
            | flag(self.device, DEVICE)
            | flag(self.extended, EXTENDED);
        let [l0, l1, l2, l3, l4, l5, _, _] = self.registers.to_le_bytes();
        let Ata { feature, sectors, command, .. } = *self;
        [flags, feature, sectors, command, l0, l1, l2, l3, l4, l5, 0, 0]
    }
}
