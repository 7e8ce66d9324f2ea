//! Writes that some members failed and others did, and that wait for the verdict on those members.
//!
//! ```text
//!   core       open (who waits for whom) --> accuse each member --> say that all is said
//!   geom          |       a member stays: refuse                         |
//!                 v            v                                         v
//!              waiting ----> refused                                   heard --> released
//! ```
//!
//! Invariants
//!  C1  Who waits is entered before anybody is accused: the geom may decide at once that a member
//!      stays, and whoever came later would never hear of it.
//!  C2  Nobody is let go well before the geom has heard all that he accuses: until then it has not
//!      begun to doubt these members, and that nothing is open says nothing about them.
//!  C3  Everybody gets one answer, at the latest when the court is closed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A case's number.
pub(crate) type Number = u64;

struct Case<W> {
    /// Members that failed (a bit each).
    failed: u64,
    heard: bool,
    who: W,
}

struct Cases<W> {
    all: BTreeMap<Number, Case<W>>,
    last: Number,
    closed: bool,
}

/// See the module. `W` is what is needed to answer who waits.
pub(crate) struct Court<W>(Mutex<Cases<W>>);

impl<W> Default for Court<W> {
    fn default() -> Self {
        Court(Mutex::new(Cases { all: BTreeMap::new(), last: 0, closed: false }))
    }
}

impl<W> Court<W> {
    fn cases(&self) -> MutexGuard<'_, Cases<W>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody waits for the verdict on members (a bit each). Members are accused after this, and
    /// then the geom is told the number (C1). `None`: nobody is left to judge.
    pub(crate) fn open(&self, failed: u64, who: W) -> Option<Number> {
        let mut cases = self.cases();
        if cases.closed {
            return None;
        }
        cases.last += 1;
        let number = cases.last;
        cases.all.insert(number, Case { failed, heard: false, who });
        Some(number)
    }

    /// The geom has heard all accusations of a case.
    pub(crate) fn heard(&self, number: Number) {
        if let Some(case) = self.cases().all.get_mut(&number) {
            case.heard = true;
        }
    }

    /// Those who wait for none of the members still `open` (a bit each; C2).
    #[must_use]
    pub(crate) fn released(&self, open: u64) -> Vec<W> {
        self.take(|case| case.heard && case.failed & open == 0)
    }

    /// Those who wait for one of these members (a bit each), which stay.
    #[must_use]
    pub(crate) fn refused(&self, stay: u64) -> Vec<W> {
        self.take(|case| case.failed & stay != 0)
    }

    /// Nobody judges any more: all who wait.
    #[must_use]
    pub(crate) fn closed(&self) -> Vec<W> {
        self.cases().closed = true;
        self.take(|_| true)
    }

    fn take(&self, goes: impl Fn(&Case<W>) -> bool) -> Vec<W> {
        let mut cases = self.cases();
        cases.all.extract_if(.., |_, case| goes(case)).map(|(_, case)| case.who).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c1_a_member_that_stays_refuses_who_has_only_entered() {
        let court = Court::default();
        court.open(0b01, 'a').expect("open");
        court.open(0b10, 'b').expect("open");
        assert_eq!(court.refused(0b01), ['a']);
        assert_eq!(court.refused(0b01), [], "one answer");
    }

    #[test]
    fn c2_who_was_not_heard_is_not_released() {
        let court = Court::default();
        let early = court.open(0b01, 'a').expect("open");
        // The geom, with something else in hand: it doubts nobody.
        assert_eq!(court.released(0), []);
        court.heard(early);
        assert_eq!(court.released(0b01), [], "it is doubted now");
        court.open(0b100, 'b').expect("open");
        assert_eq!(court.released(0b10), ['a'], "and that one is out");
        assert_eq!(court.released(0), []);
    }

    #[test]
    fn c3_all_are_answered_when_it_closes() {
        let court = Court::default();
        let heard = court.open(1, 'a').expect("open");
        court.open(2, 'b').expect("open");
        court.heard(heard);
        assert_eq!(court.closed(), ['a', 'b']);
        assert_eq!(court.open(1, 'c'), None);
        court.heard(heard);
        assert_eq!(court.closed(), []);
    }
}
