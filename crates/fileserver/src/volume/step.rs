//! A step: one operation over blocks in memory. It happens as a whole or not at all.

use bio::Seg;

use super::ReadAhead;
use super::frames::Frames;
use super::point::Dump;
use super::space::AllocatedAddr;
use super::state::VolumeState;
use crate::fault::{Addr, Fault, Stop, Wait};
use crate::orphans::InodeRefs;
use crate::tree::{self, Blocks, Root};

/// The tree that an operation reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum View {
    /// The tree that is written.
    Live,
    /// A dump by its number.
    Dump(u32),
}

enum Undo {
    /// A new block.
    New(AllocatedAddr),
    /// A changed block of this epoch: its previous contents, and whether it was dirty.
    Changed { addr: Addr, before: Vec<u8>, dirty: bool },
}

/// See the module. Made by [`super::Volume::run`].
pub struct Step<'s> {
    s: &'s mut VolumeState,
    inode_refs: &'s InodeRefs,
    ahead_bytes: u64,
    undo: Vec<Undo>,
    freed: Vec<Addr>,
    reap: Vec<u64>,
    settle: Vec<u64>,
    gives_back: bool,
    before: (Root, u64, u64),
}

impl<'s> Step<'s> {
    pub(super) fn new(
        s: &'s mut VolumeState,
        keepers: &'s InodeRefs,
        ahead: ReadAhead,
    ) -> Step<'s> {
        let before = (s.root, s.ino, s.change);
        let ahead_bytes = ahead.distance(s.frames.limit() * s.block());
        let (undo, freed, reap, settle, gives_back) = Default::default();
        Step { s, inode_refs: keepers, ahead_bytes, undo, freed, reap, settle, gives_back, before }
    }

    /// Completes the operation: its requests are passed on to the keepers.
    pub(super) fn end(self) {
        let s = self.s;
        for addr in self.freed {
            s.frames.drop_block(addr);
            s.dropped.push(addr);
            s.space.release(addr);
        }
        self.reap.into_iter().for_each(|ino| self.inode_refs.release(ino));
        self.settle.into_iter().for_each(|ino| self.inode_refs.unsettle(ino));
    }

    /// It has not happened.
    pub(super) fn undo(self) {
        let s = self.s;
        for undo in self.undo.into_iter().rev() {
            match undo {
                Undo::New(given) => {
                    s.frames.drop_block(given.addr());
                    s.space.undo_allocate(given);
                }
                Undo::Changed { addr, before, dirty } => {
                    if let Some(seg) = s.frames.find(addr) {
                        seg.copy_from(0, &before);
                    }
                    if !dirty {
                        s.frames.clean(addr);
                    }
                }
            }
        }
        (s.root, s.ino, s.change) = self.before;
    }

    /// Bytes of a block.
    pub fn block(&self) -> usize {
        self.s.block()
    }

    /// Wall clock, ns since 1970.
    pub fn now_ns(&self) -> u64 {
        self.s.now_ns
    }

    /// Every dump.
    pub fn dumps(&self) -> &[Dump] {
        &self.s.dumps
    }

    /// Root of the tree of a view.
    pub fn root(&self, view: View) -> Result<Root, Stop> {
        match view {
            View::Live => Ok(self.s.root),
            View::Dump(n) => self
                .dumps()
                .binary_search_by_key(&n, |d| d.number)
                .ok()
                .and_then(|i| self.dumps().get(i))
                .map(|d| d.root)
                .ok_or(Stop::Fail(Fault::NotFound)),
        }
    }

    /// Sets the root of the live tree.
    pub fn set_root(&mut self, root: Root) {
        self.s.root = root;
    }

    /// A number for a new file, never given before.
    pub fn new_ino(&mut self) -> Result<u64, Stop> {
        if self.s.ino >= self.s.ino_limit {
            return Err(Stop::Wait(Wait::Commit));
        }
        self.s.ino += 1;
        Ok(self.s.ino - 1)
    }

    /// A number for a change, higher than all before.
    pub fn new_change(&mut self) -> Result<u64, Stop> {
        if self.s.change >= self.s.change_limit {
            return Err(Stop::Wait(Wait::Commit));
        }
        self.s.change += 1;
        Ok(self.s.change)
    }

    /// True while a file has a keeper: its contents stay.
    pub fn is_held(&self, ino: u64) -> bool {
        self.inode_refs.has(ino)
    }

    /// Declares that this operation gives blocks back in the end, and may use the slots kept for
    /// that.
    pub fn to_give_back(&mut self) {
        self.gives_back = true;
    }

    fn slots_left(&self) -> usize {
        if self.gives_back { self.s.slots_to_give_back() } else { self.s.slots_left() }
    }

    /// A file lost something that is to be given back.
    pub fn reap(&mut self, ino: u64) {
        self.reap.push(ino);
    }

    /// A file's contents have to be moved.
    pub fn settle(&mut self, ino: u64) {
        self.settle.push(ino);
    }

    /// True when a block is in memory.
    pub fn has(&self, at: Addr) -> bool {
        self.s.frames.has(at)
    }

    /// A block will be wanted: it is loaded beside the block that the operation waits for.
    pub fn want(&mut self, at: Addr) {
        if !self.has(at) && !self.s.wanted.contains(&at) {
            self.s.wanted.push(at);
        }
    }

    /// Requests a block for a sequential reader.
    pub fn want_later(&mut self, at: Addr) {
        if !self.has(at) {
            self.s.later.push(at);
        }
    }

    /// Read-ahead distance of a sequential reader, bytes.
    pub fn ahead_bytes(&self) -> u64 {
        self.ahead_bytes
    }

    /// A block of zeros, for holes.
    pub fn zeros(&self) -> Result<Seg, Stop> {
        self.s.frames.zeros().ok_or(Stop::Wait(Wait::Memory))
    }

    /// A word of this volume alone, to hash names with.
    pub fn salt(&self) -> u64 {
        self.s.layout.volume
    }

    /// A block of contents.
    pub fn data(&mut self, at: Addr) -> Result<Seg, Stop> {
        self.s.frames.find(at).ok_or(Stop::Missing(at))
    }

    /// True when a dump holds the block, so that it is not changed in place.
    pub fn is_frozen(&self, at: Addr) -> bool {
        at < self.s.space.frozen()
    }

    /// Memory of a block of contents of this epoch, to be changed. Its changes are not undone: make
    /// them when nothing can fail any more.
    pub fn data_mut(&mut self, at: Addr) -> Result<Seg, Stop> {
        self.may_change()?;
        if !self.s.frames.has(at) {
            return Err(Stop::Missing(at));
        }
        if !self.s.frames.is_dirty(at) && self.slots_left() == 0 {
            return Err(Stop::Wait(Wait::Commit));
        }
        self.s.frames.exclusive(at).ok_or(Stop::Wait(Wait::Memory))
    }

    /// A new block, which no dump gets when it is `scratch`; its contents are undefined.
    pub fn fresh_of(&mut self, scratch: bool) -> Result<(Addr, Seg), Stop> {
        self.may_change()?;
        if self.slots_left() == 0 {
            return Err(Stop::Wait(Wait::Commit));
        }
        let space = &self.s.space;
        if !scratch && space.free() == 0 && space.next() >= self.s.space_end() {
            return Err(Stop::Fail(Fault::NoSpace("the WORM has no block left")));
        }
        let seg = self.frames().memory().ok_or(Stop::Wait(Wait::Memory))?;
        let given = self.s.space.allocate(scratch);
        let at = given.addr();
        self.frames().create(at, seg.clone());
        self.undo.push(Undo::New(given));
        Ok((at, seg))
    }

    /// True if a block may be stored at the address.
    pub fn was_allocated(&self, at: Addr) -> bool {
        self.s.space.was_allocated(at)
    }

    /// True where dumps are taken at all.
    pub fn has_dumps(&self) -> bool {
        !self.s.members.is_empty()
    }

    /// Which owner of the WORM this is.
    pub fn epoch(&self) -> u32 {
        self.s.epoch
    }

    /// Checks that the volume may be changed: it is not fenced, and its lease is valid.
    pub fn may_change(&self) -> Result<(), Stop> {
        if let Some(why) = &self.s.refused {
            return Err(Stop::Fail(why.clone()));
        }
        if !self.s.members.is_empty() && self.s.tick >= self.s.lease_until {
            return Err(Stop::Wait(Wait::Fence));
        }
        Ok(())
    }

    fn frames(&mut self) -> &mut Frames {
        &mut self.s.frames
    }

    fn is_new(&self, at: Addr) -> bool {
        self.undo.iter().any(|u| matches!(u, Undo::New(g) if g.addr() == at))
    }

    fn is_changed(&self, at: Addr) -> bool {
        self.undo.iter().any(|u| matches!(u, Undo::Changed { addr, .. } if *addr == at))
    }
}

impl Blocks for Step<'_> {
    fn read_node(&mut self, at: Addr) -> Result<Seg, Stop> {
        let volume = self.s.layout.volume;
        match self.s.frames.find_node(at, |b| tree::check(b, at, volume)) {
            Ok(found) => found.ok_or(Stop::Missing(at)),
            Err(why) => Err(Stop::Fail(Fault::Corrupt(format!("block {at} of the tree: {why}")))),
        }
    }

    fn cow(&mut self, at: Addr) -> Result<(Addr, Seg), Stop> {
        if self.is_new(at) || self.is_changed(at) {
            return Ok((at, self.data(at)?));
        }
        let old = self.read_node(at)?;
        if self.is_frozen(at) {
            let (new, seg) = self.fresh()?;
            old.with(|b| seg.copy_from(0, b));
            return Ok((new, seg));
        }
        let dirty = self.frames().is_dirty(at);
        let before = old.with(<[u8]>::to_vec);
        drop(old);
        let seg = self.data_mut(at)?;
        self.undo.push(Undo::Changed { addr: at, before, dirty });
        Ok((at, seg))
    }

    fn fresh(&mut self) -> Result<(Addr, Seg), Stop> {
        self.fresh_of(false)
    }

    fn free(&mut self, at: Addr) {
        if at != 0 && !self.is_frozen(at) && self.s.space.was_allocated(at) {
            self.freed.push(at);
        }
    }

    fn resident(&mut self, at: Addr) -> Option<Seg> {
        self.frames().has(at).then(|| self.frames().find(at)).flatten()
    }

    fn volume(&self) -> u64 {
        self.s.layout.volume
    }
}
