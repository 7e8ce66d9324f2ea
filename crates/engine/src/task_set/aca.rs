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

use wire::scsi::Status;

use crate::flags;
use crate::gate::naca;
use crate::nexus::engine::Engine;
use crate::nexus::pending_tms::TmCompletion;
use crate::nexus::transport::Command;
use crate::nexus::{ItNexus, Path};
use crate::status::Ending;
use crate::task::set::AcaEffect;
use crate::task::{AbortHow, TaskAttribute};
use crate::task_set::cross_core::{group_of, key_of};
use crate::unit::unit_attention::ItlNexus;
use crate::unit::{Device, ModeBits};

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
