//! ORWRITE(16) (SBC-3 5.7): the blocks are combined with the data by OR, as one step.
//!
//! With ORPROTECT the received tuples are checked as those of a write. Their tags are stored with
//! the result, and the guard is computed here: it is the guard of neither of the two.

use wire::scsi::{Extent, Sense, TUPLE_LEN, Tuple, asc, guard};

use super::protected;
use crate::job::Job;
use crate::plan::Plan;
use crate::status::Ending;
use crate::unit::Device;
use crate::unit::protection::Want;

pub(super) fn plan(extent: Extent, device: &Device) -> Result<Plan, Sense> {
    let plan = Plan::task(protected::wire_bytes(extent, device)?).writing();
    Ok(plan.at(extent.lba, u64::from(extent.blocks)).alone())
}

/// Combines the whole blocks that the initiator has sent; other blocks stay unchanged.
pub(super) async fn orwrite(job: &Job, extent: Extent) -> Result<(), Ending> {
    let unit = job.device.block_bytes();
    let (data, mut tuples) = protected::sent(job, extent).await?;
    let sent = u32::try_from(data.len()).unwrap_or(u32::MAX) / unit;
    let blocks = extent.blocks.min(sent);
    if blocks == 0 {
        return Ok(());
    }
    // FUA applies to the write only.
    let want = Want { fua: false, ..protected::want(extent) };
    let (medium, _) = job.medium().read_as(extent.lba, blocks, want).await?;
    let mut sum = medium.to_vec();
    sum.iter_mut().zip(data.to_vec()).for_each(|(ours, theirs)| *ours |= theirs);
    drop(data);
    if medium.copy_from(0, &sum) != sum.len() {
        return Err(Ending::check(asc::INTERNAL_FAILURE));
    }
    if let Some(tuples) = &mut tuples {
        let (all, _) = tuples.as_chunks_mut::<TUPLE_LEN>();
        for (tuple, block) in all.iter_mut().zip(sum.chunks_exact(unit as usize)) {
            *tuple = Tuple { guard: guard(block), ..Tuple::decode(tuple) }.encode();
        }
    }
    job.medium().write_as(extent.lba, medium, tuples, extent.fua).await
}
