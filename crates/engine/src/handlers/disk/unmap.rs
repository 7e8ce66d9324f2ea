//! UNMAP (SBC-4 5.35). With ANCHOR, where the disk can, blocks read as zeroes and keep their place.

use bio::{Flags, Op};
use wire::scsi::{Command as Cdb, Extent, Sense, UnmapList, asc};

use crate::job::Job;
use crate::plan::Plan;
use crate::status::Ending;
use crate::unit::{Device, ModeBits};

/// Most blocks of one UNMAP, for every unit; reported in page B0h, more are refused. Initiators cut
/// their requests to it, and some reject a larger number.
const UNMAP_BLOCKS_MAX: u32 = 1 << 20;
/// Most descriptors of one UNMAP; reported in page B0h, a longer list is refused.
pub(super) const UNMAP_DESCRIPTORS_MAX: u32 = 256;

pub(super) fn plan(anchor: bool, len: u32, device: &Device) -> Result<Plan, Sense> {
    if !device.spec().can_delete {
        return Err(Sense::new(asc::INVALID_OPCODE));
    }
    if anchor && !device.spec().can_anchor {
        return Err(Sense::cdb_field(1, Some(0)));
    }
    Ok(Plan::task(len).writing())
}

/// Checks the whole list before the first block is freed.
pub(super) async fn unmap(job: &Job) -> Result<(), Ending> {
    let bytes = job.data.to_vec();
    let list = UnmapList::parse(&bytes).map_err(Ending::Check)?;
    if list.len() > UNMAP_DESCRIPTORS_MAX as usize {
        return Err(Ending::Check(Sense::list_field(2, None)));
    }
    let (mut total, most) = (0, blocks_max(&job.device));
    for one in list.iter() {
        let extent = Extent { lba: one.lba, blocks: one.blocks, ..Extent::default() };
        if !extent.fits(job.device.blocks()) {
            return Err(Ending::check(asc::LBA_OUT_OF_RANGE));
        }
        total += u64::from(one.blocks);
        if total > u64::from(most) {
            return Err(Ending::Check(Sense::list_field(2, None)));
        }
    }
    if matches!(job.command, Cdb::Unmap { anchor: false, .. }) && job.device.protection().is_none()
    {
        free(job, &list).await?;
        return settle(job).await;
    }
    let (op, flags) = match job.command {
        Cdb::Unmap { anchor: true, .. } => (Op::WriteZeroes, Flags::NO_HOLE),
        _ => (Op::Delete, Flags::NONE),
    };
    // Adjacent ranges are merged into one request: each request has its cost.
    let runs = list.iter().filter(|one| one.blocks > 0);
    let mut runs = runs.map(|one| (one.lba, u64::from(one.blocks))).peekable();
    while let Some((lba, mut blocks)) = runs.next() {
        while let Some((_, more)) = runs.next_if(|next| lba.checked_add(blocks) == Some(next.0)) {
            blocks = blocks.saturating_add(more);
        }
        job.range(op, lba, blocks, flags).await?;
    }
    settle(job).await
}

/// Durable when it ends, without a write cache.
async fn settle(job: &Job) -> Result<(), Ending> {
    if !job.device.mode().has(ModeBits::WCE) {
        job.flush().await?;
    }
    Ok(())
}

/// All descriptors in one request: the blocks that any of them names, once, in order.
async fn free(job: &Job, list: &UnmapList<'_>) -> Result<(), Ending> {
    let named = list.iter().filter(|one| one.blocks > 0);
    let mut runs: Vec<_> = named.map(|one| one.lba..one.lba + u64::from(one.blocks)).collect();
    runs.sort_unstable_by_key(|run| run.start);
    runs.dedup_by(|later, run| {
        let joins = later.start <= run.end;
        if joins {
            run.end = run.end.max(later.end);
        }
        joins
    });
    job.medium().free(&runs).await
}

pub(super) fn blocks_max(device: &Device) -> u32 {
    device.provisioning().blocks_max(u64::from(device.block_bytes()), UNMAP_BLOCKS_MAX)
}

/// Most blocks and descriptors of one UNMAP of a unit, for transports that make lists of their own.
pub fn unmap_limits(device: &Device) -> (u32, u16) {
    (blocks_max(device), u16::try_from(UNMAP_DESCRIPTORS_MAX).unwrap_or(u16::MAX))
}
