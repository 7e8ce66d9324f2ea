//! COMPARE AND WRITE (SBC-3 5.2): if the blocks are what the first half of the data says, they
//! become what the second half says. Nothing else touches them in between.

use bio::Segs;
use wire::scsi::{Extent, Sense, asc};

use super::read_write;
use super::verify::first_difference;
use crate::device::Device;
use crate::handlers::{Job, Plan};
use crate::status::Ending;

/// Most blocks of one COMPARE AND WRITE: what the field in page B0h can say. More are refused.
pub(super) const COMPARE_BLOCKS_MAX: u8 = 255;

/// Most blocks at this unit: both halves have to fit in the largest transfer.
pub(super) fn blocks_max(device: &Device) -> u8 {
    let fit = device.transfer_max() / 2 / device.block_bytes();
    u8::try_from(fit).unwrap_or(COMPARE_BLOCKS_MAX)
}

/// The initiator must send two halves, neither more nor less.
pub(super) fn plan(extent: Extent, device: &Device) -> Result<Plan, Sense> {
    let bytes = read_write::check(extent, device)?;
    if extent.blocks > u32::from(blocks_max(device)) {
        return Err(Sense::cdb_field(13, None));
    }
    Ok(Plan { exact: true, ..Plan::task(bytes * 2).writing() }
        .at(extent.lba, u64::from(extent.blocks))
        .alone())
}

/// INFORMATION of a miscompare is the offset of the first byte that differs.
pub(super) async fn compare_write(job: &Job, extent: Extent) -> Result<(), Ending> {
    let half = job.data.len() / 2;
    if extent.blocks == 0 {
        return Ok(());
    }
    let medium = job.read(extent.lba, extent.blocks).await?;
    let (mut expected, mut wanted) = (Segs::new(), Segs::new());
    let cut =
        job.data.slice_into(0, half, &mut expected) && job.data.slice_into(half, half, &mut wanted);
    if !cut || medium.len() != half {
        return Err(Ending::check(asc::INTERNAL_FAILURE));
    }
    if let Some(at) = first_difference(&medium.to_vec(), &expected.to_vec()) {
        let sense = Sense::new(asc::MISCOMPARE).with_information(at as u64);
        return Err(Ending::Check(sense));
    }
    job.write(extent.lba, wanted, extent.fua).await
}
