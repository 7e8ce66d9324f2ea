//! COMPARE AND WRITE (SBC-3 5.2): if the blocks equal the first half of the data, the second half
//! replaces them. No other command touches them in between.
//!
//! With WRPROTECT both halves have tuples, which are checked as those of a write of these blocks
//! are; the data is compared, tuples are not.

use bio::Segs;
use wire::scsi::{Extent, Sense, asc};

use super::protected;
use super::verify::first_difference;
use crate::job::Job;
use crate::plan::Plan;
use crate::status::Ending;
use crate::unit::Device;
use crate::unit::protection::Want;

/// Most blocks of one COMPARE AND WRITE: the maximum of the field in page B0h. More are refused.
pub(super) const COMPARE_BLOCKS_MAX: u8 = 255;

/// Most blocks at this unit: both halves have to fit in the largest transfer.
pub(super) fn blocks_max(device: &Device) -> u8 {
    let fit = device.transfer_max() / 2 / device.block_bytes();
    u8::try_from(fit).unwrap_or(COMPARE_BLOCKS_MAX)
}

/// The initiator must send two halves, neither more nor less.
pub(super) fn plan(extent: Extent, device: &Device) -> Result<Plan, Sense> {
    let bytes = protected::wire_bytes(extent, device)?;
    if extent.blocks > u32::from(blocks_max(device)) {
        return Err(Sense::cdb_field(13, None));
    }
    Ok(Plan { exact: true, ..Plan::task(bytes * 2).writing() }
        .at(extent.lba, u64::from(extent.blocks))
        .alone())
}

/// INFORMATION of a miscompare is the offset of the first differing byte in the sent data.
pub(super) async fn compare_write(job: &Job, extent: Extent) -> Result<(), Ending> {
    if extent.blocks == 0 {
        return Ok(());
    }
    let (both, tuples) = protected::apart(job, extent)?;
    let half = both.len() / 2;
    let (mut expected, mut wanted) = (Segs::new(), Segs::new());
    if !both.slice_into(0, half, &mut expected) || !both.slice_into(half, half, &mut wanted) {
        return Err(Ending::check(asc::INTERNAL_FAILURE));
    }
    drop(both);
    let mut new_tuples = None;
    if let Some(mut old) = tuples {
        let new = old.split_off(old.len() / 2);
        protected::check_tuples(job, extent, &expected, &old)?;
        protected::check_tuples(job, extent, &wanted, &new)?;
        new_tuples = Some(new);
    }
    // FUA applies to the write only.
    let want = Want { fua: false, ..protected::want(extent) };
    let (medium, _) = job.medium().read_as(extent.lba, extent.blocks, want).await?;
    if medium.len() != half {
        return Err(Ending::check(asc::INTERNAL_FAILURE));
    }
    if let Some(at) = first_difference(&medium.to_vec(), &expected.to_vec()) {
        let at = protected::offset_sent(extent, job.device.block_bytes(), at as u64);
        return Err(Ending::Check(Sense::new(asc::MISCOMPARE).with_information(at)));
    }
    drop(medium);
    job.medium().write_as(extent.lba, wanted, new_tuples, extent.fua).await
}
