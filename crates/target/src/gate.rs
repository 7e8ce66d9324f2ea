//! Why a command may not run now: decided when the word of its nexus is not zero, which is rare.
//!
//! ```text
//!   ACA --> unit attention --> (the CDB is parsed) --> reservation --> asymmetric access --> plan
//! ```
//! The plan looks at write protection. An auto contingent allegiance comes before everything else
//! (SAM-5 5.3.3), what INQUIRY, REPORT LUNS and REQUEST SENSE may do in spite of a unit attention
//! is in SPC-4 5.14.2, the rights under a reservation in the commands' classes
//! ([`wire::scsi::Access`]), those of asymmetric access states in SPC-4 5.11.2.

use wire::scsi::{Access, Asc, Key, Status};

use crate::attention::{Nexus, flags};
use crate::status::Ending;

/// LOGICAL UNIT NOT READY, by asymmetric access state.
const TRANSITIONING: Asc = Asc::new(Key::NotReady, 0x04, 0x0A);
const STANDBY: Asc = Asc::new(Key::NotReady, 0x04, 0x0B);
const UNAVAILABLE: Asc = Asc::new(Key::NotReady, 0x04, 0x0C);
const OFFLINE: Asc = Asc::new(Key::NotReady, 0x04, 0x12);

/// Commands that run in spite of unit attentions (SPC-4 5.14.2): REQUEST SENSE, INQUIRY, REPORT
/// LUNS.
fn ignores_attentions(opcode: u8) -> bool {
    matches!(opcode, 0x03 | 0x12 | 0xA0)
}

/// The unit attention that a command of this nexus ends with.
#[cold]
pub(crate) fn attention(nexus: &Nexus, opcode: u8) -> Option<Asc> {
    if nexus.flags() & flags::ATTENTION == 0 || ignores_attentions(opcode) {
        return None;
    }
    nexus.take()
}

/// What keeps a command of a class from running, its CDB being right.
#[cold]
pub(crate) fn rights(word: u32, access: Access, cdb: &[u8]) -> Result<(), Ending> {
    let barred = match access {
        Access::Read => flags::RESERVED_READ,
        Access::Write => flags::RESERVED_WRITE,
        Access::Status => flags::RESERVED_STATUS,
        Access::Always | Access::Own => 0,
    };
    if word & barred != 0 {
        return Err(Ending::Status(Status::ReservationConflict));
    }
    let state = (word & flags::ALUA) >> flags::ALUA_SHIFT;
    if state == 0 {
        return Ok(());
    }
    asymmetric(state, cdb).map_or(Ok(()), |code| Err(Ending::check(code)))
}

/// The sense data of a command that an asymmetric access state does not let run (SPC-4 5.11.2.4 to
/// 5.11.2.8). State 1, active and not optimised, lets everything run.
fn asymmetric(state: u32, cdb: &[u8]) -> Option<Asc> {
    let opcode = cdb.first().copied().unwrap_or(0);
    let action = cdb.get(1).map_or(0, |b| b & 0x1f);
    // INQUIRY, REPORT LUNS, REQUEST SENSE, REPORT TARGET PORT GROUPS.
    let asks = matches!((opcode, action), (0x03 | 0x12 | 0xA0, _) | (0xA3, 0x0A));
    // SET TARGET PORT GROUPS, READ BUFFER and WRITE BUFFER.
    let mends = matches!((opcode, action), (0xA4, 0x0A) | (0x3B | 0x3C, _));
    // Mode and log pages, diagnostics, persistent reservations.
    let manages = matches!(opcode, 0x15 | 0x1A | 0x1C | 0x1D | 0x4C | 0x4D | 0x55 | 0x5A)
        || matches!(opcode, 0x5E | 0x5F);
    let (runs, code) = match state {
        0x0 | 0x1 => return None,
        0x2 => (asks || mends || manages, STANDBY),
        0xE => (asks, OFFLINE),
        0xF => (asks, TRANSITIONING),
        _ => (asks || mends, UNAVAILABLE),
    };
    (!runs).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use wire::scsi::asc;

    #[test]
    fn a3_three_commands_leave_the_queue_alone() {
        let n = Nexus::new(Arc::default(), 0, asc::POWER_ON_OR_RESET);
        for opcode in [0x03, 0x12, 0xA0] {
            assert_eq!(attention(&n, opcode), None);
        }
        assert_eq!(attention(&n, 0x28), Some(asc::POWER_ON_OR_RESET));
        assert_eq!(attention(&n, 0x28), None);
    }

    #[test]
    fn each_bit_bars_its_class_only() {
        let bits = [flags::RESERVED_READ, flags::RESERVED_WRITE, flags::RESERVED_STATUS];
        let classes = [Access::Read, Access::Write, Access::Status, Access::Always, Access::Own];
        for (i, bit) in bits.into_iter().enumerate() {
            for (j, class) in classes.into_iter().enumerate() {
                assert_eq!(rights(bit, class, &[0x28]).is_err(), i == j, "{bit} {class:?}");
            }
        }
    }

    #[test]
    fn states_let_run_what_the_standard_says() {
        let run = |state: u32, cdb: &[u8]| rights(state << flags::ALUA_SHIFT, Access::Always, cdb);
        for state in 0..16 {
            assert_eq!(run(state, &[0x12]), Ok(()), "INQUIRY in {state}");
            assert_eq!(run(state, &[0xA3, 0x0A]), Ok(()), "REPORT TARGET PORT GROUPS in {state}");
            assert_eq!(run(state, &[0x28]).is_ok(), state < 2, "READ in {state}");
            assert_eq!(run(state, &[0x5E]).is_ok(), state < 3, "PERSISTENT RESERVE IN in {state}");
        }
        assert_eq!(run(2, &[0x00]), Err(Ending::check(STANDBY)));
        assert_eq!(run(3, &[0x00]), Err(Ending::check(UNAVAILABLE)));
        assert_eq!(run(14, &[0xA4, 0x0A]), Err(Ending::check(OFFLINE)));
        assert_eq!(run(15, &[0xA4, 0x0A]), Err(Ending::check(TRANSITIONING)));
    }
}
