//! START STOP UNIT (SBC-3 5.25, MMC-6 6.42) and PREVENT ALLOW MEDIUM REMOVAL (SBC-3 5.12) of units
//! with removable media. Units with a fixed medium accept both as far as they apply.

use wire::scsi::{Command as Cdb, Sense};

use super::{ImmediateCommand, Job, Plan};
use crate::status::Ending;
use crate::unit::Device;
use crate::unit::medium_state::{MediumState, TrayError};

/// A power condition is taken note of and changes nothing, START and LOEJ mean nothing beside one.
/// Nothing to eject when the medium is fixed, or while something runs on it.
pub(super) fn plan_start_stop(device: &Device, power: u8, eject: bool) -> Result<Plan, Sense> {
    if power != 0 {
        return match device.condition().refusal() {
            Some(sense) => Err(sense),
            None => Ok(Plan { medium: true, ..Plan::NOTHING }),
        };
    }
    if eject && !device.spec().removable {
        return Err(TrayError::Fixed.sense());
    }
    match device.condition().state() {
        MediumState::Empty if eject => Ok(Plan { medium: false, ..Plan::task(0) }),
        _ => match device.condition().refusal() {
            Some(sense) => Err(sense),
            None => Ok(Plan::task(0)),
        },
    }
}

/// A stop without eject flushes the cache and changes nothing else. The unit is shared, and one
/// initiator's shutdown must not stop it for the others. Written data is durable before the medium
/// is ejected.
pub(super) async fn start_stop(job: &Job) -> Result<(), Ending> {
    let Cdb::StartStop { start, no_flush, eject, .. } = job.command else {
        return Ok(());
    };
    let device = &job.device;
    let check = |e: TrayError| Ending::Check(e.sense());
    match (eject, start) {
        (true, true) => device.load(Some(&job.nexus)).map_err(check),
        (true, false) if device.condition().state() == MediumState::Empty => {
            device.eject().map_err(check)
        }
        (true, false) => {
            if device.condition().is_prevented() {
                return Err(check(TrayError::Prevented));
            }
            if !no_flush {
                job.flush().await?;
            }
            device.eject().map_err(check)
        }
        (false, false) if !no_flush => job.flush().await,
        (false, _) => Ok(()),
    }
}

/// Bit 1 requests persistent prevention of changers, which nothing here has.
pub(super) fn plan_prevent(prevent: u8) -> Result<Plan, Sense> {
    match prevent {
        0 | 1 => Ok(Plan::NOTHING),
        _ => Err(Sense::cdb_field(4, Some(1))),
    }
}

/// Remembered for this nexus; without effect where the medium is fixed.
pub(super) fn prevent(ask: &ImmediateCommand<'_>, prevent: u8) {
    if let (Some(device), Some(nexus)) = (ask.device, ask.nexus)
        && device.spec().removable
    {
        device.condition().prevent(nexus, prevent & 1 != 0);
    }
}
