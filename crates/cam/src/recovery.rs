//! Recovery tables: the step that follows a CCB that did not end well.
//!
//! | answer | table |
//! | --- | --- |
//! | a status of the transport | [`STATUS`] |
//! | a SCSI status | [`SCSI_STATUS`] |
//! | sense data with an additional code that is known | [`CODES`] |
//! | other sense data | [`KEYS`] |
//!
//! A row gives the step, and the error of the request if the step does not lead to success. The
//! tables follow FreeBSD's CAM row by row; a row that differs has the reason.

use bio::Errno;
use wire::scsi::{Key, Sense};

use crate::ccb::{CamStatus, Outcome};

/// Recovery options of a periph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// SF_RETRY_UA: a command that a unit attention would fail is retried; disks want it.
    pub retry_attention: bool,
    /// SF_RETRY_BUSY: BUSY costs no retry.
    pub retry_busy: bool,
    /// A target that does not answer is called again before it is given up.
    pub retry_selection: bool,
}

impl Policy {
    /// Of disks.
    pub const DISK: Policy =
        Policy { retry_attention: true, retry_busy: false, retry_selection: true };
}

/// How long the queue stays frozen before the next try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pause {
    /// Not at all.
    None,
    /// So many ms.
    Ms(u32),
    /// Until another command ends, or for a while: [`BUSY_PAUSE_MIN_MS`], doubled after each try,
    /// at most [`BUSY_PAUSE_MAX_MS`].
    Completion,
}

/// Cure of a device that is not ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecoveryAction {
    /// TEST UNIT READY, again and again: it is becoming ready by itself.
    Wait,
    /// START UNIT.
    Start,
}

/// Scope of a loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// This logical unit.
    Lun,
    /// Every logical unit of the target.
    Target,
}

/// A recovery step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It ended well after all.
    Done,
    /// Again, at no cost: it was not its fault.
    Requeue,
    /// Again; costs a retry.
    Retry(Pause),
    /// Again until the request's time is over; free where [`Policy::retry_busy`].
    Busy(Pause),
    /// QUEUE FULL: fewer openings, then again at no cost. As [`Step::Busy`] for a command that was
    /// alone.
    Full(Pause),
    /// Made ready, then again; costs a retry.
    Recover(RecoveryAction),
    /// The end.
    Fail,
    /// Again where [`Policy::retry_selection`], then lost.
    Selection(Pause),
    /// The device was removed.
    Lost(Scope),
}

/// Further consequence of a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Consequence {
    /// Nothing.
    None,
    /// The capacity is to be read again.
    Capacity,
    /// Another medium may be in.
    MediumChanged,
    /// No medium is in.
    MediumGone,
    /// INQUIRY data are to be read again.
    Inquiry,
    /// The target's logical units are to be looked for.
    Rescan,
    /// Its access state is to be requested.
    Access,
}

/// Decision about one failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveryDecision {
    /// The step.
    pub step: Step,
    /// The error when that does not succeed.
    pub error: Errno,
    /// Further consequence.
    pub consequence: Consequence,
    /// The device reported a unit attention: all users that have it open are notified.
    pub attention: bool,
}

impl RecoveryDecision {
    /// It is this way to the medium that makes the command wait, or is closed: by another one it
    /// may be done at once.
    pub fn is_path_failure(&self) -> bool {
        match self.step {
            Step::Busy(_) | Step::Full(_) => true,
            Step::Recover(_) | Step::Fail => matches!(self.consequence, Consequence::Access),
            _ => false,
        }
    }
}

const fn row(step: Step, error: Errno) -> RecoveryDecision {
    RecoveryDecision { step, error, consequence: Consequence::None, attention: false }
}

const fn row_with(step: Step, error: Errno, note: Consequence) -> RecoveryDecision {
    RecoveryDecision { step, error, consequence: note, attention: false }
}

/// How long a target that does not answer is left alone.
pub const SELECTION_DELAY_MS: u32 = 1000;
/// How long after a SIM that is busy, or has no resources.
pub const BUSY_DELAY_MS: u32 = 500;
/// How long after a device that is busy: at first, and at most.
pub const BUSY_PAUSE_MIN_MS: u32 = 50;
pub const BUSY_PAUSE_MAX_MS: u32 = 4_000;
/// How long before a question is sent again that met such a device.
pub const BUSY_PROBE_MS: u32 = 1000;

const AGAIN: RecoveryDecision = row(Step::Retry(Pause::None), Errno::Io);
/// Not the medium failed, but the device or the way to it. EIO in CAM.
const FAULT: RecoveryDecision = row(Step::Retry(Pause::None), Errno::RemoteIo);
const ENDS: RecoveryDecision = row(Step::Fail, Errno::RemoteIo);
/// Without a reason. EIO in CAM.
const NOT_READY: RecoveryDecision = row(Step::Retry(Pause::None), Errno::NxIo);
const MALFORMED: RecoveryDecision = row(Step::Fail, Errno::Inval);
const VICTIM: RecoveryDecision = row(Step::Requeue, Errno::NxIo);
const SIM_BUSY: RecoveryDecision = row(Step::Retry(Pause::Ms(BUSY_DELAY_MS)), Errno::RemoteIo);

/// By status; [`CamStatus::ScsiError`] continues in the next table.
pub const STATUS: &[(CamStatus, RecoveryDecision)] = &[
    (CamStatus::Complete, row(Step::Done, Errno::Io)),
    (CamStatus::AutosenseFailed, ENDS),
    (CamStatus::SelectionTimeout, row(Step::Selection(Pause::Ms(SELECTION_DELAY_MS)), Errno::NxIo)),
    (CamStatus::NotThere, row(Step::Lost(Scope::Lun), Errno::NxIo)),
    (CamStatus::NoHba, row(Step::Lost(Scope::Target), Errno::NxIo)),
    (CamStatus::Invalid, MALFORMED),
    (CamStatus::LunInvalid, MALFORMED),
    (CamStatus::TargetInvalid, MALFORMED),
    (CamStatus::TooBig, MALFORMED),
    (CamStatus::CannotProvide, MALFORMED),
    // Innocent bystanders.
    (CamStatus::BusReset, VICTIM),
    (CamStatus::ResetSent, VICTIM),
    (CamStatus::Requeue, VICTIM),
    (CamStatus::Busy, SIM_BUSY),
    (CamStatus::NoResources, SIM_BUSY),
    (CamStatus::Aborted, FAULT),
    (CamStatus::CompletedError, FAULT),
    // EIO in CAM.
    (CamStatus::Timeout, row(Step::Retry(Pause::None), Errno::TimedOut)),
    (CamStatus::Parity, FAULT),
    (CamStatus::Overrun, FAULT),
    (CamStatus::BusFree, FAULT),
    (CamStatus::Terminated, FAULT),
    (CamStatus::HbaError, FAULT),
    (CamStatus::AtaError, AGAIN),
    (CamStatus::NexusLost, FAULT),
    (CamStatus::SmpError, FAULT),
];

/// COMMAND TERMINATED of SCSI-2: sense data have the reason, as with CHECK CONDITION.
const TERMINATED: u8 = 0x22;
const CHECK_CONDITION: u8 = 0x02;

/// By SCSI status. CHECK CONDITION and COMMAND TERMINATED are decided by the sense data. A status
/// without a row fails with EREMOTEIO.
pub const SCSI_STATUS: &[(u8, RecoveryDecision)] = &[
    (0x00, row(Step::Done, Errno::Io)),
    (0x04, row(Step::Done, Errno::Io)),
    // EIO in CAM, after as many tries as a request has retries.
    (0x08, row(Step::Busy(Pause::Completion), Errno::Busy)),
    (0x28, row(Step::Full(Pause::Completion), Errno::Busy)),
    // EIO in CAM; a host above has to learn that the disk is reserved, not that it is broken.
    (0x18, row(Step::Fail, Errno::Conflict)),
    // TASK ABORTED: another nexus reset the unit, which is as a reset of our own. EIO in CAM.
    (0x40, VICTIM),
];

/// By additional sense code; `None` as qualifier: every one that has no row of its own.
pub const CODES: &[(u8, Option<u8>, RecoveryDecision)] = &[
    (0x04, Some(0x00), NOT_READY),
    (0x04, Some(0x01), row(Step::Recover(RecoveryAction::Wait), Errno::Busy)),
    (0x04, Some(0x02), row(Step::Recover(RecoveryAction::Start), Errno::NxIo)),
    (0x04, Some(0x03), row(Step::Fail, Errno::NxIo)),
    (0x04, Some(0x04), row(Step::Fail, Errno::Busy)),
    // Asymmetric access: another way may do it at once.
    (
        0x04,
        Some(0x0a),
        row_with(Step::Recover(RecoveryAction::Wait), Errno::NxIo, Consequence::Access),
    ),
    (0x04, Some(0x0b), row_with(Step::Fail, Errno::NxIo, Consequence::Access)),
    (0x04, Some(0x0c), row_with(Step::Fail, Errno::NxIo, Consequence::Access)),
    (0x11, Some(0x00), row(Step::Fail, Errno::Io)),
    (0x20, Some(0x00), row(Step::Fail, Errno::Inval)),
    (0x25, Some(0x00), row(Step::Lost(Scope::Lun), Errno::NxIo)),
    (0x27, Some(0x07), row(Step::Fail, Errno::NoSpc)),
    (0x28, Some(0x00), row_with(Step::Fail, Errno::NxIo, Consequence::MediumChanged)),
    (0x29, None, row(Step::Fail, Errno::NxIo)),
    (0x2a, Some(0x06), row_with(Step::Retry(Pause::None), Errno::RemoteIo, Consequence::Access)),
    (0x2a, Some(0x07), row_with(Step::Retry(Pause::None), Errno::RemoteIo, Consequence::Access)),
    (0x2a, Some(0x09), row_with(Step::Retry(Pause::None), Errno::RemoteIo, Consequence::Capacity)),
    (0x38, Some(0x07), FAULT),
    (0x3a, None, row_with(Step::Fail, Errno::NxIo, Consequence::MediumGone)),
    (0x3f, Some(0x03), row_with(Step::Retry(Pause::None), Errno::RemoteIo, Consequence::Inquiry)),
    (0x3f, Some(0x0e), row_with(Step::Retry(Pause::None), Errno::RemoteIo, Consequence::Rescan)),
];

/// By sense key, for codes without a row and for 00/00. DATA PROTECT is EACCES in CAM, but EROFS
/// here, because that is its meaning for a disk's user.
pub const KEYS: &[(Key, RecoveryDecision)] = &[
    (Key::NoSense, row(Step::Done, Errno::Io)),
    (Key::RecoveredError, row(Step::Done, Errno::Io)),
    (Key::NotReady, NOT_READY),
    (Key::MediumError, AGAIN),
    (Key::HardwareError, FAULT),
    (Key::IllegalRequest, row(Step::Fail, Errno::Inval)),
    (Key::UnitAttention, row(Step::Fail, Errno::NxIo)),
    (Key::DataProtect, row(Step::Fail, Errno::RoFs)),
    (Key::BlankCheck, row(Step::Fail, Errno::NoSpc)),
    (Key::Vendor, ENDS),
    (Key::CopyAborted, ENDS),
    (Key::AbortedCommand, FAULT),
    (Key::VolumeOverflow, ENDS),
    // Answers, not failures.
    (Key::Miscompare, row(Step::Done, Errno::Io)),
    (Key::Completed, row(Step::Done, Errno::Io)),
];

/// A row that is in no table: the rest of each.
const UNKNOWN: RecoveryDecision = ENDS;

fn find<K: PartialEq>(table: &[(K, RecoveryDecision)], key: K) -> RecoveryDecision {
    table.iter().find(|(k, _)| *k == key).map_or(UNKNOWN, |(_, verdict)| *verdict)
}

/// Decides about an outcome.
pub fn judge(outcome: &Outcome, policy: Policy) -> RecoveryDecision {
    match outcome.status {
        CamStatus::ScsiError => match outcome.scsi_status {
            // Sense data that cannot be read are as good as none.
            CHECK_CONDITION | TERMINATED => match Sense::decode(outcome.sense.bytes()) {
                Ok(sense) => of_sense(&sense, policy),
                Err(_) => find(STATUS, CamStatus::AutosenseFailed),
            },
            status => find(SCSI_STATUS, status),
        },
        status => find(STATUS, status),
    }
}

fn of_sense(sense: &Sense, policy: Policy) -> RecoveryDecision {
    if sense.deferred {
        // It is about an earlier command; this one was not carried out.
        return AGAIN;
    }
    let code = sense.code;
    let known = (code.asc, code.ascq) != (0, 0);
    let exact = |(asc, ascq, _): &&(u8, Option<u8>, RecoveryDecision)| {
        *asc == code.asc && ascq.is_none_or(|q| q == code.ascq)
    };
    let own = CODES.iter().filter(|_| known).find(exact).map(|(.., verdict)| *verdict);
    let mut verdict = own.unwrap_or_else(|| find(KEYS, code.key));
    if code.key == Key::UnitAttention {
        verdict.attention = true;
        if verdict.step == Step::Fail && policy.retry_attention {
            verdict.step = Step::Retry(Pause::None);
        }
    }
    verdict
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
