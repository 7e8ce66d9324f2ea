//! Distribution of buffers when there are not enough for all commands.
//!
//! Every core has one queue of commands that wait for memory. They are reads that need buffers for
//! their data, writes that need them before they request it, and commands whose data has arrived. A
//! command that must wait for more of the pool never fills it.
//!
//! Invariants
//!  E3  Waiting commands get memory in the order of their arrival, regardless of their kind.
//!  E4  Write data takes the memory for all of a command at once, and leaves a quarter of the pool
//!      to reads and to running commands. A command that holds all of its memory can always end.
//!  E5  Commands that hold a part and wait for the rest ([`PartialGrant`]) hold an eighth of the
//!      pool at most, all together.
//!  E6  A command that waits longer than [`MEMORY_WAIT_NS`] ends BUSY.
//!  E7  A session gets memory while it holds no more than the free part of the pool, or nothing.
//!      Counted are its read data, the data that its transport has not sent yet, and its write
//!      data, received or outstanding. So n sessions that take all they can leave an (n+1)th of the
//!      pool to others, even if their peers do not read or send. The same holds for the part for
//!      write data (E4). A session over this share keeps its place in the queue, and later ones
//!      pass it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use bio::{Pool, Segs};

use crate::nexus::engine::Engine;

/// How long a command waits for memory, ns; then it ends BUSY, before the initiator loses patience.
pub const MEMORY_WAIT_NS: u64 = 15_000_000_000;

pub trait MemoryWaiter {
    /// Tries again to get it for what `word` means; true when it was got, or is not wanted any
    /// more.
    fn grant(&self, word: u64) -> bool;
    /// It waited too long.
    fn wait_expired(&self, word: u64);
    /// It holds more than its share: others precede it (E7).
    fn is_over_share(&self) -> bool {
        false
    }
}

/// Places in the line that are looked at for one that is not over its share, each time memory
/// returns. Those behind wait for the next time.
const SCAN_MAX: usize = 1024;

#[derive(Clone)]
struct QueuedWaiter {
    waiter: Rc<dyn MemoryWaiter>,
    cookie: u64,
    since: u64,
}

/// The line of one core.
#[derive(Default)]
pub(crate) struct MemoryQueue {
    waiters: RefCell<VecDeque<QueuedWaiter>>,
    granting: Cell<bool>,
    /// All in the line are over their share.
    all_over_share: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    partial_bytes: Rc<Cell<usize>>,
}

/// Bytes of a command that waits for the rest of its memory (E5).
pub struct PartialGrant {
    total: Rc<Cell<usize>>,
    bytes: usize,
}

impl Drop for PartialGrant {
    fn drop(&mut self) {
        self.total.set(self.total.get().saturating_sub(self.bytes));
    }
}

/// Most bytes of write data of one command under a pool of `limit` bytes (E4).
pub(crate) fn data_max(limit: usize) -> usize {
    limit / 4 * 3
}

/// Largest transfer that a pool of `limit` bytes lets through beside others, bytes.
pub(crate) fn transfer_max(limit: usize) -> u32 {
    let half = limit / 2 / Pool::largest() * Pool::largest();
    u32::try_from(half.max(Pool::largest())).unwrap_or(u32::MAX)
}

impl Engine {
    /// True while a command waits for memory: newcomers queue behind it (E3).
    #[inline]
    pub fn has_memory_waiters(&self) -> bool {
        self.memory.granting.get() && !self.memory.all_over_share.get()
    }

    /// Appends a waiter to the queue.
    pub fn enqueue_memory_waiter(self: &Rc<Self>, waiter: Rc<dyn MemoryWaiter>, cookie: u64) {
        let since = self.core().now();
        self.memory.waiters.borrow_mut().push_back(QueuedWaiter { waiter, cookie, since });
        if let Some(waker) = self.memory.waker.take() {
            waker.wake();
        }
        if !self.memory.granting.replace(true) {
            drop(self.core().reactor().spawn("target memory", grant_loop(self.clone())));
        }
    }

    /// Memory for the last `missing` bytes of a command's write data (E4). `fed` is set when it is
    /// the first in the line.
    #[must_use]
    pub fn alloc_write_data(&self, data: &mut Segs, missing: usize, fed: bool) -> bool {
        let pool = self.core().pool();
        let usage = pool.usage();
        let others = usage.used_bytes.saturating_sub(self.memory.partial_bytes.get());
        let fits = usage.used_bytes.saturating_add(missing) <= data_max(usage.limit_bytes);
        (fed || !self.has_memory_waiters()) && (fits || others == 0) && data.grow(pool, missing)
    }

    /// Memory for the first `bytes` of a command's write data, which are on their way and cannot
    /// be kept back (E5).
    pub fn alloc_partial_data(&self, data: &mut Segs, bytes: usize) -> Option<PartialGrant> {
        let pool = self.core().pool();
        let sum = self.memory.partial_bytes.get().checked_add(bytes)?;
        if sum > pool.usage().limit_bytes / 8 || !data.grow(pool, bytes) {
            return None;
        }
        self.memory.partial_bytes.set(sum);
        Some(PartialGrant { total: self.memory.partial_bytes.clone(), bytes })
    }

    /// True when so many bytes of write data can never be held at once.
    pub fn is_beyond_pool(&self, bytes: usize) -> bool {
        bytes > data_max(self.core().pool().usage().limit_bytes)
    }
}

impl Engine {
    /// Gives memory to the waiters that can have it; true when one left the queue (E3, E7).
    fn grant_waiters(&self) -> bool {
        let (mut at, mut left) = (0, false);
        self.memory.all_over_share.set(false);
        for _ in 0..SCAN_MAX {
            // Only this task removes waiters, so positions do not move while one is served.
            let next = self.memory.waiters.borrow().get(at).cloned();
            let Some(QueuedWaiter { waiter, cookie, .. }) = next else {
                self.memory.all_over_share.set(true);
                break;
            };
            if waiter.is_over_share() {
                at += 1;
            } else if waiter.grant(cookie) {
                self.memory.waiters.borrow_mut().remove(at);
                left = true;
            } else {
                break;
            }
        }
        left
    }
}

/// Gives memory to the waiters (E3, E6, E7).
async fn grant_loop(engine: Rc<Engine>) {
    loop {
        let oldest = engine.memory.waiters.borrow().front().map(|h| h.since);
        let Some(since) = oldest else { break };
        let waited = engine.core().now().saturating_sub(since);
        let left = MEMORY_WAIT_NS.saturating_sub(waited);
        let served = poll_fn(|cx| {
            if engine.grant_waiters() {
                return Poll::Ready(());
            }
            engine.core().wake_on_free(cx.waker());
            engine.memory.waker.replace(Some(cx.waker().clone()));
            Poll::Pending
        });
        if geom::deadline(engine.core(), left, served).await.is_none() {
            let starved = engine.memory.waiters.borrow_mut().pop_front();
            if let Some(QueuedWaiter { waiter, cookie, .. }) = starved {
                waiter.wait_expired(cookie);
            }
        }
    }
    engine.memory.all_over_share.set(false);
    engine.memory.granting.set(false);
}
