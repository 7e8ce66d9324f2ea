//! The queue itself. The module above describes its states and invariants.

mod check;
mod command;
mod sending;

use std::ops::Range;

pub use command::{Command, Outcome, Totals, WriteCheck};

use super::full_trim::FullTrim;
use super::limits::{Limits, Policy};
use crate::ranges::{Merge, RangeMap, len};

/// Of too many ranges one in so many is sent at once, so that looking for the shortest is rare.
const SHRINK_PART: usize = 8;

/// The time when a range was added or grew last, and the number of failed attempts to send it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RangeAge {
    since_ns: u64,
    tries: u8,
}

impl Merge for RangeAge {
    fn merge(self, other: RangeAge) -> RangeAge {
        let since_ns = self.since_ns.max(other.since_ns);
        RangeAge { since_ns, tries: self.tries.max(other.tries) }
    }
}

#[derive(Clone)]
struct InFlight {
    number: u64,
    ranges: RangeMap,
    /// The ranges to send again after a failure (Q5).
    keep: RangeMap,
    tries: u8,
    doubt_until: Option<u64>,
}

/// See the module above.
#[derive(Clone)]
pub struct Queue {
    limits: Limits,
    policy: Policy,
    queued: RangeMap<RangeAge>,
    stale: RangeMap,
    inflight: Option<InFlight>,
    /// Ranges among the queued that may be sent, and their whole granules.
    ready: (usize, u64),
    /// The times of the last free, and of the first one of the batch.
    freed_at: u64,
    batch_at: u64,
    /// The batch is being sent: ready ranges are sent until there are none.
    sending: bool,
    /// A full trim is under way: ranges in `asked` are sent, short or not, before all others.
    full_trim_active: bool,
    full_trim: FullTrim,
    /// The device does not know the command.
    unsupported: bool,
    pressure: bool,
    hold_until: u64,
    looked_at: u64,
    /// Start of the search for the next command.
    cursor: u64,
    /// Units that a command may have, at most the limit of the device.
    command_max: u64,
    numbers: u64,
    totals: Totals,
}

impl Queue {
    /// An empty one.
    pub fn new(limits: Limits, policy: Policy) -> Queue {
        let limits = limits.sane();
        Queue {
            limits,
            policy,
            queued: RangeMap::default(),
            stale: RangeMap::default(),
            inflight: None,
            ready: (0, 0),
            freed_at: 0,
            batch_at: 0,
            sending: false,
            full_trim_active: false,
            full_trim: FullTrim::default(),
            unsupported: false,
            pressure: false,
            hold_until: 0,
            looked_at: 0,
            cursor: 0,
            command_max: limits.command_max,
            numbers: 0,
            totals: Totals::default(),
        }
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The device takes other commands from now on; the command in flight stays as it is. A device
    /// that knew no such command is tried once more.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits.sane();
        self.unsupported = false;
        self.set_command_max(self.command_max);
        self.recount();
        self.full_trim.refit(&self.limits);
        if self.full_trim_active {
            self.end_batch_if_done();
        }
    }

    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Changes the policy, from now on.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        self.recount();
        self.shrink();
    }

    /// Commands shall have at most so many units; the device's own limit stays.
    pub fn set_command_max(&mut self, units: u64) {
        let whole = units / self.limits.granule * self.limits.granule;
        self.command_max = whole.clamp(self.limits.granule, self.limits.command_max);
    }

    pub fn command_max(&self) -> u64 {
        self.command_max
    }

    /// Space is short: every possible command is sent without waiting for more ranges.
    pub fn set_pressure(&mut self, pressure: bool) {
        self.pressure = pressure;
    }

    /// The counters so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Counts from zero again.
    pub fn reset_totals(&mut self) {
        self.totals = Totals::default();
    }

    /// Ranges and units that wait to be sent.
    pub fn queued(&self) -> (usize, u64) {
        (self.queued.len(), self.queued.total())
    }

    /// Ranges and units that are sent only on request.
    pub fn stale(&self) -> (usize, u64) {
        (self.stale.len(), self.stale.total())
    }

    /// Ranges and units of the command in flight.
    pub fn in_flight(&self) -> (usize, u64) {
        self.inflight.as_ref().map_or((0, 0), |f| (f.ranges.len(), f.ranges.total()))
    }

    pub fn overlaps_in_flight(&self, range: &Range<u64>) -> bool {
        self.inflight.as_ref().is_some_and(|f| f.ranges.overlaps(range))
    }

    /// Whether the outcome of the command in flight is not known.
    pub fn in_doubt(&self) -> bool {
        self.inflight.as_ref().is_some_and(|f| f.doubt_until.is_some())
    }

    /// The device has reported that it does not know such commands.
    pub fn is_unsupported(&self) -> bool {
        self.unsupported
    }

    /// True when the queue covers part of the range: a writer that skips this check must not write
    /// there.
    pub fn tracks(&self, range: &Range<u64>) -> bool {
        self.queued.overlaps(range) || self.stale.overlaps(range) || self.overlaps_in_flight(range)
    }

    /// True when it knows of nothing at all.
    pub fn is_empty(&self) -> bool {
        self.queued.is_empty() && self.stale.is_empty() && self.inflight.is_none()
    }

    fn min(&self) -> u64 {
        if self.full_trim_active {
            self.limits.granule
        } else {
            self.policy.short.max(self.limits.granule)
        }
    }

    /// The granules of a queued range that may be sent: none while it is short.
    fn sendable(&self, range: &Range<u64>) -> Option<Range<u64>> {
        (len(range) >= self.min()).then(|| self.limits.inside(range)).flatten()
    }

    fn count(&mut self, range: &Range<u64>, more: bool) {
        let Some(whole) = self.sendable(range) else { return };
        let (ranges, units) = self.ready;
        self.ready = match more {
            true => (ranges + 1, units.saturating_add(len(&whole))),
            false => (ranges.saturating_sub(1), units.saturating_sub(len(&whole))),
        };
    }

    fn recount(&mut self) {
        self.ready = (0, 0);
        let all: Vec<_> = self.queued.iter().map(|(r, _)| r).collect();
        all.iter().for_each(|r| self.count(r, true));
    }

    fn enqueue(&mut self, range: Range<u64>, note: RangeAge) {
        for (old, _) in self.queued.adjacent(&range) {
            self.count(&old, false);
        }
        self.queued.insert(range.clone(), note);
        for (new, _) in self.queued.adjacent(&range) {
            self.count(&new, true);
        }
    }

    fn dequeue(&mut self, range: &Range<u64>) -> Vec<(Range<u64>, RangeAge)> {
        let hit: Vec<_> = self.queued.overlapping(range).map(|(r, _)| r).collect();
        hit.iter().for_each(|r| self.count(r, false));
        let gone = self.queued.cut(range);
        self.full_trim.cut(range, &self.limits);
        for r in hit {
            // The rest of it, on both sides.
            let left = self.queued.overlapping(&r).map(|(r, _)| r).collect::<Vec<_>>();
            left.iter().for_each(|r| self.count(r, true));
        }
        gone
    }

    /// The range is not needed any more: the metadata that frees it is durable, or not required.
    pub fn free(&mut self, range: Range<u64>, now: u64) {
        if range.is_empty() {
            return;
        }
        self.totals.freed_calls += 1;
        self.totals.freed = self.totals.freed.saturating_add(len(&range));
        // Q1: ranges in flight are being trimmed already.
        let mut rest = RangeMap::default();
        rest.add(range.clone());
        if let Some(flight) = &self.inflight {
            for (held, ()) in flight.ranges.overlapping(&range) {
                rest.cut(&held);
            }
        }
        let had = self.ready.0;
        for (piece, ()) in rest.iter() {
            // A granule may be completed by a neighbour that had been given up.
            let mut whole = piece.clone();
            for (old, ()) in self.stale.adjacent(&piece) {
                self.stale.cut(&old);
                whole = whole.start.min(old.start)..whole.end.max(old.end);
            }
            match self.unsupported {
                true => self.set_aside(whole),
                false => self.enqueue(whole, RangeAge { since_ns: now, tries: 0 }),
            }
        }
        if had == 0 && self.ready.0 > 0 {
            self.batch_at = now;
        }
        self.freed_at = now;
        self.shrink();
    }

    /// The range is about to be written or used: the device learns of it by that.
    pub fn before_write(&mut self, range: &Range<u64>) -> WriteCheck {
        let gone = self.dequeue(range);
        let gone: u64 = gone.iter().map(|(r, _)| len(r)).sum();
        self.totals.taken_back = self.totals.taken_back.saturating_add(gone);
        self.stale.cut(range);
        // One range may have become two.
        self.shrink();
        self.end_batch_if_done();
        let Some(flight) = self.inflight.as_mut().filter(|f| f.ranges.overlaps(range)) else {
            return WriteCheck::Clear;
        };
        flight.keep.cut(range);
        self.totals.waits += 1;
        WriteCheck::Wait
    }

    /// Everything that is stale shall be sent too, and short ranges without waiting for more.
    pub fn start_full_trim(&mut self, now: u64) {
        if self.unsupported {
            return;
        }
        self.full_trim_active = true;
        let stale: Vec<_> = self.stale.iter().map(|(r, ())| r).collect();
        self.stale.clear();
        for range in stale {
            self.enqueue(range, RangeAge { since_ns: now, tries: 0 });
        }
        self.recount();
        let limits = self.limits;
        let all = self.queued.iter().filter_map(|(range, _)| limits.inside(&range));
        self.full_trim.begin(all, self.numbers);
        self.shrink();
        self.end_batch_if_done();
    }

    /// Ends [`Queue::start_full_trim`]: the rest waits as before, short ranges for their
    /// neighbours.
    pub fn end_full_trim(&mut self) {
        self.full_trim.end();
        self.end_batch();
    }

    /// Units of the last [`Queue::start_full_trim`] that have not been trimmed, with those in
    /// flight.
    pub fn full_trim_left(&self) -> u64 {
        let flight = self.inflight.as_ref().filter(|f| self.full_trim.has(f.number));
        self.full_trim.total().saturating_add(flight.map_or(0, |f| f.ranges.total()))
    }

    /// Whether all ranges of the last [`Queue::start_full_trim`] have been trimmed (Q8).
    pub fn is_fully_trimmed(&self) -> bool {
        !self.full_trim_active
            && self.inflight.as_ref().is_none_or(|f| !self.full_trim.has(f.number))
    }

    /// Whether [`Queue::start_full_trim`] is still being carried out.
    pub fn is_full_trim_active(&self) -> bool {
        self.full_trim_active
    }

    /// Rests when nothing is left, also when another path removed the last range: this ends
    /// [`Queue::start_full_trim`].
    fn end_batch_if_done(&mut self) {
        let done =
            if self.full_trim_active { self.full_trim.is_empty() } else { self.ready.0 == 0 };
        if done {
            self.end_batch();
        }
    }

    /// All due ranges are sent; ranges that were freed since a full trim began wait as usual.
    fn end_batch(&mut self) {
        self.sending = false;
        if std::mem::take(&mut self.full_trim_active) {
            self.recount();
        }
    }

    fn set_aside(&mut self, range: Range<u64>) {
        self.totals.expired = self.totals.expired.saturating_add(len(&range));
        self.stale.add(range);
    }

    /// Effects of time: short ranges become stale, doubts end. [`Queue::take`] does it too.
    pub fn expire(&mut self, now: u64) {
        let over = |f: &mut InFlight| f.doubt_until.is_some_and(|until| now >= until);
        if let Some(flight) = self.inflight.take_if(over) {
            flight.keep.iter().for_each(|(range, ())| self.set_aside(range));
            self.shrink();
        }
        // Looked at four times until it is due: it is a walk along all of them.
        if now < self.looked_at.saturating_add(self.policy.expire_ns / 4) {
            return;
        }
        self.looked_at = now;
        let old = |note: RangeAge| now.saturating_sub(note.since_ns) >= self.policy.expire_ns;
        let short: Vec<_> = self
            .queued
            .iter()
            .filter(|(r, note)| old(*note) && self.sendable(r).is_none())
            .map(|(r, _)| r)
            .collect();
        for range in short {
            self.dequeue(&range);
            self.set_aside(range);
        }
        self.shrink();
    }

    /// Q6
    fn shrink(&mut self) {
        if self.queued.len() > self.policy.queued_max {
            for range in shortest(self.queued.iter().map(|(r, _)| r), self.policy.queued_max) {
                self.dequeue(&range);
                self.set_aside(range);
            }
            self.end_batch_if_done();
        }
        if self.stale.len() > self.policy.stale_max {
            for range in shortest(self.stale.iter().map(|(r, ())| r), self.policy.stale_max) {
                self.stale.cut(&range);
                self.totals.forgotten = self.totals.forgotten.saturating_add(len(&range));
            }
        }
    }

    /// Forgets all that is not in flight (Q7); ranges in flight are not sent again.
    pub fn forget(&mut self) {
        self.queued.clear();
        self.stale.clear();
        self.ready = (0, 0);
        self.full_trim.end();
        (self.sending, self.full_trim_active) = (false, false);
        if let Some(flight) = &mut self.inflight {
            flight.keep.clear();
        }
    }

    /// The medium ends at `size` from now on.
    pub fn cut_off(&mut self, size: u64) {
        let beyond = size..u64::MAX;
        self.dequeue(&beyond);
        self.stale.cut(&beyond);
        self.end_batch_if_done();
        if let Some(flight) = &mut self.inflight {
            flight.keep.cut(&beyond);
        }
    }
}

/// So many of the shortest that `max` and a margin are left.
fn shortest(all: impl Iterator<Item = Range<u64>>, max: usize) -> Vec<Range<u64>> {
    let mut all: Vec<_> = all.collect();
    all.sort_unstable_by_key(len);
    let goes = all.len().saturating_sub(max) + max / SHRINK_PART;
    all.truncate(goes);
    all
}
