//! Commands for the device and their results, answers to writers, and counters of a queue.

use std::ops::Range;

use crate::ranges::len;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    /// For [`Queue::ended`](super::Queue::ended).
    pub number: u64,
    /// Ascending; each is whole granules.
    pub ranges: Vec<Range<u64>>,
}

impl Command {
    /// Units in it.
    pub fn total(&self) -> u64 {
        self.ranges.iter().map(len).sum()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The device has taken it.
    Done,
    /// It has refused it, or failed; it will not carry it out later.
    Failed,
    /// It does not know such a command: no other is sent.
    Unsupported,
    /// The device did not answer, and may still carry it out.
    Unknown,
}

/// The answer to a writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteCheck {
    /// Continue.
    Clear,
    /// A command in flight covers some of it: wait until it has ended, then check again.
    Wait,
}

/// Counters of a queue, in its unit.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Calls of `free`.
    pub freed_calls: u64,
    pub freed: u64,
    /// Units that were written again before they were sent.
    pub taken_back: u64,
    pub commands: u64,
    /// Ranges in them.
    pub ranges: u64,
    /// Units that the device has taken.
    pub trimmed: u64,
    /// Commands that failed, in doubt or not.
    pub failed: u64,
    /// Units that became stale.
    pub expired: u64,
    /// Stale units that were forgotten.
    pub forgotten: u64,
    /// Writers that had to wait.
    pub waits: u64,
}
