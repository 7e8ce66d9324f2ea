//! Close reasons of NVMe/TCP connections.

use std::fmt;

use engine::CloseReason as EngineReason;
use transport::{CommonReason, Reason, Terms};
use wire::nvme::Fault;

const TERMS: Terms = Terms {
    peer: "host",
    request: "PDU",
    handshake: "connection",
    timeout: "connecting a queue took too long",
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The host disconnected the queue, or shut its controller down before.
    Disconnected,
    /// A reason that all protocols share.
    Common(CommonReason),
    /// The host violated the protocol, and was sent the fault.
    Fault(Fault),
    /// The host reported a fault of ours: FES.
    Terminated(u16),
    /// No target listens here any more, or no digest was agreed on.
    Refused(&'static str),
    /// The keep alive timer of the host expired.
    KeepAlive,
    /// The admin queue of its association has ended, or the controller was reset.
    AssociationOver,
    /// A namespace is another unit now.
    Exchanged,
    /// Our side wants it to end.
    Closed(EngineReason),
}

impl From<CommonReason> for CloseReason {
    fn from(reason: CommonReason) -> CloseReason {
        CloseReason::Common(reason)
    }
}

impl From<Fault> for CloseReason {
    fn from(fault: Fault) -> CloseReason {
        CloseReason::Fault(fault)
    }
}

impl Reason for CloseReason {
    fn common(&self) -> Option<&CommonReason> {
        match self {
            CloseReason::Common(reason) => Some(reason),
            _ => None,
        }
    }

    fn flushes(&self) -> bool {
        match self {
            CloseReason::Common(reason) => reason.flushes(),
            other => matches!(
                other,
                CloseReason::Disconnected | CloseReason::Fault(_) | CloseReason::Closed(_)
            ),
        }
    }

    fn is_warning(&self) -> bool {
        match self {
            CloseReason::Common(reason) => reason.is_warning(),
            other => !matches!(other, CloseReason::Disconnected | CloseReason::AssociationOver),
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseReason::Disconnected => f.write_str("disconnected"),
            CloseReason::Common(reason) => reason.describe(&TERMS, f),
            CloseReason::Fault(fault) => write!(f, "not served any further: {}", fault.description),
            CloseReason::Terminated(reason) => {
                write!(f, "the host ended it: fatal error status {reason}")
            }
            CloseReason::Refused(why) => f.write_str(why),
            CloseReason::KeepAlive => f.write_str("the keep alive timer expired"),
            CloseReason::AssociationOver => f.write_str("the association is over"),
            CloseReason::Exchanged => f.write_str("a namespace maps another unit now"),
            CloseReason::Closed(reason) => f.write_str(reason.description()),
        }
    }
}
