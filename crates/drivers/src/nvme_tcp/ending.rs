//! Why a connection ends.

use std::fmt;

use engine::CloseReason;
use wire::nvme::Fault;

use crate::common::cause::{Cause, Words};
use crate::common::pump;

const WORDS: Words = Words { peer: "host", request: "PDU", entry: "connection" };

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The host disconnected the queue, or shut its controller down before.
    Disconnected,
    /// For no reason of the protocol's own.
    Line(Cause),
    /// What the host sent cannot be: it was told so.
    Fault(Fault),
    /// The host says so of what we sent: FES.
    Terminated(u16),
    /// It took too long to become a queue.
    TooSlow,
    /// Nobody listens here any more, or no digest was agreed on.
    Refused(&'static str),
    /// Nothing was heard for as long as the host had said.
    KeepAlive,
    /// The admin queue of its association has ended, or the controller was reset.
    AssociationOver,
    /// Another unit stands behind a namespace now.
    Exchanged,
    /// Our side wants it to end.
    Closed(CloseReason),
}

impl From<Cause> for Ending {
    fn from(cause: Cause) -> Ending {
        Ending::Line(cause)
    }
}

impl From<Fault> for Ending {
    fn from(fault: Fault) -> Ending {
        Ending::Fault(fault)
    }
}

impl pump::Ending for Ending {
    fn flushes(&self) -> bool {
        matches!(self, Ending::Disconnected | Ending::Fault(_) | Ending::Closed(_))
    }

    fn is_trouble(&self) -> bool {
        match self {
            Ending::Line(cause) => cause.is_trouble(),
            other => !matches!(other, Ending::Disconnected | Ending::AssociationOver),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Disconnected => f.write_str("disconnected"),
            Ending::Line(cause) => cause.say(&WORDS, f),
            Ending::Fault(fault) => write!(f, "not served any further: {}", fault.what),
            Ending::Terminated(reason) => {
                write!(f, "the host ended it: fatal error status {reason}")
            }
            Ending::TooSlow => f.write_str("it took too long to connect a queue"),
            Ending::Refused(why) => f.write_str(why),
            Ending::KeepAlive => f.write_str("the keep alive timer expired"),
            Ending::AssociationOver => f.write_str("the association is over"),
            Ending::Exchanged => f.write_str("a namespace is another unit now"),
            Ending::Closed(CloseReason::Kicked) => f.write_str("ended by the administrator"),
            Ending::Closed(CloseReason::TargetRemoved) => f.write_str("the target was removed"),
            Ending::Closed(CloseReason::ColdReset) => f.write_str("the target was reset"),
            Ending::Closed(CloseReason::Stopping) => f.write_str("the daemon stops"),
        }
    }
}
