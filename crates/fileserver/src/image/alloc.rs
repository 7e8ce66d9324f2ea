//! Allocation of addresses and file numbers, and their storage until then.
//!
//! ```text
//!   superblock is the live one's:   its free list; with that empty the WORM's end
//!   superblock is in state dump:    spare ones, beside it; then the WORM's end
//! ```
//! A dump's superblock stays as it is until the copier has written it, after all else (I3). Until
//! then nothing is changed in it (I8). Blocks that are given back are kept beside it. New addresses
//! are taken from the header, and every dirty address is below its end. New numbers are taken from
//! those that the superblock was given ahead. A program that opens the image in between, this one
//! or another, finds unused addresses, and never one that is used twice.

use bio::Seg;

use super::cached_worm::BUCKET_FULL;
use super::commit::Notes;
use super::format::{self, BlockState, FIRST, FREES, Super, Tag, path};
use super::step::Step;
use crate::fault::{Addr, Fault, Stop, Wait};
use crate::volume::View;

/// Addresses taken from the WORM's end at a time.
const GROW: u64 = 100;
/// Numbers that no file has: they could not be distinguished from a directory's.
const QID_DIR: u64 = 1 << 31;
/// Blocks keep the lower half of a number.
pub(super) const QID_MAX: u64 = u32::MAX as u64 - 1;
/// Numbers that a dump's superblock is ahead of those that were given.
const QIDS: u64 = 1 << 16;
/// Addresses given back to the list in one step.
const SETTLED: usize = 64;

const FULL: Fault = Fault::NoSpace("the WORM has no block left");

impl Step<'_> {
    /// The superblock.
    pub(super) fn super_block(&mut self) -> Result<Super, Stop> {
        let sb = self.sb();
        let seg = self.block(View::Live, sb, Tag::Super, path::SUPER)?;
        Ok(seg.with(Super::read))
    }

    /// The superblock is to be copied to the WORM as it is.
    pub(super) fn super_waits(&mut self) -> Result<bool, Stop> {
        use BlockState as S;
        Ok(self.has_worm() && matches!(self.state(self.sb())?, S::Dump | S::Dump1))
    }

    /// The superblock, to be changed.
    pub(super) fn change_super(&mut self) -> Result<Seg, Stop> {
        let sb = self.sb();
        if self.has_worm() {
            let old = self.block(View::Live, sb, Tag::Super, path::SUPER)?;
            self.modify_in_place(sb, &old)?;
        }
        self.edit(sb, Tag::Super, path::SUPER)
    }

    /// A new block of zeros with its tag.
    pub(super) fn alloc(&mut self, tag: Tag, of: u64) -> Result<(Addr, Seg), Stop> {
        let addr = match self.any_spare()? {
            Some(addr) => Ok(addr),
            None if self.super_waits()? => self.spare_at_the_end(),
            None => self.pop_free(),
        };
        // Addresses that a frozen tree may have are free when it has been walked.
        let more = self.s.since.is_some() && !self.s.left.is_empty();
        let addr = addr.map_err(|stop| match stop {
            Stop::Fail(Fault::NoSpace(_)) if more => Stop::Wait(Wait::Thaw),
            stop => stop,
        })?;
        self.note_allocated(addr);
        Ok((addr, self.fresh(addr, tag, of)?))
    }

    /// An address from the free list.
    fn pop_free(&mut self) -> Result<Addr, Stop> {
        let sb = self.change_super()?;
        loop {
            let n = sb.with(format::frees).filter(|n| *n > 0);
            let Some(n) = n else {
                return Err(Fault::Corrupt("the free list has no length".into()).into());
            };
            let addr = sb.with(|b| format::free(b, n - 1));
            if n == 1 && addr == 0 {
                let (given, to) = self.grow()?;
                for addr in given {
                    self.push_free(&sb, addr)?;
                }
                sb.with_mut(|b| Super { fsize: to, ..Super::read(b) }.write(b));
                continue;
            }
            if n == 1 {
                let next = self.block(View::Live, addr, Tag::Free, path::NONE)?;
                if next.with(format::frees).is_none_or(|n| n == 0) {
                    let why = format!("block {addr} of the free list has no length");
                    return Err(Fault::Corrupt(why).into());
                }
                next.with(|from| sb.with_mut(|b| format::copy_frees(from, b)));
            } else {
                sb.with_mut(|b| format::set_frees(b, n - 1));
            }
            sb.with_mut(|b| {
                let s = Super::read(b);
                Super { tfree: s.tfree.saturating_sub(1), ..s }.write(b);
            });
            return Ok(addr);
        }
    }

    /// The same from the WORM's end, while a dump has the superblock.
    fn spare_at_the_end(&mut self) -> Result<Addr, Stop> {
        let given = match self.grow() {
            Ok((given, _)) => given,
            // The list may have some: when the superblock has been copied.
            Err(Stop::Fail(Fault::NoSpace(_))) => {
                return Err(Stop::Wait(Wait::Copy(self.sb())));
            }
            Err(stop) => return Err(stop),
        };
        given.into_iter().for_each(|addr| self.spare(addr));
        self.take_spare().ok_or(Stop::Fail(FULL))
    }

    /// More addresses of the WORM, dirty from now on, the lowest last; and where its end is then.
    fn grow(&mut self) -> Result<(Vec<Addr>, Addr), Stop> {
        if !self.has_worm() {
            return Err(Fault::NoSpace("the image has no block left").into());
        }
        let (from, wsize) = (self.header().fsize, self.header().wsize);
        let to = (from + GROW).min(wsize);
        if from >= to {
            return Err(FULL.into());
        }
        let mut given = Vec::new();
        for addr in (from..to).rev() {
            match self.entry(addr)? {
                // Another program grew it without recording that.
                Some((_, e)) if e.state != BlockState::Read => continue,
                Some((c, _)) => self.set_state(addr, c, BlockState::Dirty)?,
                None => {
                    let Ok(column) = self.allocate_column(addr) else { continue };
                    self.set_state(addr, column, BlockState::Dirty)?;
                }
            }
            given.push(addr);
        }
        if given.is_empty() {
            return Err(BUCKET_FULL.into());
        }
        self.set_header(|h| h.fsize = to)?;
        Ok((given, to))
    }

    /// An address joins the free list.
    fn push_free(&mut self, sb: &Seg, addr: Addr) -> Result<(), Stop> {
        let bad = || Stop::Fail(Fault::Corrupt("the free list has no length".into()));
        let n = sb.with(format::frees).ok_or_else(bad)?;
        let n = if n >= FREES {
            let node = self.fresh(addr, Tag::Free, path::NONE)?;
            sb.with(|from| node.with_mut(|to| format::copy_frees(from, to)));
            0
        } else {
            n
        };
        sb.with_mut(|b| {
            format::set_free(b, n, addr);
            format::set_frees(b, n + 1);
            let s = Super::read(b);
            Super { tfree: s.tfree.wrapping_add(1), ..s }.write(b);
        });
        Ok(())
    }

    /// Nothing of the live tree leads to a block any more.
    pub(super) fn free(&mut self, addr: Addr) -> Result<(), Stop> {
        use BlockState as S;
        self.in_range(addr)?;
        if !self.has_worm() {
            return self.give_back(addr);
        }
        match self.entry(addr)? {
            // The frozen tree may have it (I7).
            Some((_, e)) if matches!(e.state, S::Write | S::Dirty) && self.is_frozen(addr) => {
                self.leave(addr);
                Ok(())
            }
            // A dump has it: its address is never used again.
            Some((c, e)) if matches!(e.state, S::Write | S::Read) => {
                self.set_state(addr, c, S::None)
            }
            Some((_, e)) if e.state == S::Dirty => self.give_back(addr),
            _ => Ok(()),
        }
    }

    pub(super) fn give_back(&mut self, addr: Addr) -> Result<(), Stop> {
        if self.super_waits()? {
            return self.keep_spare(addr);
        }
        let sb = self.change_super()?;
        self.push_free(&sb, addr)
    }

    /// Completes the work that waited for a frozen tree or for a dump's superblock; true: all that
    /// is possible now is done.
    pub(super) fn settle(&mut self) -> Result<bool, Stop> {
        if self.s.since.is_none() {
            for _ in 0..SETTLED {
                let Some(addr) = self.take_left() else { break };
                // Else the dump has it.
                if matches!(self.state(addr)?, BlockState::Dirty | BlockState::Write) {
                    self.free(addr)?;
                }
            }
        }
        let done = self.s.left.is_empty() || self.s.since.is_some();
        if self.super_waits()? {
            return Ok(done);
        }
        let (h, s) = (self.header(), self.super_block()?);
        let qidgen = self.s.qid;
        let wanted = Super { fsize: h.fsize, root: h.root, dumps: h.dumps, qidgen, ..s };
        if s != wanted || self.has_spare() {
            let sb = self.change_super()?;
            sb.with_mut(|b| wanted.write(b));
            for _ in 0..SETTLED {
                // A check that reads nodes and then the list finds the address in one of them.
                let addr = match self.take_spare() {
                    None => self.unfold()?,
                    some => some,
                };
                let Some(addr) = addr else { break };
                self.push_free(&sb, addr)?;
            }
        }
        Ok(done && !self.has_spare())
    }

    /// Another address is the root of the live tree.
    pub(super) fn set_root(&mut self, root: Addr) -> Result<(), Stop> {
        self.set_header(|h| h.root = root)?;
        if self.super_waits()? {
            return Ok(());
        }
        let sb = self.change_super()?;
        sb.with_mut(|b| Super { root, ..Super::read(b) }.write(b));
        Ok(())
    }

    /// A number for a new file, never given before.
    pub(super) fn new_qid(&mut self) -> Result<u64, Stop> {
        let mut qid = self.s.qid + 1;
        if qid == QID_DIR {
            qid += 1;
        }
        if qid > QID_MAX {
            return Err(Fault::NoSpace("the image has no numbers left for files").into());
        }
        if self.super_waits()? {
            if qid > self.super_block()?.qidgen {
                return Err(Stop::Wait(Wait::Copy(self.sb())));
            }
        } else {
            let sb = self.change_super()?;
            sb.with_mut(|b| Super { qidgen: qid, ..Super::read(b) }.write(b));
        }
        self.s.qid = qid;
        Ok(qid)
    }

    /// The next address at the WORM's end, for a block that has no other.
    pub(super) fn next_address(&mut self) -> Result<Addr, Stop> {
        let h = self.header();
        if h.fsize >= h.wsize {
            return Err(FULL.into());
        }
        self.set_header(|h| h.fsize += 1)?;
        Ok(h.fsize)
    }

    /// The superblock of a dump of that root: at the address that was kept for it, and with one
    /// kept for the next. From now on it is the live one's too.
    pub(super) fn new_super(&mut self, root: Addr, next: Addr) -> Result<(), Stop> {
        let old = self.sb();
        let was = self.block(View::Live, old, Tag::Super, path::SUPER)?;
        let at = was.with(Super::read).next;
        let sb = self.put_dump(at, &was)?;
        let h = self.header();
        let qidgen = (self.s.qid + QIDS).min(QID_MAX);
        sb.with_mut(|b| {
            let (fsize, dumps) = (h.fsize, h.dumps);
            Super { last: old, next, fsize, root, dumps, qidgen, ..Super::read(b) }.write(b);
        });
        self.queue_super(at);
        // Its changes since its own dump are no longer of use; the WORM has the dump's version.
        if let Some((c, e)) = self.entry(old)?
            && e.state == BlockState::Write
        {
            self.set_state(old, c, BlockState::None)?;
        }
        self.set_header(|h| h.sb = at)
    }

    /// The known state of addresses and numbers when an image is opened.
    pub(super) fn load_state(&mut self, notes: Option<&Notes>) -> Result<(), Stop> {
        let supers = self.waiting_supers()?;
        let qidgen = self.super_block()?.qidgen;
        let (mut spare, mut folded) = (Vec::new(), 0);
        for addr in notes.iter().flat_map(|n| &n.spare) {
            if self.state(*addr)? == BlockState::Dirty {
                spare.push(*addr);
            }
        }
        let last = notes.map_or(0, |n| n.folded);
        if last != 0 && self.state(last)? == BlockState::Dirty {
            folded = last;
        }
        let s = &mut *self.s;
        (s.supers, s.spare, s.folded) = (supers, spare, folded);
        s.qid = notes.map_or(qidgen, |n| n.qid.min(qidgen));
        if notes.is_some_and(|n| n.tidy) {
            s.tidied = s.loose;
        }
        s.noted = Notes::of(s);
        Ok(())
    }

    /// Superblocks that are to be copied, as the chain has them.
    fn waiting_supers(&mut self) -> Result<Vec<Addr>, Stop> {
        let (mut out, mut at) = (Vec::new(), self.sb());
        while at > FIRST && self.state(at)? == BlockState::Dump {
            let seg = self.block(View::Live, at, Tag::Super, path::SUPER)?;
            out.push(at);
            let last = seg.with(Super::read).last;
            if last >= at {
                break;
            }
            at = last;
        }
        out.reverse();
        Ok(out)
    }
}
