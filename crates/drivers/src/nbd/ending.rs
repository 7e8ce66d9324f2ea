//! Why a connection ends.

use std::fmt;
use std::io;

use target::CloseReason;

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The client said goodbye.
    Disconnected,
    /// The client closed it between two requests.
    PeerClosed,
    /// The client closed it inside a request.
    Cut,
    /// The network ended it.
    Lost(io::ErrorKind),
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
    /// The client does not read what it is sent.
    NotReading,
    /// No memory for the connection.
    NoMemory,
    /// Others that have just come need the place.
    MadeRoom,
}

impl Ending {
    /// From an error of the network.
    pub fn lost(e: &io::Error) -> Ending {
        match e.kind() {
            io::ErrorKind::UnexpectedEof => Ending::Cut,
            kind => Ending::Lost(kind),
        }
    }

    /// What is queued goes out first.
    pub fn flushes(&self) -> bool {
        matches!(self, Ending::Disconnected | Ending::Aborted | Ending::Closed(_) | Ending::Tls(_))
    }

    /// Somebody should look at it.
    pub fn is_trouble(&self) -> bool {
        !matches!(self, Ending::Disconnected | Ending::PeerClosed | Ending::Aborted)
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Disconnected => f.write_str("disconnected"),
            Ending::PeerClosed => f.write_str("the client closed the connection"),
            Ending::Cut => f.write_str("the connection ended inside a request"),
            Ending::Lost(kind) => write!(f, "the network ended the connection: {kind}"),
            Ending::Refused(why) => f.write_str(why),
            Ending::Aborted => f.write_str("the client ended the handshake"),
            Ending::TooSlow => f.write_str("the handshake took too long"),
            Ending::Protocol(what) => f.write_str(what),
            Ending::Tls(why) => write!(f, "TLS: {why}"),
            Ending::Closed(CloseReason::Kicked) => f.write_str("ended by the administrator"),
            Ending::Closed(CloseReason::TargetRemoved) => f.write_str("the target was removed"),
            Ending::Closed(CloseReason::ColdReset) => f.write_str("the target was reset"),
            Ending::Exchanged => f.write_str("the export is another unit now"),
            Ending::HalfAnswered => f.write_str("an error within the data of a reply"),
            Ending::NotReading => f.write_str("the client does not read what it is sent"),
            Ending::NoMemory => f.write_str("no memory for the connection"),
            Ending::MadeRoom => f.write_str("too many handshakes at once, this was the oldest"),
        }
    }
}
