//! Counts of connections.

use std::cell::Cell;

/// Connections of one core since it started; all are closed but `accepted - closed` of them.
#[derive(Default)]
pub struct Counters {
    /// Connections that were accepted and admitted.
    pub accepted: Cell<u64>,
    /// Connections that were reset because the core (T4) or their peer (T6) had as many as it may
    /// have.
    pub refused: Cell<u64>,
    /// Connections that were closed (T3).
    pub closed: Cell<u64>,
    /// Those of them that were closed for a reason that is logged as a warning.
    pub troubled: Cell<u64>,
}

/// Counts one more.
pub(crate) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}
