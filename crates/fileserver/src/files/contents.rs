//! Contents: runs of blocks by address.
//!
//! A file's blocks are named by items of [`RUN`] addresses each; zero means a hole. A write first
//! loads all it needs, then changes the tree, and copies bytes when nothing can fail any more.

use bio::Seg;

use super::{Ino, Inode, Kind, SIZE_MAX, VolumeFiles};
use crate::fault::{Addr, Fault, Stop, Wait};
use crate::tree::{self, Blocks, Key, Kind as Item};
use crate::volume::View;

/// Addresses in an item.
pub const RUN: u64 = 32;

/// Read-ahead continues when this part of its distance has not been requested yet.
const AHEAD_PART: u64 = 64;

pub(super) type Run = [Addr; RUN as usize];

pub(super) fn decode_run(bytes: &[u8]) -> Run {
    let mut out = Run::default();
    for (to, b) in out.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut word = [0; 8];
        word.copy_from_slice(b);
        *to = Addr::from_le_bytes(word);
    }
    out
}

/// Zeros at the end are left away.
fn encode_run(run: &Run) -> Vec<u8> {
    let n = run.iter().rposition(|a| *a != 0).map_or(0, |i| i + 1);
    run[..n].iter().flat_map(|a| a.to_le_bytes()).collect()
}

/// A block of a write: where in the file, which bytes of it, and its destination.
struct Part {
    block: u64,
    from: usize,
    to: usize,
    seg: Option<Seg>,
}

/// The position of a reader of a file, which may be sequential.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reader {
    next: u64,
    /// Read-ahead was requested up to here.
    requested: u64,
}

impl Reader {
    /// The range to request for a read that continues at `offset`, up to `end`, with a read-ahead
    /// of `far` bytes.
    pub(crate) fn read_ahead_range(&self, offset: u64, end: u64, far: u64) -> Option<(u64, u64)> {
        let to = end.saturating_add(far);
        let from = if (offset..=to).contains(&self.requested) { self.requested } else { offset };
        let reads_on = offset > 0 && offset == self.next;
        (reads_on && far > 0 && to - from > far / AHEAD_PART).then_some((from, to))
    }

    /// Records that read-ahead was requested up to here.
    pub(crate) fn set_requested(&mut self, to: u64) {
        self.requested = to;
    }

    /// It has read up to here.
    pub(crate) fn set_position(&mut self, end: u64) {
        self.next = end;
    }
}

/// Adds the bytes from `offset` to `end` of a file to `out`, as parts of its blocks of `wide`
/// bytes; returns how many. `block` returns one of them by its number, a hole as zeros. Once a
/// block is missing, `block` is called only to request the rest, so that all of them are loaded at
/// the same time.
pub(crate) fn gather(
    wide: u64,
    (offset, end): (u64, u64),
    out: &mut Vec<Seg>,
    mut block: impl FnMut(u64, LoadMode) -> Result<Option<Seg>, Stop>,
) -> Result<usize, Stop> {
    let before = out.len();
    let mut missing = None;
    for n in offset / wide..end.div_ceil(wide) {
        let from = offset.saturating_sub(n * wide) as usize;
        let to = (end - n * wide).min(wide) as usize;
        let look = if missing.is_none() { LoadMode::Read } else { LoadMode::Prefetch };
        match block(n, look) {
            Ok(found) => out.extend(found.and_then(|seg| seg.slice(from, to - from))),
            Err(stop) if missing.is_none() => missing = Some(stop),
            // The node that names the block is missing too.
            Err(_) => break,
        }
    }
    match missing {
        Some(stop) => {
            out.truncate(before);
            Err(stop)
        }
        None => Ok((end - offset) as usize),
    }
}

/// How [`gather`] wants a block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadMode {
    /// It is to be there.
    Read,
    /// It is still to be read.
    Prefetch,
}

impl VolumeFiles<'_, '_> {
    fn block_size(&self) -> u64 {
        self.step.block() as u64
    }

    pub(super) fn run_of(&mut self, view: View, ino: Ino, n: u64) -> Result<Run, Stop> {
        let root = self.step.root(view)?;
        let key = Key::new(ino, Item::Run, n);
        Ok(tree::get(self.step, root, &key, decode_run)?.unwrap_or_default())
    }

    pub(super) fn put_run(&mut self, ino: Ino, n: u64, run: &Run) -> Result<(), Stop> {
        let key = Key::new(ino, Item::Run, n);
        if run.iter().all(|a| *a == 0) {
            return self.take(&key).map(drop);
        }
        self.put(&key, &encode_run(run))
    }

    /// Adds up to `len` bytes from `offset` to `out`, as parts of blocks in memory; how many. Fewer
    /// at the end of the file only.
    pub fn read(
        &mut self,
        view: View,
        ino: Ino,
        offset: u64,
        len: usize,
        out: &mut Vec<Seg>,
    ) -> Result<usize, Stop> {
        let inode = self.inode(view, ino)?;
        if inode.kind == Kind::Dir {
            return Err(Fault::IsDir.into());
        }
        let end = offset.saturating_add(len as u64).min(inode.size);
        if offset >= end {
            return Ok(0);
        }
        let mut run = (u64::MAX, Run::default());
        gather(self.block_size(), (offset, end), out, |block, look| {
            if block / RUN != run.0 {
                run = (block / RUN, self.run_of(view, ino, block / RUN)?);
            }
            match (run.1[(block % RUN) as usize], look) {
                (0, _) => self.step.zeros().map(Some),
                (at, LoadMode::Read) => self.step.data(at).map(Some),
                (at, LoadMode::Prefetch) => {
                    self.step.want(at);
                    Ok(None)
                }
            }
        })
    }

    /// The same for a reader that may be sequential: then the next blocks are read ahead.
    pub fn read_on(
        &mut self,
        view: View,
        ino: Ino,
        (offset, len): (u64, usize),
        reader: &mut Reader,
        out: &mut Vec<Seg>,
    ) -> Result<usize, Stop> {
        let end = offset.saturating_add(len as u64);
        self.ahead(view, ino, (offset, end), reader);
        let n = self.read(view, ino, offset, len, out)?;
        reader.set_position(offset + n as u64);
        Ok(n)
    }

    /// Requests the blocks ahead of a read from `offset` to `end`, without waiting for them. If a
    /// node of the tree is not in memory, that is loaded first and the rest with the next read.
    fn ahead(&mut self, view: View, ino: Ino, (offset, end): (u64, u64), reader: &mut Reader) {
        let far = self.step.ahead_bytes();
        let Some((from, to)) = reader.read_ahead_range(offset, end, far) else { return };
        match self.want_range(view, ino, from, to) {
            Ok(()) => reader.set_requested(to),
            Err(Stop::Missing(addr)) => self.step.want_later(addr),
            // The read itself reports the fault.
            Err(_) => {}
        }
    }

    fn want_range(&mut self, view: View, ino: Ino, from: u64, to: u64) -> Result<(), Stop> {
        let wide = self.block_size();
        let to = to.min(self.inode(view, ino)?.size);
        let mut run = (u64::MAX, Run::default());
        for block in from / wide..to.div_ceil(wide) {
            if block / RUN != run.0 {
                run = (block / RUN, self.run_of(view, ino, block / RUN)?);
            }
            let at = run.1[(block % RUN) as usize];
            if at != 0 {
                self.step.want_later(at);
            }
        }
        Ok(())
    }

    /// Writes `data` at the end; where that was, and how much.
    pub fn append(&mut self, ino: Ino, data: &[Seg], by: u32) -> Result<(u64, usize), Stop> {
        let offset = self.inode(View::Live, ino)?.size;
        Ok((offset, self.write(ino, offset, data, by)?))
    }

    /// Writes `data` at `offset`. All of it or nothing. Its bytes are not taken back if the rest of
    /// a step fails: let it be the last of one.
    pub fn write(&mut self, ino: Ino, offset: u64, data: &[Seg], by: u32) -> Result<usize, Stop> {
        let mut inode = self.inode(View::Live, ino)?;
        if inode.kind == Kind::Dir {
            return Err(Fault::IsDir.into());
        }
        let len: u64 = data.iter().map(|s| s.len() as u64).sum();
        let end = offset.checked_add(len).filter(|e| *e <= SIZE_MAX);
        let end = end.ok_or(Stop::Fail(Fault::TooBig))?;
        if len == 0 {
            return Ok(0);
        }
        self.grow_over_garbage(ino, &inode, end)?;
        let mut parts = self.parts(ino, offset, end)?;
        let scratch = self.scratch_for(ino, &inode)?;
        self.place_blocks(ino, &mut parts, scratch)?;
        inode.size = inode.size.max(end);
        self.contents_changed(ino, &mut inode, by)?;
        // Nothing fails from here on.
        let mut from = data.iter().flat_map(|s| (0..s.len().div_ceil(4096)).map(move |i| (s, i)));
        let mut left: Option<Seg> = None;
        for part in &parts {
            let Some(seg) = &part.seg else { continue };
            let mut at = part.from;
            while at < part.to {
                let Some(some) = left.take().or_else(|| {
                    let (s, i) = from.next()?;
                    s.slice(i * 4096, (s.len() - i * 4096).min(4096))
                }) else {
                    break;
                };
                let n = some.len().min(part.to - at);
                some.with(|b| seg.copy_from(at, &b[..n]));
                left = some.slice(n, some.len() - n).filter(|rest| !rest.is_empty());
                at += n;
            }
        }
        Ok(len as usize)
    }

    pub(super) fn contents_changed(
        &mut self,
        ino: Ino,
        inode: &mut Inode,
        by: u32,
    ) -> Result<(), Stop> {
        inode.version = self.step.new_change()?;
        inode.mtime_ns = self.now_ns();
        inode.ctime_ns = inode.mtime_ns;
        inode.muid = by;
        self.put_inode(ino, inode)
    }

    /// Blocks of a range; those that are written in part and exist have to be in memory.
    fn parts(&mut self, ino: Ino, offset: u64, end: u64) -> Result<Vec<Part>, Stop> {
        let wide = self.block_size();
        let mut out = Vec::new();
        let mut run = (u64::MAX, Run::default());
        let mut missing = None;
        for block in offset / wide..=(end - 1) / wide {
            if block / RUN != run.0 {
                run = (block / RUN, self.run_of(View::Live, ino, block / RUN)?);
            }
            let at = run.1[(block % RUN) as usize];
            let from = offset.saturating_sub(block * wide).min(wide) as usize;
            let to = (end - block * wide).min(wide) as usize;
            let partial = from > 0 || to < wide as usize;
            if at != 0 && partial && !self.step.has(at) {
                self.step.want(at);
                missing.get_or_insert(Stop::Missing(at));
            }
            out.push(Part { block, from, to, seg: None });
        }
        missing.map_or(Ok(out), Err)
    }

    /// Gives every part memory that is ours to change, and enters new addresses.
    fn place_blocks(&mut self, ino: Ino, parts: &mut [Part], scratch: bool) -> Result<(), Stop> {
        let wide = self.block_size() as usize;
        for parts in parts.chunk_by_mut(|a, b| a.block / RUN == b.block / RUN) {
            let Some(n) = parts.first().map(|p| p.block / RUN) else { continue };
            let mut run = self.run_of(View::Live, ino, n)?;
            let before = run;
            for part in parts {
                let place = &mut run[(part.block % RUN) as usize];
                let old = *place;
                if old != 0 && !self.step.is_frozen(old) && self.step.has(old) {
                    part.seg = Some(self.step.data_mut(old)?);
                    continue;
                }
                let (new, seg) = self.step.fresh_of(scratch)?;
                let kept = old != 0 && (part.from > 0 || part.to < wide);
                if kept {
                    let had = self.step.data(old)?;
                    had.with(|b| seg.copy_from(0, b));
                } else {
                    seg.with_mut(|b| {
                        b[..part.from].fill(0);
                        b[part.to..].fill(0);
                    });
                }
                if old != 0 {
                    self.step.free(old);
                }
                *place = new;
                part.seg = Some(seg);
            }
            if run != before {
                self.put_run(ino, n, &run)?;
            }
        }
        Ok(())
    }

    fn grow_over_garbage(&mut self, ino: Ino, inode: &Inode, end: u64) -> Result<(), Stop> {
        let (from, to) = inode.garbage;
        if from < to && end > from * self.block_size() {
            return Err(Stop::Wait(Wait::Reap(ino)));
        }
        Ok(())
    }

    /// Makes a file longer or shorter; blocks that it loses are garbage until they are reaped.
    pub(super) fn resize(&mut self, ino: Ino, inode: &mut Inode, size: u64) -> Result<(), Stop> {
        if size > SIZE_MAX {
            return Err(Fault::TooBig.into());
        }
        let wide = self.block_size();
        if size > inode.size {
            self.grow_over_garbage(ino, inode, size)?;
        } else if size < inode.size {
            let (first, had) = (size.div_ceil(wide), inode.size.div_ceil(wide));
            if !size.is_multiple_of(wide) {
                self.zero_tail(ino, inode, size)?;
            }
            if first < had {
                let to = if inode.garbage.0 < inode.garbage.1 { inode.garbage.1 } else { 0 };
                inode.garbage = (first, had.max(to));
                self.put(&Key::new(0, Item::Orphan, ino), &[1])?;
                self.step.reap(ino);
            }
        }
        if size != inode.size {
            inode.version = self.step.new_change()?;
            inode.mtime_ns = self.now_ns();
        }
        inode.size = size;
        Ok(())
    }

    /// Bytes behind a file's new end are zero (I4). The block is copied, so that this can be
    /// undone.
    fn zero_tail(&mut self, ino: Ino, inode: &Inode, size: u64) -> Result<(), Stop> {
        let wide = self.block_size();
        let (n, i) = (size / wide / RUN, (size / wide % RUN) as usize);
        let mut run = self.run_of(View::Live, ino, n)?;
        let old = run[i];
        if old == 0 {
            return Ok(());
        }
        let scratch = self.scratch_for(ino, inode)?;
        run[i] = self.zero_part(old, ((size % wide) as usize, wide as usize), scratch)?;
        self.put_run(ino, n, &run)
    }
}
