//! WRITE SAME 10, 16 and 32 (SBC-3 5.42 to 5.44). A length of zero is refused (WSNZ), except on a
//! unit whose owner lets it mean the rest of the medium.
//!
//! | block | UNMAP | below |
//! | --- | --- | --- |
//! | zeroes, or NDOB | 0 | WRITE ZEROES that keeps the blocks allocated |
//! | zeroes, or NDOB | 1 | WRITE ZEROES that may free them: they read as zeroes either way |
//! | anything else | 0, 1 | written |
//!
//! A layer that has no WRITE ZEROES is given zeroes to write.

use bio::{Errno, Flags, Op, Segs};
use wire::scsi::{Command as Cdb, Extent, Sense, asc};

use super::verify::CHUNK_BYTES;
use crate::device::{Device, ModeBits};
use crate::handlers::{Job, Plan};
use crate::status::{Ending, ending_of};

/// Most bytes of one WRITE SAME; told in page B0h, a longer one is refused.
pub(super) const WRITE_SAME_BYTES_MAX: u64 = 1 << 30;

/// The fields of the command.
#[derive(Clone, Copy)]
struct What {
    lba: u64,
    blocks: u64,
    unmap: bool,
    anchor: bool,
    no_data: bool,
}

/// The fields, with the length that is meant.
fn what(command: &Cdb, device: &Device) -> Result<What, Sense> {
    let Cdb::WriteSame { lba, blocks, unmap, anchor, no_data, protect, tags } = *command else {
        return Err(Sense::new(asc::INTERNAL_FAILURE));
    };
    let extent = Extent { protect, tags, ..Extent::new(lba, blocks) };
    if protect != 0 {
        return Err(extent.protect_error().sense());
    }
    if !extent.fits(device.blocks()) {
        return Err(Sense::new(asc::LBA_OUT_OF_RANGE));
    }
    let blocks = match blocks {
        0 if device.spec().write_same_to_end => device.blocks().saturating_sub(lba),
        blocks => u64::from(blocks),
    };
    Ok(What { lba, blocks, unmap, anchor, no_data })
}

pub(super) fn plan(command: &Cdb, device: &Device) -> Result<Plan, Sense> {
    let what = what(command, device)?;
    if what.anchor {
        return Err(Sense::cdb_field(1, Some(4)));
    }
    if what.unmap && !device.spec().can_delete {
        return Err(Sense::cdb_field(1, Some(3)));
    }
    let bytes = what.blocks.saturating_mul(u64::from(device.block_bytes()));
    if what.blocks == 0 || bytes > WRITE_SAME_BYTES_MAX {
        return Err(Sense::new(asc::INVALID_FIELD_IN_CDB));
    }
    let out = if what.no_data { 0 } else { device.block_bytes() };
    Ok(Plan { exact: true, ..Plan::task(out).writing() }.at(what.lba, what.blocks))
}

pub(super) async fn write_same(job: &Job) -> Result<(), Ending> {
    let what = &what(&job.command, &job.device).map_err(Ending::Check)?;
    let block = if what.no_data { Vec::new() } else { job.data.to_vec() };
    if !what.no_data && block.len() != job.device.block_bytes() as usize {
        // The initiator sent less than the one block there must be.
        return Err(Ending::check(asc::INVALID_FIELD_IN_CDB));
    }
    if block.iter().any(|b| *b != 0) {
        return repeat(job, what, &block).await;
    }
    let keep = if what.unmap { Flags::NONE } else { Flags::NO_HOLE };
    let durable = !job.device.mode().has(ModeBits::WCE);
    let flags = if durable { keep | Flags::FUA } else { keep };
    let zeroed = job.range(Op::WriteZeroes, what.lba, what.blocks, flags).await;
    match zeroed {
        Ok(()) if durable => job.flush().await,
        Err(e) if e == ending_of(Errno::NotSup, Op::WriteZeroes) => {
            let zeroes = vec![0; job.device.block_bytes() as usize];
            repeat(job, what, &zeroes).await
        }
        other => other,
    }
}

/// Writes `block` over and over, a chunk at a time.
async fn repeat(job: &Job, what: &What, block: &[u8]) -> Result<(), Ending> {
    let unit = job.device.block_bytes();
    let most = u32::try_from(what.blocks).unwrap_or(u32::MAX);
    let chunk = (CHUNK_BYTES / unit).max(1).min(most);
    let pattern = job.buffers(chunk as usize * unit as usize).await?;
    for at in 0..chunk as usize {
        pattern.copy_from(at * unit as usize, block);
    }
    let mut done = 0;
    while done < what.blocks {
        let n = u64::from(chunk).min(what.blocks - done);
        let mut piece = Segs::new();
        if !pattern.slice_into(0, n as usize * unit as usize, &mut piece) {
            return Err(Ending::check(asc::INTERNAL_FAILURE));
        }
        job.write(what.lba + done, piece, false).await?;
        done += n;
    }
    Ok(())
}
