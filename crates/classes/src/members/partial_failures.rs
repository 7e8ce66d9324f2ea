//! Waiting writes that failed on some members and succeeded on others, until the verdict on the
//! failed members.
//!
//! ```text
//!   core       open (waiting write) --> accuse each member --> report that all are accused
//!   geom          |       a member stays: refuse                         |
//!                 v            v                                         v
//!              waiting ----> refused                                   heard --> released
//! ```
//!
//! Invariants
//!  C1  A waiting write is entered before any member is accused. The geom may decide at once that a
//!      member stays, and a write entered later would miss that decision.
//!  C2  A waiting write is not released before the geom has received all its accusations. Until
//!      then the geom has not begun to doubt these members, and the absence of open doubts proves
//!      nothing.
//!  C3  Each waiting write gets one answer, at the latest when the list is closed.

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

/// See the module. `W` is the data that is needed to answer a waiting write.
pub(crate) struct PartialFailures<W>(Mutex<Cases<W>>);

impl<W> Default for PartialFailures<W> {
    fn default() -> Self {
        PartialFailures(Mutex::new(Cases { all: BTreeMap::new(), last: 0, closed: false }))
    }
}

impl<W> PartialFailures<W> {
    fn cases(&self) -> MutexGuard<'_, Cases<W>> {
        self.0.lock()
    }

    /// Enters a write that waits for a decision on the members in `failed` (a bit each). The
    /// members are accused after this, and then the geom is sent the number (C1). `None`: the list
    /// is closed.
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

    /// The geom has received all accusations of a case.
    pub(crate) fn heard(&self, number: Number) {
        if let Some(case) = self.cases().all.get_mut(&number) {
            case.heard = true;
        }
    }

    /// Takes out the writes that wait for none of the members still `open` (a bit each; C2).
    #[must_use]
    pub(crate) fn released(&self, open: u64) -> Vec<W> {
        self.take(|case| case.heard && case.failed & open == 0)
    }

    /// Takes out the writes that wait for one of these members (a bit each), which stay.
    #[must_use]
    pub(crate) fn refused(&self, stay: u64) -> Vec<W> {
        self.take(|case| case.failed & stay != 0)
    }

    /// Closes the list and returns all waiting writes.
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
