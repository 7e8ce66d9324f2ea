//! Close reasons of iSCSI connections.

use std::fmt;

use engine::CloseReason as EngineReason;
use transport::{CommonReason, Reason, Terms};
use wire::WireError;

const TERMS: Terms = Terms {
    peer: "initiator",
    request: "PDU",
    handshake: "login",
    timeout: "the login took too long",
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// A reason that all protocols share.
    Common(CommonReason),
    /// The received bytes are not a PDU, or its header digest is wrong: the next PDU is not found.
    Framing(WireError),
    /// The initiator logged out.
    Logout,
    /// A login was refused, and the initiator has the answer.
    Refused,
    /// A newer login has replaced the session.
    Reinstated,
    /// Our side wants the session to end.
    Closed(EngineReason),
    /// No answer to a ping.
    Silent,
    /// The peer sent too many refused PDUs.
    TooManyRejects,
    /// The peer violated the protocol in a way that cannot be answered.
    Protocol(&'static str),
}

impl From<CommonReason> for CloseReason {
    fn from(reason: CommonReason) -> CloseReason {
        CloseReason::Common(reason)
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
                CloseReason::Logout
                    | CloseReason::Refused
                    | CloseReason::Closed(_)
                    | CloseReason::TooManyRejects
                    | CloseReason::Protocol(_)
            ),
        }
    }

    fn is_warning(&self) -> bool {
        match self {
            CloseReason::Common(reason) => reason.is_warning(),
            other => !matches!(
                other,
                CloseReason::Logout | CloseReason::Refused | CloseReason::Reinstated
            ),
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseReason::Common(reason) => reason.describe(&TERMS, f),
            CloseReason::Framing(e) => write!(f, "broken PDU framing: {e}"),
            CloseReason::Logout => f.write_str("logged out"),
            CloseReason::Refused => f.write_str("login refused"),
            CloseReason::Reinstated => f.write_str("a newer login has taken its place"),
            CloseReason::Closed(EngineReason::ColdReset) => f.write_str("TARGET COLD RESET"),
            CloseReason::Closed(reason) => f.write_str(reason.description()),
            CloseReason::Silent => f.write_str("no answer to a ping"),
            CloseReason::TooManyRejects => f.write_str("too many refused PDUs"),
            CloseReason::Protocol(what) => f.write_str(what),
        }
    }
}
