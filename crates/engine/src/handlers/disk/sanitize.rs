//! SANITIZE (SBC-3 5.24), for units whose owner has allowed it: OVERWRITE, BLOCK ERASE,
//! CRYPTOGRAPHIC ERASE, EXIT FAILURE MODE.
//!
//! CRYPTOGRAPHIC ERASE has no key to discard, because the stored data is not encrypted here. It has
//! the same effect for an initiator, that no old data can be read again, by writing noise over
//! every block. It takes as long as OVERWRITE.
//!
//! BLOCK ERASE writes zeroes to every block before it frees the blocks: after freeing alone the
//! layers below could still return old data.

use wire::scsi::{SanitizeAction, Sense, asc, parse_overwrite};

use super::medium_operation::{self, MediumOperation, run};
use crate::job::Job;
use crate::plan::Plan;
use crate::status::Ending;
use crate::unit::Device;
use crate::unit::medium_state::MediumState;

fn serves(action: SanitizeAction, device: &Device) -> bool {
    device.label().sanitize
        && match action {
            SanitizeAction::Overwrite
            | SanitizeAction::CryptographicErase
            | SanitizeAction::ExitFailureMode => true,
            SanitizeAction::BlockErase => device.spec().can_delete,
        }
}

/// The same of a service action's number.
pub(super) fn serves_code(code: u16, device: &Device) -> bool {
    let action = match code {
        0x01 => SanitizeAction::Overwrite,
        0x02 => SanitizeAction::BlockErase,
        0x03 => SanitizeAction::CryptographicErase,
        0x1F => SanitizeAction::ExitFailureMode,
        _ => return false,
    };
    serves(action, device)
}

/// Refused while something else is done to the medium, or while it is out; allowed after a failure.
pub(super) fn plan(
    action: SanitizeAction,
    ause: bool,
    len: u32,
    device: &Device,
) -> Result<Plan, Sense> {
    if !device.label().sanitize {
        return Err(Sense::new(asc::INVALID_OPCODE));
    }
    if !serves(action, device) {
        return Err(Sense::cdb_field(1, Some(4)));
    }
    let longest = device.block_bytes() + 4;
    let fits = match action {
        SanitizeAction::Overwrite => (5..=longest).contains(&len),
        _ => len == 0,
    };
    if !fits {
        return Err(Sense::cdb_field(7, None));
    }
    let condition = device.condition();
    match condition.state() {
        MediumState::Ready | MediumState::FormatCorrupted => {}
        MediumState::SanitizeFailed if action == SanitizeAction::ExitFailureMode => {
            if !condition.is_unrestricted() {
                return Err(condition.refusal().unwrap_or_default());
            }
        }
        MediumState::SanitizeFailed if ause && !condition.is_unrestricted() => {
            return Err(Sense::cdb_field(1, Some(5)));
        }
        MediumState::SanitizeFailed => {}
        _ => return Err(condition.refusal().unwrap_or_default()),
    }
    Ok(Plan { exact: true, ..Plan::task(len).writing() }.claiming())
}

pub(super) async fn sanitize(
    job: &Job,
    action: SanitizeAction,
    immed: bool,
    unrestricted: bool,
) -> Result<(), Ending> {
    let base = MediumOperation {
        protection: None,
        sanitize: true,
        unrestricted,
        failed: false,
        free: false,
        invert: false,
        passes: 1,
        pattern: Vec::new(),
    };
    match action {
        SanitizeAction::Overwrite => {
            let list = parse_overwrite(&job.data.to_vec(), job.device.block_bytes())
                .map_err(Ending::Check)?;
            let (invert, passes, pattern) = (list.invert, list.passes, list.pattern);
            run(job, MediumOperation { invert, passes, pattern, ..base }, immed).await
        }
        SanitizeAction::BlockErase => run(job, MediumOperation { free: true, ..base }, immed).await,
        SanitizeAction::ExitFailureMode => leave_failure(job).await,
        SanitizeAction::CryptographicErase => {
            let mut pattern = vec![0; job.device.block_bytes() as usize];
            job.core().reactor().fill_random(&mut pattern);
            run(job, MediumOperation { pattern, ..base }, immed).await
        }
    }
}

/// EXIT FAILURE MODE: makes a medium usable again after a failed SANITIZE, if that SANITIZE allowed
/// it (AUSE). Without a failure nothing changes.
async fn leave_failure(job: &Job) -> Result<(), Ending> {
    if job.device.condition().state() != MediumState::SanitizeFailed {
        return Ok(());
    }
    if let Some(protection) = job.device.protection() {
        // The remaining data is not a regular write: it is not checked.
        protection.end_format(&job.medium().begun()?, protection.kind()).await?;
    }
    if let Err(e) = medium_operation::save(&job.registry, &job.device, Vec::new()).await {
        return Err(crate::status::ending_of(e, bio::Op::Write));
    }
    let _ = job.device.condition().enter(&[MediumState::SanitizeFailed], MediumState::Ready);
    Ok(())
}
