//! READ and WRITE 6, 10, 12, 16 (SBC-3 5.11 to 5.14, 5.32 to 5.35), and the checks that every
//! command with a range shares.

use bio::Op;
use wire::scsi::{Extent, Sense, asc};

use super::{blocks_plan, protected};
use crate::plan::Plan;
use crate::unit::Device;

/// A read or write as one request; as a task where there is protection information.
pub(super) fn plan(op: Op, extent: Extent, device: &Device) -> Result<Plan, Sense> {
    if device.protection_type().is_some() {
        return protected::plan(op, extent, device);
    }
    let bytes = check(extent, device)?;
    Ok(blocks_plan(op, extent.lba, extent.blocks, extent.fua, bytes))
}

/// Checks range and length; answers the bytes. No protection information moves. The field at
/// fault of a long one is not pointed at: it differs by CDB length.
pub(super) fn check(extent: Extent, device: &Device) -> Result<u32, Sense> {
    if extent.protect != 0 {
        return Err(extent.protect_error().sense());
    }
    if !extent.fits(device.blocks()) {
        return Err(Sense::new(asc::LBA_OUT_OF_RANGE));
    }
    let bytes = u64::from(extent.blocks) * u64::from(device.block_bytes());
    match u32::try_from(bytes) {
        Ok(bytes) if bytes <= device.transfer_max() => Ok(bytes),
        _ => Err(Sense::new(asc::INVALID_FIELD_IN_CDB)),
    }
}
