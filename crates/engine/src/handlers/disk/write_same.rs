//! WRITE SAME 10, 16 and 32 (SBC-3 5.42 to 5.44). A length of zero is refused (WSNZ), except on a
//! unit whose owner lets it mean the rest of the medium.
//!
//! | block | UNMAP | below |
//! | --- | --- | --- |
//! | zeroes, or NDOB | 0 | WRITE ZEROES that keeps the blocks allocated |
//! | zeroes, or NDOB | 1 | WRITE ZEROES that may free them: they read as zeroes either way |
//! | zeroes, or NDOB | 1, ANCHOR | as without UNMAP; refused where the disk cannot |
//! | anything else | 0, 1 | written |
//!
//! A layer that has no WRITE ZEROES is given zeroes to write. With WRPROTECT the one tuple belongs
//! to the first block; the reference tags of types 1 and 2 grow from there.

use bio::{Errno, Flags, Op, Segs};
use wire::scsi::{Command as Cdb, Extent, Sense, TUPLE_LEN, asc};

use super::protected;
use super::verify::CHUNK_BYTES;
use crate::job::Job;
use crate::plan::Plan;
use crate::status::{Ending, ending_of};
use crate::unit::{Device, ModeBits};

/// Most bytes of one WRITE SAME; reported in page B0h, a longer one is refused.
pub(super) const WRITE_SAME_BYTES_MAX: u64 = 1 << 30;

#[derive(Clone, Copy)]
struct WriteSameFields {
    lba: u64,
    blocks: u64,
    unmap: bool,
    anchor: bool,
    no_data: bool,
    extent: Extent,
}

/// The fields, with the length that is meant.
fn parse_fields(command: &Cdb, device: &Device) -> Result<WriteSameFields, Sense> {
    let Cdb::WriteSame { lba, blocks, unmap, anchor, no_data, protect, tags } = *command else {
        return Err(Sense::new(asc::INTERNAL_FAILURE));
    };
    let extent = Extent { protect, tags, ..Extent::new(lba, blocks) };
    protected::wire_bytes(Extent { blocks: 0, ..extent }, device)?;
    if protect != 0 && no_data {
        return Err(extent.protect_error().sense());
    }
    if !extent.fits(device.blocks()) {
        return Err(Sense::new(asc::LBA_OUT_OF_RANGE));
    }
    let blocks = match blocks {
        0 if device.label().write_same_to_end => device.blocks().saturating_sub(lba),
        blocks => u64::from(blocks),
    };
    Ok(WriteSameFields { lba, blocks, unmap, anchor, no_data, extent })
}

pub(super) fn plan(command: &Cdb, device: &Device) -> Result<Plan, Sense> {
    let what = parse_fields(command, device)?;
    // ANCHOR has a meaning with UNMAP only.
    if what.anchor && (!what.unmap || !device.spec().can_anchor) {
        return Err(Sense::cdb_field(1, Some(4)));
    }
    if what.unmap && !device.spec().can_delete {
        return Err(Sense::cdb_field(1, Some(3)));
    }
    let bytes = what.blocks.saturating_mul(u64::from(device.block_bytes()));
    if what.blocks == 0 || bytes > WRITE_SAME_BYTES_MAX {
        return Err(Sense::new(asc::INVALID_FIELD_IN_CDB));
    }
    let tuple = if what.extent.protect != 0 { TUPLE_LEN as u32 } else { 0 };
    let out = if what.no_data { 0 } else { device.block_bytes() + tuple };
    Ok(Plan { exact: true, ..Plan::task(out).writing() }.at(what.lba, what.blocks))
}

pub(super) async fn write_same(job: &Job) -> Result<(), Ending> {
    let what = &parse_fields(&job.command, &job.device).map_err(Ending::Check)?;
    let (data, tuple) = protected::sent(job, Extent { blocks: 1, ..what.extent }).await?;
    let block = if what.no_data { Vec::new() } else { data.to_vec() };
    drop(data);
    if !what.no_data && block.len() != job.device.block_bytes() as usize {
        // The initiator sent less than the one block there must be.
        return Err(Ending::check(asc::INVALID_FIELD_IN_CDB));
    }
    if tuple.is_some() || block.iter().any(|b| *b != 0) {
        return repeat(job, what, &block, tuple.as_deref()).await;
    }
    let keep = if what.unmap && !what.anchor { Flags::NONE } else { Flags::NO_HOLE };
    let durable = !job.device.mode().has(ModeBits::WCE);
    let flags = if durable { keep | Flags::FUA } else { keep };
    let zeroed = job.range(Op::WriteZeroes, what.lba, what.blocks, flags).await;
    match zeroed {
        Ok(()) if durable => job.flush().await,
        Err(e) if e == ending_of(Errno::NotSup, Op::WriteZeroes) => {
            let zeroes = vec![0; job.device.block_bytes() as usize];
            repeat(job, what, &zeroes, None).await
        }
        other => other,
    }
}

/// Writes `block` over and over, a chunk at a time.
async fn repeat(
    job: &Job,
    what: &WriteSameFields,
    block: &[u8],
    tuple: Option<&[u8]>,
) -> Result<(), Ending> {
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
        let tuples = tuple.map(|tuple| protected::repeated(job, tuple, done, n));
        job.medium().write_as(what.lba + done, piece, tuples, false).await?;
        done += n;
    }
    Ok(())
}
