//! GET LBA STATUS (SBC-3 5.6): allocation state of blocks as the disk below reports it. A disk
//! without this information is reported as mapped everywhere.

use wire::scsi::{Extent, LbaExtent, LbaState, Sense, asc, lba_status as encode};

use crate::job::Job;
use crate::plan::Plan;
use crate::status::Ending;
use crate::unit::Device;

/// Most descriptors of one answer; the initiator continues from the end of the last one.
const DESCRIPTORS_MAX: u32 = 512;

/// Header and one descriptor, bytes.
const HEADER: u32 = 8;
const DESCRIPTOR: u32 = 16;

pub(super) fn plan(lba: u64, alloc: u32, device: &Device) -> Result<Plan, Sense> {
    if !Extent::new(lba, 1).fits(device.blocks()) {
        return Err(Sense::new(asc::LBA_OUT_OF_RANGE));
    }
    let most = HEADER + DESCRIPTOR * DESCRIPTORS_MAX;
    Ok(Plan { reply: alloc.min(most), ..Plan::task(0) })
}

/// Always one descriptor at least; then as many as the allocation length takes. Neighbours of one
/// state are reported as one.
pub(super) async fn lba_status(job: &Job, lba: u64, alloc: u32) -> Result<(), Ending> {
    let fit = alloc.saturating_sub(HEADER).div_ceil(DESCRIPTOR).clamp(1, DESCRIPTORS_MAX);
    let end = job.device.blocks();
    let mut found: Vec<LbaExtent> = Vec::new();
    let mut at = lba;
    while at < end {
        let (is_hole, blocks) = job.medium().map(at, end - at).await?;
        let state = if is_hole { LbaState::Deallocated } else { LbaState::Mapped };
        let blocks = narrow(blocks.clamp(1, end - at));
        let joined = found.last().filter(|last| last.state == state);
        match joined.and_then(|last| last.blocks.checked_add(blocks)) {
            Some(sum) => found.last_mut().into_iter().for_each(|last| last.blocks = sum),
            None if found.len() >= fit as usize => break,
            None => found.push(LbaExtent { lba: at, blocks, state }),
        }
        at += u64::from(blocks);
    }
    job.reply_bytes(&encode(&found)).await
}

fn narrow(blocks: u64) -> u32 {
    u32::try_from(blocks).unwrap_or(u32::MAX)
}
