//! Checks that can keep a command from running: needed only when the word of its nexus is not zero,
//! which is rare.
//!
//! ```text
//!   ACA --> unit attention --> (the CDB is parsed) --> reservation --> asymmetric access --> plan
//! ```
//! The plan checks write protection. An auto contingent allegiance precedes everything else
//! (SAM-5 5.3.3). SPC-4 5.14.2 defines which of INQUIRY, REPORT LUNS and REQUEST SENSE run in spite
//! of a unit attention. The rights under a reservation are in the commands' classes
//! ([`wire::scsi::Access`]), those of asymmetric access states in SPC-4 5.11.2.

use wire::scsi::{
    Access, Alua, Asc, Command as Cdb, Key, NACA, Persistent, PrOutAction, Status, asc,
};

use crate::flags;
use crate::plan::Plan;
use crate::status::Ending;
use crate::unit::unit_attention::ItlNexus;

/// LOGICAL UNIT NOT READY, by asymmetric access state.
const TRANSITIONING: Asc = Asc::new(Key::NotReady, 0x04, 0x0A);
const STANDBY: Asc = Asc::new(Key::NotReady, 0x04, 0x0B);
const UNAVAILABLE: Asc = Asc::new(Key::NotReady, 0x04, 0x0C);
const OFFLINE: Asc = Asc::new(Key::NotReady, 0x04, 0x12);

/// CLEAR ACA and the NACA bit are served, as REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS and INQUIRY
/// report.
pub(crate) const ACA_SERVED: bool = true;

/// NACA of a CDB: bit 2 of the CONTROL byte, whose place depends on the operation code (SAM-5 5.2).
pub(crate) fn naca(cdb: &[u8]) -> bool {
    /// The CONTROL byte by the three high bits of the operation code; variable-length CDBs have it
    /// in byte 1. The last two groups belong to vendors: nothing is looked at.
    const CONTROL: [usize; 8] = [5, 9, 9, 1, 15, 11, usize::MAX, usize::MAX];
    let group = cdb.first().map_or(7, |opcode| usize::from(opcode >> 5));
    let at = CONTROL.get(group).copied().unwrap_or(usize::MAX);
    cdb.get(at).is_some_and(|control| control & NACA != 0)
}

/// Commands that run in spite of unit attentions (SPC-4 5.14.2): REQUEST SENSE, INQUIRY, REPORT
/// LUNS.
pub(crate) fn ignores_attentions(opcode: u8) -> bool {
    matches!(opcode, 0x03 | 0x12 | 0xA0)
}

/// The unit attention that a command of this nexus ends with.
#[cold]
pub(crate) fn attention(nexus: &ItlNexus, opcode: u8) -> Option<Asc> {
    if nexus.flags() & flags::ATTENTION == 0 || ignores_attentions(opcode) {
        return None;
    }
    nexus.take()
}

/// Checks whether a command with these rules may run; its CDB is valid.
#[cold]
pub(crate) fn rights(word: u32, access: Access, cdb: &[u8]) -> Result<(), Ending> {
    if word & blocking_flags(access, cdb) != 0 {
        return Err(Ending::Status(Status::ReservationConflict));
    }
    let state = (word & flags::ALUA) >> flags::ALUA_SHIFT;
    if state == 0 {
        return Ok(());
    }
    asymmetric(state, access.alua).map_or(Ok(()), |code| Err(Ending::check(code)))
}

/// The bits that stop a command.
pub(crate) fn blocking_flags(access: Access, cdb: &[u8]) -> u32 {
    let options = cdb.get(4).copied().unwrap_or(0);
    let harmless = match access.persistent {
        Persistent::Always => true,
        // START without a power condition.
        Persistent::StartStop => options & 0xF1 == 0x01,
        // ALLOW.
        Persistent::Prevent => options & 0x03 == 0,
        Persistent::Read => return flags::RESERVED_READ,
        Persistent::Write => return flags::RESERVED_WRITE,
        // They look at the reservation themselves.
        Persistent::Reserve | Persistent::Release | Persistent::PersistentOut => return 0,
    };
    match (harmless, access.despite_reserve) {
        (true, true) => 0,
        (true, false) => flags::RESERVED_STATUS,
        (false, _) => flags::RESERVED_WRITE,
    }
}

/// Whether a command touches the medium, or changes state that other initiators see: it has to wait
/// until its initiator knows the unit's identity.
pub(crate) fn needs_known_identity(access: Access) -> bool {
    !matches!(access.persistent, Persistent::Always | Persistent::Release)
}

/// Whether a command reads the unit's identity: standard INQUIRY and its page 83h.
pub(crate) fn is_identity_query(cdb: &[u8]) -> bool {
    match cdb {
        [0x12, evpd, page, ..] => evpd & 1 == 0 || *page == 0x83,
        _ => false,
    }
}

/// Admits the commands of an initiator without write access: those whose effects on a unit are not
/// visible to others.
pub(crate) fn check_without_write_access(command: &Cdb) -> Result<(), Ending> {
    match command {
        Cdb::ModeSelect { .. }
        | Cdb::LogSelect { .. }
        | Cdb::SetTimestamp { .. }
        | Cdb::SetIdentifying { .. }
        | Cdb::SetTargetPortGroups { .. } => Err(Ending::check(asc::WRITE_PROTECTED)),
        // A registration, or the release of a reservation that it has not, concerns no other host.
        Cdb::PersistentOut {
            action: PrOutAction::Register | PrOutAction::RegisterAndIgnore | PrOutAction::Release,
            ..
        } => Ok(()),
        Cdb::Reserve | Cdb::PersistentOut { .. } => {
            Err(Ending::Status(Status::ReservationConflict))
        }
        _ => Ok(()),
    }
}

/// The bits that stop a command which has waited for data, its turn or memory. They are those that
/// barred it when it arrived, and later changes of its unit.
pub(crate) fn late_blocking_flags(barred: u32, plan: &Plan) -> u32 {
    let writes = if plan.writes { flags::PROTECTED } else { 0 };
    barred | writes | flags::GONE
}

/// How a command ends that waited and is stopped by these of its bits.
#[cold]
pub(crate) fn blocked_ending(bits: u32) -> Ending {
    if bits & flags::GONE != 0 {
        return Ending::check(asc::LUN_NOT_SUPPORTED);
    }
    match bits & flags::RESERVED {
        0 => Ending::check(asc::WRITE_PROTECTED),
        _ => Ending::Status(Status::ReservationConflict),
    }
}

/// The sense data of a command that an asymmetric access state does not let run (SPC-4 5.11.2.4 to
/// 5.11.2.8). State 1, active and not optimised, lets everything run.
fn asymmetric(state: u32, runs: Alua) -> Option<Asc> {
    let (runs, code) = match state {
        0x0 | 0x1 => return None,
        0x2 => (runs != Alua::Active, STANDBY),
        0xE => (runs == Alua::Any, OFFLINE),
        0xF => (runs == Alua::Any, TRANSITIONING),
        _ => (matches!(runs, Alua::Any | Alua::Unavailable), UNAVAILABLE),
    };
    (!runs).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use wire::scsi::{PeripheralType, asc, find};

    #[test]
    fn a3_inquiry_report_luns_and_request_sense_keep_unit_attentions() {
        let n = ItlNexus::new(Arc::default(), 0, asc::POWER_ON_OR_RESET);
        for opcode in [0x03, 0x12, 0xA0] {
            assert_eq!(attention(&n, opcode), None);
        }
        assert_eq!(attention(&n, 0x28), Some(asc::POWER_ON_OR_RESET));
        assert_eq!(attention(&n, 0x28), None);
    }

    fn rules(cdb: &[u8]) -> Access {
        find(PeripheralType::Disk, cdb).unwrap().access
    }

    #[test]
    fn each_reservation_bit_blocks_only_its_command_class() {
        let bits = [flags::RESERVED_READ, flags::RESERVED_WRITE, flags::RESERVED_STATUS];
        let cases: [(&[u8], [bool; 3]); 10] = [
            (&[0x28], [true, false, false]),
            (&[0x2A], [false, true, false]),
            (&[0x00], [false, false, true]),
            (&[0x12], [false; 3]),
            (&[0x5F, 0], [false; 3]),
            (&[0x16], [false; 3]),
            (&[0x1B, 0, 0, 0, 0x01], [false; 3]),
            (&[0x1B, 0, 0, 0, 0x00], [false, true, false]),
            (&[0x1B, 0, 0, 0, 0x11], [false, true, false]),
            (&[0x1E, 0, 0, 0, 0x01], [false, true, false]),
        ];
        for (cdb, want) in cases {
            let got = bits.map(|bit| rights(bit, rules(cdb), cdb).is_err());
            assert_eq!(got, want, "{cdb:02x?}");
        }
    }

    #[test]
    fn each_access_state_admits_the_commands_of_the_standard() {
        let run = |state: u32, cdb: &[u8]| rights(state << flags::ALUA_SHIFT, rules(cdb), cdb);
        for state in 0..16 {
            assert_eq!(run(state, &[0x12]), Ok(()), "INQUIRY in {state}");
            assert_eq!(run(state, &[0xA3, 0x0A]), Ok(()), "REPORT TARGET PORT GROUPS in {state}");
            assert_eq!(run(state, &[0x28]).is_ok(), state < 2, "READ in {state}");
            assert_eq!(
                run(state, &[0x5E, 0]).is_ok(),
                state < 3,
                "PERSISTENT RESERVE IN in {state}"
            );
        }
        assert_eq!(run(2, &[0x00]), Err(Ending::check(STANDBY)));
        assert_eq!(run(3, &[0x00]), Err(Ending::check(UNAVAILABLE)));
        assert_eq!(run(3, &[0xA4, 0x0A]), Ok(()));
        assert_eq!(run(14, &[0xA4, 0x0A]), Err(Ending::check(OFFLINE)));
        assert_eq!(run(15, &[0xA4, 0x0A]), Err(Ending::check(TRANSITIONING)));
    }

    #[test]
    fn the_position_of_the_control_byte_follows_the_operation_code() {
        for (opcode, len, at) in
            [(0x00, 6, 5), (0x28, 10, 9), (0x5F, 10, 9), (0x88, 16, 15), (0xA8, 12, 11)]
        {
            let mut cdb = vec![0; 16];
            cdb[0] = opcode;
            assert!(!naca(&cdb));
            cdb[at] = NACA;
            assert!(naca(&cdb), "{opcode:02x}");
            assert!(naca(&cdb[..len]));
            assert!(!naca(&cdb[..len - 1]));
        }
        let mut long = vec![0; 32];
        (long[0], long[1]) = (0x7F, NACA);
        assert!(naca(&long));
        assert!(!naca(&[]));
        assert!(!naca(&[0xC0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]));
    }
}
