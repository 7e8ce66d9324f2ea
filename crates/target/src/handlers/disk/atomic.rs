//! WRITE ATOMIC(16) (SBC-4 5.48): no other command sees a part of it. A power cut may leave a part
//! of one that is longer than what the disk writes as a whole.
//!
//! The limits stand in page B0h: any length up to the largest, no alignment, no granularity, no
//! boundaries.

use wire::scsi::{Extent, Sense, asc};

use super::protected;
use crate::device::Device;
use crate::handlers::{Job, Plan};
use crate::status::Ending;

/// Most bytes of one WRITE ATOMIC; told in page B0h, a longer one is refused.
pub(super) const ATOMIC_BYTES_MAX: u32 = 4 << 20;

/// Most blocks at this unit.
pub(super) fn blocks_max(device: &Device) -> u32 {
    ATOMIC_BYTES_MAX.min(device.transfer_max()) / device.block_bytes()
}

/// All the data must come: a part of it is what may not happen.
pub(super) fn plan(extent: Extent, boundary: u16, device: &Device) -> Result<Plan, Sense> {
    if boundary != 0 {
        return Err(Sense::cdb_field(10, None));
    }
    let bytes = protected::wire_bytes(extent, device)?;
    if extent.blocks > blocks_max(device) {
        return Err(Sense::new(asc::INVALID_FIELD_IN_CDB));
    }
    Ok(Plan { exact: true, ..Plan::task(bytes).writing() }
        .at(extent.lba, u64::from(extent.blocks))
        .alone())
}

pub(super) async fn write_atomic(job: &Job, extent: Extent) -> Result<(), Ending> {
    if extent.blocks == 0 {
        return Ok(());
    }
    let (data, tuples) = protected::sent(job, extent).await?;
    job.medium().write_as(extent.lba, data, tuples, extent.fua).await
}
