//! PRE-FETCH 10 and 16 (SBC-3 5.9, 5.10). A range that is small enough is read, so that a cache in
//! the layers below has it. The command ends GOOD and never CONDITION MET, because the engine has
//! no cache that could keep the data.

use wire::scsi::{Extent, Sense, asc};

use crate::job::Job;
use crate::plan::Plan;
use crate::status::Ending;
use crate::unit::Device;

/// Most bytes fetched; a longer range ends GOOD at once.
const FETCH_BYTES_MAX: u64 = 4 << 20;

/// Read at a time, bytes.
const PIECE_BYTES: u32 = 256 * 1024;

/// With `immed` nothing is fetched: no command waits for the data, and prefetching takes memory
/// from commands that do wait.
pub(super) fn plan(lba: u64, blocks: u32, immed: bool, device: &Device) -> Result<Plan, Sense> {
    if !Extent::new(lba, blocks).fits(device.blocks()) {
        return Err(Sense::new(asc::LBA_OUT_OF_RANGE));
    }
    let all = length(lba, blocks, device);
    let bytes = all.saturating_mul(u64::from(device.block_bytes()));
    if immed || bytes > FETCH_BYTES_MAX {
        return Ok(Plan { medium: true, ..Plan::NOTHING });
    }
    Ok(Plan::task(0).at(lba, all))
}

/// No blocks are all blocks to the end.
fn length(lba: u64, blocks: u32, device: &Device) -> u64 {
    match blocks {
        0 => device.blocks().saturating_sub(lba),
        n => u64::from(n),
    }
}

pub(super) async fn prefetch(job: &Job, lba: u64, blocks: u32) -> Result<(), Ending> {
    let all = length(lba, blocks, &job.device);
    let piece = u64::from((PIECE_BYTES / job.device.block_bytes()).max(1));
    let mut done = 0;
    while done < all {
        let n = piece.min(all - done);
        job.read(lba + done, u32::try_from(n).unwrap_or(1)).await?;
        done += n;
    }
    Ok(())
}
