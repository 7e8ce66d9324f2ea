//! Contents of files: blocks by their number in a file, reading, writing and cutting.

use bio::Seg;

use super::format::{DIRECT, Dentry, LEVELS, PAYLOAD, POINTERS, Tag, put_u64, u64_at};
use super::step::Step;
use crate::fault::{Addr, Fault, Stop};
use crate::files::{Ino, LoadMode, Reader, gather};
use crate::volume::View;

/// Bytes of a file in a block.
const WIDE: u64 = PAYLOAD as u64;
/// Blocks that one step gives back.
const CUT: usize = 96;
/// Blocks of a file that a list of them looks at.
const LISTED: u64 = 1 << 16;

/// Which address of a file leads to its block `n`: a direct one, or an indirect of a level and the
/// block's number below that.
enum BlockPath {
    Direct(usize),
    Indirect(usize, u64),
}

fn block_path(n: u64) -> Result<BlockPath, Stop> {
    let mut left = match n.checked_sub(DIRECT as u64) {
        None => return Ok(BlockPath::Direct(n as usize)),
        Some(left) => left,
    };
    let mut span = POINTERS as u64;
    for level in 1..=LEVELS {
        if left < span {
            return Ok(BlockPath::Indirect(level, left));
        }
        left -= span;
        span = span.saturating_mul(POINTERS as u64);
    }
    Err(Fault::TooBig.into())
}

/// Blocks below one address of an indirect block of that level.
pub(super) fn span(level: usize) -> u64 {
    (POINTERS as u64).saturating_pow(level as u32 - 1)
}

/// Blocks that a file of that many bytes has.
pub(super) fn blocks(size: u64) -> u64 {
    size.div_ceil(WIDE)
}

impl Step<'_> {
    /// The address of a file's block; 0: a hole.
    pub(super) fn map(&mut self, view: View, d: &Dentry, n: u64) -> Result<Addr, Stop> {
        let mut last = 0;
        self.down(view, d, n, |addr| last = addr)?;
        Ok(last)
    }

    /// Addresses from the entry down to a file's block, one after the other, the last of them 0
    /// where there is a hole. Answers how many blocks from there on have all of these in common.
    pub(super) fn down(
        &mut self,
        view: View,
        d: &Dentry,
        n: u64,
        mut see: impl FnMut(Addr),
    ) -> Result<u64, Stop> {
        let (mut level, mut left) = match block_path(n)? {
            BlockPath::Direct(i) => {
                see(d.direct[i]);
                return Ok(1);
            }
            BlockPath::Indirect(level, left) => (level, left),
        };
        let mut at = d.indirect[level - 1];
        see(at);
        let mut below = span(level).saturating_mul(POINTERS as u64);
        while level > 0 && at != 0 {
            let block = self.block(view, at, Tag::indirect(level), d.path)?;
            let i = (left / span(level)) as usize;
            below = span(level);
            left %= below;
            at = block.with(|b| u64_at(b, 8 * i));
            see(at);
            level -= 1;
        }
        Ok(below - left)
    }

    /// A block of a file to be changed, and whether it is new. It, and what leads to it from the
    /// entry, may have other addresses then: the entry is to be written back.
    pub(super) fn own_block(&mut self, d: &mut Dentry, n: u64) -> Result<(Seg, bool), Stop> {
        let (of, leaf) = (d.path, d.tag());
        let (mut level, mut left) = match block_path(n)? {
            BlockPath::Direct(i) => {
                let (addr, is_new) = self.own_or_new(d.direct[i], leaf, of)?;
                d.direct[i] = addr;
                return Ok((self.edit(addr, leaf, of)?, is_new));
            }
            BlockPath::Indirect(level, left) => (level, left),
        };
        let top = level - 1;
        let (mut at, mut is_new) = self.own_or_new(d.indirect[top], Tag::indirect(level), of)?;
        d.indirect[top] = at;
        while level > 0 {
            let tag = Tag::indirect(level);
            let block = self.block(View::Live, at, tag, of)?;
            let i = (left / span(level)) as usize;
            left %= span(level);
            level -= 1;
            let was = block.with(|b| u64_at(b, 8 * i));
            drop(block);
            let below = if level == 0 { leaf } else { Tag::indirect(level) };
            let (next, is_created) = self.own_or_new(was, below, of)?;
            if next != was {
                self.edit(at, tag, of)?.with_mut(|b| put_u64(b, 8 * i, next));
            }
            (at, is_new) = (next, is_created);
        }
        Ok((self.edit(at, leaf, of)?, is_new))
    }

    /// The pointer on the way to a file's block that leads to a block of that level (0: to the
    /// block itself) becomes 0. The entry is to be written back.
    pub(super) fn make_hole(&mut self, d: &mut Dentry, n: u64, stop: usize) -> Result<(), Stop> {
        let (mut level, mut left) = match block_path(n)? {
            BlockPath::Direct(i) => {
                d.direct[i] = 0;
                return Ok(());
            }
            BlockPath::Indirect(level, left) => (level, left),
        };
        let top = level - 1;
        if d.indirect[top] == 0 || stop >= level {
            d.indirect[top] = 0;
            return Ok(());
        }
        let mut at = self.writable_address(d.indirect[top], Tag::indirect(level), d.path)?;
        d.indirect[top] = at;
        loop {
            let (tag, i) = (Tag::indirect(level), (left / span(level)) as usize);
            left %= span(level);
            level -= 1;
            let was = self.block(View::Live, at, tag, d.path)?.with(|b| u64_at(b, 8 * i));
            let next = match was {
                0 => 0,
                _ if level == stop => 0,
                was => self.writable_address(was, Tag::indirect(level), d.path)?,
            };
            self.edit(at, tag, d.path)?.with_mut(|b| put_u64(b, 8 * i, next));
            if next == 0 {
                return Ok(());
            }
            at = next;
        }
    }

    fn own_or_new(&mut self, addr: Addr, tag: Tag, of: u64) -> Result<(Addr, bool), Stop> {
        match addr {
            0 => Ok((self.alloc(tag, of)?.0, true)),
            addr => Ok((self.writable_address(addr, tag, of)?, false)),
        }
    }

    /// Adds up to `len` bytes from `offset` to `out`, as parts of blocks in memory; how many. Fewer
    /// at the end of the file only.
    pub fn read(
        &mut self,
        view: View,
        ino: Ino,
        (offset, len): (u64, usize),
        out: &mut Vec<Seg>,
    ) -> Result<usize, Stop> {
        let (d, _) = self.dentry(view, ino)?;
        if d.is_dir() {
            return Err(Fault::IsDir.into());
        }
        let end = offset.saturating_add(len as u64).min(d.size);
        if offset >= end {
            return Ok(0);
        }
        gather(WIDE, (offset, end), out, |n, look| match (self.map(view, &d, n)?, look) {
            (0, _) => self.zeros().map(Some),
            (at, LoadMode::Read) => self.block(view, at, Tag::File, d.path).map(Some),
            (at, LoadMode::Prefetch) => {
                self.want_block(view, at);
                Ok(None)
            }
        })
    }

    /// The same for a reader that may be sequential: the next blocks are loaded ahead.
    pub fn read_on(
        &mut self,
        view: View,
        ino: Ino,
        (offset, len): (u64, usize),
        reader: &mut Reader,
        out: &mut Vec<Seg>,
    ) -> Result<usize, Stop> {
        let end = offset.saturating_add(len as u64);
        if let Some((from, to)) = reader.read_ahead_range(offset, end, self.ahead_bytes)
            && let Ok((d, _)) = self.dentry(view, ino)
        {
            // A change that fails half done would not be undone here.
            self.peeks = true;
            let requested = self.want_range(view, &d, from, to);
            self.peeks = false;
            reader.set_requested(requested);
        }
        let n = self.read(view, ino, (offset, len), out)?;
        reader.set_position(offset + n as u64);
        Ok(n)
    }

    /// Requests a range of a file; returns how far. If the pointers to a block are not in memory,
    /// they are read first, and the block with a later read.
    fn want_range(&mut self, view: View, d: &Dentry, from: u64, to: u64) -> u64 {
        let mut requested = None;
        for n in from / WIDE..blocks(to.min(d.size)) {
            let at = match self.map(view, d, n) {
                Ok(0) => continue,
                Ok(addr) => self.at(view, addr),
                // Further blocks want the same.
                Err(Stop::Missing(at)) => {
                    self.want_later(at);
                    return requested.unwrap_or(n * WIDE).max(from);
                }
                Err(stop) => Err(stop),
            };
            match at {
                Ok(at) => self.want_later(at),
                Err(Stop::Missing(at)) => {
                    self.want_later(at);
                    requested = requested.or(Some(n * WIDE));
                }
                // A read of the block reports the fault.
                Err(_) => {}
            }
        }
        requested.unwrap_or(to).max(from)
    }

    /// Writes `data` at `offset`, or at the end; where that was, and how much. All of it or
    /// nothing.
    pub fn write(
        &mut self,
        ino: Ino,
        offset: Option<u64>,
        data: &[Seg],
        by: u32,
    ) -> Result<(u64, usize), Stop> {
        let (mut d, _) = self.dentry(View::Live, ino)?;
        if d.is_dir() {
            return Err(Fault::IsDir.into());
        }
        let offset = offset.unwrap_or(d.size);
        let len: u64 = data.iter().map(|s| s.len() as u64).sum();
        let end = offset.checked_add(len).filter(|e| *e <= super::SIZE_MAX);
        let end = end.ok_or(Stop::Fail(Fault::TooBig))?;
        let mut at = offset;
        for seg in data {
            let mut done = 0;
            while done < seg.len() {
                let (n, from) = (at / WIDE, (at % WIDE) as usize);
                let some = (seg.len() - done).min(PAYLOAD - from);
                let (block, _) = self.own_block(&mut d, n)?;
                seg.with(|b| block.copy_from(from, &b[done..done + some]));
                done += some;
                at += some as u64;
            }
        }
        if len > 0 {
            d.size = d.size.max(end);
            self.changed(&mut d, by);
            self.put(ino, &d)?;
        }
        Ok((offset, len as usize))
    }

    /// Makes a file longer or shorter.
    pub(super) fn resize(&mut self, ino: Ino, d: &mut Dentry, size: u64) -> Result<(), Stop> {
        if size > super::SIZE_MAX {
            return Err(Fault::TooBig.into());
        }
        if size < d.size {
            if !self.cut(d, blocks(size))? {
                // In several steps, from its end.
                self.s.cutting.insert(ino, size);
                return Err(Stop::Fail(Fault::Unfinished(ino)));
            }
            let (n, rest) = (size / WIDE, (size % WIDE) as usize);
            let last = if rest > 0 { self.map(View::Live, d, n)? } else { 0 };
            if last != 0 {
                let (block, _) = self.own_block(d, n)?;
                block.with_mut(|b| b[rest..PAYLOAD].fill(0));
            }
        }
        d.size = size;
        Ok(())
    }

    /// One step of making a file shorter that loses many blocks; true when the rest is one more.
    pub(super) fn cut_some(&mut self, ino: Ino, size: u64) -> Result<bool, Stop> {
        let (mut d, _) = self.dentry(View::Live, ino)?;
        let done = self.cut(&mut d, blocks(size))?;
        self.put(ino, &d)?;
        Ok(done)
    }

    /// Gives back blocks of a file behind the first `keep`, from its end; its size shows how far
    /// that is. True: all of them.
    pub(super) fn cut(&mut self, d: &mut Dentry, keep: u64) -> Result<bool, Stop> {
        let mut left = CUT;
        let mut first = DIRECT as u64;
        let firsts: Vec<u64> = (1..=LEVELS)
            .map(|level| {
                let this = first;
                first = first.saturating_add(span(level).saturating_mul(POINTERS as u64));
                this
            })
            .collect();
        for level in (1..=LEVELS).rev() {
            let mut at = d.indirect[level - 1];
            self.prune(&mut at, (level, firsts[level - 1]), keep, &mut left, d)?;
            d.indirect[level - 1] = at;
            if left == 0 {
                return Ok(false);
            }
        }
        for n in (0..DIRECT).rev() {
            if n as u64 >= keep && d.direct[n] != 0 {
                if left == 0 {
                    return Ok(false);
                }
                self.free(d.direct[n])?;
                d.direct[n] = 0;
                left -= 1;
                d.size = d.size.min(n as u64 * WIDE);
            }
        }
        d.size = if d.is_dir() { 0 } else { d.size.min(keep.saturating_mul(WIDE)) };
        Ok(true)
    }

    /// The same below one address, whose first block is `first`; with nothing left below, it is
    /// given back.
    fn prune(
        &mut self,
        at: &mut Addr,
        (level, first): (usize, u64),
        keep: u64,
        left: &mut usize,
        d: &mut Dentry,
    ) -> Result<(), Stop> {
        let end = first.saturating_add(span(level.max(1)).saturating_mul(POINTERS as u64));
        if *at == 0 || (level > 0 && end <= keep) {
            return Ok(());
        }
        if level == 0 {
            if *left > 0 {
                self.free(*at)?;
                *at = 0;
                *left -= 1;
                d.size = d.size.min(first.saturating_mul(WIDE));
            }
            return Ok(());
        }
        let tag = Tag::indirect(level);
        let block = self.block(View::Live, *at, tag, d.path)?;
        let mut below: Vec<Addr> =
            block.with(|b| (0..POINTERS).map(|i| u64_at(b, 8 * i)).collect());
        let before = below.clone();
        drop(block);
        for i in (0..POINTERS).rev() {
            let from = first.saturating_add(span(level).saturating_mul(i as u64));
            if *left == 0 || (from < keep && span(level) == 1) {
                break;
            }
            self.prune(&mut below[i], (level - 1, from), keep, left, d)?;
        }
        if below.iter().all(|a| *a == 0) && first >= keep && *left > 0 {
            self.free(*at)?;
            *at = 0;
            *left -= 1;
        } else if below != before {
            *at = self.writable_address(*at, tag, d.path)?;
            let block = self.edit(*at, tag, d.path)?;
            for (i, a) in below.iter().enumerate() {
                block.with_mut(|b| put_u64(b, 8 * i, *a));
            }
        }
        Ok(())
    }

    /// Makes up to `len` bytes from `offset` on zero; returns how many. Bytes behind the end of the
    /// file are zero.
    pub fn clear(&mut self, ino: Ino, offset: u64, len: u64, by: u32) -> Result<u64, Stop> {
        let (mut d, _) = self.dentry(View::Live, ino)?;
        if d.is_dir() {
            return Err(Fault::IsDir.into());
        }
        let wanted = offset.saturating_add(len).min(d.size);
        if offset >= wanted {
            return Ok(len);
        }
        let end = wanted.min((offset / WIDE + CUT as u64) * WIDE);
        for n in offset / WIDE..blocks(end) {
            if self.map(View::Live, &d, n)? != 0 {
                let from = offset.saturating_sub(n * WIDE).min(WIDE) as usize;
                let to = (end - n * WIDE).min(WIDE) as usize;
                let (block, _) = self.own_block(&mut d, n)?;
                block.with_mut(|b| b[from..to].fill(0));
            }
        }
        self.changed(&mut d, by);
        self.put(ino, &d)?;
        Ok(if end == wanted { len } else { end - offset })
    }

    /// Whether there is anything at `offset`, and for how many bytes that is so, `len` at most.
    pub fn is_mapped(
        &mut self,
        view: View,
        ino: Ino,
        offset: u64,
        len: u64,
    ) -> Result<(bool, u64), Stop> {
        let (d, _) = self.dentry(view, ino)?;
        let first = offset / WIDE;
        let is_stored = self.map(view, &d, first)? != 0;
        let mut n = first + 1;
        let last = blocks(offset.saturating_add(len)).min(first + CUT as u64);
        while n < last && (self.map(view, &d, n)? != 0) == is_stored {
            n += 1;
        }
        Ok((is_stored, (n * WIDE - offset).min(len)))
    }

    /// The blocks of a file with their addresses, the first `most`.
    pub fn blocks(&mut self, view: View, ino: Ino, most: usize) -> Result<Vec<(u64, u64)>, Stop> {
        let (d, _) = self.dentry(view, ino)?;
        let mut out = Vec::new();
        for n in 0..blocks(d.size).min(LISTED) {
            if out.len() == most {
                break;
            }
            let at = self.map(view, &d, n)?;
            if at != 0 {
                out.push((n, at));
            }
        }
        Ok(out)
    }
}
