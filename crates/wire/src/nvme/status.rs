//! Completion status (NVMe base 4.2.3) and its mapping from SCSI status and sense data.

use crate::scsi::{Key, Sense};

/// Status field without its phase: SC in bits 7:0, SCT in bits 10:8, CRD in bits 12:11, DNR in
/// bit 14.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status(pub u16);

/// Defines the codes from one list; those that no repetition helps have DNR.
macro_rules! statuses {
    ($($id:ident = $code:literal $(| $again:ident)?, $doc:literal;)*) => {
        impl Status {
            $(#[doc = $doc] pub const $id: Status = Status($code $(| $again)?);)*
        }
    };
}

/// DNR: sent once more it ends the same.
const DNR: u16 = 1 << 14;

/// CRD: sent once more after the first of the controller's delays.
const FIRST_DELAY: u16 = 1 << 11;

statuses! {
    SUCCESS = 0x000, "Successful Completion.";
    INVALID_OPCODE = 0x001 | DNR, "Invalid Command Opcode.";
    INVALID_FIELD = 0x002 | DNR, "Invalid Field in Command.";
    ID_CONFLICT = 0x003 | DNR, "Command ID Conflict.";
    INTERNAL = 0x006, "Internal Error.";
    ABORT_REQUESTED = 0x007, "Command Abort Requested.";
    FUSED_FAILED = 0x009, "Command Aborted due to Failed Fused Command.";
    FUSED_MISSING = 0x00a | DNR, "Command Aborted due to Missing Fused Command.";
    INVALID_NAMESPACE = 0x00b | DNR, "Invalid Namespace or Format.";
    SEQUENCE = 0x00c | DNR, "Command Sequence Error.";
    SGL_COUNT = 0x00e | DNR, "Invalid Number of SGL Descriptors.";
    SGL_LENGTH = 0x00f | DNR, "Data SGL Length Invalid.";
    SGL_TYPE = 0x011 | DNR, "SGL Descriptor Type Invalid.";
    SGL_OFFSET = 0x016 | DNR, "SGL Offset Invalid.";
    WRITE_PROTECTED = 0x020 | DNR, "Namespace is Write Protected.";
    INTERRUPTED = 0x021, "Command Interrupted: to be sent once more.";
    TRANSPORT = 0x022, "Transient Transport Error: a data digest did not agree.";
    LBA_OUT_OF_RANGE = 0x080 | DNR, "LBA Out of Range.";
    CAPACITY_EXCEEDED = 0x081 | DNR, "Capacity Exceeded: no space is left.";
    NOT_READY = 0x082, "Namespace Not Ready.";
    RESERVATION_CONFLICT = 0x083, "Reservation Conflict.";
    INVALID_LOG_PAGE = 0x109 | DNR, "Invalid Log Page.";
    EVENTS_EXCEEDED = 0x105 | DNR, "Asynchronous Event Request Limit Exceeded.";
    NOT_SAVEABLE = 0x10d | DNR, "Feature Identifier Not Saveable.";
    NOT_CHANGEABLE = 0x10e | DNR, "Feature Not Changeable.";
    CONNECT_FORMAT = 0x180 | DNR, "Connect Incompatible Format.";
    CONNECT_BUSY = 0x181, "Connect Controller Busy.";
    CONNECT_PARAMETER = 0x182, "Connect Invalid Parameters.";
    CONNECT_HOST = 0x184, "Connect Invalid Host.";
    WRITE_FAULT = 0x280, "Write Fault.";
    READ_ERROR = 0x281, "Unrecovered Read Error.";
    COMPARE_FAILURE = 0x285 | DNR, "Compare Failure.";
}

impl Status {
    /// Type and code, without the retry fields.
    pub fn code(self) -> u16 {
        self.0 & 0x7ff
    }

    /// The same for a host that keeps to delays (Advanced Command Retry Enable).
    #[must_use]
    pub fn delayed(self) -> Status {
        if self == Status::NOT_READY { Status(self.0 | FIRST_DELAY) } else { self }
    }

    /// It ended well.
    pub fn is_good(self) -> bool {
        self.code() == 0
    }
}

/// The outcome of a SCSI command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Good,
    /// A unit attention was reported first, or another initiator aborted it: send it once more.
    Again,
    /// For good.
    Failed(Status),
}

/// The NVMe result of a SCSI command; `writes` when it changes the medium.
pub fn outcome(status: u8, sense: Option<Sense>, writes: bool) -> Outcome {
    match status {
        // GOOD, CONDITION MET
        0x00 | 0x04 => Outcome::Good,
        // BUSY, TASK SET FULL: the wait for buffers failed.
        0x08 | 0x28 => Outcome::Failed(Status::INTERRUPTED),
        // TASK ABORTED, by another initiator
        0x40 => Outcome::Again,
        // RESERVATION CONFLICT
        0x18 => Outcome::Failed(Status::RESERVATION_CONFLICT),
        0x02 => sense.map_or(Outcome::Failed(Status::INTERNAL), |s| of_sense(s, writes)),
        _ => Outcome::Failed(Status::INTERNAL),
    }
}

fn of_sense(sense: Sense, writes: bool) -> Outcome {
    let code = sense.code;
    Outcome::Failed(match (code.key, code.asc, code.ascq) {
        (Key::RecoveredError | Key::NoSense, _, _) => return Outcome::Good,
        (Key::UnitAttention, _, _) => return Outcome::Again,
        // SPACE ALLOCATION FAILED WRITE PROTECT
        (Key::DataProtect, 0x27, 0x07) => Status::CAPACITY_EXCEEDED,
        (Key::DataProtect, _, _) => Status::WRITE_PROTECTED,
        (Key::NotReady, _, _) => Status::NOT_READY,
        (Key::MediumError, _, _) if writes => Status::WRITE_FAULT,
        (Key::MediumError, _, _) => Status::READ_ERROR,
        (Key::Miscompare, _, _) => Status::COMPARE_FAILURE,
        // LOGICAL BLOCK ADDRESS OUT OF RANGE
        (Key::IllegalRequest, 0x21, _) => Status::LBA_OUT_OF_RANGE,
        // LOGICAL UNIT NOT SUPPORTED
        (Key::IllegalRequest, 0x25, _) => Status::INVALID_NAMESPACE,
        (Key::IllegalRequest, 0x20, _) => Status::INVALID_OPCODE,
        (Key::IllegalRequest, _, _) => Status::INVALID_FIELD,
        _ => Status::INTERNAL,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::{Asc, asc};

    #[test]
    fn scsi_statuses_map_to_nvme_statuses() {
        let check = |code: Asc, writes| outcome(2, Some(Sense::new(code)), writes);
        let failed = Outcome::Failed;
        assert_eq!(outcome(0, None, true), Outcome::Good);
        assert_eq!(outcome(0x28, None, true), failed(Status::INTERRUPTED));
        assert_eq!(outcome(0x18, None, true), failed(Status::RESERVATION_CONFLICT));
        assert_eq!(outcome(0x40, None, true), Outcome::Again);
        assert_eq!(outcome(2, None, true), failed(Status::INTERNAL));
        assert_eq!(check(asc::CAPACITY_CHANGED, false), Outcome::Again);
        assert_eq!(check(asc::WRITE_PROTECTED, true), failed(Status::WRITE_PROTECTED));
        assert_eq!(check(asc::SPACE_EXHAUSTED, true), failed(Status::CAPACITY_EXCEEDED));
        assert_eq!(check(asc::LBA_OUT_OF_RANGE, false), failed(Status::LBA_OUT_OF_RANGE));
        assert_eq!(check(asc::MISCOMPARE, false), failed(Status::COMPARE_FAILURE));
        assert_eq!(check(asc::WRITE_ERROR, true), failed(Status::WRITE_FAULT));
        assert_eq!(check(asc::READ_ERROR, false), failed(Status::READ_ERROR));
        assert_eq!(check(asc::NOT_READY, false), failed(Status::NOT_READY));
    }

    #[test]
    fn retryable_statuses_have_the_dnr_bit_clear() {
        let retried = [Status::INTERRUPTED, Status::NOT_READY, Status::TRANSPORT];
        assert!(retried.iter().all(|s| s.0 & DNR == 0));
        let never = [Status::INVALID_FIELD, Status::COMPARE_FAILURE];
        assert!(never.iter().all(|s| s.0 & DNR != 0));
        assert_eq!(Status::COMPARE_FAILURE.code(), 0x285);
        assert_eq!(Status::NOT_READY.delayed(), Status(0x882));
        assert_eq!(Status::INTERRUPTED.delayed(), Status::INTERRUPTED);
    }
}
