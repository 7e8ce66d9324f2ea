//! Range locks: exclusive and shared locks on byte ranges, over all cores.
//!
//! A write to all copies holds its range exclusively. So copies that are written at the same
//! time agree about which write was the last. A rebuild does the same. Updates of a stripe's parity
//! exclude each other. Readers that reconstruct lost data share a range.
//!
//! Invariants
//!  R1  Two ranges that are held and overlap are both held as shared.
//!  R2  A waiting request is served in order of arrival among those that it overlaps. A later
//!      request never passes an earlier waiting one, so none starves.
//!  R3  Every waiter is woken once: when it has been granted its range.
//!  R4  Several ranges that are requested together are granted together: a request that waits for
//!      them holds none of them.
//!
//! Ranges are cut into strides and a stride's locks are kept in one of [`SHARDS`] shards, so that
//! cores which work apart do not meet. A range must lie in one stride, or the whole structure is
//! made with one stride for everything (`stride` zero), as a mirror does it.

use std::collections::VecDeque;
use std::ops::Range;
use std::task::Waker;

use bio::Ticket;

use super::sync::{Mutex, MutexGuard};

/// Shards; a power of two.
const SHARDS: usize = 64;

/// Whom to wake when a range is granted.
pub(crate) enum Waiter {
    /// A Bio that waits on a core: restarted there.
    Bio(usize, Ticket),
    Task(Waker),
}

/// What [`RangeLocks::lock`] answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LockResult {
    /// The range is held.
    Now(LockId),
    /// The waiter is woken when it is granted: the number names the lock that it then holds.
    Later(LockId),
}

/// The number of a lock, held or waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct LockId(u64);

impl LockId {
    fn shard(self) -> usize {
        (self.0 % SHARDS as u64) as usize
    }
}

struct Entry {
    number: u64,
    /// From the first byte to the last one.
    range: Range<u64>,
    /// The ranges, when they are several, in order.
    parts: Box<[Range<u64>]>,
    exclusive: bool,
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Entry {
    #[inline]
    fn conflicts_with(&self, other: &Entry) -> bool {
        (self.exclusive || other.exclusive)
            && overlap(&self.range, &other.range)
            && (self.parts.is_empty() && other.parts.is_empty() || self.shares_bytes(other))
    }

    fn parts(&self) -> &[Range<u64>] {
        if self.parts.is_empty() { std::slice::from_ref(&self.range) } else { &self.parts }
    }

    #[cold]
    fn shares_bytes(&self, other: &Entry) -> bool {
        let (mut own, mut its) = (self.parts().iter().peekable(), other.parts().iter().peekable());
        while let (Some(a), Some(b)) = (own.peek(), its.peek()) {
            if overlap(a, b) {
                return true;
            }
            if a.end <= b.start {
                own.next();
            } else {
                its.next();
            }
        }
        false
    }
}

#[derive(Default)]
struct Shard {
    held: Vec<Entry>,
    waiting: VecDeque<(Entry, Option<Waiter>)>,
    next: u64,
}

impl Shard {
    fn free(&self, wanted: &Entry) -> bool {
        !self.held.iter().any(|e| e.conflicts_with(wanted))
    }
}

/// See the module.
pub(crate) struct RangeLocks {
    shards: Box<[Mutex<Shard>]>,
    stride: u64,
    restart: Box<dyn Fn(usize, Ticket) + Send + Sync>,
}

impl RangeLocks {
    /// For ranges that each lie in one stride of `stride` bytes; zero: any range. `restart` wakes
    /// a Bio on its core and may not call back.
    pub(crate) fn new(
        stride: u64,
        restart: impl Fn(usize, Ticket) + Send + Sync + 'static,
    ) -> RangeLocks {
        let count = if stride == 0 { 1 } else { SHARDS };
        RangeLocks {
            shards: (0..count).map(|_| Mutex::default()).collect(),
            stride,
            restart: Box::new(restart),
        }
    }

    fn shard(&self, index: usize) -> MutexGuard<'_, Shard> {
        self.shards[index % self.shards.len()].lock()
    }

    fn index(&self, range: &Range<u64>) -> usize {
        match self.stride {
            0 => 0,
            stride => {
                debug_assert!(range.is_empty() || range.start / stride == (range.end - 1) / stride);
                (range.start / stride) as usize % SHARDS
            }
        }
    }

    /// Requests a range: `alone`, or together with others that share it. `waiter` is called
    /// only when it has to wait.
    pub(crate) fn lock(
        &self,
        range: Range<u64>,
        alone: bool,
        waiter: impl FnOnce() -> Waiter,
    ) -> LockResult {
        self.enter((range, Box::default()), alone, waiter)
    }

    /// The same for several ranges (R4), in order, of the one stride that there is.
    pub(crate) fn lock_all(
        &self,
        parts: Box<[Range<u64>]>,
        alone: bool,
        waiter: impl FnOnce() -> Waiter,
    ) -> LockResult {
        debug_assert!(self.stride == 0 && parts.is_sorted_by(|a, b| a.end <= b.start));
        let bounds = parts.first().map(|r| r.start).zip(parts.last().map(|r| r.end));
        let (start, end) = bounds.unwrap_or_default();
        self.enter((start..end, parts), alone, waiter)
    }

    fn enter(
        &self,
        (range, parts): (Range<u64>, Box<[Range<u64>]>),
        alone: bool,
        waiter: impl FnOnce() -> Waiter,
    ) -> LockResult {
        let index = self.index(&range);
        let mut shard = self.shard(index);
        let number = shard.next * SHARDS as u64 + index as u64;
        shard.next += 1;
        let entry = Entry { number, range, parts, exclusive: alone };
        let first = !shard.waiting.iter().any(|(e, _)| e.conflicts_with(&entry));
        let now = first && shard.free(&entry);
        match now {
            true => {
                shard.held.push(entry);
                LockResult::Now(LockId(number))
            }
            false => {
                let waiter = waiter();
                shard.waiting.push_back((entry, Some(waiter)));
                LockResult::Later(LockId(number))
            }
        }
    }

    /// True once a lock that was to be waited for is held. A task repeats the request when it is
    /// woken.
    pub(crate) fn is_held(&self, lock: LockId) -> bool {
        self.shard(lock.shard()).held.iter().any(|e| e.number == lock.0)
    }

    /// Releases a lock, held or still waited for, and wakes the waiters that are granted by this.
    pub(crate) fn unlock(&self, lock: LockId) {
        let mut woken = Vec::new();
        {
            let mut shard = self.shard(lock.shard());
            if let Some(at) = shard.held.iter().position(|e| e.number == lock.0) {
                shard.held.swap_remove(at);
            } else {
                shard.waiting.retain(|(e, _)| e.number != lock.0);
            }
            Self::grant(&mut shard, &mut woken);
        }
        for waiter in woken {
            match waiter {
                Waiter::Bio(core, ticket) => (self.restart)(core, ticket),
                Waiter::Task(waker) => waker.wake(),
            }
        }
    }

    /// R2: a waiter continues when neither a holder nor an earlier waiter conflicts with it.
    fn grant(shard: &mut Shard, woken: &mut Vec<Waiter>) {
        let mut still: VecDeque<(Entry, Option<Waiter>)> = VecDeque::new();
        for (entry, waiter) in std::mem::take(&mut shard.waiting) {
            let blocked = still.iter().any(|(e, _)| e.conflicts_with(&entry));
            if blocked || !shard.free(&entry) {
                still.push_back((entry, waiter));
                continue;
            }
            shard.held.push(entry);
            woken.extend(waiter);
        }
        shard.waiting = still;
    }

    /// A lock for a task: waits for it. Dropped before it is granted, it is given back.
    pub(crate) async fn lock_task(&self, range: Range<u64>, alone: bool) -> LockId {
        self.task(|waiter| self.lock(range.clone(), alone, waiter)).await
    }

    /// The same for several ranges ([`RangeLocks::lock_all`]).
    pub(crate) async fn lock_all_task(&self, parts: &[Range<u64>], alone: bool) -> LockId {
        self.task(|waiter| self.lock_all(parts.into(), alone, waiter)).await
    }

    async fn task(&self, try_lock: impl Fn(&mut dyn FnMut() -> Waiter) -> LockResult) -> LockId {
        let mut pending: Option<PendingLock<'_>> = None;
        std::future::poll_fn(move |cx| {
            let Some(lock) = &pending else {
                return match try_lock(&mut || Waiter::Task(cx.waker().clone())) {
                    LockResult::Now(lock) => std::task::Poll::Ready(lock),
                    LockResult::Later(lock) => {
                        pending = Some(PendingLock { locks: self, lock: Some(lock) });
                        std::task::Poll::Pending
                    }
                };
            };
            match lock.lock.filter(|lock| self.is_held(*lock)) {
                Some(held) => {
                    if let Some(pending) = &mut pending {
                        pending.lock = None;
                    }
                    std::task::Poll::Ready(held)
                }
                None => std::task::Poll::Pending,
            }
        })
        .await
    }
}

/// Releases a lock whose waiter was dropped.
struct PendingLock<'a> {
    locks: &'a RangeLocks,
    lock: Option<LockId>,
}

impl Drop for PendingLock<'_> {
    fn drop(&mut self) {
        if let Some(lock) = self.lock.take() {
            self.locks.unlock(lock);
        }
    }
}
