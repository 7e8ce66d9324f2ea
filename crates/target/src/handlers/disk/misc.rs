//! SYNCHRONIZE CACHE, PRE-FETCH, START STOP UNIT, PREVENT ALLOW MEDIUM REMOVAL, REPORT SUPPORTED
//! OPERATION CODES.

use wire::scsi::{Extent, Report, Sense, asc, report_opcodes as list};

use crate::device::Device;
use crate::handlers::{Ask, Job, Plan, served};
use crate::status::Ending;

/// The whole medium is flushed whatever the range. IMMED is not taken up: GOOD is said when it is
/// true.
pub(super) fn plan_sync(lba: u64, blocks: u32, device: &Device) -> Result<Plan, Sense> {
    let extent = Extent { lba, blocks, ..Extent::default() };
    match extent.fits(device.blocks()) {
        true => Ok(Plan::task(0)),
        false => Err(Sense::new(asc::LBA_OUT_OF_RANGE)),
    }
}

/// There is no cache of ours to fetch into: GOOD, and not CONDITION MET, says so (SBC-3 5.8).
pub(super) fn plan_prefetch(lba: u64, blocks: u32, device: &Device) -> Result<Plan, Sense> {
    let extent = Extent { lba, blocks, ..Extent::default() };
    match extent.fits(device.blocks()) {
        true => Ok(Plan { medium: true, ..Plan::NOTHING }),
        false => Err(Sense::new(asc::LBA_OUT_OF_RANGE)),
    }
}

/// Nothing to eject and no power conditions.
pub(super) fn plan_start_stop(power: u8, eject: bool) -> Result<Plan, Sense> {
    if power != 0 {
        return Err(Sense::cdb_field(4, Some(7)));
    }
    if eject {
        return Err(Sense::cdb_field(4, Some(1)));
    }
    Ok(Plan::task(0))
}

/// A stop empties the cache and changes nothing else: the unit is shared, and one initiator's
/// shutdown must not stop it for the others.
pub(super) async fn start_stop(job: &Job, start: bool, no_flush: bool) -> Result<(), Ending> {
    if start || no_flush { Ok(()) } else { job.flush().await }
}

/// Accepted without effect: the medium cannot be taken out.
pub(super) fn plan_prevent(prevent: u8) -> Result<Plan, Sense> {
    match prevent {
        0 | 1 => Ok(Plan::NOTHING),
        _ => Err(Sense::cdb_field(4, Some(1))),
    }
}

pub(super) fn report_opcodes(
    ask: &mut Ask<'_>,
    device: &Device,
    report: Report,
    timeouts: bool,
) -> Result<(), Sense> {
    ask.reply.extend(list(&served(device), report, timeouts).map_err(|e| e.sense())?);
    Ok(())
}
