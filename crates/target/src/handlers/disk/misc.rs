//! SYNCHRONIZE CACHE, REPORT SUPPORTED OPERATION CODES.

use wire::scsi::{Extent, Report, Sense, asc, report_opcodes as list};

use crate::device::Device;
use crate::handlers::{Ask, Plan, served};

/// The whole medium is flushed whatever the range. IMMED is not taken up: GOOD is said when it is
/// true.
pub(super) fn plan_sync(lba: u64, blocks: u32, device: &Device) -> Result<Plan, Sense> {
    let extent = Extent { lba, blocks, ..Extent::default() };
    match extent.fits(device.blocks()) {
        true => Ok(Plan::task(0)),
        false => Err(Sense::new(asc::LBA_OUT_OF_RANGE)),
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
