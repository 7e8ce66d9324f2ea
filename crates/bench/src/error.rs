//! Errors of a measurement.

use std::fmt;
use std::io;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The options contradict each other or name nothing.
    Options,
    /// A program or package is missing.
    Missing,
    /// A server did not start, or ended early.
    Server,
    /// The target refused the login.
    Login,
    /// The target left the protocol, or ended the connection.
    Protocol,
    /// A command ended with another status than GOOD.
    Status,
    /// The data read back differs from the data written.
    Data,
    /// Something did not end in time.
    Timeout,
    /// The system refused something of ours.
    System,
    /// The user ended the run.
    Stopped,
}

/// A measurement that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub kind: Kind,
    /// The failed step, its place, and the way to fix it.
    pub message: String,
}

impl Error {
    /// Made of its parts.
    pub fn new(kind: Kind, what: impl Into<String>) -> Error {
        Error { kind, message: what.into() }
    }

    /// A refusal of the system; `what` was being done.
    pub(crate) fn system(what: impl fmt::Display, error: io::Error) -> Error {
        Error::new(Kind::System, format!("{what}: {error}"))
    }

    /// The same error, with its place in front of the message.
    pub(crate) fn within(self, place: &str) -> Error {
        Error { message: format!("{place}: {}", self.message), ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<wire::WireError> for Error {
    fn from(error: wire::WireError) -> Error {
        Error::new(Kind::Protocol, format!("the target's bytes: {error}"))
    }
}
