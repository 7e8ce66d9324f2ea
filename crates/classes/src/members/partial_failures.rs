//! Waiting writes that failed on some members and succeeded on others, until the decision on the
//! failed members.
//!
//! ```text
//!   core       open (waiting write) --> report each member --> report that all are sent
//!   geom          |       a member stays: refuse                         |
//!                 v            v                                         v
//!              waiting ----> refused                              all reported --> released
//! ```
//!
//! Invariants
//!  C1  A waiting write is entered before any failure is reported. The geom may decide at once that
//!      a member stays, and a write entered later would miss that decision.
//!  C2  A waiting write is not released before the geom has received all its failures. Until
//!      then the geom has not begun to doubt these members, and the absence of open doubts proves
//!      nothing.
//!  C3  Each waiting write gets one answer, at the latest when the list is closed.

use std::collections::BTreeMap;

use super::sync::{Mutex, MutexGuard};

/// A case's number.
pub(crate) type FailureId = u64;

struct FailedWrite<W> {
    /// Members that failed (a bit each).
    failed: u64,
    reported: bool,
    waiter: W,
}

struct FailedWrites<W> {
    all: BTreeMap<FailureId, FailedWrite<W>>,
    last: FailureId,
    closed: bool,
}

/// See the module. `W` is the data that is needed to answer a waiting write.
pub(crate) struct PartialFailures<W>(Mutex<FailedWrites<W>>);

impl<W> Default for PartialFailures<W> {
    fn default() -> Self {
        PartialFailures(Mutex::new(FailedWrites { all: BTreeMap::new(), last: 0, closed: false }))
    }
}

impl<W> PartialFailures<W> {
    fn lock(&self) -> MutexGuard<'_, FailedWrites<W>> {
        self.0.lock()
    }

    /// Enters a write that waits for a decision on the members in `failed` (a bit each). The
    /// failures are reported after this, and then the geom is sent the number (C1). `None`: the
    /// list is closed.
    pub(crate) fn open(&self, failed: u64, who: W) -> Option<FailureId> {
        let mut cases = self.lock();
        if cases.closed {
            return None;
        }
        cases.last += 1;
        let number = cases.last;
        cases.all.insert(number, FailedWrite { failed, reported: false, waiter: who });
        Some(number)
    }

    /// The geom has received all failures of a case.
    pub(crate) fn set_reported(&self, number: FailureId) {
        if let Some(case) = self.lock().all.get_mut(&number) {
            case.reported = true;
        }
    }

    /// Takes out the writes that wait for none of the members still `open` (a bit each; C2).
    #[must_use]
    pub(crate) fn released(&self, open: u64) -> Vec<W> {
        self.take(|case| case.reported && case.failed & open == 0)
    }

    /// Takes out the writes that wait for one of these members (a bit each), which stay.
    #[must_use]
    pub(crate) fn refused(&self, stay: u64) -> Vec<W> {
        self.take(|case| case.failed & stay != 0)
    }

    /// Closes the list and returns all waiting writes.
    #[must_use]
    pub(crate) fn closed(&self) -> Vec<W> {
        self.lock().closed = true;
        self.take(|_| true)
    }

    fn take(&self, goes: impl Fn(&FailedWrite<W>) -> bool) -> Vec<W> {
        let mut cases = self.lock();
        cases.all.extract_if(.., |_, case| goes(case)).map(|(_, case)| case.waiter).collect()
    }
}
