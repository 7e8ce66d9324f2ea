//! Faults of metadata: wrong values, and values that a format cannot express.

use crate::probe::{ProbeError, Reason};
use std::fmt;

/// A field and its problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Small kind, for control flow.
    pub reason: Reason,
    /// The field, in words of the format's description.
    pub field: &'static str,
    /// The problem, for people.
    pub problem: String,
}

impl Fault {
    pub(crate) fn new(reason: Reason, field: &'static str, what: impl Into<String>) -> Self {
        Self { reason, field, problem: what.into() }
    }

    pub(crate) fn value(field: &'static str, what: impl Into<String>) -> Self {
        Self::new(Reason::Value, field, what)
    }

    /// The same as a probe states it, about byte `at` of the media.
    pub(crate) fn to_probe_error(&self, at: u64) -> ProbeError {
        ProbeError::new(self.reason, at, self.field)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.field, self.problem)
    }
}

impl std::error::Error for Fault {}
