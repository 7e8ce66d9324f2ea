//! Close reasons that connections of every protocol share.

use std::fmt;
use std::io;

/// Names of the close reasons that are counted: those of [`CommonReason`] in their order, and one
/// for all reasons that a protocol adds.
pub const CLOSE_REASONS: [&str; 10] = [
    "peer_closed",
    "truncated",
    "network",
    "not_reading",
    "data_overdue",
    "handshake_timeout",
    "tls",
    "no_memory",
    "displaced",
    "protocol",
];

/// Why a connection of any protocol is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommonReason {
    /// The peer closed it between two requests.
    PeerClosed,
    /// The peer closed it inside a request.
    Truncated,
    /// The network ended it.
    Lost(io::ErrorKind),
    /// The peer does not read the data sent to it.
    NotReading,
    /// The peer does not send the rest of a request, or data that it owes.
    DataOverdue,
    /// The handshake took too long.
    HandshakeTimeout,
    /// TLS failed.
    Tls(String),
    /// No memory for the connection.
    NoMemory,
    /// Too many connections were in the handshake; this one was the oldest.
    Displaced,
}

/// Terms of a protocol, for the log.
pub struct Terms {
    /// The other end: "initiator".
    pub peer: &'static str,
    /// The unit that it sends: "PDU".
    pub request: &'static str,
    /// The phase before the first request: "login".
    pub handshake: &'static str,
    /// The log text for a handshake that takes too long.
    pub timeout: &'static str,
}

/// Why a connection is closed, in the terms of its protocol; `Display` is the log line.
pub trait Reason: Clone + fmt::Display + From<CommonReason> + 'static {
    /// The reason, if all protocols share it.
    fn common(&self) -> Option<&CommonReason>;
    /// Queued bytes are sent before the connection is closed.
    fn flushes(&self) -> bool;
    /// It is logged as a warning. The default: a shared reason decides, and others are warnings.
    fn is_warning(&self) -> bool {
        self.common().is_none_or(CommonReason::is_warning)
    }
}

impl CommonReason {
    /// Place of its name in [`CLOSE_REASONS`].
    pub(crate) fn place(&self) -> usize {
        match self {
            CommonReason::PeerClosed => 0,
            CommonReason::Truncated => 1,
            CommonReason::Lost(_) => 2,
            CommonReason::NotReading => 3,
            CommonReason::DataOverdue => 4,
            CommonReason::HandshakeTimeout => 5,
            CommonReason::Tls(_) => 6,
            CommonReason::NoMemory => 7,
            CommonReason::Displaced => 8,
        }
    }

    /// The reason for an error of the network.
    pub fn lost(e: &io::Error) -> CommonReason {
        match e.kind() {
            io::ErrorKind::UnexpectedEof => CommonReason::Truncated,
            kind => CommonReason::Lost(kind),
        }
    }

    /// See [`Reason::flushes`]: an alert of TLS is sent.
    pub fn flushes(&self) -> bool {
        matches!(self, CommonReason::Tls(_))
    }

    /// See [`Reason::is_warning`].
    pub fn is_warning(&self) -> bool {
        *self != CommonReason::PeerClosed
    }

    /// Writes it in the terms of a protocol.
    pub fn describe(&self, terms: &Terms, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Terms { peer, request, handshake, timeout } = terms;
        match self {
            CommonReason::PeerClosed => write!(f, "the {peer} closed the connection"),
            CommonReason::Truncated => write!(f, "the connection ended inside a {request}"),
            CommonReason::Lost(kind) => write!(f, "the network ended the connection: {kind}"),
            CommonReason::NotReading => write!(f, "the {peer} does not read what it is sent"),
            CommonReason::DataOverdue => {
                write!(f, "the {peer} does not send the write data that it owes")
            }
            CommonReason::HandshakeTimeout => f.write_str(timeout),
            CommonReason::Tls(why) => write!(f, "TLS: {why}"),
            CommonReason::NoMemory => f.write_str("no memory for the connection"),
            CommonReason::Displaced => {
                write!(f, "too many {handshake}s at once, this one was the oldest")
            }
        }
    }
}
