//! VERIFY and WRITE AND VERIFY 10, 12, 16 (SBC-3 5.31, 5.36).
//!
//! BYTCHK 0 reads the blocks and looks no further; 1 compares them with as many blocks from the
//! initiator; 3 compares each with one block. Protection information on the medium is checked
//! always, that of the initiator when it sends some; it is not compared.

use bio::Segs;
use wire::scsi::{Extent, Sense, asc};

use super::protected;
use crate::device::Device;
use crate::handlers::{Job, Plan};
use crate::status::Ending;

/// Bytes read, compared or written at a time, so that a long command shares the core.
pub(super) const CHUNK_BYTES: u32 = 256 * 1024;

pub(super) fn plan(extent: Extent, check: u8, device: &Device) -> Result<Plan, Sense> {
    let bytes = protected::wire_bytes(extent, device)?;
    if extent.protect != 0 && check == 3 {
        return Err(extent.protect_error().sense());
    }
    Ok(Plan::task(match check {
        0 => 0,
        1 => bytes,
        _ if extent.blocks == 0 => 0,
        _ => device.block_bytes(),
    })
    .at(extent.lba, u64::from(extent.blocks)))
}

pub(super) fn plan_write(extent: Extent, device: &Device) -> Result<Plan, Sense> {
    let plan = Plan::task(protected::wire_bytes(extent, device)?).writing();
    Ok(plan.at(extent.lba, u64::from(extent.blocks)))
}

pub(super) async fn verify(job: &Job, extent: Extent, check: u8) -> Result<(), Ending> {
    let unit = job.device.block_bytes();
    if check == 3 && extent.blocks > 0 && job.data.len() != unit as usize {
        return Err(Ending::check(asc::INVALID_FIELD_IN_CDB));
    }
    if check == 1 {
        let (theirs, _) = protected::sent(job, extent).await?;
        let blocks = whole_blocks(job, &theirs);
        return compare(job, Extent { blocks, ..extent }, check, &theirs).await;
    }
    compare(job, extent, check, &job.data).await
}

/// Writes to the medium, then reads it back.
pub(super) async fn write_verify(job: &Job, extent: Extent, check: u8) -> Result<(), Ending> {
    if check == 3 {
        return Err(Ending::check(asc::INVALID_FIELD_IN_CDB));
    }
    let (data, tuples) = protected::sent(job, extent).await?;
    let blocks = whole_blocks(job, &data);
    if blocks == 0 {
        return Ok(());
    }
    let mut theirs = Segs::new();
    if !data.slice_into(0, data.len(), &mut theirs) {
        return Err(Ending::check(asc::INTERNAL_FAILURE));
    }
    job.medium().write_as(extent.lba, data, tuples, true).await?;
    compare(job, Extent { blocks, ..extent }, check, &theirs).await
}

/// Blocks that the initiator sent whole.
fn whole_blocks(job: &Job, data: &Segs) -> u32 {
    let blocks = data.len() / job.device.block_bytes() as usize;
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

async fn compare(job: &Job, extent: Extent, check: u8, with: &Segs) -> Result<(), Ending> {
    let blocks = extent.blocks;
    let unit = job.device.block_bytes();
    let chunk = (CHUNK_BYTES / unit).max(1);
    let mut done = 0;
    while done < blocks {
        let n = chunk.min(blocks - done);
        let lba = extent.lba + u64::from(done);
        let mut want = protected::want(extent);
        if let Some(tags) = &mut want.tags {
            tags.reference = tags.reference.wrapping_add(done);
        }
        let (medium, _) = job.medium().read_as(lba, n, want).await?;
        let from = u64::from(done) * u64::from(unit);
        let differs = match check {
            0 => None,
            1 => {
                let mut theirs = Segs::new();
                let at = usize::try_from(from).unwrap_or(usize::MAX);
                if !with.slice_into(at, medium.len(), &mut theirs) {
                    return Err(Ending::check(asc::INTERNAL_FAILURE));
                }
                first_difference(&medium.to_vec(), &theirs.to_vec())
            }
            _ => {
                let (ours, theirs) = (medium.to_vec(), with.to_vec());
                ours.chunks(unit as usize)
                    .enumerate()
                    .find_map(|(i, b)| Some(i * unit as usize + first_difference(b, &theirs)?))
            }
        };
        if let Some(at) = differs {
            let at = protected::offset_sent(extent, unit, from + at as u64);
            return Err(Ending::Check(Sense::new(asc::MISCOMPARE).with_information(at)));
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
