//! Why a connection ends.

use std::fmt;

use engine::CloseReason;
use wire::WireError;

use crate::common::cause::{Cause, Words};
use crate::common::pump;

const WORDS: Words = Words { peer: "initiator", request: "PDU", entry: "login" };

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// For no reason of the protocol's own.
    Line(Cause),
    /// What arrived cannot be a PDU, or its header digest does not agree: no way to go on.
    Framing(WireError),
    /// The initiator logged out.
    Logout,
    /// A login was refused and has been told.
    Refused,
    /// The login took too long.
    LoginTimeout,
    /// A newer login has taken the session's place.
    Reinstated,
    /// Our side wants the session to end.
    Closed(CloseReason),
    /// No answer to a ping.
    Silent,
    /// The peer sent more refused PDUs than is bearable.
    TooManyRejects,
    /// The peer left the protocol in a way that cannot be answered.
    Protocol(&'static str),
}

impl From<Cause> for Ending {
    fn from(cause: Cause) -> Ending {
        Ending::Line(cause)
    }
}

impl pump::Ending for Ending {
    fn flushes(&self) -> bool {
        matches!(
            self,
            Ending::Logout
                | Ending::Refused
                | Ending::Closed(_)
                | Ending::TooManyRejects
                | Ending::Protocol(_)
        )
    }

    fn is_trouble(&self) -> bool {
        match self {
            Ending::Line(cause) => cause.is_trouble(),
            other => !matches!(other, Ending::Logout | Ending::Refused | Ending::Reinstated),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Line(cause) => cause.say(&WORDS, f),
            Ending::Framing(e) => write!(f, "not a PDU that can be followed by another: {e}"),
            Ending::Logout => f.write_str("logged out"),
            Ending::Refused => f.write_str("login refused"),
            Ending::LoginTimeout => f.write_str("the login took too long"),
            Ending::Reinstated => f.write_str("a newer login has taken its place"),
            Ending::Closed(CloseReason::Kicked) => f.write_str("ended by the administrator"),
            Ending::Closed(CloseReason::TargetRemoved) => f.write_str("the target was removed"),
            Ending::Closed(CloseReason::ColdReset) => f.write_str("TARGET COLD RESET"),
            Ending::Closed(CloseReason::Stopping) => f.write_str("the daemon stops"),
            Ending::Silent => f.write_str("no answer to a ping"),
            Ending::TooManyRejects => f.write_str("too many refused PDUs"),
            Ending::Protocol(what) => f.write_str(what),
        }
    }
}
