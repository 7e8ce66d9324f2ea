//! Refusals of the control path: a small kind for programs, a sentence for people.

use std::fmt;

use bio::Errno;

/// Why a change of the topology was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// For control flow.
    pub kind: Errno,
    /// What, where, and what to do next.
    pub message: String,
    /// Providers whose contents would be lost, and whose names were not given as consent.
    pub destroys: Vec<String>,
}

/// The constructors are cold: a thousand places refuse something, and the code of a refusal is not
/// put between that of requests.
impl Error {
    /// A refusal.
    #[cold]
    pub fn new(kind: Errno, what: impl Into<String>) -> Error {
        Error { kind, message: what.into(), destroys: Vec::new() }
    }

    /// A refusal of a parameter, or of a change that cannot be: which one, its value and its limit.
    #[cold]
    pub fn inval(what: impl Into<String>) -> Error {
        Error::new(Errno::Inval, what)
    }

    /// A refusal for want of consent to lose what these providers hold.
    pub fn destroying(mut self, providers: Vec<String>) -> Error {
        self.destroys = providers;
        self
    }

    /// A bare errno with the operation it ended.
    #[cold]
    pub fn of(kind: Errno, op: &str) -> Error {
        Error::new(kind, format!("{op}: {}", kind.text()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.kind.name())
    }
}

impl std::error::Error for Error {}
