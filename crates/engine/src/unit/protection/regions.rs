//! Serialization of overlapping requests to a protected unit, and its marked regions.
//!
//! Invariants
//!  R1  Data and tuples of a block change together for every reader: requests that overlap run one
//!      after the other when one of them writes. Ranges are widened to whole blocks of tuples,
//!      because those are read, changed and written back.
//!  R2  First in, first out: a request waits only for earlier ones, so none starves.
//!  R3  A region is in `regions` only while its mark is durable.
//!  R4  A mark is removed only when no write runs in the region and all earlier writes there were
//!      made durable afterwards. An aborted write keeps the mark for good (`Marked`).
//!  R5  A task tends the marks as long as one of them may still be removed.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use bio::sync::{Mutex, MutexGuard};

#[derive(Clone, Copy)]
struct QueuedRange {
    id: u64,
    first: u64,
    end: u64,
    write: bool,
}

#[derive(Clone, Copy, Default)]
struct Region {
    writes: u32,
    /// A write in it was given up.
    lost: bool,
    /// Counts the writes that began.
    age: u64,
}

impl Region {
    fn is_idle(&self) -> bool {
        self.writes == 0 && !self.lost
    }
}

#[derive(Default)]
struct RegionsState {
    next: u64,
    /// By arrival.
    ranges: Vec<QueuedRange>,
    regions: BTreeMap<u64, Region>,
    /// A request changes the map on the medium.
    mapping: bool,
    /// A task removes marks of regions that have rested (R5).
    has_cleaner: bool,
    waiters: Vec<Waker>,
}

/// Shared by all cores.
#[derive(Default)]
pub(crate) struct Regions(Mutex<RegionsState>);

/// A place in the order; others continue when it is dropped.
pub(crate) struct RangeLock(Arc<Regions>, u64);

impl Drop for RangeLock {
    fn drop(&mut self) {
        self.0.change(|s| s.ranges.retain(|t| t.id != self.1));
    }
}

/// The right to change the map on the medium.
pub(crate) struct MapLock(Arc<Regions>);

impl Drop for MapLock {
    fn drop(&mut self) {
        self.0.change(|s| s.mapping = false);
    }
}

/// Writes in some regions. They stay marked unless [`Marked::done`] reports that data and tuples
/// agree.
pub(crate) struct Marked {
    regions: Arc<Regions>,
    first: u64,
    end: u64,
    agrees: bool,
}

impl Marked {
    /// All is written.
    pub fn done(mut self) {
        self.agrees = true;
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        let mut s = self.regions.state();
        for (_, region) in s.regions.range_mut(self.first..self.end) {
            region.writes = region.writes.saturating_sub(1);
            region.lost |= !self.agrees;
        }
    }
}

impl Regions {
    fn state(&self) -> MutexGuard<'_, RegionsState> {
        self.0.lock()
    }

    fn change(&self, f: impl FnOnce(&mut RegionsState)) {
        let waiters = {
            let mut s = self.state();
            f(&mut s);
            std::mem::take(&mut s.waiters)
        };
        waiters.into_iter().for_each(Waker::wake);
    }

    /// Waits for one's turn at blocks `first` to `end`.
    pub async fn lock_range(self: &Arc<Self>, first: u64, end: u64, write: bool) -> RangeLock {
        let turn = {
            let mut s = self.state();
            let id = s.next;
            s.next += 1;
            s.ranges.push(QueuedRange { id, first, end, write });
            RangeLock(self.clone(), id)
        };
        poll_fn(|cx| {
            let mut s = self.state();
            let meets = |t: &&QueuedRange| t.first < end && first < t.end && (t.write || write);
            if s.ranges.iter().take_while(|t| t.id != turn.1).any(|t| meets(&t)) {
                s.waiters.push(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        turn
    }

    /// Waits until no other request changes the map.
    pub async fn lock_map(self: &Arc<Self>) -> MapLock {
        poll_fn(|cx| {
            let mut s = self.state();
            if s.mapping {
                s.waiters.push(cx.waker().clone());
                return Poll::Pending;
            }
            s.mapping = true;
            Poll::Ready(())
        })
        .await;
        MapLock(self.clone())
    }

    /// Begins a write in regions `first` to `end`, if all are marked.
    pub fn begin(self: &Arc<Self>, first: u64, end: u64) -> Option<Marked> {
        let mut s = self.state();
        if !(first..end).all(|r| s.regions.contains_key(&r)) {
            return None;
        }
        for (_, region) in s.regions.range_mut(first..end) {
            region.writes += 1;
            region.age += 1;
        }
        Some(Marked { regions: self.clone(), first, end, agrees: false })
    }

    /// Regions that rest and could be cleaned, with their ages, when there are `most` or more; none
    /// within `first` to `end`.
    pub fn idle_regions(&self, first: u64, end: u64, most: usize) -> Vec<(u64, u64)> {
        let s = self.state();
        if s.regions.len() < most {
            return Vec::new();
        }
        let rests = |r: u64, g: &Region| g.is_idle() && !(first..end).contains(&r);
        s.regions.iter().filter(|(r, g)| rests(**r, g)).map(|(r, g)| (*r, g.age)).collect()
    }

    /// All marks but those of regions that have rested since [`Regions::idle_regions`] saw them;
    /// these are forgotten at once (R3). The caller has the turn of the map.
    pub fn clean(&self, rested: &[(u64, u64)]) -> Vec<u64> {
        let mut s = self.state();
        for (r, age) in rested {
            if s.regions.get(r).is_some_and(|g| g.is_idle() && g.age == *age) {
                s.regions.remove(r);
            }
        }
        s.regions.keys().copied().collect()
    }

    pub fn marked(&self, first: u64, end: u64) {
        let mut s = self.state();
        for r in first..end {
            s.regions.entry(r).or_default();
        }
    }

    /// True if the caller has to tend the marks from now on (R5).
    pub fn must_start_cleaner(&self) -> bool {
        !std::mem::replace(&mut self.state().has_cleaner, true)
    }

    /// Whether a mark may still be removed; the task that tends the marks stops when none may.
    pub fn needs_cleaner(&self) -> bool {
        let mut s = self.state();
        s.has_cleaner = s.regions.values().any(|g| !g.lost);
        s.has_cleaner
    }

    /// The task that tends the marks has stopped.
    pub fn cleaner_stopped(&self) {
        self.state().has_cleaner = false;
    }

    /// Whether there are marks that may be removed, now or when their writes end.
    pub fn is_marked(&self) -> bool {
        self.state().regions.values().any(|g| !g.lost)
    }

    /// The medium has no mark.
    pub fn forget(&self) {
        self.state().regions.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll};

    fn now<T>(f: impl Future<Output = T>) -> Option<T> {
        match pin!(f).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(t) => Some(t),
            Poll::Pending => None,
        }
    }

    #[test]
    fn r1_writes_exclude_overlapping_requests_but_reads_share() {
        let r: Arc<Regions> = Arc::default();
        let a = now(r.lock_range(0, 64, false)).unwrap();
        let b = now(r.lock_range(0, 128, false)).unwrap();
        assert!(now(r.lock_range(64, 128, true)).is_none());
        assert!(r.state().ranges.len() == 2, "whoever gives up leaves no place");
        let c = now(r.lock_range(128, 192, true)).unwrap();
        drop((a, b));
        drop(now(r.lock_range(0, 128, true)).unwrap());
        assert!(now(r.lock_range(191, 200, false)).is_none());
        drop(c);
        assert!(r.state().ranges.is_empty());
    }

    #[test]
    fn r4_only_regions_without_recent_writes_are_cleaned() {
        let r: Arc<Regions> = Arc::default();
        assert!(r.begin(0, 2).is_none());
        r.marked(0, 64);
        let given_up = r.begin(3, 4).unwrap();
        drop(given_up);
        r.begin(4, 6).unwrap().done();
        let resting = r.idle_regions(0, 2, 64);
        assert_eq!(resting.len(), 64 - 3);
        // A write that begins and ends while everything is made durable.
        r.begin(7, 8).unwrap().done();
        let busy = r.begin(9, 10).unwrap();
        assert_eq!(r.clean(&resting), [0, 1, 3, 7, 9]);
        busy.done();
        assert!(r.begin(4, 5).is_none());
        assert!(r.idle_regions(0, 0, 64).is_empty(), "few are left alone");
    }
}
