//! ORWRITE(16) (SBC-3 5.7): the blocks become what they are OR the data, as one step.

use wire::scsi::{Extent, Sense, asc};

use super::read_write;
use crate::device::Device;
use crate::handlers::{Job, Plan};
use crate::status::Ending;

pub(super) fn plan(extent: Extent, device: &Device) -> Result<Plan, Sense> {
    let plan = Plan::task(read_write::check(extent, device)?).writing();
    Ok(plan.at(extent.lba, u64::from(extent.blocks)).alone())
}

/// Whole blocks that the initiator has sent are combined; what it has not sent stays as it is.
pub(super) async fn orwrite(job: &Job, extent: Extent) -> Result<(), Ending> {
    let unit = job.device.block_bytes();
    let sent = u32::try_from(job.data.len()).unwrap_or(u32::MAX) / unit;
    let blocks = extent.blocks.min(sent);
    if blocks == 0 {
        return Ok(());
    }
    let medium = job.read(extent.lba, blocks).await?;
    let mut sum = medium.to_vec();
    sum.iter_mut().zip(job.data.to_vec()).for_each(|(ours, theirs)| *ours |= theirs);
    if medium.copy_from(0, &sum) != sum.len() {
        return Err(Ending::check(asc::INTERNAL_FAILURE));
    }
    job.write(extent.lba, medium, extent.fua).await
}
