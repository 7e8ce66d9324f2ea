//! Reason of a session's end that our side has decided.

/// Why a session is closed from our side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// An operator requested it.
    Kicked,
    /// The target is being taken away.
    TargetRemoved,
    ColdReset,
    /// The daemon ends. Pending commands get no answer on transports where the end of the
    /// connection reports this: the initiator repeats them to the next daemon.
    Stopping,
}

impl CloseReason {
    /// Text for the log.
    pub fn description(self) -> &'static str {
        match self {
            CloseReason::Kicked => "ended by the administrator",
            CloseReason::TargetRemoved => "the target was removed",
            CloseReason::ColdReset => "the target was reset",
            CloseReason::Stopping => "the daemon stops",
        }
    }
}
