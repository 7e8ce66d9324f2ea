//! Memory of replies that their clients have not taken yet.
//!
//! Invariants
//!  U1  A connection is owed at most [`CONNECTION_BYTES`] of replies, or a single one: further
//!      requests wait for that connection alone.
//!  U2  Unsent replies hold at most a quarter of the block cache, for any number of connections.
//!      Data beyond that are copied out of it. Replies that a larger block cache made keep theirs.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use bio::{Pool, PoolConfig, Seg};

use crate::notify::Notify;
use crate::volume::LENT_PART;

/// Bytes of replies that a connection may be owed. A client that takes none costs so much memory.
const CONNECTION_BYTES: usize = 2 << 20;
/// A reply shorter than this is copied: it would hold a whole block.
const SMALL: usize = 4096;

/// Replies that a connection is owed: those being made, and those made and not sent.
#[derive(Default)]
pub(super) struct UnsentReplies {
    bytes: Cell<usize>,
    freed: Notify,
    /// Bytes of all replies that were queued, and of those that were sent.
    queued: Cell<u64>,
    sent: Cell<u64>,
    /// Blocks of the cache, each with the bytes that are sent before it is free.
    held: RefCell<VecDeque<(u64, CacheHold)>>,
}

impl UnsentReplies {
    /// Waits until a reply of `bytes` may be made (U1).
    pub async fn reserve(self: &Rc<Self>, bytes: usize) -> Reserved {
        loop {
            let seen = self.freed.count();
            if self.bytes.get() == 0 || self.bytes.get() + bytes <= CONNECTION_BYTES {
                self.add(bytes);
                return Reserved { unsent: self.clone(), bytes };
            }
            self.freed.after(seen).await;
        }
    }

    /// True while a further request may be read.
    pub fn has_space(&self) -> bool {
        self.bytes.get() <= CONNECTION_BYTES
    }

    /// Bytes of a reply were queued behind all others; they hold `held` until they are sent.
    pub fn queue(&self, bytes: usize, held: Option<CacheHold>) {
        self.add(bytes);
        self.queued.set(self.queued.get() + bytes as u64);
        self.held.borrow_mut().extend(held.map(|held| (self.queued.get(), held)));
    }

    /// Queued bytes were sent.
    pub fn note_sent(&self, bytes: usize) {
        let sent = self.sent.get() + bytes as u64;
        self.sent.set(sent);
        let mut held = self.held.borrow_mut();
        while held.front().is_some_and(|(until, _)| *until <= sent) {
            held.pop_front();
        }
        self.release(bytes);
    }

    fn add(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes);
    }

    fn release(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
        self.freed.notify_all();
    }
}

/// Space for a reply that is being made; given back when it is dropped.
pub(super) struct Reserved {
    unsent: Rc<UnsentReplies>,
    bytes: usize,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.unsent.release(self.bytes);
    }
}

/// The part of a file system's block cache that unsent replies hold.
pub(super) struct CacheShare {
    held: Cell<usize>,
    bound: Cell<usize>,
    block: usize,
    /// Memory of data that were copied out. Its limit is U1 times the number of connections.
    copies: Pool,
}

impl CacheShare {
    /// Of a block cache of `cache_bytes`, in blocks of `block` bytes.
    pub fn new(cache_bytes: usize, block: usize) -> Rc<CacheShare> {
        let copies = Pool::new(PoolConfig { limit_bytes: usize::MAX });
        let bound = Cell::new(cache_bytes / LENT_PART);
        Rc::new(CacheShare { held: Cell::new(0), bound, block, copies })
    }

    /// The block cache has another size.
    pub fn set_cache(&self, cache_bytes: usize) {
        self.bound.set(cache_bytes / LENT_PART);
    }

    /// Unsent replies hold more than their part: the block cache was larger.
    pub fn is_exceeded(&self) -> bool {
        self.held.get() > self.bound.get()
    }

    /// Data of a reply of `len` bytes, as it may be kept until it is sent (U2).
    pub fn keep(self: &Rc<Self>, segs: Vec<Seg>, len: usize) -> Data {
        let bytes = segs.len() * self.block;
        if (len <= SMALL || self.held.get() + bytes > self.bound.get())
            && let Some(copied) = self.copy(&segs)
        {
            return Data { segs: copied, len, held: None };
        }
        self.held.set(self.held.get() + bytes);
        Data { segs, len, held: Some(CacheHold { share: self.clone(), bytes }) }
    }

    /// None: there is no memory.
    fn copy(&self, segs: &[Seg]) -> Option<Vec<Seg>> {
        let mut out = Vec::with_capacity(segs.len());
        for seg in segs {
            let mut at = 0;
            while at < seg.len() {
                let buf = self.copies.get(seg.len() - at)?;
                let n = buf.capacity().min(seg.len() - at);
                let to = buf.seg(0, n)?;
                let part = seg.slice(at, n)?;
                part.with(|b| to.copy_from(0, b));
                out.push(to);
                at += n;
            }
        }
        Some(out)
    }
}

/// Blocks of the cache that an unsent reply holds.
pub(super) struct CacheHold {
    share: Rc<CacheShare>,
    bytes: usize,
}

impl Drop for CacheHold {
    fn drop(&mut self) {
        self.share.held.set(self.share.held.get().saturating_sub(self.bytes));
    }
}

/// Contents on their way to a client.
pub(super) struct Data {
    pub segs: Vec<Seg>,
    pub len: usize,
    held: Option<CacheHold>,
}

impl Data {
    /// The bytes, and the guard for [`UnsentReplies::queue`].
    pub fn into_parts(self) -> (Vec<Seg>, Option<CacheHold>) {
        (self.segs, self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u2_cached_blocks_are_free_once_their_bytes_are_sent() {
        const BLOCK: usize = 2 * SMALL;
        let pool = Pool::new(PoolConfig::default());
        let share = CacheShare::new(2 * BLOCK * LENT_PART, BLOCK);
        let unsent = UnsentReplies::default();
        for _ in 0..2 {
            let block = pool.get(BLOCK).and_then(|buf| buf.seg(0, BLOCK)).unwrap();
            let (_, held) = share.keep(vec![block], BLOCK).into_parts();
            unsent.queue(BLOCK, held);
        }
        for (sent, held) in [(BLOCK - 1, 2 * BLOCK), (1, BLOCK), (1, BLOCK), (BLOCK - 1, 0)] {
            unsent.note_sent(sent);
            assert_eq!(share.held.get(), held, "after {sent} more bytes");
        }
        assert_eq!(unsent.bytes.get(), 0);
    }

    #[test]
    fn u2_replies_exceed_their_part_of_a_smaller_cache_until_they_are_sent() {
        const BLOCK: usize = 2 * SMALL;
        let pool = Pool::new(PoolConfig::default());
        let share = CacheShare::new(2 * BLOCK * LENT_PART, BLOCK);
        let block = || pool.get(BLOCK).and_then(|buf| buf.seg(0, BLOCK)).unwrap();
        let replies = [block(), block()].map(|block| share.keep(vec![block], BLOCK));
        assert!(!share.is_exceeded());
        share.set_cache(BLOCK * LENT_PART);
        assert!(share.is_exceeded());
        drop(replies);
        assert!(!share.is_exceeded());
    }
}
