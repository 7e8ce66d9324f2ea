//! The way of a command: when one is due, the ranges in it, and its end.

use std::ops::Range;

use super::{Command, InFlight, Outcome, Queue, RangeAge};
use crate::ranges::RangeMap;

/// A batch that still grows is held back for so many times the time of quiet.
const HOLD_FACTOR: u64 = 10;

impl Queue {
    /// A command, when it is worth one now.
    pub fn take(&mut self, now: u64) -> Option<Command> {
        self.expire(now);
        if self.inflight.is_some() || self.unsupported || now < self.hold_until || !self.is_due(now)
        {
            return None;
        }
        self.sending = true;
        let (ranges, tries) = self.pick();
        if ranges.is_empty() {
            return None;
        }
        for range in &ranges {
            self.dequeue(range);
        }
        // Edges of one range are two.
        self.shrink();
        self.cursor = ranges.last().map_or(0, |r| r.end);
        self.numbers += 1;
        let mut held = RangeMap::default();
        ranges.iter().for_each(|r| held.add(r.clone()));
        let keep = held.clone();
        let number = self.numbers;
        self.inflight = Some(InFlight { number, ranges: held, keep, tries, doubt_until: None });
        self.totals.commands += 1;
        self.totals.ranges += ranges.len() as u64;
        if self.full_trim_active {
            self.full_trim.sent(number);
        }
        self.end_batch_if_done();
        Some(Command { number, ranges })
    }

    fn is_due(&self, now: u64) -> bool {
        let (ranges, units) = self.ready;
        ranges > 0
            && (self.sending
                || self.full_trim_active
                || self.pressure
                || ranges >= self.policy.batch_ranges
                || units >= self.command_max
                || now >= self.due_at())
    }

    fn due_at(&self) -> u64 {
        let most = self.policy.quiet_ns.saturating_mul(HOLD_FACTOR);
        let quiet = self.freed_at.saturating_add(self.policy.quiet_ns);
        quiet.min(self.batch_at.saturating_add(most))
    }

    /// Whole granules that may be sent, from the cursor on and around, with the number of failed
    /// attempts of each. Of a full trim those of its request (Q8).
    fn next_ranges(&self) -> Box<dyn Iterator<Item = (Range<u64>, u8)> + '_> {
        if self.full_trim_active {
            let tries =
                |r: &Range<u64>| self.queued.overlapping(r).map(|(_, note)| note.tries).max();
            return Box::new(self.full_trim.from(self.cursor).map(move |range| {
                let tries = tries(&range).unwrap_or(0);
                (range, tries)
            }));
        }
        let behind = self.queued.starting_at(self.cursor);
        let before = self.queued.iter().take_while(|(r, _)| r.start < self.cursor);
        let all = behind.chain(before);
        Box::new(all.filter_map(|(range, note)| Some((self.sendable(&range)?, note.tries))))
    }

    /// Q3: from the cursor on and around, as many as a command holds.
    fn pick(&self) -> (Vec<Range<u64>>, u8) {
        let (mut out, mut units, mut tries) = (Vec::new(), 0, 0);
        for (whole, note_tries) in self.next_ranges() {
            let mut at = whole.start;
            while at < whole.end {
                let room = self.command_max.saturating_sub(units) / self.limits.granule;
                let room = room.saturating_mul(self.limits.granule);
                let n = (whole.end - at).min(self.limits.range_max).min(room);
                if n == 0 || out.len() >= self.limits.ranges {
                    break;
                }
                out.push(at..at + n);
                tries = tries.max(note_tries);
                units += n;
                at += n;
            }
            if at < whole.end {
                break;
            }
        }
        out.sort_unstable_by_key(|r| r.start);
        (out, tries)
    }

    /// A command has ended; the end of one that is no longer in flight is ignored.
    pub fn ended(&mut self, number: u64, outcome: Outcome, now: u64) {
        let Some(mut flight) = self.inflight.take_if(|f| f.number == number) else { return };
        match outcome {
            Outcome::Done => {
                self.totals.trimmed = self.totals.trimmed.saturating_add(flight.ranges.total());
            }
            Outcome::Failed => {
                self.totals.failed += 1;
                self.hold_until = now.saturating_add(self.policy.retry_ns);
                let tries = flight.tries.saturating_add(1);
                let mut again = false;
                for (range, ()) in flight.keep.iter() {
                    match tries < self.policy.tries {
                        true => {
                            self.enqueue(range.clone(), RangeAge { since_ns: now, tries });
                            again |= self.full_trim.failed(number, &range, &self.limits);
                        }
                        false => self.set_aside(range),
                    }
                }
                if again {
                    self.full_trim_active = true;
                    self.recount();
                    self.end_batch_if_done();
                }
            }
            Outcome::Unsupported => {
                self.totals.failed += 1;
                self.unsupported = true;
                self.full_trim.end();
                (self.sending, self.full_trim_active) = (false, false);
                let all: Vec<_> = self.queued.iter().map(|(r, _)| r).collect();
                all.into_iter().chain(flight.keep.iter().map(|(r, ())| r)).for_each(|range| {
                    self.dequeue(&range);
                    self.set_aside(range);
                });
            }
            // Q4
            Outcome::Unknown => {
                self.totals.failed += 1;
                flight.doubt_until = Some(now.saturating_add(self.policy.doubt_ns));
                self.inflight = Some(flight);
            }
        }
        self.shrink();
    }

    /// The next time when [`Queue::take`] may have something to do, should nothing happen before;
    /// `None`: never.
    pub fn next_at(&self, now: u64) -> Option<u64> {
        let mut at = None;
        let mut sooner = |t: u64| at = Some(at.map_or(t, |old: u64| old.min(t)));
        if let Some(until) = self.inflight.as_ref().and_then(|f| f.doubt_until) {
            sooner(until);
        }
        if self.inflight.is_none() && self.ready.0 > 0 && !self.unsupported {
            let due = if self.is_due(now) { now } else { self.due_at() };
            sooner(due.max(self.hold_until));
        }
        if self.queued.len() > self.ready.0 {
            sooner(self.looked_at.saturating_add(self.policy.expire_ns / 4).max(now));
        }
        at
    }

    /// Whether a command may be requested now.
    pub fn wants(&self, now: u64) -> bool {
        self.inflight.is_none() && !self.unsupported && now >= self.hold_until && self.is_due(now)
    }
}
