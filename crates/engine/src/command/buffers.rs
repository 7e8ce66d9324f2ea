//! Distribution of buffers when there are not enough for all commands.
//!
//! Every core has one queue of commands that wait for memory: reads that need buffers for their
//! data, writes that need them before they request it, and commands whose data has arrived. A
//! command that must wait for more of the pool never fills it.
//!
//! Invariants
//!  E3  Waiting commands get memory in the order in which they came, whatever their kind.
//!  E4  Write data takes the memory for all of a command at once, and leaves a quarter of the pool
//!      to reads and to running commands: a command that holds all of its memory can always end.
//!  E5  Commands that hold a part and wait for the rest ([`Part`]) hold an eighth of the pool at
//!      most, all together.
//!  E6  A command that waits longer than [`PATIENCE_NS`] ends BUSY.
//!  E7  A session gets memory while it holds no more than the free part of the pool, or nothing.
//!      Counted are its read data, the data that its transport has not sent yet, and its write
//!      data, received or outstanding. So n sessions that take all they can, with peers that do not
//!      read or do not send, leave an (n+1)th of the pool to others. The same holds for the part
//!      for write data (E4). A session over this share keeps its place in the queue, and later ones
//!      pass it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use bio::{Pool, Segs};

use crate::engine::Engine;

/// How long a command waits for memory, ns; then it ends BUSY, before the initiator loses patience.
pub const PATIENCE_NS: u64 = 15_000_000_000;

/// A waiter for memory.
pub trait Eater {
    /// Tries again to get it for what `word` means; true when it was got, or is not wanted any
    /// more.
    fn feed(&self, word: u64) -> bool;
    /// It waited too long.
    fn starved(&self, word: u64);
    /// It holds more than its share: others go first (E7).
    fn is_over(&self) -> bool {
        false
    }
}

/// Places in the line that are looked at for one that is not over its share, each time memory comes
/// back; those behind wait for the next time.
const LOOK_MAX: usize = 1024;

#[derive(Clone)]
struct Hungry {
    eater: Rc<dyn Eater>,
    word: u64,
    since: u64,
}

/// The line of one core.
#[derive(Default)]
pub(crate) struct Memory {
    line: RefCell<VecDeque<Hungry>>,
    feeding: Cell<bool>,
    /// All in the line are over their share.
    over: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    parts: Rc<Cell<usize>>,
}

/// Bytes of a command that waits for the rest of its memory (E5).
pub struct Part {
    all: Rc<Cell<usize>>,
    bytes: usize,
}

impl Drop for Part {
    fn drop(&mut self) {
        self.all.set(self.all.get().saturating_sub(self.bytes));
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
    pub fn is_hungry(&self) -> bool {
        self.memory.feeding.get() && !self.memory.over.get()
    }

    /// Appends a waiter to the queue.
    pub fn starve(self: &Rc<Self>, eater: Rc<dyn Eater>, word: u64) {
        let since = self.core().now();
        self.memory.line.borrow_mut().push_back(Hungry { eater, word, since });
        if let Some(waker) = self.memory.waker.take() {
            waker.wake();
        }
        if !self.memory.feeding.replace(true) {
            drop(self.core().reactor().spawn("target memory", feed(self.clone())));
        }
    }

    /// Memory for the last `missing` bytes of a command's write data (E4). `fed` is set when it is
    /// the first in the line.
    #[must_use]
    pub fn room_for_data(&self, data: &mut Segs, missing: usize, fed: bool) -> bool {
        let pool = self.core().pool();
        let usage = pool.usage();
        let others = usage.used_bytes.saturating_sub(self.memory.parts.get());
        let fits = usage.used_bytes.saturating_add(missing) <= data_max(usage.limit_bytes);
        (fed || !self.is_hungry()) && (fits || others == 0) && data.grow(pool, missing)
    }

    /// Memory for the first `bytes` of a command's write data, which are on their way and cannot
    /// be kept back (E5).
    pub fn room_for_part(&self, data: &mut Segs, bytes: usize) -> Option<Part> {
        let pool = self.core().pool();
        let sum = self.memory.parts.get().checked_add(bytes)?;
        if sum > pool.usage().limit_bytes / 8 || !data.grow(pool, bytes) {
            return None;
        }
        self.memory.parts.set(sum);
        Some(Part { all: self.memory.parts.clone(), bytes })
    }

    /// True when so many bytes of write data can never be held at once.
    pub fn is_beyond_pool(&self, bytes: usize) -> bool {
        bytes > data_max(self.core().pool().usage().limit_bytes)
    }
}

impl Engine {
    /// Gives memory to the waiters that can have it; true when one left the queue (E3, E7).
    fn serve(&self) -> bool {
        let (mut at, mut left) = (0, false);
        self.memory.over.set(false);
        for _ in 0..LOOK_MAX {
            // Only this task removes waiters, so positions do not move while one is served.
            let next = self.memory.line.borrow().get(at).cloned();
            let Some(Hungry { eater, word, .. }) = next else {
                self.memory.over.set(true);
                break;
            };
            if eater.is_over() {
                at += 1;
            } else if eater.feed(word) {
                self.memory.line.borrow_mut().remove(at);
                left = true;
            } else {
                break;
            }
        }
        left
    }
}

/// Gives memory to the waiters (E3, E6, E7).
async fn feed(engine: Rc<Engine>) {
    loop {
        let oldest = engine.memory.line.borrow().front().map(|h| h.since);
        let Some(since) = oldest else { break };
        let waited = engine.core().now().saturating_sub(since);
        let left = PATIENCE_NS.saturating_sub(waited);
        let served = poll_fn(|cx| {
            if engine.serve() {
                return Poll::Ready(());
            }
            engine.core().wake_on_free(cx.waker());
            engine.memory.waker.replace(Some(cx.waker().clone()));
            Poll::Pending
        });
        if geom::deadline(engine.core(), left, served).await.is_none() {
            let starved = engine.memory.line.borrow_mut().pop_front();
            if let Some(Hungry { eater, word, .. }) = starved {
                eater.starved(word);
            }
        }
    }
    engine.memory.over.set(false);
    engine.memory.feeding.set(false);
}
