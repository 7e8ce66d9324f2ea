//! The table of commands. Parsing rules, access rules and REPORT SUPPORTED OPERATION CODES use it.
//! A bit that the usage map does not have must be zero in a CDB.

mod access;
mod report;
mod table;

use super::cdb::CdbError;
use super::inquiry::PeripheralType;

pub use access::{Access, Alua, Persistent};
pub use report::{Report, report_opcodes};
pub use table::COMMANDS;

/// Operation code of variable-length CDBs.
pub(crate) const VARIABLE: u8 = 0x7f;
/// ADDITIONAL CDB LENGTH of a 32-byte CDB.
pub(crate) const VARIABLE_REST: u8 = 0x18;
/// NACA in the control byte: ACA instead of an automatic clearing of the task set's fault.
pub const NACA: u8 = 0x04;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// No data.
    None,
    /// To the initiator.
    In,
    /// From the initiator.
    Out,
    /// Either way or none: the parameters decide.
    Any,
}

/// Device types, as a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Types(u8);

impl Types {
    /// Direct-access block devices.
    pub const DISK: Types = Types(1);
    /// CD and DVD.
    pub const CDROM: Types = Types(2);
    pub const ALL: Types = Types(0xff);

    pub const fn of(kind: PeripheralType) -> Types {
        match kind {
            PeripheralType::Disk => Types::DISK,
            PeripheralType::Cdrom => Types::CDROM,
            PeripheralType::Enclosure => Types(4),
        }
    }

    /// Whether the sets have a type in common.
    pub const fn has(self, other: Types) -> bool {
        self.0 & other.0 != 0
    }
}

/// Timeouts of a command, in seconds (SPC-4 6.35.4); 0 means not reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Time after which an initiator may query the command's progress.
    pub nominal_s: u32,
    /// Time that an initiator should wait before it aborts the command.
    pub recommended_s: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandInfo {
    /// Operation code.
    pub opcode: u8,
    /// Service action: byte 1, low five bits, or bytes 8 and 9 of a variable-length CDB. None when
    /// the opcode has none.
    pub service_action: Option<u16>,
    /// The standard's name.
    pub name: &'static str,
    /// CDB usage data (SPC-4 6.35.3), as long as the CDB. Byte 0 is the opcode, then one bit for
    /// each CDB bit that is evaluated. The service action is given by its value.
    pub usage: &'static [u8],
    pub direction: Direction,
    /// Under which reservations and port states it runs.
    pub access: Access,
    /// Device types that have it.
    pub types: Types,
    /// How long it takes.
    pub times: Times,
    /// Bits of the first 16 bytes of a CDB that must be zero, those of byte 0 highest; bytes after
    /// the command are ignored.
    reserved: u128,
}

impl CommandInfo {
    /// CDB length in bytes: 6, 10, 12, 16 or 32.
    pub const fn cdb_len(&self) -> usize {
        self.usage.len()
    }

    /// How a wrong or unserved service action is refused: a pointer to its field.
    pub const fn action_error(&self) -> CdbError {
        action_error(self.opcode)
    }

    /// The bits of byte `at` that may be set.
    const fn mask(&self, at: usize) -> u8 {
        let usage = if at < self.usage.len() { self.usage[at] } else { 0 };
        match (at, self.opcode, self.service_action) {
            (0, ..) => 0xff,
            (7..=9, VARIABLE, _) => 0xff,
            (_, VARIABLE, _) => usage,
            (1, _, Some(_)) => usage | 0x1f,
            _ => usage,
        }
    }

    /// With the reserved bits of its usage map.
    const fn with_reserved(self) -> CommandInfo {
        let (mut reserved, mut at) = (0, 0);
        while at < 16 {
            let mask = if at < self.cdb_len() { self.mask(at) } else { 0xff };
            reserved = reserved << 8 | !mask as u128;
            at += 1;
        }
        CommandInfo { reserved, ..self }
    }

    /// Checks that nothing outside the usage map is set.
    #[inline]
    pub(crate) fn check(&self, cdb: &[u8]) -> Result<(), CdbError> {
        // Most CDBs are padded to 16 bytes and are legal: one test for all bytes.
        if self.opcode != VARIABLE
            && let Some(first) = cdb.first_chunk::<16>()
            && u128::from_be_bytes(*first) & self.reserved == 0
        {
            return Ok(());
        }
        self.check_bytes(cdb)
    }

    /// The same, which finds the first field at fault.
    fn check_bytes(&self, cdb: &[u8]) -> Result<(), CdbError> {
        for at in 0..self.cdb_len() {
            let byte = *cdb.get(at).ok_or(CdbError::field(at, None))?;
            let wrong = byte & !self.mask(at);
            if wrong != 0 {
                return Err(CdbError::field(at, u8::try_from(wrong.ilog2()).ok()));
            }
        }
        match (self.opcode, cdb.get(7)) {
            (VARIABLE, Some(rest)) if *rest != VARIABLE_REST => Err(CdbError::field(7, None)),
            _ => Ok(()),
        }
    }
}

const fn action_error(opcode: u8) -> CdbError {
    match opcode {
        VARIABLE => CdbError::Field { byte: 8, bit: None },
        _ => CdbError::Field { byte: 1, bit: Some(4) },
    }
}

/// No row of [`COMMANDS`] has the opcode.
const NO_ROW: u8 = u8::MAX;

/// First row of [`COMMANDS`] by opcode; rows of one opcode are adjacent.
static FIRST_ROW: [u8; 256] = first_rows();

const fn first_rows() -> [u8; 256] {
    assert!(COMMANDS.len() < NO_ROW as usize);
    let mut rows = [NO_ROW; 256];
    let mut i = COMMANDS.len();
    while i > 0 {
        i -= 1;
        rows[COMMANDS[i].opcode as usize] = i as u8;
    }
    rows
}

/// The rows that a device type has of one opcode; several when there are service actions.
pub fn commands_of(kind: PeripheralType, opcode: u8) -> impl Iterator<Item = &'static CommandInfo> {
    let first = FIRST_ROW.get(usize::from(opcode)).copied().unwrap_or(NO_ROW);
    let rows = COMMANDS.get(usize::from(first)..).unwrap_or(&[]);
    let types = Types::of(kind);
    rows.iter().take_while(move |row| row.opcode == opcode).filter(move |row| row.types.has(types))
}

/// Looks a CDB up by device type, opcode and service action. An opcode that only has other service
/// actions is an invalid field; an unknown one is an invalid opcode.
pub fn find(kind: PeripheralType, cdb: &[u8]) -> Result<&'static CommandInfo, CdbError> {
    let opcode = *cdb.first().ok_or(CdbError::Opcode)?;
    let mut known = false;
    for info in commands_of(kind, opcode) {
        known = true;
        let given = match opcode {
            VARIABLE => cdb.get(8..10).map(|b| b.iter().fold(0, |v, b| v << 8 | u16::from(*b))),
            _ => cdb.get(1).map(|b| u16::from(*b & 0x1f)),
        };
        if info.service_action.is_none() || info.service_action == given {
            return Ok(info);
        }
    }
    Err(if known { action_error(opcode) } else { CdbError::Opcode })
}

/// The CONTROL byte of a CDB, by its operation code: the last byte, or byte 1 of a variable-length
/// one. 0 when the CDB is too short or its length is not known.
pub fn control_byte(cdb: &[u8]) -> u8 {
    let at = match cdb.first() {
        Some(&VARIABLE) => 1,
        Some(opcode) => match opcode >> 5 {
            0 => 5,
            1 | 2 => 9,
            4 => 15,
            5 => 11,
            _ => return 0,
        },
        None => return 0,
    };
    cdb.get(at).copied().unwrap_or(0)
}

/// NACA of a CDB: a CHECK CONDITION establishes an auto contingent allegiance (SAM-5 5.9).
pub fn naca(cdb: &[u8]) -> bool {
    control_byte(cdb) & NACA != 0
}

#[cfg(test)]
#[path = "commands/tests.rs"]
mod tests;
