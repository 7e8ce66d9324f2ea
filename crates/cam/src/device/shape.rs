//! Limits of a device: the length of its queue, and those of its recovery.

use crate::recovery::Policy;

/// How long a SIM has to end an aborted CCB, ns; then the device is reset.
pub const ABORT_GRACE_NS: u64 = 5_000_000_000;
/// How long a SIM has to end everything after a reset; then the device is lost.
pub const RESET_GRACE_NS: u64 = 10_000_000_000;
/// Time between two looks at a device that is becoming ready.
pub const READY_POLL_NS: u64 = 500_000_000;
/// Looks at a device that is becoming ready; then a request without a deadline fails.
pub const READY_POLLS_MAX: u16 = 120;
/// START UNITs that may fail before the request fails.
pub const STARTS_MAX: u16 = 4;
/// How often a CCB is queued again at no cost; after that it costs retries.
pub const REQUEUES_MAX: u16 = 1000;
/// CCBs that end well with all openings in use before QUEUE FULL is forgotten by one opening.
pub const RAISE_AFTER: u32 = 256;
/// How long TEST UNIT READY and START UNIT may take.
pub(super) const RECOVERY_TIMEOUT_MS: u32 = 60_000;

/// Which commands a device takes beside others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queueing {
    /// Each has a tag, and a task attribute where it is one of SCSI.
    Tagged,
    /// SATA's NCQ: READ and WRITE FPDMA QUEUED beside one another; any other command is alone.
    Ncq,
    /// None: each is alone, and has no tag.
    Untagged,
}

/// Properties of a device's queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Which commands may be under way together.
    pub queueing: Queueing,
    /// Never fewer openings, even if the device reports fewer.
    pub openings_min: u32,
    /// Never more in flight.
    pub openings_max: u32,
    /// Recovery options.
    pub policy: Policy,
}
