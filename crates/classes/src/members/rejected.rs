//! Providers that were refused although their metadata names the geom: for lists, for `status` and
//! for the journal.

use std::collections::VecDeque;

use geom::{GeomId, Severity, Topology};

/// Most that are kept; older ones are dropped.
pub(crate) const REFUSALS_MAX: usize = 16;

/// See the module. The latest reason of each provider, the oldest first.
#[derive(Default)]
pub(crate) struct Refusals(VecDeque<(String, String)>);

impl Refusals {
    /// Records that a provider was refused; the journal gets each refusal once.
    pub(crate) fn note(&mut self, t: &mut Topology, geom: GeomId, name: &str, why: &str) {
        if !self.0.iter().any(|(who, reason)| who == name && reason == why) {
            t.remark(geom, Severity::Degraded, &format!("{name} is refused: {why}"));
        }
        self.forget(name);
        if self.0.len() == REFUSALS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((name.to_owned(), why.to_owned()));
    }

    /// Removes a provider that was accepted or no longer holds the metadata.
    pub(crate) fn forget(&mut self, name: &str) {
        self.0.retain(|(who, _)| who != name);
    }

    /// A provider that was refused for a reason that begins so.
    pub(crate) fn because(&self, begins: &str) -> Option<&str> {
        self.0.iter().find(|(_, why)| why.starts_with(begins)).map(|(who, _)| who.as_str())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(who, _)| who.as_str())
    }

    /// Why a provider was refused.
    pub(crate) fn reason(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(who, _)| who == name).map(|(_, why)| why.as_str())
    }

    /// For a list, a line each.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        self.0.iter().map(|(who, why)| ("Refused", format!("{who}: {why}")))
    }

    /// Behind a sentence about members that are missing: it may be one of these.
    pub(crate) fn words(&self) -> String {
        self.0.iter().map(|(who, why)| format!("; {who} is refused: {why}")).collect()
    }
}
