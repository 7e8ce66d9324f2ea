//! Effects of a CHECK CONDITION on the other commands of a unit: auto contingent allegiance (SAM-5
//! 5.10) when NACA was set in the CDB, and aborts by the rule of QERR (SPC-4 7.5.8).
//!
//! ```text
//!   no allegiance --CHECK CONDITION with NACA: blame()--> allegiance of the nexus
//!        ^                                                     |
//!        +--- absolve(): CLEAR ACA, LOGICAL UNIT RESET, nexus loss, PREEMPT AND ABORT
//! ```
//! While it lasts, the nexus that established it runs commands of the ACA attribute, one at a time,
//! and receives ACA ACTIVE for others. Other nexuses of the same task set receive ACA ACTIVE when
//! NACA is set in their command, else BUSY. Dormant commands stay dormant (`task/set.rs`, O6);
//! running ones continue.

use std::rc::Rc;
use std::sync::Arc;

use wire::scsi::{NACA, Status};

use crate::command::Command;
use crate::engine::Engine;
use crate::flags;
use crate::nexus::{ItNexus, Path};
use crate::status::Ending;
use crate::task::set::AcaEffect;
use crate::task::{AbortHow, TaskAttribute};
use crate::task_set::cross_core::{group_of, key_of};
use crate::task_set::management::TmCompletion;
use crate::unit::unit_attention::ItlNexus;
use crate::unit::{Device, ModeBits};

/// NACA of a CDB: bit 2 of the CONTROL byte, whose place goes by the operation code (SAM-5 5.2).
pub(crate) fn naca(cdb: &[u8]) -> bool {
    /// The CONTROL byte by the three high bits of the operation code; variable-length CDBs have it
    /// in byte 1. The last two groups belong to vendors: nothing is looked at.
    const CONTROL: [usize; 8] = [5, 9, 9, 1, 15, 11, usize::MAX, usize::MAX];
    let group = cdb.first().map_or(7, |opcode| usize::from(opcode >> 5));
    let at = CONTROL.get(group).copied().unwrap_or(usize::MAX);
    cdb.get(at).is_some_and(|control| control & NACA != 0)
}

/// PERSISTENT RESERVE OUT with PREEMPT AND ABORT, which ends the allegiance of others.
fn preempts(cdb: &[u8]) -> bool {
    matches!(cdb, [0x5F, action, ..] if action & 0x1f == 0x05)
}

/// Effect of an allegiance on a new command; true when it is the command that may run.
#[cold]
pub(crate) fn admit(path: &Path, command: &Command<'_>) -> Result<bool, Ending> {
    let (device, nexus) = (path.device(), path.nexus());
    let aca = command.attribute == TaskAttribute::Aca && !device.mode().has(ModeBits::TMF_ONLY);
    let group = group_of(device, nexus);
    let allegiance = device.order().aca_effect(group, key_of(nexus), aca);
    match allegiance {
        AcaEffect::None => Ok(false),
        AcaEffect::Runs => Ok(true),
        AcaEffect::OtherNexus if preempts(command.cdb) => Ok(false),
        AcaEffect::OtherNexus if !naca(command.cdb) => Err(Ending::Status(Status::Busy)),
        AcaEffect::Own | AcaEffect::OtherNexus => Err(Ending::Status(Status::AcaActive)),
    }
}

impl ItNexus {
    /// A command ends with CHECK CONDITION; called before its answer is sent.
    #[cold]
    pub(crate) fn handle_check_condition(&self, place: u32) {
        let (path, naca) = {
            let slots = self.slots.borrow();
            let Some(slot) = slots.get(place) else { return };
            let Some(path) = slot.path.clone() else { return };
            (path, slot.naca)
        };
        let (device, nexus) = (path.device(), path.nexus());
        let mode = device.mode();
        if naca {
            let mut set = device.order();
            if set.establish(group_of(device, nexus), key_of(nexus)) {
                match mode.has(ModeBits::TST_EACH) {
                    true => nexus.set(flags::ACA),
                    false => device.mark(flags::ACA),
                }
            }
        }
        if !mode.has(ModeBits::QERR) {
            return;
        }
        let engine = self.engine();
        let ticket = engine.tms.borrow_mut().open(TmCompletion::Nothing);
        if mode.has(ModeBits::QERR_OWN) || mode.has(ModeBits::TST_EACH) {
            let words = self.commands_at(|p| Rc::ptr_eq(p, &path));
            engine.abort_all(self, &words, AbortHow::Silent, ticket);
        } else {
            engine.abort_everywhere(device, self.number(), false, ticket);
        }
        engine.tm_step(ticket);
    }
}

impl Engine {
    /// Ends the allegiance that a nexus established, or every one of the unit.
    pub(crate) fn end_aca(self: &Rc<Self>, device: &Device, nexus: Option<&Arc<ItlNexus>>) {
        let mut ready = Vec::new();
        let mut set = device.order();
        let ended = set.end_acas(|n| nexus.is_none_or(|x| key_of(x) == n), &mut ready);
        if ended {
            if !set.has_aca() {
                device.unmark(flags::ACA);
            }
            if let Some(nexus) = nexus.filter(|_| device.mode().has(ModeBits::TST_EACH)) {
                nexus.clear(flags::ACA);
            }
        }
        drop(set);
        self.start_enabled(ready);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
