//! Commands that a unit serves: one source for the parser of CDBs and for REPORT SUPPORTED
//! OPERATION CODES.
//!
//! Invariants
//!  S1  A command that [`is_served`] excludes is refused before its fields are looked at, as if the
//!      table of commands did not have it.

use wire::scsi::{CdbError, Command as Cdb, CommandInfo, Sense, commands_of, find};

use crate::command::spc;
use crate::unit::Device;

/// Whether the unit executes commands of a row.
fn is_served(info: &CommandInfo, device: &Device) -> bool {
    spc::serves(info) || device.handler().serves(info, device)
}

/// Every row that the unit serves, by opcode.
pub(crate) fn served(device: &Device) -> Vec<&'static CommandInfo> {
    let kind = device.kind().peripheral();
    let rows = (0..=u8::MAX).flat_map(|opcode| commands_of(kind, opcode));
    rows.filter(|info| is_served(info, device)).collect()
}

/// Reads a CDB for a unit. Plain reads and writes are not checked: every unit whose type has
/// them serves them, but for the 32-byte ones.
pub(crate) fn parse(cdb: &[u8], device: &Device) -> Result<(Cdb, &'static CommandInfo), Sense> {
    match Cdb::parse_for(device.kind().peripheral(), cdb) {
        Ok(found @ (Cdb::Read(extent) | Cdb::Write(extent), _)) if extent.tags.is_none() => {
            Ok(found)
        }
        Ok((command, info)) if is_served(info, device) => Ok((command, info)),
        Ok((_, info)) => Err(unserved(info.opcode, device).sense()),
        Err(error) => Err(refused(cdb, error, device).sense()),
    }
}

/// A service action that is not served, or an opcode that has none that is.
fn unserved(opcode: u8, device: &Device) -> CdbError {
    let kind = device.kind().peripheral();
    let other = commands_of(kind, opcode).find(|info| is_served(info, device));
    other.map_or(CdbError::Opcode, CommandInfo::action_error)
}

/// Why a CDB that the table refuses is refused by this unit.
#[cold]
fn refused(cdb: &[u8], error: CdbError, device: &Device) -> CdbError {
    let opcode = cdb.first().copied().unwrap_or(0);
    match find(device.kind().peripheral(), cdb) {
        Ok(info) if is_served(info, device) => error,
        _ => unserved(opcode, device),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::scsi::{COMMANDS, PeripheralType, Types};

    /// A CDB of a row that the parser takes.
    fn plain(info: &CommandInfo) -> [u8; 32] {
        let mut cdb = [0; 32];
        cdb[0] = info.opcode;
        let action = info.service_action.unwrap_or(0).to_be_bytes();
        if info.opcode == 0x7F {
            cdb[7] = 24;
            cdb[8..10].copy_from_slice(&action);
        } else {
            cdb[1] = action[1];
        }
        cdb
    }

    #[test]
    fn served_command_rows_agree_with_parsed_commands() {
        for info in COMMANDS {
            let kind = match info.types.has(Types::DISK) {
                true => PeripheralType::Disk,
                false => PeripheralType::Cdrom,
            };
            let (command, row) = Cdb::parse_for(kind, &plain(info)).unwrap();
            assert_eq!(row, info);
            assert_eq!(spc::find(&command).is_some(), spc::serves(info), "{}", info.name);
        }
    }
}
