//! WRITE ATOMIC(16) (SBC-4 5.48, 4.29). No other command sees a part of it, and a power cut leaves
//! all of it or nothing.
//!
//! Page B0h reports the limits, which are those of the disk below
//! ([`crate::DeviceSpec::atomic_bytes`]); a write of that length is one request to it. There are no
//! granularity and no boundaries. The command is not served where not even one block is atomic, nor
//! with protection information, which is stored apart from the data.

use wire::scsi::{Extent, Sense};

use super::protected;
use crate::job::Job;
use crate::plan::Plan;
use crate::status::Ending;
use crate::unit::Device;

/// Most bytes of one WRITE ATOMIC where any length would do: nothing outlives a power cut. A longer
/// one is refused.
const ATOMIC_BYTES_MAX: u32 = 4 << 20;

/// Limits of one WRITE ATOMIC, logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AtomicLimits {
    /// Most; zero when it is not served.
    pub blocks: u32,
    /// The first one's number is a multiple of it; zero when it may be any.
    pub alignment: u32,
}

/// The limits of this unit as it is formatted.
pub(super) fn limits(device: &Device) -> AtomicLimits {
    let (kept, unit) = (device.spec().atomic_bytes, device.block_bytes());
    if kept == u64::MAX {
        let blocks = ATOMIC_BYTES_MAX.min(device.transfer_max()) / unit;
        return AtomicLimits { blocks, alignment: 0 };
    }
    if device.protection_type().is_some() || !kept.is_power_of_two() {
        return AtomicLimits { blocks: 0, alignment: 0 };
    }
    let kept = u32::try_from(kept).unwrap_or(ATOMIC_BYTES_MAX).min(ATOMIC_BYTES_MAX);
    let blocks = kept.min(device.transfer_max()) / unit;
    AtomicLimits { blocks, alignment: if kept > unit { kept / unit } else { 0 } }
}

/// All the data must arrive: a partial write is not allowed.
pub(super) fn plan(extent: Extent, boundary: u16, device: &Device) -> Result<Plan, Sense> {
    if boundary != 0 {
        return Err(Sense::cdb_field(10, None));
    }
    let bytes = protected::wire_bytes(extent, device)?;
    let limits = limits(device);
    if limits.alignment > 0 && !extent.lba.is_multiple_of(u64::from(limits.alignment)) {
        return Err(Sense::cdb_field(2, None));
    }
    if extent.blocks > limits.blocks {
        return Err(Sense::cdb_field(12, None));
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
