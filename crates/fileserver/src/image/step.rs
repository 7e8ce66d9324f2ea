//! A step: one operation over blocks in memory. It happens as a whole or not at all.

use bio::Seg;

use super::format::{self, BLOCK, Dentry, FIRST, Header, Tag, path};
use super::state::{DirSlot, ImageState, WORM};
use crate::fault::{Addr, Fault, Stop, Wait};
use crate::files::Ino;
use crate::orphans::InodeRefs;
use crate::volume::{Dump, ReadAhead, View};

/// How to take a change back.
enum Undo {
    /// The block was not in memory.
    New(Addr),
    /// The previous contents, and whether they were dirty.
    Changed(Addr, Seg, bool),
    /// The previous entry of a file without a name.
    Unlinked(Ino, Option<Dentry>),
    /// The previous place of a file.
    DirSlot(Ino, Option<DirSlot>),
    /// An address was given while a tree is frozen.
    Since(Addr),
    /// One was given back meanwhile; one of those was looked at.
    Left,
    /// See `Left`.
    LookedAt(Addr),
    /// One became spare, and one of those was given.
    Spared,
    /// See `Spared`.
    Spent(Addr),
    /// A superblock joined those that are to be copied.
    Super,
}

/// See the module. Made by [`super::Image::run`].
pub struct Step<'s> {
    pub(super) s: &'s mut ImageState,
    inode_refs: &'s InodeRefs,
    /// Read-ahead distance of a sequential reader, bytes.
    pub(super) ahead_bytes: u64,
    undo: Vec<Undo>,
    header: Header,
    counts: [u64; 6],
    qid: u64,
    folded: Addr,
    /// Nothing stays where a dump has it, at any cost: for the dump itself.
    pub(super) moving: bool,
    /// Nothing is changed: blocks that are read from the WORM are not kept.
    pub(super) peeks: bool,
}

fn refused(shape: &super::state::Shape) -> Stop {
    let why = match shape.worm {
        _ if shape.read_only => "the image is opened to be read only (`read_only`)",
        None => "an image without a cache device is read only",
        Some(_) => "the cache device has no space for a log: the image is read only",
    };
    Fault::Invalid(why).into()
}

impl<'s> Step<'s> {
    pub(super) fn new(s: &'s mut ImageState, keepers: &'s InodeRefs, ahead: ReadAhead) -> Step<'s> {
        let far = ahead.distance(s.frames.limit() * BLOCK);
        let (header, counts, qid, folded) = (s.header, s.counts, s.qid, s.folded);
        Step {
            s,
            inode_refs: keepers,
            ahead_bytes: far,
            undo: Vec::new(),
            header,
            counts,
            qid,
            folded,
            moving: false,
            peeks: false,
        }
    }

    /// It has not happened.
    pub(super) fn undo(self) {
        let s = self.s;
        for undo in self.undo.into_iter().rev() {
            match undo {
                Undo::New(at) => s.frames.drop_block(at),
                Undo::Changed(at, seg, dirty) => s.frames.put_back(at, seg, dirty),
                Undo::Unlinked(ino, Some(d)) => drop(s.unlinked.insert(ino, d)),
                Undo::Unlinked(ino, None) => drop(s.unlinked.remove(&ino)),
                Undo::DirSlot(ino, Some(p)) => drop(s.dir_slots.insert((View::Live, ino), p)),
                Undo::DirSlot(ino, None) => drop(s.dir_slots.remove(&(View::Live, ino))),
                Undo::Since(addr) => drop(s.since.as_mut().map(|since| since.remove(&addr))),
                Undo::Left => drop(s.left.pop()),
                Undo::LookedAt(addr) => s.left.push(addr),
                Undo::Spared => drop(s.spare.pop()),
                Undo::Spent(addr) => s.spare.push(addr),
                Undo::Super => drop(s.supers.pop()),
            }
        }
        (s.header, s.counts, s.qid) = (self.header, self.counts, self.qid);
        s.folded = self.folded;
    }

    /// Wall clock, ns since 1970.
    pub fn now_ns(&self) -> u64 {
        self.s.now_ns
    }

    /// The same in seconds, as entries have it.
    pub(super) fn now(&self) -> u32 {
        (self.s.now_ns / 1_000_000_000) as u32
    }

    /// Every dump.
    pub fn dumps(&self) -> &[Dump] {
        &self.s.dumps
    }

    /// True while a file has a keeper: its contents stay.
    pub(super) fn is_held(&self, ino: Ino) -> bool {
        self.inode_refs.has(ino)
    }

    /// A block of zeros, for holes.
    pub(super) fn zeros(&self) -> Result<Seg, Stop> {
        self.s.frames.zeros().ok_or(Stop::Wait(Wait::Memory))
    }

    /// A block of a device.
    pub(super) fn read_block(&mut self, at: Addr) -> Result<Seg, Stop> {
        self.s.frames.find(at).ok_or(Stop::Missing(at))
    }

    /// It will be wanted: it is loaded beside the block that the operation waits for.
    pub(super) fn want(&mut self, at: Addr) {
        if !self.s.frames.has(at) && !self.s.wanted.contains(&at) {
            self.s.wanted.push(at);
        }
    }

    /// Requests a block for a sequential reader.
    pub(super) fn want_later(&mut self, at: Addr) {
        if !self.s.frames.has(at) {
            self.s.later.push(at);
        }
    }

    fn may_change(&self) -> Result<u64, Stop> {
        if let Some(why) = &self.s.refused {
            return Err(Stop::Fail(why.clone()));
        }
        self.s.shape.log.ok_or_else(|| refused(&self.s.shape))
    }

    /// Memory of a block that this step may change; of a device's block that was not in memory
    /// when `read` is false, zeros.
    fn block_mut_at(&mut self, at: Addr, read: bool) -> Result<Seg, Stop> {
        let blocks_max = self.may_change()?;
        if at & WORM != 0 {
            return Err(
                Fault::Corrupt("an operation would change a block of the WORM".into()).into()
            );
        }
        let mine = |u: &Undo| match u {
            Undo::New(a) | Undo::Changed(a, ..) => *a == at,
            _ => false,
        };
        if self.undo.iter().any(mine) {
            let seg = self.read_block(at)?;
            if read {
                return Ok(seg);
            }
            // The place may have been another block's in this very step, whose memory is in use.
            let seg = self.s.frames.memory().ok_or(Stop::Wait(Wait::Memory))?;
            seg.with_mut(|b| b.fill(0));
            self.s.frames.swap(at, seg.clone());
            return Ok(seg);
        }
        let dirty = self.s.frames.is_dirty(at);
        if !dirty && self.s.frames.dirty() as u64 >= blocks_max {
            return Err(Stop::Wait(Wait::Commit));
        }
        let old = if self.s.frames.has(at) || read { Some(self.read_block(at)?) } else { None };
        let seg = self.s.frames.memory().ok_or(Stop::Wait(Wait::Memory))?;
        match &old {
            Some(old) if read => drop(old.with(|b| seg.copy_from(0, b))),
            _ => seg.with_mut(|b| b.fill(0)),
        }
        self.undo.push(match old {
            Some(old) => Undo::Changed(at, old, dirty),
            None => Undo::New(at),
        });
        self.s.frames.swap(at, seg.clone());
        Ok(seg)
    }

    /// A block of the first device that is changed.
    pub(super) fn block_mut(&mut self, at: Addr) -> Result<Seg, Stop> {
        self.block_mut_at(at, true)
    }

    /// One of which nothing stays.
    pub(super) fn blank_block(&mut self, at: Addr) -> Result<Seg, Stop> {
        self.block_mut_at(at, false)
    }

    /// Header of the cache device.
    pub(super) fn header(&self) -> Header {
        self.s.header
    }

    /// Changes it.
    pub(super) fn set_header(&mut self, change: impl FnOnce(&mut Header)) -> Result<(), Stop> {
        let seg = self.block_mut(FIRST)?;
        change(&mut self.s.header);
        let header = self.s.header;
        seg.with_mut(|b| header.write(b));
        Ok(())
    }

    /// Sets the entry of a file without a name.
    pub(super) fn set_unlinked(&mut self, ino: Ino, d: Option<Dentry>) {
        let before = match d {
            Some(d) => self.s.unlinked.insert(ino, d),
            None => self.s.unlinked.remove(&ino),
        };
        self.undo.push(Undo::Unlinked(ino, before));
    }

    /// Sets the place of a file of the live tree.
    pub(super) fn set_dir_slot(&mut self, ino: Ino, place: Option<DirSlot>) {
        let key = (View::Live, ino);
        let before = match place {
            Some(p) => self.s.dir_slots.insert(key, p),
            None => self.s.dir_slots.remove(&key),
        };
        self.undo.push(Undo::DirSlot(ino, before));
    }

    /// An address was given: a tree that is frozen has not got it.
    pub(super) fn note_allocated(&mut self, addr: Addr) {
        if self.s.since.as_mut().is_some_and(|since| since.insert(addr)) {
            self.undo.push(Undo::Since(addr));
        }
    }

    /// The live tree gave an address back that a frozen one may have.
    pub(super) fn leave(&mut self, addr: Addr) {
        self.s.left.push(addr);
        self.undo.push(Undo::Left);
    }

    /// One of those, to be looked at.
    pub(super) fn take_left(&mut self) -> Option<Addr> {
        let addr = self.s.left.pop()?;
        self.undo.push(Undo::LookedAt(addr));
        Some(addr)
    }

    /// An address is free, and on no list.
    pub(super) fn spare(&mut self, addr: Addr) {
        self.s.spare.push(addr);
        self.undo.push(Undo::Spared);
    }

    /// One of those.
    pub(super) fn take_spare(&mut self) -> Option<Addr> {
        let addr = self.s.spare.pop()?;
        self.undo.push(Undo::Spent(addr));
        Some(addr)
    }

    /// A superblock joins those that are to be copied.
    pub(super) fn queue_super(&mut self, addr: Addr) {
        self.s.supers.push(addr);
        self.undo.push(Undo::Super);
    }

    /// Checks the tag of the block.
    pub(super) fn checked(&self, seg: Seg, at: Addr, tag: Tag, of: u64) -> Result<Seg, Stop> {
        let whose = |why| {
            let file = if of > path::SUPER { format!(" of file {of}") } else { String::new() };
            Fault::Corrupt(format!("block {at}{file}: {why}"))
        };
        match seg.with(|b| format::check_tag(b, tag, of)) {
            Ok(()) => Ok(seg),
            Err(why) => Err(Stop::Fail(whose(why))),
        }
    }
}
