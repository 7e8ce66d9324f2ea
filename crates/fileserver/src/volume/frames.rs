//! The block cache: blocks in memory, bounded by a pool.
//!
//! Invariants
//!  F1  A frame that is dirty, or is being written by a commit, is never evicted: it is the newest
//!      there is.
//!  F2  Memory with another holder (a reply on its way, a commit that is being written) is never
//!      changed: the frame gets a copy first.

use std::collections::VecDeque;

use bio::{Pool, PoolConfig, Seg};

use super::table::AddrMap;
use crate::fault::Addr;

struct Frame {
    seg: Seg,
    dirty: bool,
    hot: bool,
    /// A commit that writes it has not ended: the cache device has something older.
    writing: bool,
    /// Looked over as a node of the tree.
    node: bool,
}

/// See the module.
pub struct Frames {
    pool: Pool,
    block: usize,
    /// Bytes that a block takes of the pool.
    buffer: usize,
    zeros: Option<Seg>,
    map: AddrMap<Frame>,
    /// Addresses in the order in which the hand comes by; some have gone since.
    ring: VecDeque<Addr>,
    /// Soiled since the last commit; some were dropped since, or are there twice.
    dirtied: Vec<Addr>,
    dirty: usize,
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
        Frames {
            pool,
            block,
            buffer,
            zeros,
            map: AddrMap::default(),
            ring: VecDeque::new(),
            dirtied: Vec::new(),
            dirty: 0,
            limit: bytes / block,
            hits: 0,
            misses: 0,
        }
    }

    /// Blocks that fit.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Dirty ones.
    pub fn dirty(&self) -> usize {
        self.dirty
    }

    /// A block of zeros, for holes; not to be changed.
    pub fn zeros(&self) -> Option<Seg> {
        self.zeros.clone()
    }

    /// New memory for a block; none: evict first.
    pub fn memory(&self) -> Option<Seg> {
        self.pool.get(self.block).and_then(|b| b.seg(0, self.block))
    }

    /// True while memory of blocks that are not in the cache any more is still in use: by replies
    /// on their way, or by writes to a device. It comes back.
    pub fn is_lent(&self) -> bool {
        let own = self.map.len() + usize::from(self.zeros.is_some());
        self.pool.usage().used_bytes > own * self.buffer
    }

    /// A block, if it is in memory.
    pub fn find(&mut self, addr: Addr) -> Option<Seg> {
        match self.map.get_mut(&addr) {
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
        if let Some(f) = self.map.get_mut(&addr)
            && !f.node
        {
            seg.with(check)?;
            f.node = true;
        }
        Ok(Some(seg))
    }

    /// True when it is in memory; does not count as a look.
    pub fn has(&self, addr: Addr) -> bool {
        self.map.contains_key(&addr)
    }

    /// True when it is dirty.
    pub fn is_dirty(&self, addr: Addr) -> bool {
        self.map.get(&addr).is_some_and(|f| f.dirty)
    }

    /// A block that came from a device.
    pub fn enter(&mut self, addr: Addr, seg: Seg) {
        let frame = Frame { seg, dirty: false, hot: true, writing: false, node: false };
        if self.map.insert(addr, frame).is_none() {
            self.ring.push_back(addr);
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
        let held = &self.map.get(&addr)?.seg;
        let seg = if held.is_shared() {
            let copy = self.memory()?;
            held.with(|b| copy.copy_from(0, b));
            copy
        } else {
            held.clone()
        };
        let frame = self.map.get_mut(&addr)?;
        frame.seg = seg.clone();
        frame.hot = true;
        self.mark_dirty(addr);
        Some(seg)
    }

    /// Replaces a block by `seg`, which has no other holder.
    pub fn swap(&mut self, addr: Addr, seg: Seg) {
        match self.map.get_mut(&addr) {
            Some(f) => (f.seg, f.hot, f.node) = (seg, true, false),
            None => self.enter(addr, seg),
        }
        self.mark_dirty(addr);
    }

    /// The same for an operation that is undone: restores the block's contents and whether it was
    /// dirty.
    pub fn put_back(&mut self, addr: Addr, seg: Seg, dirty: bool) {
        if let Some(f) = self.map.get_mut(&addr) {
            f.seg = seg;
        }
        if !dirty {
            self.clean(addr);
        }
    }

    fn mark_dirty(&mut self, addr: Addr) {
        if let Some(f) = self.map.get_mut(&addr)
            && !std::mem::replace(&mut f.dirty, true)
        {
            self.dirty += 1;
            self.dirtied.push(addr);
        }
    }

    /// Nothing at this address any more.
    pub fn drop_block(&mut self, addr: Addr) {
        if self.map.remove(&addr).is_some_and(|f| f.dirty) {
            self.dirty -= 1;
        }
    }

    /// Marks a block as clean that an undone operation made dirty.
    pub fn clean(&mut self, addr: Addr) {
        if let Some(f) = self.map.get_mut(&addr)
            && std::mem::take(&mut f.dirty)
        {
            self.dirty -= 1;
        }
    }

    /// Every dirty block, which is clean from now on: the caller writes it.
    pub fn take_dirty(&mut self) -> Vec<(Addr, Seg)> {
        let mut out = Vec::with_capacity(self.dirty);
        self.dirty = 0;
        for addr in std::mem::take(&mut self.dirtied) {
            // An address may be there twice, and gone since.
            if let Some(f) = self.map.get_mut(&addr)
                && std::mem::take(&mut f.dirty)
            {
                f.writing = true;
                out.push((addr, f.seg.clone()));
            }
        }
        out.sort_by_key(|(addr, _)| *addr);
        out
    }

    /// The commit that wrote them has ended.
    pub fn written(&mut self, addrs: impl Iterator<Item = Addr>) {
        for addr in addrs {
            if let Some(f) = self.map.get_mut(&addr) {
                f.writing = false;
            }
        }
    }

    /// Evicts up to `most` clean blocks that were not used lately; returns how many.
    pub fn evict(&mut self, most: usize) -> usize {
        let mut gone = 0;
        for _ in 0..2 * self.ring.len() {
            if gone == most {
                break;
            }
            let Some(addr) = self.ring.pop_front() else { break };
            let Some(f) = self.map.get_mut(&addr) else { continue };
            if f.dirty || f.writing || std::mem::take(&mut f.hot) {
                self.ring.push_back(addr);
                continue;
            }
            self.map.remove(&addr);
            gone += 1;
        }
        gone
    }
}
