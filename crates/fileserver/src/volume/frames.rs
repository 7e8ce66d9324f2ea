//! The block cache: blocks in memory, bounded by a pool.
//!
//! Invariants
//!  F1  A frame that is dirty, or is being written by a commit, is never evicted: it is the newest
//!      there is.
//!  F2  Memory with another holder (a reply on its way, a commit that is being written) is never
//!      changed: the frame gets a copy first.
//!  F3  A frame that may be evicted is in the ring once. The hand takes others out of the ring, and
//!      they return when a commit has written them.
//!  F4  The number of frames that an eviction spares because they were used lately does not depend
//!      on the size of the block cache. Clients wait meanwhile.
//!  F5  Memory beyond a limit that was lowered is freed a part at a time. Until then an operation
//!      gets memory only in the place of a frame that it evicts.
//!  F6  Three quarters of a limit that was lowered are for frames, even if replies on their way
//!      hold more than the rest. Their memory is beyond the limit until they are sent.

use std::collections::VecDeque;

use bio::{Pool, PoolConfig, Seg};

use super::addr_index::AddrIndex;
use crate::fault::Addr;

struct Frame {
    seg: Seg,
    dirty: bool,
    hot: bool,
    /// A commit that writes it has not ended: the cache device has something older.
    writing: bool,
    /// Looked over as a node of the tree.
    node: bool,
    /// Number of its entry in the ring; 0: it has none.
    entry: u64,
}

/// Frames spared for each one that is to be evicted, at most (F4).
const SPARED: usize = 16;

/// Blocks discarded in one turn, at the end and after the limit was lowered.
const DISCARDED: usize = 256;

/// The part of the block cache that replies on their way may hold.
pub const LENT_PART: usize = 4;

/// Result of [`Frames::give_back_some`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenBack {
    /// All that was beyond the limit: nothing is left.
    All,
    /// A part of it.
    Part,
    /// Nothing: blocks beyond the limit are dirty, or a commit writes them.
    Nothing,
    /// Nothing: replies on their way hold more than their part (F6).
    Lent,
}

/// See the module.
pub struct Frames {
    pool: Pool,
    block: usize,
    /// Bytes that a block takes of the pool.
    buffer: usize,
    zeros: Option<Seg>,
    map: AddrIndex<Frame>,
    /// Addresses in the order in which the hand examines them, each with the number of its entry.
    /// An entry whose frame was dropped remains for a while; no frame has its number.
    ring: VecDeque<(Addr, u64)>,
    /// Number of the last entry.
    entries: u64,
    /// Soiled since the last commit; some were dropped since, or are there twice.
    dirtied: Vec<Addr>,
    dirty: usize,
    /// Bytes of memory, and the blocks that fit.
    bytes: usize,
    limit: usize,
    /// Found in memory, and not.
    pub hits: u64,
    /// See `hits`.
    pub misses: u64,
}

impl Frames {
    /// At most `bytes` of memory, for blocks of `block` bytes.
    pub fn new(bytes: usize, block: usize) -> Frames {
        let pool = Pool::new(PoolConfig { limit_bytes: bytes });
        let first = pool.get(block);
        let buffer = first.as_ref().map_or(block, |b| b.capacity());
        let zeros = first.and_then(|b| b.seg(0, block));
        if let Some(z) = &zeros {
            z.with_mut(|b| b.fill(0));
        }
        let limit = bytes / block;
        Frames {
            pool,
            block,
            buffer,
            zeros,
            map: AddrIndex::new(limit),
            ring: VecDeque::with_capacity(ring_capacity(limit)),
            entries: 0,
            dirtied: Vec::new(),
            dirty: 0,
            bytes,
            limit,
            hits: 0,
            misses: 0,
        }
    }

    /// Blocks that fit.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Sets the bytes of memory. [`Frames::give_back_some`] frees what is beyond them (F5). The
    /// index keeps the number of parts that it was made with.
    pub fn set_memory(&mut self, bytes: usize) {
        (self.bytes, self.limit) = (bytes, bytes / self.block);
        self.pool.set_limit(bytes.max(self.pool.usage().reserved_bytes));
        let more = ring_capacity(self.limit).saturating_sub(self.ring.len());
        self.ring.reserve(more);
    }

    /// Frees a part of the memory beyond the limit: unused buffers first, then clean blocks.
    pub fn give_back_some(&mut self) -> GivenBack {
        let beyond = self.pool.usage().reserved_bytes.saturating_sub(self.bound());
        let surplus = beyond.div_ceil(self.buffer);
        let most = surplus.min(DISCARDED);
        let mut freed = self.pool.shrink(most);
        if freed < most {
            self.evict(most - freed);
            freed += self.pool.shrink(most - freed);
        }
        let limit = self.bound().max(self.pool.usage().reserved_bytes);
        self.pool.set_limit(limit);
        if limit == self.bytes {
            GivenBack::All
        } else if freed > 0 {
            GivenBack::Part
        } else if surplus > 0 {
            GivenBack::Nothing
        } else {
            GivenBack::Lent
        }
    }

    /// Bytes of frames and of replies on their way together, at most (F6).
    fn bound(&self) -> usize {
        self.bytes.max(self.bytes - self.bytes / LENT_PART + self.lent())
    }

    /// Dirty ones.
    pub fn dirty(&self) -> usize {
        self.dirty
    }

    /// Entries that the next [`Frames::take_dirty`] examines: dirty blocks, and those that were
    /// dropped or cleaned since.
    pub fn dirtied(&self) -> usize {
        self.dirtied.len()
    }

    /// A block of zeros, for holes; not to be changed.
    pub fn zeros(&self) -> Option<Seg> {
        self.zeros.clone()
    }

    /// New memory for a block; none: evict first.
    pub fn memory(&self) -> Option<Seg> {
        self.pool.get(self.block).and_then(|b| b.seg(0, self.block))
    }

    /// Bytes of blocks that are not in the cache any more, and still in use.
    fn lent(&self) -> usize {
        let own = self.map.len() + usize::from(self.zeros.is_some());
        self.pool.usage().used_bytes.saturating_sub(own * self.buffer)
    }

    /// True while memory of blocks that are not in the cache any more is still in use: by replies
    /// on their way, or by writes to a device. It returns.
    pub fn is_lent(&self) -> bool {
        self.lent() > 0
    }

    /// A block, if it is in memory.
    pub fn find(&mut self, addr: Addr) -> Option<Seg> {
        match self.map.get_mut(addr) {
            Some(f) => {
                f.hot = true;
                self.hits += 1;
                Some(f.seg.clone())
            }
            None => {
                self.misses += 1;
                None
            }
        }
    }

    /// A block that is to be a node: `check` looks at it once, for as long as it stays in memory.
    pub fn find_node(
        &mut self,
        addr: Addr,
        check: impl FnOnce(&[u8]) -> Result<(), String>,
    ) -> Result<Option<Seg>, String> {
        let Some(seg) = self.find(addr) else { return Ok(None) };
        if let Some(f) = self.map.get_mut(addr)
            && !f.node
        {
            seg.with(check)?;
            f.node = true;
        }
        Ok(Some(seg))
    }

    /// True when it is in memory; does not count as a look.
    pub fn has(&self, addr: Addr) -> bool {
        self.map.get(addr).is_some()
    }

    /// True when it is dirty.
    pub fn is_dirty(&self, addr: Addr) -> bool {
        self.map.get(addr).is_some_and(|f| f.dirty)
    }

    /// A block read from a device.
    pub fn enter(&mut self, addr: Addr, seg: Seg) {
        let frame = Frame { seg, dirty: false, hot: true, writing: false, node: false, entry: 0 };
        self.map.insert(addr, frame);
        self.queue(addr);
    }

    /// Gives a frame an entry in the ring, if it may be evicted and has none (F3).
    fn queue(&mut self, addr: Addr) {
        let Some(f) = self.map.get_mut(addr) else { return };
        if f.dirty || f.writing || f.entry != 0 {
            return;
        }
        self.entries += 1;
        f.entry = self.entries;
        self.ring.push_back((addr, self.entries));
        // Two entries are examined for each new one, so that few belong to no frame.
        for _ in 0..2 {
            if self.ring.len() <= 2 * self.map.len() {
                break;
            }
            if let Some((addr, entry)) = self.ring.pop_front()
                && self.map.get(addr).is_some_and(|f| f.entry == entry)
            {
                self.ring.push_back((addr, entry));
            }
        }
    }

    /// A new block, dirty.
    pub fn create(&mut self, addr: Addr, seg: Seg) {
        self.enter(addr, seg);
        self.mark_dirty(addr);
    }

    /// Prepares a block in memory for a change: the memory has no other holder (F2). `None`: no
    /// such block, or no memory for a copy.
    pub fn exclusive(&mut self, addr: Addr) -> Option<Seg> {
        let held = &self.map.get(addr)?.seg;
        let seg = if held.is_shared() {
            let copy = self.memory()?;
            held.with(|b| copy.copy_from(0, b));
            copy
        } else {
            held.clone()
        };
        let frame = self.map.get_mut(addr)?;
        frame.seg = seg.clone();
        frame.hot = true;
        self.mark_dirty(addr);
        Some(seg)
    }

    /// Replaces a block by `seg`, which has no other holder.
    pub fn swap(&mut self, addr: Addr, seg: Seg) {
        match self.map.get_mut(addr) {
            Some(f) => (f.seg, f.hot, f.node) = (seg, true, false),
            None => self.enter(addr, seg),
        }
        self.mark_dirty(addr);
    }

    /// The same for an operation that is undone: restores the block's contents and whether it was
    /// dirty.
    pub fn put_back(&mut self, addr: Addr, seg: Seg, dirty: bool) {
        if let Some(f) = self.map.get_mut(addr) {
            f.seg = seg;
        }
        if !dirty {
            self.clean(addr);
        }
    }

    fn mark_dirty(&mut self, addr: Addr) {
        if let Some(f) = self.map.get_mut(addr)
            && !std::mem::replace(&mut f.dirty, true)
        {
            self.dirty += 1;
            self.dirtied.push(addr);
        }
    }

    /// Nothing at this address any more.
    pub fn drop_block(&mut self, addr: Addr) {
        if self.map.remove(addr).is_some_and(|f| f.dirty) {
            self.dirty -= 1;
        }
    }

    /// Marks a block as clean that an undone operation made dirty.
    pub fn clean(&mut self, addr: Addr) {
        if let Some(f) = self.map.get_mut(addr)
            && std::mem::take(&mut f.dirty)
        {
            self.dirty -= 1;
            self.queue(addr);
        }
    }

    /// Every dirty block, which is clean from now on: the caller writes it.
    pub fn take_dirty(&mut self) -> Vec<(Addr, Seg)> {
        let mut out = Vec::with_capacity(self.dirty);
        self.dirty = 0;
        for addr in std::mem::take(&mut self.dirtied) {
            // An address may be there twice, and removed since.
            if let Some(f) = self.map.get_mut(addr)
                && std::mem::take(&mut f.dirty)
            {
                f.writing = true;
                out.push((addr, f.seg.clone()));
            }
        }
        out.sort_unstable_by_key(|(addr, _)| *addr);
        out
    }

    /// The commit that wrote them has ended.
    pub fn written(&mut self, addrs: impl Iterator<Item = Addr>) {
        for addr in addrs {
            if let Some(f) = self.map.get_mut(addr) {
                f.writing = false;
                self.queue(addr);
            }
        }
    }

    /// Evicts up to `most` clean blocks, rather those that were not used lately; returns how many.
    /// Fewer: there are no others.
    pub fn evict(&mut self, most: usize) -> usize {
        let (mut gone, mut spared) = (0, 0);
        while gone < most {
            let Some((addr, entry)) = self.ring.pop_front() else { break };
            let Some(f) = self.map.get_mut(addr).filter(|f| f.entry == entry) else { continue };
            f.entry = 0;
            if f.dirty || f.writing {
                continue;
            }
            if spared < SPARED * most && std::mem::take(&mut f.hot) {
                spared += 1;
                self.queue(addr);
                continue;
            }
            self.map.remove(addr);
            gone += 1;
        }
        gone
    }

    /// Evicts some clean blocks and frees their memory; false: there are no others. Called once in
    /// a turn at the end: dropping all blocks at once takes the core from other file servers.
    pub fn discard_some(&mut self) -> bool {
        let gone = self.evict(DISCARDED);
        self.pool.shrink(gone);
        gone > 0
    }
}

/// Entries for which a ring has space. A ring that grows is copied in one turn, which takes as long
/// as the block cache is large. It has two entries for each frame, and a few more until `queue` has
/// examined as many.
fn ring_capacity(limit: usize) -> usize {
    2 * limit + limit / 2 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 4096;

    fn full(blocks: Addr) -> Frames {
        let mut frames = Frames::new(2 * blocks as usize * BLOCK, BLOCK);
        for addr in 0..blocks {
            let seg = frames.memory().unwrap();
            frames.enter(addr, seg);
        }
        frames
    }

    /// Frames that were used since the hand examined them.
    fn hot(frames: &Frames) -> usize {
        let is_hot = |addr: &Addr| frames.map.get(*addr).is_some_and(|f| f.hot);
        frames.map.addresses().filter(is_hot).count()
    }

    #[test]
    fn f2_memory_of_another_holder_is_not_changed() {
        let mut frames = full(3);
        let reply = frames.find(1).unwrap();
        reply.with_mut(|bytes| bytes.fill(7));
        let own = frames.exclusive(1).unwrap();
        own.with_mut(|bytes| bytes.fill(9));
        assert!(reply.with(|bytes| bytes.iter().all(|b| *b == 7)));
        assert!(frames.find(1).unwrap().with(|bytes| bytes.iter().all(|b| *b == 9)));
    }

    /// F1.
    #[test]
    fn f3_dirty_frame_leaves_the_ring_until_it_is_written() {
        let mut frames = full(100);
        for addr in 0..60 {
            frames.exclusive(addr).unwrap();
        }
        assert_eq!(frames.evict(100), 40, "those that are clean");
        assert_eq!((frames.ring.len(), frames.evict(1)), (0, 0));
        let dirty = frames.take_dirty();
        assert_eq!((dirty.len(), frames.evict(1)), (60, 0), "a commit writes them");
        // One is changed again meanwhile.
        frames.swap(7, frames.memory().unwrap());
        frames.written(dirty.iter().map(|(addr, _)| *addr));
        assert_eq!((frames.ring.len(), frames.evict(100)), (59, 59));
        assert!(frames.is_dirty(7));
        frames.clean(7);
        assert_eq!((frames.evict(100), frames.map.len()), (1, 0));
    }

    #[test]
    fn f4_eviction_spares_a_bounded_number_of_frames() {
        let blocks = 2000;
        let mut frames = full(blocks);
        assert_eq!(hot(&frames), blocks as usize);
        assert_eq!(frames.evict(4), 4);
        let left = blocks as usize - 4;
        assert!(hot(&frames) >= left - 4 * SPARED, "{} of {left} are hot", hot(&frames));
        // Frames that are not used become cold, and are evicted before others.
        let mut small = full(64);
        assert_eq!(small.evict(4), 4);
        for addr in 10..64 {
            small.find(addr);
        }
        assert_eq!(small.evict(6), 6);
        assert!((10..64).all(|addr| small.has(addr)));
    }

    #[test]
    fn blocks_are_discarded_a_part_at_a_time() {
        let blocks = 10 * DISCARDED;
        let mut frames = full(blocks as Addr);
        frames.exclusive(7).unwrap();
        let mut last = frames.pool.usage().reserved_bytes;
        let mut parts = 0;
        while frames.discard_some() {
            let now = frames.pool.usage().reserved_bytes;
            assert!(last - now <= DISCARDED * BLOCK, "{} B in one part", last - now);
            (last, parts) = (now, parts + 1);
        }
        assert_eq!(parts, 10);
        assert_eq!((frames.map.len(), last), (1, 2 * BLOCK), "the dirty one, and the zeros");
    }

    /// F1.
    #[test]
    fn f5_smaller_cache_frees_memory_a_part_at_a_time() {
        let mut frames = full(10 * DISCARDED as Addr);
        frames.exclusive(7).unwrap();
        frames.set_memory(DISCARDED * BLOCK);
        assert_eq!(frames.limit(), DISCARDED);
        assert!(frames.memory().is_none(), "beyond the limit");
        let reserved = |frames: &Frames| frames.pool.usage().reserved_bytes;
        let (mut last, mut parts) = (reserved(&frames), 0);
        while frames.give_back_some() == GivenBack::Part {
            let now = reserved(&frames);
            assert_eq!(last - now, DISCARDED * BLOCK);
            (last, parts) = (now, parts + 1);
        }
        // The block of zeros was one more.
        assert_eq!((parts, reserved(&frames)), (9, DISCARDED * BLOCK));
        assert!(frames.is_dirty(7) && frames.memory().is_none());
        frames.set_memory(2 * DISCARDED * BLOCK);
        assert!(frames.memory().is_some(), "a larger cache takes memory at once");
        assert_eq!((frames.limit(), frames.give_back_some()), (2 * DISCARDED, GivenBack::All));
    }

    #[test]
    fn f5_dirty_blocks_beyond_the_limit_stay_until_a_commit_has_ended() {
        let mut frames = full(100);
        for addr in 0..100 {
            frames.exclusive(addr).unwrap();
        }
        frames.set_memory(50 * BLOCK);
        assert_eq!(frames.give_back_some(), GivenBack::Nothing);
        let dirty = frames.take_dirty();
        assert_eq!(frames.give_back_some(), GivenBack::Nothing, "a commit writes them");
        frames.written(dirty.iter().map(|(addr, _)| *addr));
        drop(dirty);
        assert_eq!(frames.give_back_some(), GivenBack::All);
        assert_eq!((frames.map.len(), frames.pool.usage().reserved_bytes), (49, 50 * BLOCK));
    }

    #[test]
    fn f6_replies_beyond_a_smaller_cache_leave_memory_to_frames() {
        let mut frames = full(100);
        let replies: Vec<Seg> = (0..60).filter_map(|addr| frames.find(addr)).collect();
        frames.set_memory(40 * BLOCK);
        while frames.give_back_some() == GivenBack::Part {}
        // The block of zeros is one more.
        assert_eq!((frames.give_back_some(), frames.map.len()), (GivenBack::Lent, 29));
        for addr in 200..300 {
            if frames.memory().is_none() {
                frames.evict(4);
            }
            let seg = frames.memory().expect("some were evicted");
            frames.enter(addr, seg);
            assert_eq!(frames.give_back_some(), GivenBack::Lent);
        }
        assert!(frames.map.len() > 20, "{} frames", frames.map.len());
        drop(replies);
        assert_eq!(frames.give_back_some(), GivenBack::All);
        assert_eq!(frames.pool.usage().reserved_bytes, 40 * BLOCK);
    }

    #[test]
    fn ring_of_a_full_cache_has_not_grown() {
        let limit = 1000;
        let mut frames = Frames::new(limit * BLOCK, BLOCK);
        let before = frames.ring.capacity();
        for addr in 0..20 * limit as Addr {
            // Some are dropped, and others evicted.
            if addr % 3 == 0 {
                frames.drop_block(addr / 2);
            }
            if frames.memory().is_none() {
                frames.evict(4);
            }
            let seg = frames.memory().expect("some were evicted");
            frames.enter(addr, seg);
        }
        assert!(frames.map.len() > limit / 2, "{} frames", frames.map.len());
        assert_eq!(frames.ring.capacity(), before);
    }

    #[test]
    fn entries_of_dropped_frames_do_not_accumulate() {
        let mut frames = full(10);
        for addr in 100..100_000 {
            let seg = frames.memory().unwrap();
            frames.enter(addr, seg);
            frames.drop_block(addr);
        }
        assert!(frames.ring.len() <= 40, "{} entries", frames.ring.len());
        assert_eq!((frames.evict(100), frames.ring.len()), (10, 0));
    }
}
