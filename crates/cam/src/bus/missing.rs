//! Disks that the configuration names and that are no longer at their places. They were taken away
//! in order at their targets, or are unreachable for longer than the deadline of their bus.
//!
//! Invariants
//!  M1  A scan that the bus starts itself takes in no other disk at the place of a missing one. It
//!      also takes in none for one that was exchanged under way (C6 of [`super::scan`]).
//!  M2  A disk that is found again, wherever that is, is not missing and was not exchanged.

use super::identity::{Comparison, Exchanged, compare, description_with_mark, is_mark_changed};
use super::{Bus, KnownDevice};
use crate::address::Path;
use crate::events::Event;
use crate::periph::Facts;

/// A disk that was at a place.
pub(super) struct Missing {
    /// The name of its disk.
    pub(super) name: String,
    facts: Facts,
    mark: Option<String>,
}

impl Missing {
    /// A disk as it is known.
    pub(super) fn of(known: &KnownDevice) -> Missing {
        Missing { name: known.name(), facts: known.facts.clone(), mark: known.mark.clone() }
    }

    /// Its last identification, for people.
    pub(super) fn description(&self) -> String {
        description_with_mark(&self.facts, self.mark.as_deref())
    }

    /// Whether a disk that reports this, with that mark, is this one.
    pub(super) fn is_same_as(&self, (is, mark): (&Facts, Option<&str>)) -> bool {
        compare(&self.facts, is) == Comparison::Same && !is_mark_changed(self.mark.as_deref(), mark)
    }
}

impl Bus {
    /// A disk leaves its place.
    pub(super) fn remember_missing(&self, path: Path, known: &KnownDevice) {
        let is_called = |(_, name): &(_, String)| self.wired_names.is_configured(name);
        if known.facts.is_disk() && known.provider.as_ref().is_some_and(is_called) {
            self.missing.lock().insert(path, Missing::of(known));
        }
    }

    /// No disk is missing at a place.
    pub(super) fn forget_missing(&self, path: Path) {
        self.missing.lock().remove(&path);
    }

    /// M1: true when a disk is another one than the one that is missing at its place.
    pub(super) fn is_in_place_of_missing(
        &self,
        path: Path,
        (is, mark): (&Facts, Option<&str>),
    ) -> bool {
        let Some(own) = self.missing.lock().remove(&path) else { return false };
        let is_other = match compare(&own.facts, is) {
            Comparison::Different => true,
            Comparison::Same => !own.is_same_as((is, mark)),
            Comparison::Formatted | Comparison::Unsure => false,
        };
        if !is_other || !self.wired_names.is_configured(&own.name) {
            return false;
        }
        self.log_event(path, Event::InquiryChanged);
        self.exchanged
            .lock()
            .insert(path, Exchanged { previous: own, current: description_with_mark(is, mark) });
        self.inbox.wake();
        true
    }

    /// M2: a disk is taken in. The device at its former place is probed again.
    pub(super) fn recheck_former_path(&self, path: Path, facts: &Facts) {
        self.forget_missing(path);
        let Some(identity) = facts.identity() else { return };
        let is_it = |own: &Missing| own.facts.identity().as_ref() == Some(&identity);
        self.missing.lock().retain(|_, own| !is_it(own));
        let mut exchanged = self.exchanged.lock();
        let before: Vec<Path> = exchanged.keys().copied().collect();
        exchanged.retain(|_, old| !is_it(&old.previous));
        let left = before.into_iter().filter(|path| !exchanged.contains_key(path));
        let left: Vec<Path> = left.collect();
        drop(exchanged);
        if let Some(bus) = self.weak_self.upgrade() {
            left.into_iter().for_each(|path| bus.request_scan(path.target));
        }
    }
}
