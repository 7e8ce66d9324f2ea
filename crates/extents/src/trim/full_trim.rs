//! The ranges of a full trim: those that were queued at the time of the request. Later ones are not
//! added, so it ends however fast new ones arrive.

use std::ops::Range;

use super::limits::Limits;
use crate::ranges::RangeMap;

/// See the module. All ranges are whole granules that are queued.
#[derive(Clone, Default)]
pub(super) struct FullTrim {
    ranges: RangeMap,
    /// Number of the last command that has some of them.
    last: u64,
    /// Failed ones are sent again.
    retry_failed: bool,
}

impl FullTrim {
    /// These, and the commands up to number `last`, which are in flight.
    pub(super) fn begin(&mut self, ranges: impl Iterator<Item = Range<u64>>, last: u64) {
        self.ranges.clear();
        ranges.for_each(|range| self.ranges.add(range));
        (self.last, self.retry_failed) = (last, true);
    }

    /// Nothing more of it is sent, nor sent again.
    pub(super) fn end(&mut self) {
        self.ranges.clear();
        self.retry_failed = false;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn total(&self) -> u64 {
        self.ranges.total()
    }

    /// From `at` on and around.
    pub(super) fn from(&self, at: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let before = self.ranges.iter().take_while(move |(range, ())| range.start < at);
        self.ranges.starting_at(at).chain(before).map(|(range, ())| range)
    }

    /// The command of that number has some of them.
    pub(super) fn sent(&mut self, number: u64) {
        self.last = self.last.max(number);
    }

    /// Whether the command of that number has some of them.
    pub(super) fn has(&self, number: u64) -> bool {
        number <= self.last
    }

    /// Some of a command failed and is queued again; true when it is to be sent again.
    pub(super) fn failed(&mut self, number: u64, range: &Range<u64>, limits: &Limits) -> bool {
        let again = self.retry_failed && self.has(number);
        if again && let Some(whole) = limits.inside(range) {
            self.ranges.add(whole);
        }
        again
    }

    /// A range is not queued any more, nor are the granules that it is in as a whole.
    pub(super) fn cut(&mut self, range: &Range<u64>, limits: &Limits) {
        if !self.ranges.is_empty() {
            self.ranges.cut(range);
            self.refit(limits);
        }
    }

    /// Granules are others from now on, or are cut.
    pub(super) fn refit(&mut self, limits: &Limits) {
        let whole = |range: &Range<u64>| limits.inside(range).as_ref() == Some(range);
        if self.ranges.iter().all(|(range, ())| whole(&range)) {
            return;
        }
        let all: Vec<_> = self.ranges.iter().filter_map(|(r, ())| limits.inside(&r)).collect();
        self.ranges.clear();
        all.into_iter().for_each(|range| self.ranges.add(range));
    }

    /// The ranges, for checks.
    pub(super) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(range, ())| range)
    }
}
