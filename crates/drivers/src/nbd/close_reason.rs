//! Close reasons of NBD connections.

use std::fmt;

use engine::CloseReason as EngineReason;
use transport::{CommonReason, Reason, Terms};

const TERMS: Terms = Terms {
    peer: "client",
    request: "request",
    handshake: "handshake",
    timeout: "the handshake took too long",
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    Disconnected,
    /// We ended it between two requests.
    Retired,
    /// A reason that all protocols share.
    Common(CommonReason),
    /// The client violated the handshake.
    Refused(String),
    /// The client requested an export that it cannot have, by an option that knows no answer for
    /// that. It was logged when it was refused.
    NoExport(String),
    /// The client ended the handshake itself.
    Aborted,
    /// The received bytes are not a request: the next one cannot be found.
    Protocol(&'static str),
    /// Our side wants it to end.
    Closed(EngineReason),
    /// The export is another unit now.
    Exchanged,
    /// An error after the first data of a simple reply, which cannot report it.
    HalfAnswered,
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
                CloseReason::Disconnected | CloseReason::Aborted | CloseReason::Closed(_)
            ),
        }
    }

    fn is_warning(&self) -> bool {
        match self {
            CloseReason::Common(reason) => reason.is_warning(),
            other => !matches!(
                other,
                CloseReason::Disconnected
                    | CloseReason::Retired
                    | CloseReason::Aborted
                    | CloseReason::NoExport(_)
            ),
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseReason::Disconnected => f.write_str("disconnected"),
            CloseReason::Retired => f.write_str("all requests are answered, and no more are read"),
            CloseReason::Common(reason) => reason.describe(&TERMS, f),
            CloseReason::Refused(why) | CloseReason::NoExport(why) => f.write_str(why),
            CloseReason::Aborted => f.write_str("the client ended the handshake"),
            CloseReason::Protocol(what) => f.write_str(what),
            CloseReason::Closed(reason) => f.write_str(reason.description()),
            CloseReason::Exchanged => f.write_str("the export maps another unit now"),
            CloseReason::HalfAnswered => f.write_str("an error within the data of a reply"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noted_refusal_is_no_second_warning() {
        assert!(!CloseReason::NoExport("none of that name".into()).is_warning());
        assert!(CloseReason::Refused("bytes in the clear".into()).is_warning());
    }
}
