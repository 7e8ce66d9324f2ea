//! Outcomes in CAM's terms of the kernel's answers.

use std::io;

use reactor::ScsiAnswer;

use crate::ccb::{CamStatus, Outcome, SenseData};

/// SCSI status of a command that succeeded (SAM-5 table 43).
const GOOD: u8 = 0;
/// DRIVER_TIMEOUT of the kernel's older mid-layers.
const DRIVER_TIMEOUT: u16 = 0x06;
const DRIVER_MASK: u16 = 0x0f;

/// An answer: DID_* of <scsi/scsi_status.h> first, since a status has no meaning when the way there
/// failed.
pub(super) fn of(answer: &ScsiAnswer) -> Outcome {
    let failed = match answer.host_status {
        0 if answer.driver_status & DRIVER_MASK == DRIVER_TIMEOUT => CamStatus::Timeout,
        0 => return device_outcome(answer),
        0x01 => CamStatus::SelectionTimeout,
        0x02 => CamStatus::Busy,
        0x03 => CamStatus::Timeout,
        0x04 => CamStatus::NotThere,
        0x05 => CamStatus::Aborted,
        0x06 => CamStatus::Parity,
        0x08 => CamStatus::BusReset,
        0x0b..=0x0d => CamStatus::Requeue,
        0x0e | 0x0f | 0x14 => CamStatus::NexusLost,
        // The device failed, not the way to it; sense data are behind it.
        0x10 | 0x12 | 0x13 if answer.status != GOOD => return device_outcome(answer),
        _ => CamStatus::HbaError,
    };
    Outcome { moved: answer.moved, ..Outcome::of(failed) }
}

fn device_outcome(answer: &ScsiAnswer) -> Outcome {
    if answer.status == GOOD {
        return Outcome::good(answer.moved);
    }
    let sense = answer.sense.get(..usize::from(answer.sense_len)).unwrap_or_default();
    Outcome {
        scsi_status: answer.status,
        sense: SenseData::new(sense),
        moved: answer.moved,
        ..Outcome::of(CamStatus::ScsiError)
    }
}

/// The kernel did not take the command.
pub(super) fn refused(error: &io::Error) -> CamStatus {
    const ENXIO: i32 = 6;
    const ENODEV: i32 = 19;
    const EDOM: i32 = 33;
    match error.raw_os_error() {
        Some(ENXIO | ENODEV) => CamStatus::SelectionTimeout,
        // It has all that it takes of one node.
        Some(EDOM) => CamStatus::Requeue,
        _ => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => CamStatus::NoResources,
            io::ErrorKind::PermissionDenied => CamStatus::CannotProvide,
            _ => CamStatus::Invalid,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bio::Segs;

    fn answer(host_status: u16, status: u8) -> ScsiAnswer {
        let (mut sense, data) = ([0; reactor::SENSE_MAX], Segs::new());
        sense[..3].copy_from_slice(&[0x70, 0, 0x06]);
        ScsiAnswer {
            tag: 0,
            status,
            host_status,
            driver_status: 0,
            moved: 512,
            sense,
            sense_len: 18,
            data,
        }
    }

    #[test]
    fn host_status_takes_precedence_over_scsi_status() {
        assert_eq!(of(&answer(0, 0)), Outcome::good(512));
        let check = of(&answer(0, 2));
        assert_eq!((check.status, check.scsi_status), (CamStatus::ScsiError, 2));
        assert_eq!(check.sense.bytes()[2], 6);
        assert_eq!(of(&answer(0, 0x28)).scsi_status, 0x28);
        for (host, status) in [
            (1, CamStatus::SelectionTimeout),
            (3, CamStatus::Timeout),
            (5, CamStatus::Aborted),
            (8, CamStatus::BusReset),
            (0x0d, CamStatus::Requeue),
            (0x0e, CamStatus::NexusLost),
            (0x10, CamStatus::HbaError),
            (0xff, CamStatus::HbaError),
        ] {
            assert_eq!(of(&answer(host, 0)).status, status, "DID {host:#x}");
        }
        assert_eq!(of(&answer(0x10, 2)).status, CamStatus::ScsiError);
        let late = ScsiAnswer { driver_status: 0x06, ..answer(0, 0) };
        assert_eq!(of(&late).status, CamStatus::Timeout);
    }

    #[test]
    fn errors_of_submission_map_to_cam_statuses() {
        let by = |code| refused(&io::Error::from_raw_os_error(code));
        assert_eq!(by(19), CamStatus::SelectionTimeout);
        assert_eq!(by(33), CamStatus::Requeue);
        assert_eq!(by(11), CamStatus::NoResources);
        assert_eq!(by(1), CamStatus::CannotProvide);
        assert_eq!(by(22), CamStatus::Invalid);
    }
}
