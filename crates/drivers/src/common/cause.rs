//! How connections end without a word of their protocol.

use std::fmt;
use std::io;

/// Why a connection of any protocol ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The peer closed it between two requests.
    PeerClosed,
    /// The peer closed it inside a request.
    Cut,
    /// The network ended it.
    Lost(io::ErrorKind),
    /// The peer does not read what it is sent.
    NotReading,
    /// The peer does not send what it has begun, or owes.
    DataOverdue,
    /// No memory for the connection.
    NoMemory,
    /// Others that have just come need the place.
    MadeRoom,
}

/// How a protocol calls things, for the journal.
pub(crate) struct Words {
    /// Who is at the other end.
    pub peer: &'static str,
    /// What it sends.
    pub request: &'static str,
    /// What comes before the first one.
    pub entry: &'static str,
}

impl Cause {
    /// From an error of the network.
    pub fn lost(e: &io::Error) -> Cause {
        match e.kind() {
            io::ErrorKind::UnexpectedEof => Cause::Cut,
            kind => Cause::Lost(kind),
        }
    }

    /// Somebody should look at it.
    pub fn is_trouble(self) -> bool {
        self != Cause::PeerClosed
    }

    /// In the words of a protocol.
    pub fn say(self, words: &Words, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Words { peer, request, entry } = words;
        match self {
            Cause::PeerClosed => write!(f, "the {peer} closed the connection"),
            Cause::Cut => write!(f, "the connection ended inside a {request}"),
            Cause::Lost(kind) => write!(f, "the network ended the connection: {kind}"),
            Cause::NotReading => write!(f, "the {peer} does not read what it is sent"),
            Cause::DataOverdue => {
                write!(f, "the {peer} does not send the write data that it owes")
            }
            Cause::NoMemory => f.write_str("no memory for the connection"),
            Cause::MadeRoom => write!(f, "too many {entry}s at once, this one was the oldest"),
        }
    }
}
