//! Read-ahead: blocks are in memory before a client requests them.
//!
//! ```text
//!   a read that continues where the last one ended -> queue -> workers -> block cache
//! ```
//! So many workers, so many devices' requests under way beside those of clients. A worker ends when
//! it finds the queue empty, so that their number may change at any time and none costs anything
//! while nothing is read in order.
//!
//! Invariants
//!  R1  A block that a client waits for is never queued: the client's operation loads it.
//!  R2  The queue is bounded; what does not fit is not read ahead, and counted.
//!  R3  A failed read-ahead has no effect here: the operation that needs the block reports the
//!      fault.
//!  R4  No reader is ahead by more than a part of the block cache ([`AHEAD_SHARE`]): more would
//!      evict blocks that its reader still waits for.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use reactor::Reactor;
use schemars::JsonSchema;
use serde::Serialize;

use crate::fault::{Addr, Fault};

/// Blocks that may wait.
const QUEUE: usize = 1000;

/// R4
const AHEAD_SHARE: usize = 8;

/// How much is read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReadAhead {
    /// Blocks loaded at a time; 0: nothing is read ahead.
    pub workers: u32,
    /// Read-ahead distance of a sequential reader, bytes.
    pub bytes: u64,
}

impl ReadAhead {
    /// Maximum of workers in a configuration: the queue holds no more.
    pub const WORKERS_MAX: u32 = QUEUE as u32;
    /// Maximum distance in a configuration, bytes.
    pub const BYTES_MAX: u64 = 64 << 20;

    /// Maximum distance of a reader with a block cache of so many bytes (R4).
    pub(crate) fn distance(self, cache: usize) -> u64 {
        if self.workers > 0 { self.bytes.min((cache / AHEAD_SHARE) as u64) } else { 0 }
    }
}

impl Default for ReadAhead {
    /// More than one AoE target holds, far enough for a disk with a seek between two requests.
    fn default() -> ReadAhead {
        ReadAhead { workers: 32, bytes: 2 << 20 }
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Ahead {
    pub settings: Cell<ReadAhead>,
    queue: RefCell<VecDeque<Addr>>,
    busy: Cell<u32>,
    /// Blocks that were read ahead, and those for which the queue was full.
    pub loaded: Cell<u64>,
    /// See `loaded`.
    pub dropped: Cell<u64>,
}

impl Ahead {
    pub fn starting(set: ReadAhead) -> Ahead {
        Ahead { settings: Cell::new(set), ..Ahead::default() }
    }
}

/// An owner of a block cache that blocks are loaded into.
pub(crate) trait Loader: Clone + 'static {
    fn ahead(&self) -> &Ahead;
    fn reactor(&self) -> &Reactor;
    /// Nothing is to be loaded any more.
    fn is_closed(&self) -> bool;
    /// It is in memory, or on its way.
    fn has(&self, at: Addr) -> bool;
    async fn load(&self, at: Addr) -> Result<(), Fault>;
}

/// Blocks for the workers, in the order in which they will be wanted.
pub(crate) fn load<L: Loader>(loader: &L, blocks: Vec<Addr>) {
    let ahead = loader.ahead();
    {
        let mut queue = ahead.queue.borrow_mut();
        for addr in blocks {
            if queue.len() < QUEUE {
                queue.push_back(addr);
            } else {
                ahead.dropped.set(ahead.dropped.get() + 1);
            }
        }
    }
    // Those that are there have something else to do; one too many finds the queue empty.
    let more = ahead.settings.get().workers.saturating_sub(ahead.busy.get());
    for _ in 0..(more as usize).min(ahead.queue.borrow().len()) {
        ahead.busy.set(ahead.busy.get() + 1);
        loader.reactor().spawn("fs-ahead", run_worker(loader.clone()));
    }
}

async fn run_worker<L: Loader>(loader: L) {
    let ahead = loader.ahead();
    while ahead.busy.get() <= ahead.settings.get().workers && !loader.is_closed() {
        let Some(addr) = ahead.queue.borrow_mut().pop_front() else { break };
        if !loader.has(addr) && loader.load(addr).await.is_ok() {
            ahead.loaded.set(ahead.loaded.get() + 1);
        }
    }
    ahead.busy.set(ahead.busy.get() - 1);
}
