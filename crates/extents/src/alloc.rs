//! An allocator of extents with the queue of trims inside.
//!
//! ```text
//!           free(epoch)             commit(epoch)            take()              ended()
//!   IN USE ------------> PENDING ------------------> FREE ------------> HELD ------------+
//!     ^                 (not to be had,           (to be had at       (in memory only:   |
//!     |                  not to be trimmed)        once; queued)       on disk it is     |
//!     |                                              |  ^              free)             |
//!     +----------------- allocate() -----------------+  +--------------------------------+
//! ```
//!
//! Units are blocks. The file system owns the on-disk bitmap; its content is
//! [`Allocator::on_disk`]: free, pending and held blocks are free there.
//!
//! Invariants
//!  A1  A block is in use, pending, free or held, and in one of them only.
//!  A2  A block that is pending is neither handed out nor trimmed: a crash may restore its former
//!      user. It leaves by a commit of its epoch or a later one, and by nothing else.
//!  A3  A block that is handed out is nowhere in the queue: a trim sent before has ended, none will
//!      be sent.
//!  A4  A block of a command in flight is held: it is not handed out, and nothing of that is
//!      written anywhere.
//!  A5  Free space is available as soon as it is free; it waits for no trim. Only when there is no
//!      other space does a caller have to wait for the command in flight.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::ranges::{RangeMap, len};
use crate::trim::{Command, Limits, Outcome, Policy, Queue, WriteCheck};

/// The reason why no block was available.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is none, and none will be soon.
    Full,
    /// Blocks are held by the command in flight: when it has ended, ask again.
    Held,
    /// Blocks wait for a commit: after it, ask again.
    Pending,
    /// None were asked for.
    Nothing,
}

/// A range that contradicts the allocator's state: the caller's records are wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotInUse;

/// See the module.
pub struct Allocator {
    blocks: u64,
    free: RangeMap,
    /// The free ranges by length, then place.
    sizes: BTreeSet<(u64, u64)>,
    pending: BTreeMap<u64, RangeMap>,
    held: RangeMap,
    in_flight: Option<u64>,
    queue: Queue,
}

impl Allocator {
    /// A medium of `blocks`, all of them in use; limits and policy are in blocks.
    pub fn new(blocks: u64, limits: Limits, policy: Policy) -> Allocator {
        Allocator {
            blocks,
            free: RangeMap::default(),
            sizes: BTreeSet::new(),
            pending: BTreeMap::new(),
            held: RangeMap::default(),
            in_flight: None,
            queue: Queue::new(limits, policy),
        }
    }

    /// Adds a range that is free in the bitmap on the disk when it is mounted. It may be allocated,
    /// but whether it was trimmed is not known (T5): [`Allocator::trim_all`] trims it.
    pub fn found_free(&mut self, range: Range<u64>) {
        let range = range.start.min(self.blocks)..range.end.min(self.blocks);
        if range.is_empty() {
            return;
        }
        self.add_available(range.clone());
        self.queue.set_stale(range);
    }

    /// Blocks that may be had now.
    pub fn available(&self) -> u64 {
        self.free.total()
    }

    /// Blocks that wait for a commit.
    pub fn pending(&self) -> u64 {
        self.pending.values().map(RangeMap::total).sum()
    }

    /// Blocks held by the command in flight.
    pub fn held(&self) -> u64 {
        self.held.total()
    }

    /// The queue, to look at.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The ranges that the bitmap on the disk shall show as free (A4).
    pub fn on_disk(&self) -> RangeMap {
        let mut all = self.free.clone();
        let pending = self.pending.values().flat_map(|p| p.iter());
        pending.chain(self.held.iter()).for_each(|(r, ())| all.add(r));
        all
    }

    fn add_available(&mut self, range: Range<u64>) {
        for (old, ()) in self.free.adjacent(&range) {
            self.sizes.remove(&(len(&old), old.start));
        }
        self.free.add(range.clone());
        for (new, ()) in self.free.adjacent(&range) {
            self.sizes.insert((len(&new), new.start));
        }
    }

    fn remove_available(&mut self, range: &Range<u64>) {
        let hit: Vec<_> = self.free.overlapping(range).map(|(r, ())| r).collect();
        for r in &hit {
            self.sizes.remove(&(len(r), r.start));
        }
        self.free.cut(range);
        for whole in hit {
            for (left, ()) in self.free.overlapping(&whole) {
                self.sizes.insert((len(&left), left.start));
            }
        }
    }

    /// At most `want` blocks in one piece, at least `least`: at `near` or as soon behind it as
    /// there are so many, else where they fit best, else the longest piece there is.
    pub fn allocate(
        &mut self,
        want: u64,
        least: u64,
        near: Option<u64>,
    ) -> Result<Range<u64>, Refused> {
        if want == 0 || least > want {
            return Err(Refused::Nothing);
        }
        let Some(found) = self.choose(want, least, near) else {
            return Err(match (self.held.is_empty(), self.pending() == 0) {
                (false, _) => Refused::Held,
                (true, false) => Refused::Pending,
                (true, true) => Refused::Full,
            });
        };
        self.remove_available(&found);
        let clear = self.queue.before_write(&found);
        debug_assert_eq!(clear, WriteCheck::Clear, "A3: what flies is held, not free");
        Ok(found)
    }

    fn choose(&self, want: u64, least: u64, near: Option<u64>) -> Option<Range<u64>> {
        /// Free ranges looked at behind a wished place.
        const LOOKS: usize = 64;
        let fits = |r: &Range<u64>| len(r) >= want;
        if let Some(near) = near {
            let here = self.free.overlapping(&(near..near.saturating_add(1))).map(|(r, ())| r);
            let here = here.map(|r| near.max(r.start)..r.end).next();
            let mut behind = self.free.starting_at(near).map(|(r, ())| r).take(LOOKS);
            if let Some(r) = here.filter(fits).or_else(|| behind.find(|r| fits(r))) {
                return Some(r.start..r.start + want);
            }
        }
        if let Some((_, start)) = self.sizes.range((want, 0)..).next() {
            return Some(*start..start + want);
        }
        let (most, start) = self.sizes.last().filter(|(most, _)| *most >= least.max(1))?;
        Some(*start..start + most)
    }

    /// Blocks are no longer needed by the state of the file system that `epoch` will make durable.
    pub fn free(&mut self, range: Range<u64>, epoch: u64) -> Result<(), NotInUse> {
        let pending = self.pending.values().any(|p| p.overlaps(&range));
        let used = !self.free.overlaps(&range) && !self.held.overlaps(&range) && !pending;
        if range.is_empty() || range.end > self.blocks || !used {
            return Err(NotInUse);
        }
        self.pending.entry(epoch).or_default().add(range);
        Ok(())
    }

    /// The metadata of `epoch`, and of all before it, is on the medium: written and flushed. Space
    /// that was freed there is available at once, and waits to be trimmed.
    pub fn commit(&mut self, epoch: u64, now: u64) {
        let later = epoch.checked_add(1).map(|next| self.pending.split_off(&next));
        for (_, freed) in std::mem::replace(&mut self.pending, later.unwrap_or_default()) {
            for (range, ()) in freed.iter() {
                self.add_available(range.clone());
                self.queue.free(range, now);
            }
        }
    }

    /// A command to send, when it is worth one now; its blocks are held until it has ended.
    pub fn take(&mut self, now: u64) -> Option<Command> {
        self.release();
        let command = self.queue.take(now)?;
        for range in &command.ranges {
            self.remove_available(range);
            self.held.add(range.clone());
        }
        self.in_flight = Some(command.number);
        Some(command)
    }

    /// A command has ended: its blocks may be had again, unless it may yet be carried out.
    pub fn ended(&mut self, number: u64, outcome: Outcome, now: u64) {
        self.queue.ended(number, outcome, now);
        self.release();
    }

    /// Effects of time. [`Allocator::take`] does it too.
    pub fn expire(&mut self, now: u64) {
        self.queue.expire(now);
        self.release();
    }

    fn release(&mut self) {
        if self.queue.in_flight().0 == 0 {
            for (range, ()) in std::mem::take(&mut self.held).iter() {
                self.add_available(range);
            }
            self.in_flight = None;
        }
    }

    /// Number of the command in flight.
    pub fn in_flight(&self) -> Option<u64> {
        self.in_flight
    }

    /// The next time when [`Allocator::take`] may have something to do.
    pub fn next_at(&self, now: u64) -> Option<u64> {
        self.queue.next_at(now)
    }

    /// Space is short, or is no longer: what can be trimmed goes without waiting for more.
    pub fn set_pressure(&mut self, pressure: bool) {
        self.queue.set_pressure(pressure);
    }

    /// Starts a trim of all free space, as `fstrim` does.
    pub fn trim_all(&mut self, now: u64) {
        self.queue.start_full_trim(now);
    }

    /// Checks A1, A3 and A4; for tests.
    pub fn check(&self) -> Result<(), String> {
        self.queue.check()?;
        let mut sizes: Vec<_> = self.free.iter().map(|(r, ())| (len(&r), r.start)).collect();
        sizes.sort_unstable();
        if !sizes.iter().eq(self.sizes.iter()) {
            return Err("the index by length is not what is free".into());
        }
        let all = [&self.free, &self.held].into_iter().chain(self.pending.values());
        let total: u64 = all.clone().map(RangeMap::total).sum();
        let mut once = RangeMap::<()>::default();
        all.flat_map(|m| m.iter()).for_each(|(r, ())| once.add(r));
        if once.total() != total {
            return Err("A1: a block is in two places".into());
        }
        for block in 0..self.blocks {
            let (one, q) = (block..block + 1, &self.queue);
            if q.tracks(&one) && !self.free.overlaps(&one) && !self.held.overlaps(&one) {
                return Err(format!("A2, A3: block {block} is in the queue and not free"));
            }
            if q.overlaps_in_flight(&one) != self.held.overlaps(&one) {
                return Err(format!("A4: block {block} is held, or flies, and not both"));
            }
        }
        Ok(())
    }
}
