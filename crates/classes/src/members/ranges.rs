//! Range locks: who works on which bytes, over all cores.
//!
//! A write of copies holds its range alone, so that copies that are written at the same time agree
//! about which write was the last; and so does a rebuild. A stripe's parity is brought up to date
//! by one at a time. Readers that solve for what is lost share a range.
//!
//! Invariants
//!  R1  Two ranges that are held and overlap are both held as shared.
//!  R2  Whoever waits is served in order of arrival among those that it overlaps: a later request
//!      never passes an earlier one that waits, so nobody starves.
//!  R3  Every waiter is woken once: when it has been granted its range.
//!
//! Ranges are cut into strides and a stride's locks are kept in one of [`SHARDS`] shards, so that
//! cores which work apart do not meet. A range must lie in one stride, or the whole structure is
//! made with one stride for everything (`stride` zero), as a mirror does it.

use std::collections::VecDeque;
use std::ops::Range;
use std::task::Waker;

use bio::Ticket;

use super::sync::{Mutex, MutexGuard, PoisonError};

/// Shards; a power of two.
const SHARDS: usize = 64;

/// Whom to wake when a range is granted.
pub(crate) enum Waiter {
    /// A Bio that waits on a core: restarted there.
    Bio(usize, Ticket),
    /// A task.
    Task(Waker),
}

/// What [`RangeLocks::lock`] answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Locked {
    /// The range is held.
    Now(Held),
    /// The waiter is woken when it is: the number is what it then holds.
    Later(Held),
}

/// The number of a lock, held or waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct Held(u64);

impl Held {
    fn shard(self) -> usize {
        (self.0 % SHARDS as u64) as usize
    }
}

struct Entry {
    number: u64,
    range: Range<u64>,
    alone: bool,
}

impl Entry {
    fn minds(&self, range: &Range<u64>, alone: bool) -> bool {
        (self.alone || alone) && self.range.start < range.end && range.start < self.range.end
    }
}

#[derive(Default)]
struct Shard {
    held: Vec<Entry>,
    waiting: VecDeque<(Entry, Option<Waiter>)>,
    next: u64,
}

impl Shard {
    fn free(&self, range: &Range<u64>, alone: bool) -> bool {
        !self.held.iter().any(|e| e.minds(range, alone))
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
        self.shards[index % self.shards.len()].lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Asks for a range: `alone`, or together with others that share it. `waiter` is asked for
    /// only when it has to wait.
    pub(crate) fn lock(
        &self,
        range: Range<u64>,
        alone: bool,
        waiter: impl FnOnce() -> Waiter,
    ) -> Locked {
        let index = self.index(&range);
        let mut shard = self.shard(index);
        let number = shard.next * SHARDS as u64 + index as u64;
        shard.next += 1;
        let first = !shard.waiting.iter().any(|(e, _)| e.minds(&range, alone));
        let now = first && shard.free(&range, alone);
        let entry = Entry { number, range, alone };
        match now {
            true => {
                shard.held.push(entry);
                Locked::Now(Held(number))
            }
            false => {
                let waiter = waiter();
                shard.waiting.push_back((entry, Some(waiter)));
                Locked::Later(Held(number))
            }
        }
    }

    /// True once a lock that was to be waited for is held. A task asks again when it is woken.
    pub(crate) fn is_held(&self, lock: Held) -> bool {
        self.shard(lock.shard()).held.iter().any(|e| e.number == lock.0)
    }

    /// Gives a lock back, held or still waited for, and wakes whoever may now go on.
    pub(crate) fn unlock(&self, lock: Held) {
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

    /// R2: a waiter goes on when neither a holder nor an earlier waiter stands in its way.
    fn grant(shard: &mut Shard, woken: &mut Vec<Waiter>) {
        let mut still: VecDeque<(Entry, Option<Waiter>)> = VecDeque::new();
        for (entry, waiter) in std::mem::take(&mut shard.waiting) {
            let blocked = still.iter().any(|(e, _)| e.minds(&entry.range, entry.alone));
            if blocked || !shard.free(&entry.range, entry.alone) {
                still.push_back((entry, waiter));
                continue;
            }
            shard.held.push(entry);
            woken.extend(waiter);
        }
        shard.waiting = still;
    }

    /// A lock for a task: waits for it. Dropped before it is granted, it is given back.
    pub(crate) async fn lock_task(&self, range: Range<u64>, alone: bool) -> Held {
        let mut asked: Option<Asked<'_>> = None;
        std::future::poll_fn(move |cx| {
            let Some(lock) = &asked else {
                let waiter = || Waiter::Task(cx.waker().clone());
                return match self.lock(range.clone(), alone, waiter) {
                    Locked::Now(lock) => std::task::Poll::Ready(lock),
                    Locked::Later(lock) => {
                        asked = Some(Asked { locks: self, lock: Some(lock) });
                        std::task::Poll::Pending
                    }
                };
            };
            match lock.lock.filter(|lock| self.is_held(*lock)) {
                Some(held) => {
                    if let Some(asked) = &mut asked {
                        asked.lock = None;
                    }
                    std::task::Poll::Ready(held)
                }
                None => std::task::Poll::Pending,
            }
        })
        .await
    }
}

/// Gives a lock back that nobody came for.
struct Asked<'a> {
    locks: &'a RangeLocks,
    lock: Option<Held>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if let Some(lock) = self.lock.take() {
            self.locks.unlock(lock);
        }
    }
}
