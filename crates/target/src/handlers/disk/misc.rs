//! SYNCHRONIZE CACHE.

use wire::scsi::{Extent, Sense, asc};

use crate::device::Device;
use crate::handlers::Plan;

/// The whole medium is flushed whatever the range. IMMED is not taken up: GOOD is said when it is
/// true.
pub(super) fn plan_sync(lba: u64, blocks: u32, device: &Device) -> Result<Plan, Sense> {
    let extent = Extent { lba, blocks, ..Extent::default() };
    match extent.fits(device.blocks()) {
        true => Ok(Plan::task(0)),
        false => Err(Sense::new(asc::LBA_OUT_OF_RANGE)),
    }
}
