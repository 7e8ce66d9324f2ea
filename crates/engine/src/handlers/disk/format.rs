//! FORMAT UNIT (SBC-3 5.3): every block reads as zeroes or as the pattern afterwards. FMTPINFO
//! chooses the type of protection where there is space for tuples, which INQUIRY reports (PROTECT);
//! the capacity is the same with all of them.

use wire::scsi::{Command as Cdb, Sense, asc, format_protection, parse_format_list};

use super::medium_operation::{MediumOperation, run};
use crate::job::Job;
use crate::plan::Plan;
use crate::status::Ending;
use crate::unit::Device;
use crate::unit::medium_state::MediumState;

/// Header of a short and of a long parameter list.
const SHORT_HEADER: u32 = 4;
const LONG_HEADER: u32 = 8;

/// Header and descriptor of the longest parameter list taken, besides its pattern.
const LIST_HEAD: u32 = LONG_HEADER + 4;

/// The list has no length in the CDB: as much is taken as the initiator has, up to the longest list
/// there can be. Without its header the list is missing, and the medium is not erased on a guess.
/// Defect lists of any format are as good: there are no defects.
pub(super) fn plan(command: &Cdb, device: &Device) -> Result<Plan, Sense> {
    let Cdb::FormatUnit { protect, long_list, data, .. } = *command else {
        return Err(Sense::new(asc::INTERNAL_FAILURE));
    };
    if protect != 0 && device.protection().is_none() {
        return Err(Sense::cdb_field(1, Some(7)));
    }
    match device.condition().state() {
        MediumState::Ready | MediumState::FormatCorrupted => {}
        _ => return Err(device.condition().refusal().unwrap_or_default()),
    }
    let (least, most) = match (data, long_list) {
        (false, _) => (0, 0),
        (true, false) => (SHORT_HEADER, LIST_HEAD + device.block_bytes()),
        (true, true) => (LONG_HEADER, LIST_HEAD + device.block_bytes()),
    };
    Ok(Plan { up_to: Some(least), ..Plan::task(most).writing() }.claiming())
}

pub(super) async fn format(job: &Job) -> Result<(), Ending> {
    let Cdb::FormatUnit { protect, long_list, .. } = job.command else {
        return Err(Ending::check(asc::INTERNAL_FAILURE));
    };
    let list = parse_format_list(long_list, &job.data.to_vec(), job.device.block_bytes());
    let list = list.map_err(Ending::Check)?;
    let kind = format_protection(protect, list.usage).map_err(Ending::Check)?;
    let work = MediumOperation {
        protection: Some(kind),
        sanitize: false,
        unrestricted: false,
        failed: false,
        free: list.pattern.is_none()
            && job.device.spec().can_delete
            && job.device.provisioning().reads_zero,
        invert: false,
        passes: u8::from(list.pattern.is_some()),
        pattern: list.pattern.unwrap_or_default(),
    };
    run(job, work, list.immed).await
}
