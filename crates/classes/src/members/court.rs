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

use super::sync::{Mutex, MutexGuard};

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
        self.0.lock()
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
