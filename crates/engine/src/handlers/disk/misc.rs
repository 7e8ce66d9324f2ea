//! SYNCHRONIZE CACHE 10 and 16 (SBC-4 5.32, 5.33).

use wire::scsi::{Asc, Extent, Key, Sense, asc};

use crate::job::Job;
use crate::plan::Plan;
use crate::status::Ending;
use crate::unit::Device;

/// The whole medium is flushed regardless of the range.
pub(super) fn plan_sync(lba: u64, blocks: u32, device: &Device) -> Result<Plan, Sense> {
    let extent = Extent { lba, blocks, ..Extent::default() };
    match extent.fits(device.blocks()) {
        true => Ok(Plan::task(0)),
        false => Err(Sense::new(asc::LBA_OUT_OF_RANGE)),
    }
}

/// With IMMED the initiator receives GOOD when the command begins, and an error with its next
/// command (SPC-4 4.5.7). The end of an aborted or reset operation is not reported.
pub(super) async fn synchronize(job: &Job, immed: bool) -> Result<(), Ending> {
    if !immed {
        return job.flush().await;
    }
    job.respond_early();
    let end = job.medium().detached().flush().await;
    if let Err(ending) = end {
        job.nexus.raise(deferred(ending));
    }
    end
}

/// The error that is reported later. A status does not describe the state of the data.
fn deferred(ending: Ending) -> Asc {
    match ending {
        Ending::Check(sense) if sense.code.key != Key::UnitAttention => sense.code,
        _ => asc::WRITE_ERROR,
    }
}
