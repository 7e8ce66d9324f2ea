//! VERIFY and WRITE AND VERIFY 10, 12, 16 (SBC-3 5.31, 5.36).
//!
//! BYTCHK 0 reads the blocks and looks no further; 1 compares them with as many blocks from the
//! initiator; 3 compares each with one block.

use bio::Segs;
use wire::scsi::{Extent, Sense, asc};

use super::read_write;
use crate::device::Device;
use crate::handlers::{Job, Plan};
use crate::status::Ending;

/// Bytes read, compared or written at a time, so that a long command shares the core.
pub(super) const CHUNK_BYTES: u32 = 256 * 1024;

pub(super) fn plan(extent: Extent, check: u8, device: &Device) -> Result<Plan, Sense> {
    let bytes = read_write::check(extent, device)?;
    Ok(Plan::task(match check {
        0 => 0,
        1 => bytes,
        _ if extent.blocks == 0 => 0,
        _ => device.block_bytes(),
    })
    .at(extent.lba, u64::from(extent.blocks)))
}

pub(super) fn plan_write(extent: Extent, device: &Device) -> Result<Plan, Sense> {
    let plan = Plan::task(read_write::check(extent, device)?).writing();
    Ok(plan.at(extent.lba, u64::from(extent.blocks)))
}

pub(super) async fn verify(job: &Job, extent: Extent, check: u8) -> Result<(), Ending> {
    let unit = job.device.block_bytes();
    if check == 3 && extent.blocks > 0 && job.data.len() != unit as usize {
        return Err(Ending::check(asc::INVALID_FIELD_IN_CDB));
    }
    let blocks = match check {
        1 => whole_blocks(job),
        _ => extent.blocks,
    };
    compare(job, extent.lba, blocks, check).await
}

/// Writes to the medium, then reads it back.
pub(super) async fn write_verify(job: &Job, extent: Extent, check: u8) -> Result<(), Ending> {
    let unit = job.device.block_bytes();
    if check == 3 {
        return Err(Ending::check(asc::INVALID_FIELD_IN_CDB));
    }
    let blocks = whole_blocks(job);
    if blocks == 0 {
        return Ok(());
    }
    let mut data = Segs::new();
    if !job.data.slice_into(0, blocks as usize * unit as usize, &mut data) {
        return Err(Ending::check(asc::INTERNAL_FAILURE));
    }
    job.write(extent.lba, data, true).await?;
    compare(job, extent.lba, blocks, check).await
}

/// Blocks that the initiator sent whole.
fn whole_blocks(job: &Job) -> u32 {
    let blocks = job.data.len() / job.device.block_bytes() as usize;
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

async fn compare(job: &Job, lba: u64, blocks: u32, check: u8) -> Result<(), Ending> {
    let unit = job.device.block_bytes();
    let chunk = (CHUNK_BYTES / unit).max(1);
    let mut done = 0;
    while done < blocks {
        let n = chunk.min(blocks - done);
        let medium = job.read(lba + u64::from(done), n).await?;
        let from = u64::from(done) * u64::from(unit);
        let differs = match check {
            0 => None,
            1 => {
                let mut theirs = Segs::new();
                let at = usize::try_from(from).unwrap_or(usize::MAX);
                if !job.data.slice_into(at, medium.len(), &mut theirs) {
                    return Err(Ending::check(asc::INTERNAL_FAILURE));
                }
                first_difference(&medium.to_vec(), &theirs.to_vec())
            }
            _ => {
                let (ours, theirs) = (medium.to_vec(), job.data.to_vec());
                ours.chunks(unit as usize)
                    .enumerate()
                    .find_map(|(i, b)| Some(i * unit as usize + first_difference(b, &theirs)?))
            }
        };
        if let Some(at) = differs {
            let sense = Sense::new(asc::MISCOMPARE).with_information(from + at as u64);
            return Err(Ending::Check(sense));
        }
        done += n;
    }
    Ok(())
}

/// Offset of the first byte of `a` that `b` does not have there.
pub(super) fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    let same = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    (same < a.len()).then_some(same)
}
