//! Why a connection ends.

use std::fmt;
use std::io;

use target::CloseReason;
use wire::WireError;

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The peer closed it between two PDUs.
    PeerClosed,
    /// The peer closed it inside a PDU.
    Cut,
    /// The network ended it.
    Lost(io::ErrorKind),
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
    /// The peer does not read what it is sent.
    NotReading,
    /// The peer does not send the write data that it owes.
    DataOverdue,
    /// The peer sent more refused PDUs than is bearable.
    TooManyRejects,
    /// The peer left the protocol in a way that cannot be answered.
    Protocol(&'static str),
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
    pub fn flushes(self) -> bool {
        matches!(
            self,
            Ending::Logout
                | Ending::Refused
                | Ending::Closed(_)
                | Ending::TooManyRejects
                | Ending::Protocol(_)
        )
    }

    /// Somebody should look at it.
    pub fn is_trouble(self) -> bool {
        !matches!(self, Ending::PeerClosed | Ending::Logout | Ending::Refused | Ending::Reinstated)
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::PeerClosed => f.write_str("the initiator closed the connection"),
            Ending::Cut => f.write_str("the connection ended inside a PDU"),
            Ending::Lost(kind) => write!(f, "the network ended the connection: {kind}"),
            Ending::Framing(e) => write!(f, "not a PDU that can be followed by another: {e}"),
            Ending::Logout => f.write_str("logged out"),
            Ending::Refused => f.write_str("login refused"),
            Ending::LoginTimeout => f.write_str("the login took too long"),
            Ending::Reinstated => f.write_str("a newer login has taken its place"),
            Ending::Closed(CloseReason::Kicked) => f.write_str("ended by the administrator"),
            Ending::Closed(CloseReason::TargetRemoved) => f.write_str("the target was removed"),
            Ending::Closed(CloseReason::ColdReset) => f.write_str("TARGET COLD RESET"),
            Ending::Silent => f.write_str("no answer to a ping"),
            Ending::NotReading => f.write_str("the initiator does not read what it is sent"),
            Ending::DataOverdue => {
                f.write_str("the initiator does not send the write data that it owes")
            }
            Ending::TooManyRejects => f.write_str("too many refused PDUs"),
            Ending::Protocol(what) => f.write_str(what),
            Ending::NoMemory => f.write_str("no memory for the connection"),
            Ending::MadeRoom => f.write_str("too many logins at once, this one was the oldest"),
        }
    }
}
