//! Checks of the invariants of a queue, for tests.

use std::ops::Range;

use super::Queue;
use crate::ranges::len;

impl Queue {
    /// Checks Q1, Q3 and the counts.
    pub fn check(&self) -> Result<(), String> {
        for (range, _) in self.queued.iter() {
            if self.stale.overlaps(&range) || self.overlaps_in_flight(&range) {
                return Err(format!("Q1: {range:?} is queued and something else"));
            }
        }
        if let Some((range, ())) = self.stale.iter().find(|(r, ())| self.overlaps_in_flight(r)) {
            return Err(format!("Q1: {range:?} is stale and in flight"));
        }
        let ready: Vec<u64> =
            self.queued.iter().filter_map(|(r, _)| Some(len(&self.sendable(&r)?))).collect();
        let counted = (ready.len(), ready.iter().sum::<u64>());
        if counted != self.ready {
            return Err(format!("ready is {counted:?}, counted as {:?}", self.ready));
        }
        let limits = self.limits;
        let is_queued = |r: &Range<u64>| {
            self.queued.overlapping(r).any(|(q, _)| q.start <= r.start && r.end <= q.end)
        };
        let stray = |r: &Range<u64>| limits.inside(r).as_ref() != Some(r) || !is_queued(r);
        if let Some(range) = self.full_trim.iter().find(stray) {
            return Err(format!("Q8: {range:?} is requested and not queued"));
        }
        if self.full_trim_active == self.full_trim.is_empty() {
            return Err(format!("Q8: {} units are requested", self.full_trim.total()));
        }
        let many = (self.queued.len(), self.stale.len());
        if many.0 > self.policy.queued_max || many.1 > self.policy.stale_max {
            return Err(format!("Q6: {many:?}"));
        }
        Ok(())
    }
}
