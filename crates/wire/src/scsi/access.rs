//! How a command stands to the reservations of others: the classes of SPC-4 tables 65 and 66 and
//! SBC-3 table 5, and of SPC-2 5.5.1 for RESERVE(6).

use super::commands::{CommandInfo, Direction};

/// What a command does, in the eyes of reservations and of asymmetric access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Runs whoever has reserved the unit.
    Always,
    /// Runs beside a persistent reservation, not beside a RESERVE(6) of another nexus.
    Status,
    /// Runs beside Write Exclusive, not beside Exclusive Access of others.
    Read,
    /// Does not run beside any reservation of others.
    Write,
    /// Decides for itself: the commands that make and end reservations.
    Own,
}

impl CommandInfo {
    /// The command's class. A command that is not named here has that of its data's direction.
    pub const fn access(&self) -> Access {
        match (self.opcode, self.service_action) {
            // REQUEST SENSE, INQUIRY, REPORT LUNS.
            (0x03 | 0x12 | 0xa0, _) => Access::Always,
            // TEST UNIT READY, READ CAPACITY, LOG SENSE, PERSISTENT RESERVE IN.
            (0x00 | 0x25 | 0x4d | 0x5e, _) | (0x9e, Some(0x10)) => Access::Status,
            // REPORT IDENTIFYING INFORMATION, TARGET PORT GROUPS, ALIASES, PRIORITY, TIMESTAMP.
            (0xa3, Some(0x05 | 0x0a | 0x0b | 0x0e | 0x0f)) => Access::Status,
            // RESERVE and RELEASE 6 and 10, PERSISTENT RESERVE OUT.
            (0x16 | 0x17 | 0x56 | 0x57 | 0x5f, _) => Access::Own,
            // PRE-FETCH and VERIFY, with and without data.
            (0x2f | 0x34 | 0x8f | 0x90 | 0xaf, _) => Access::Read,
            _ => match self.direction {
                Direction::In => Access::Read,
                Direction::Out | Direction::None => Access::Write,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::find;

    #[test]
    fn every_command_that_writes_is_a_write() {
        for opcode in [0x0a, 0x2a, 0x2e, 0x35, 0x41, 0x42, 0x8a, 0x93, 0xaa, 0x15, 0x55] {
            let info = find(&[opcode, 0, 0, 0, 0, 0]).unwrap();
            assert_eq!(info.access(), Access::Write, "{}", info.name);
        }
        assert_eq!(find(&[0x28]).unwrap().access(), Access::Read);
        assert_eq!(find(&[0x12]).unwrap().access(), Access::Always);
        assert_eq!(find(&[0x00]).unwrap().access(), Access::Status);
    }
}
