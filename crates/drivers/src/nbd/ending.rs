//! Why a connection ends.

use std::fmt;

use engine::CloseReason;

use crate::common::cause::{Cause, Words};
use crate::common::pump;

const WORDS: Words = Words { peer: "client", request: "request", entry: "handshake" };

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The client said goodbye.
    Disconnected,
    /// We took leave between two requests.
    Retired,
    /// For no reason of the protocol's own.
    Line(Cause),
    /// The client left the handshake's rules, or asked for what it may not have.
    Refused(String),
    /// The client ended the handshake itself.
    Aborted,
    /// The handshake took too long.
    TooSlow,
    /// What arrived cannot be a request: no way to go on.
    Protocol(&'static str),
    /// TLS says no.
    Tls(String),
    /// Our side wants it to end.
    Closed(CloseReason),
    /// Another unit stands behind the export now.
    Exchanged,
    /// An error after the first data of a simple reply: there is no other way to tell.
    HalfAnswered,
}

impl From<Cause> for Ending {
    fn from(cause: Cause) -> Ending {
        Ending::Line(cause)
    }
}

impl pump::Ending for Ending {
    fn flushes(&self) -> bool {
        matches!(self, Ending::Disconnected | Ending::Aborted | Ending::Closed(_) | Ending::Tls(_))
    }

    fn is_trouble(&self) -> bool {
        match self {
            Ending::Line(cause) => cause.is_trouble(),
            other => !matches!(other, Ending::Disconnected | Ending::Retired | Ending::Aborted),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Disconnected => f.write_str("disconnected"),
            Ending::Retired => f.write_str("all is answered, no more is read"),
            Ending::Line(cause) => cause.say(&WORDS, f),
            Ending::Refused(why) => f.write_str(why),
            Ending::Aborted => f.write_str("the client ended the handshake"),
            Ending::TooSlow => f.write_str("the handshake took too long"),
            Ending::Protocol(what) => f.write_str(what),
            Ending::Tls(why) => write!(f, "TLS: {why}"),
            Ending::Closed(CloseReason::Kicked) => f.write_str("ended by the administrator"),
            Ending::Closed(CloseReason::TargetRemoved) => f.write_str("the target was removed"),
            Ending::Closed(CloseReason::ColdReset) => f.write_str("the target was reset"),
            Ending::Closed(CloseReason::Stopping) => f.write_str("the daemon stops"),
            Ending::Exchanged => f.write_str("the export is another unit now"),
            Ending::HalfAnswered => f.write_str("an error within the data of a reply"),
        }
    }
}
