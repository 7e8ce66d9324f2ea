//! Repairs of the findings of a check, each as one step that looks again.
//!
//! | finding | repair |
//! | --- | --- |
//! | an address that can be none, or a block that is another's | a hole |
//! | a block of contents whose tag names another owner | a hole; it is kept in `lost+found` |
//! | an entry with a name that none has | called `file.NUMBER` |
//! | a size that none has | that of its blocks |
//! | a number that another has, or none, and no blocks | another number |
//! | the same blocks under the same number twice | second name removed |
//! | a superblock ahead of the header, or a file ahead of the numbers given | raised |
//! | a block cached twice, or in a wrong place, and on the WORM | that copy is forgotten |
//! | a free list that contradicts itself, or has addresses of the tree | made new |
//!
//! A directory, or a block of addresses, that cannot be read stays: blocks below it may be good.

use std::fmt;

use bio::Seg;

use super::contents::span;
use super::format::{
    self, BlockState, Bucket, DENTRIES, DIRECT, Dentry, PAYLOAD, POINTERS, Super, Tag, u64_at,
};
use super::state::{DirSlot, WORM};
use super::step::Step;
use crate::fault::{Addr, Fault, Stop, Wait};
use crate::files::{Ino, Kind, New, ROOT};
use crate::users::ADM;
use crate::volume::View;

/// The file for blocks whose tag names another owner.
const LOST: &[u8] = b"lost+found";

/// The places of the entries from the root down to a file.
pub(super) type EntryPath = Vec<(Ino, DirSlot)>;

/// A finding of a check.
pub(super) struct Finding {
    /// For people.
    pub text: String,
    /// `None`: the right repair is unknown.
    pub repair: Option<Repair>,
    /// To the file or directory that the repair is about.
    pub path: EntryPath,
}

/// The change of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Number,
    Size,
    Name,
    Remove,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) enum Repair {
    /// The pointer that leads to block `n` of a file, at that level, is removed.
    Hole { file: Ino, n: u64, level: usize },
    /// The same of a block of contents, which is kept.
    Rescue { file: Ino, n: u64, addr: Addr },
    /// An entry changes.
    Entry(DirSlot, Change),
    /// A place of a bucket is empty.
    Forget { row: u64, column: usize },
    /// Addresses below it were given.
    End(Addr),
    /// Numbers up to it were given.
    Numbers(u64),
    /// The free list is emptied: unnamed addresses are put on it later.
    List,
}

impl Repair {
    /// True if other findings may be consequences of this one.
    pub fn is_root_cause(self) -> bool {
        matches!(self, Repair::List | Repair::Forget { .. })
    }
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Repair::Hole { .. } => "a hole",
            Repair::Rescue { .. } => "a hole; the former contents are kept in /lost+found",
            Repair::Entry(_, Change::Number) => "renumbered",
            Repair::Entry(_, Change::Size) => "size set to that of the blocks",
            Repair::Entry(_, Change::Name) => "named by its number",
            Repair::Entry(_, Change::Remove) => "second name removed",
            Repair::Forget { .. } => "cached copy dropped; the WORM has the block",
            Repair::End(_) => "header updated",
            Repair::Numbers(_) => "next number raised",
            Repair::List => "free list rebuilt",
        })
    }
}

impl Step<'_> {
    /// Repairs a finding; false: it is repaired already.
    pub(super) fn repair(&mut self, f: &Finding) -> Result<bool, Stop> {
        for (ino, place) in &f.path {
            self.set_dir_slot(*ino, Some(*place));
        }
        match f.repair {
            None => return Ok(false),
            Some(Repair::Hole { file, n, level }) => self.unmap(file, n, level)?,
            Some(Repair::Rescue { file, n, addr }) => {
                if let Some(seg) = self.raw(addr)?
                    && seg.with(|b| b[..PAYLOAD].iter().any(|b| *b != 0))
                {
                    self.rescue(addr, &seg)?;
                }
                self.unmap(file, n, 0)?;
            }
            Some(Repair::Entry(place, change)) => return self.repair_entry(place, change),
            Some(Repair::Forget { row, column }) => return self.forget_copy(row, column),
            Some(Repair::End(end)) => self.set_header(|h| h.fsize = h.fsize.max(end))?,
            Some(Repair::Numbers(last)) => {
                if self.super_waits()? {
                    return Err(Stop::Wait(Wait::Copy(self.sb())));
                }
                let sb = self.change_super()?;
                let raise = |s: Super| Super { qidgen: s.qidgen.max(last), ..s };
                sb.with_mut(|b| raise(Super::read(b)).write(b));
                self.s.qid = self.s.qid.max(last);
            }
            Some(Repair::List) => self.empty_list()?,
        }
        Ok(true)
    }

    /// The pointer of a file that leads to its block `n`, at that level, becomes a hole.
    pub(super) fn unmap(&mut self, file: Ino, n: u64, level: usize) -> Result<(), Stop> {
        let (mut d, _) = self.dentry(View::Live, file)?;
        self.make_hole(&mut d, n, level)?;
        self.put(file, &d)
    }

    /// The contents of a block on its device; `None`: the WORM never had it.
    fn raw(&mut self, addr: Addr) -> Result<Option<Seg>, Stop> {
        let at = self.at(View::Live, addr)?;
        if at & WORM != 0 && !self.was_written(addr)? {
            return Ok(None);
        }
        self.read_block(at).map(Some)
    }

    /// Copies the contents of a block to a file that only `adm` can read.
    fn rescue(&mut self, addr: Addr, seg: &Seg) -> Result<(), Stop> {
        let new = New { kind: Kind::Dir, mode: 0o700, uid: ADM, gid: ADM, ..New::default() };
        let dir = match self.lookup(View::Live, ROOT, LOST)? {
            Some(dir) => dir,
            None => self.create(ROOT, LOST, &new)?,
        };
        let (mut name, mut n) = (format!("block.{addr}"), 1);
        while self.lookup(View::Live, dir, name.as_bytes())?.is_some() {
            (name, n) = (format!("block.{addr}.{n}"), n + 1);
        }
        let new = New { kind: Kind::File, mode: 0o600, ..new };
        let ino = self.create(dir, name.as_bytes(), &new)?;
        let data: Vec<Seg> = seg.slice(0, PAYLOAD).into_iter().collect();
        self.write(ino, Some(0), &data, ADM).map(drop)
    }

    fn repair_entry(&mut self, place: DirSlot, change: Change) -> Result<bool, Stop> {
        if let Change::Remove = change {
            return self.remove_entry(place).map(|()| true);
        }
        let (mut dir, _) = self.dentry(View::Live, place.dir)?;
        let (n, slot) = (place.slot / DENTRIES as u64, (place.slot % DENTRIES as u64) as usize);
        let at = self.map(View::Live, &dir, n)?;
        if at == 0 {
            return Ok(false);
        }
        let mut d = self.dump_entry(at, dir.path, slot)?;
        if !d.is_used() {
            return Ok(false);
        }
        match change {
            Change::Number => d.path = self.new_qid()?,
            Change::Size => d.size = self.blocks_end(&d)?.saturating_mul(PAYLOAD as u64),
            Change::Name | Change::Remove => d.name = format!("file.{}", d.path).into_bytes(),
        }
        self.put_at(&mut dir, place.slot, &d)?;
        self.put(place.dir, &dir)?;
        Ok(true)
    }

    /// Behind the last block that an entry leads to.
    fn blocks_end(&mut self, d: &Dentry) -> Result<u64, Stop> {
        let tops = (0..).zip(d.direct.iter().chain(&d.indirect));
        let Some((index, top)) = tops.filter(|(_, a)| **a != 0).last() else { return Ok(0) };
        let Some(above) = usize::checked_sub(index, DIRECT) else { return Ok(index as u64 + 1) };
        let (mut level, mut at) = (above + 1, *top);
        let mut n = DIRECT as u64 + (1..level).map(|l| span(l + 1)).sum::<u64>();
        while level > 0 {
            let block = self.block(View::Live, at, Tag::indirect(level), d.path)?;
            let used = |i: &usize| block.with(|b| u64_at(b, 8 * i)) != 0;
            let Some(last) = (0..POINTERS).rev().find(used) else { break };
            n += last as u64 * span(level);
            at = block.with(|b| u64_at(b, 8 * last));
            level -= 1;
        }
        Ok(n + 1)
    }

    fn forget_copy(&mut self, row: u64, column: usize) -> Result<bool, Stop> {
        let block = self.block_mut(self.header().bucket_at(row))?;
        let entry = block.with(|b| Bucket::of(b, row).entry(column)).unwrap_or_default();
        if entry.state != BlockState::Read {
            return Ok(false);
        }
        self.set_entry((row, column), BlockState::None, entry.addr)?;
        Ok(true)
    }

    fn empty_list(&mut self) -> Result<(), Stop> {
        while self.take_spare().is_some() || self.take_left().is_some() {}
        self.s.folded = 0;
        let sb = self.change_super()?;
        sb.with_mut(|b| {
            format::set_frees(b, 1);
            format::set_free(b, 0, 0);
            Super { tfree: 0, ..Super::read(b) }.write(b);
        });
        Ok(())
    }

    /// Frees addresses that nothing names.
    pub(super) fn give_lost(&mut self, some: &[Addr]) -> Result<(), Stop> {
        for addr in some {
            if self.state(*addr)? == BlockState::Dirty {
                self.give_back(*addr)?;
            }
        }
        Ok(())
    }

    /// Takes an entry out of a directory with any contents, and gives nothing back. False: there is
    /// no such name.
    pub(super) fn forget(&mut self, dir: Ino, name: &[u8]) -> Result<bool, Stop> {
        let (d, _) = self.dentry(View::Live, dir)?;
        if !d.is_dir() {
            return Err(Fault::NotDir.into());
        }
        let Some((_, place)) = self.seek(View::Live, dir, &d, name)?.0 else { return Ok(false) };
        self.remove_entry(place)?;
        Ok(true)
    }
}
