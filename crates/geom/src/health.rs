//! Conditions of a geom that need attention, and its events: for `status` and the journal.

/// Severity of a condition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Severity {
    /// As it should be.
    #[default]
    Good,
    /// It works, with less than it should have, or not for ever.
    Degraded,
    /// It does not work.
    Failed,
}

/// A condition that needs attention, as long as it lasts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trouble {
    pub severity: Severity,
    /// The problem, with the name of the member or the place.
    pub why: String,
    /// The action to take: the commands to type, or that there is nothing to do.
    pub action: String,
}

impl Trouble {
    /// The state is as requested, but may surprise an operator.
    pub fn noted(why: impl Into<String>, action: impl Into<String>) -> Trouble {
        Trouble { severity: Severity::Good, why: why.into(), action: action.into() }
    }

    /// It works, but not as it should.
    pub fn degraded(why: impl Into<String>, action: impl Into<String>) -> Trouble {
        Trouble { severity: Severity::Degraded, why: why.into(), action: action.into() }
    }

    /// It does not work.
    pub fn failed(why: impl Into<String>, action: impl Into<String>) -> Trouble {
        Trouble { severity: Severity::Failed, why: why.into(), action: action.into() }
    }
}

/// An event of a geom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remark<'a> {
    pub class: &'static str,
    pub name: &'a str,
    /// The severity after the event.
    pub severity: Severity,
    /// The event in words.
    pub text: &'a str,
}

/// Receiver of remarks, on the thread of the graph: it must not wait for anything.
pub type Listener = Box<dyn FnMut(&Remark<'_>) + Send>;
