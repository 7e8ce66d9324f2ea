//! Blocks of the file system by their address: where each of them is, and what happens to it when
//! it is read, changed, made and given back.

use bio::Seg;

use super::format::{self, BlockState, Bucket, Entry, FIRST, FREES, Super, Tag, once_bit, path};
use super::state::WORM;
use super::step::Step;
use crate::fault::{Addr, Fault, Stop, Wait};
use crate::volume::View;

/// Addresses that come to the free list at a time.
const GROW: u64 = 100;
/// Root of a plain file system.
const PLAIN_ROOT: Addr = FIRST + 1;
/// Numbers that no file has: they would be told from a directory's by nothing.
const QID_DIR: u64 = 1 << 31;

const FULL: Fault = Fault::NoSpace("the WORM has no block left");
const BUCKET_FULL: Fault =
    Fault::NoSpace("a bucket of the cache device is full of what no WORM has yet: dump first");

impl Step<'_> {
    /// There is a WORM.
    pub(super) fn has_worm(&self) -> bool {
        self.s.shape.worm.is_some()
    }

    /// Root of the live tree, and of the dumps.
    pub(super) fn live_root(&self) -> Addr {
        if self.has_worm() { self.header().root } else { PLAIN_ROOT }
    }

    /// Address of the superblock.
    pub(super) fn sb(&self) -> Addr {
        if self.has_worm() { self.header().sb } else { FIRST }
    }

    fn row(&self, addr: Addr) -> u64 {
        addr % self.header().msize.max(1)
    }

    /// The entry of an address, if the cache device has it.
    pub(super) fn entry(&mut self, addr: Addr) -> Result<Option<(usize, Entry)>, Stop> {
        let row = self.row(addr);
        let at = self.header().bucket_at(row);
        let block = self.look(at)?;
        let block = self.checked(block, at, Tag::Buckets, at)?;
        Ok(block.with(|b| Bucket::of(b, row).find(addr)))
    }

    /// Its state.
    pub(super) fn state(&mut self, addr: Addr) -> Result<BlockState, Stop> {
        Ok(self.entry(addr)?.map_or(BlockState::None, |(_, e)| e.state))
    }

    /// Where its cached block is.
    pub(super) fn cached(&self, addr: Addr, column: usize) -> Addr {
        self.header().cached(self.s.shape.layout, self.row(addr), column)
    }

    pub(super) fn set_state(
        &mut self,
        addr: Addr,
        column: usize,
        state: BlockState,
    ) -> Result<(), Stop> {
        let row = self.row(addr);
        let at = self.header().bucket_at(row);
        let block = self.own(at)?;
        let was = block.with(|b| Bucket::of(b, row).entry(column)).unwrap_or_default().state;
        block.with_mut(|b| format::set_entry(b, row, column, state, addr));
        let counts = &mut self.s.counts;
        counts[was as usize] = counts[was as usize].saturating_sub(1);
        counts[state as usize] += 1;
        Ok(())
    }

    /// A place in its bucket for an address that has none.
    fn place(&mut self, addr: Addr) -> Result<usize, Stop> {
        let row = self.row(addr);
        let block = self.look(self.header().bucket_at(row))?;
        let place = block.with(|b| Bucket::of(b, row).place());
        place.ok_or(Stop::Fail(BUCKET_FULL))
    }

    fn in_range(&self, addr: Addr) -> Result<(), Stop> {
        let end = match self.s.shape.worm {
            Some(worm) => worm,
            None => self.s.shape.first,
        };
        if (FIRST..end).contains(&addr) {
            return Ok(());
        }
        Err(Fault::Corrupt(format!("address {addr} is out of range")).into())
    }

    /// A block of the WORM.
    pub(super) fn worm(&mut self, addr: Addr) -> Result<Seg, Stop> {
        if !self.was_written(addr)? {
            return Err(
                Fault::Corrupt(format!("block {addr} was never written to the WORM")).into()
            );
        }
        self.look(WORM | addr)
    }

    /// What a fake WORM says of a block; others say nothing.
    pub(super) fn was_written(&mut self, addr: Addr) -> Result<bool, Stop> {
        if !self.s.shape.once {
            return Ok(true);
        }
        let (at, byte, mask) = once_bit(self.s.shape.raw, addr);
        let bits = self.look(WORM | at)?;
        let bits = self.checked(bits, at, Tag::Virgin, at)?;
        Ok(bits.with(|b| b[byte] & mask != 0))
    }

    /// Where the newest copy of a block is, as a view sees it.
    fn at(&mut self, view: View, addr: Addr) -> Result<Addr, Stop> {
        use BlockState as S;
        self.in_range(addr)?;
        if !self.has_worm() {
            return Ok(addr);
        }
        Ok(match self.entry(addr)? {
            Some((c, e))
                if view == View::Live || matches!(e.state, S::Dump | S::Dump1 | S::Read) =>
            {
                self.cached(addr, c)
            }
            _ => WORM | addr,
        })
    }

    /// A block, to be read.
    pub(super) fn block(&mut self, view: View, addr: Addr, tag: Tag, of: u64) -> Result<Seg, Stop> {
        let at = self.at(view, addr)?;
        let seg = match at & WORM {
            0 => self.look(at)?,
            _ => self.worm(addr)?,
        };
        let seg = self.checked(seg, addr, tag, of)?;
        if at & WORM != 0 && view == View::Live && !self.s.shape.fastworm {
            self.keep(addr, &seg)?;
        }
        Ok(seg)
    }

    /// It will be wanted.
    pub(super) fn want_block(&mut self, view: View, addr: Addr) {
        if let Ok(at) = self.at(view, addr) {
            self.want(at);
        }
    }

    /// A block that came from the WORM is kept on the cache device too, where it has room.
    fn keep(&mut self, addr: Addr, seg: &Seg) -> Result<(), Stop> {
        if self.s.shape.log.is_none() || self.s.refused.is_some() {
            return Ok(());
        }
        let Ok(column) = self.place(addr) else { return Ok(()) };
        let copy = self.blank(self.cached(addr, column))?;
        seg.with(|b| copy.copy_from(0, b));
        self.set_state(addr, column, BlockState::Read)
    }

    /// A block of the live tree that is changed. One that a dump holds and no WORM has yet is
    /// copied there first.
    pub(super) fn change(&mut self, addr: Addr, tag: Tag, of: u64) -> Result<Seg, Stop> {
        use BlockState as S;
        self.in_range(addr)?;
        if !self.has_worm() {
            let old = self.look(addr)?;
            self.checked(old, addr, tag, of)?;
            return self.own(addr);
        }
        match self.entry(addr)? {
            Some((_, e)) if matches!(e.state, S::Dump | S::Dump1) => {
                Err(Stop::Wait(Wait::Copy(addr)))
            }
            Some((c, e)) => {
                let at = self.cached(addr, c);
                let old = self.look(at)?;
                self.checked(old, addr, tag, of)?;
                if e.state == S::Read {
                    self.set_state(addr, c, S::Write)?;
                }
                self.own(at)
            }
            None => {
                let old = self.worm(addr)?;
                let old = self.checked(old, addr, tag, of)?;
                let column = self.place(addr)?;
                let seg = self.blank(self.cached(addr, column))?;
                old.with(|b| seg.copy_from(0, b));
                self.set_state(addr, column, S::Write)?;
                Ok(seg)
            }
        }
    }

    /// A new block of zeros with its tag.
    fn fresh(&mut self, addr: Addr, tag: Tag, of: u64) -> Result<Seg, Stop> {
        use BlockState as S;
        self.in_range(addr)?;
        let seg = if self.has_worm() {
            let column = match self.entry(addr)? {
                Some((c, e)) if matches!(e.state, S::Dirty | S::Write) => c,
                Some((_, e)) => {
                    let why = format!("free block {addr} is in state {:?}", e.state);
                    return Err(Fault::Corrupt(why).into());
                }
                None => {
                    let column = self.place(addr)?;
                    self.set_state(addr, column, S::Write)?;
                    column
                }
            };
            self.blank(self.cached(addr, column))?
        } else {
            self.blank(addr)?
        };
        seg.with_mut(|b| format::set_tag(b, tag, of));
        Ok(seg)
    }

    /// The superblock.
    pub(super) fn super_block(&mut self) -> Result<Super, Stop> {
        let sb = self.sb();
        let seg = self.block(View::Live, sb, Tag::Super, path::SUPER)?;
        Ok(seg.with(Super::read))
    }

    /// The superblock, to be changed.
    pub(super) fn change_super(&mut self) -> Result<Seg, Stop> {
        self.change(self.sb(), Tag::Super, path::SUPER)
    }

    /// Takes a block from the free list; what it is from now on.
    pub(super) fn alloc(&mut self, tag: Tag, of: u64) -> Result<Addr, Stop> {
        let sb = self.change_super()?;
        loop {
            let n = sb.with(format::frees).filter(|n| *n > 0);
            let Some(n) = n else {
                return Err(Fault::Corrupt("the free list has no length".into()).into());
            };
            let addr = sb.with(|b| format::free(b, n - 1));
            if n > 1 {
                sb.with_mut(|b| {
                    format::set_frees(b, n - 1);
                    less_free(b);
                });
                self.fresh(addr, tag, of)?;
                return Ok(addr);
            }
            if addr == 0 {
                self.grow(&sb)?;
                continue;
            }
            let next = self.block(View::Live, addr, Tag::Free, path::NONE)?;
            if next.with(format::frees).is_none_or(|n| n == 0) {
                let why = format!("block {addr} of the free list has no length");
                return Err(Fault::Corrupt(why).into());
            }
            sb.with_mut(|b| {
                next.with(|from| format::copy_frees(from, b));
                less_free(b);
            });
            self.fresh(addr, tag, of)?;
            return Ok(addr);
        }
    }

    /// More addresses of the WORM come to the free list.
    fn grow(&mut self, sb: &Seg) -> Result<(), Stop> {
        if !self.has_worm() {
            return Err(Fault::NoSpace("the image has no block left").into());
        }
        let (from, wsize) = (self.header().fsize, self.header().wsize);
        // Behind the last one a dump needs some for itself.
        let to = (from + GROW).min(wsize);
        if from >= to {
            return Err(FULL.into());
        }
        let mut given = 0;
        for addr in (from..to).rev() {
            match self.entry(addr)? {
                // Somebody grew and did not say so.
                Some((_, e)) if e.state != BlockState::Read => continue,
                Some((c, _)) => self.set_state(addr, c, BlockState::Dirty)?,
                None => {
                    let Ok(column) = self.place(addr) else { continue };
                    self.set_state(addr, column, BlockState::Dirty)?;
                }
            }
            self.add_free(sb, addr)?;
            given += 1;
        }
        if given == 0 {
            return Err(BUCKET_FULL.into());
        }
        self.set_header(|h| h.fsize = to)?;
        sb.with_mut(|b| {
            let s = Super { fsize: to, ..Super::read(b) };
            s.write(b);
        });
        Ok(())
    }

    fn add_free(&mut self, sb: &Seg, addr: Addr) -> Result<(), Stop> {
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

    /// Nothing leads to a block of the live tree any more.
    pub(super) fn free(&mut self, addr: Addr) -> Result<(), Stop> {
        use BlockState as S;
        self.in_range(addr)?;
        if self.has_worm() {
            match self.entry(addr)? {
                // A dump has it: its address is never used again.
                Some((c, e)) if matches!(e.state, S::Write | S::Read) => {
                    return self.set_state(addr, c, S::None);
                }
                Some((_, e)) if e.state == S::Dirty => {}
                _ => return Ok(()),
            }
        }
        let sb = self.change_super()?;
        self.add_free(&sb, addr)
    }

    /// A number for a new file, never given before.
    pub(super) fn new_qid(&mut self) -> Result<u64, Stop> {
        let sb = self.change_super()?;
        let was = sb.with(Super::read);
        let mut qid = was.qidgen + 1;
        if qid == QID_DIR {
            qid += 1;
        }
        // Blocks keep the lower half of it.
        if qid >= u64::from(u32::MAX) {
            return Err(Fault::NoSpace("the image has no numbers left for files").into());
        }
        sb.with_mut(|b| Super { qidgen: qid, ..was }.write(b));
        Ok(qid)
    }

    /// One step of a dump: what of a block has to stay as it is. Its new address, if it moves; the
    /// old one keeps what the WORM has.
    pub(super) fn split(&mut self, addr: Addr, tag: Tag, of: u64) -> Result<Option<Addr>, Stop> {
        use BlockState as S;
        match self.entry(addr)? {
            Some((c, e)) if e.state == S::Dirty => {
                self.set_state(addr, c, S::Dump)?;
                Ok(None)
            }
            Some((c, e)) if matches!(e.state, S::Write | S::Dump1) => {
                let old = self.look(self.cached(addr, c))?;
                let old = self.checked(old, addr, tag, of)?;
                let new = self.next_address()?;
                self.put_dump(new, &old)?;
                // Only now: the bucket of the new one may be the same.
                if let Some((c, _)) = self.entry(addr)? {
                    self.set_state(addr, c, S::None)?;
                }
                Ok(Some(new))
            }
            _ => Ok(None),
        }
    }

    /// The next address at the WORM's end.
    pub(super) fn next_address(&mut self) -> Result<Addr, Stop> {
        let h = self.header();
        if h.fsize >= h.wsize {
            return Err(FULL.into());
        }
        self.set_header(|h| h.fsize += 1)?;
        Ok(h.fsize)
    }

    /// A block that is a dump's from now on, at an address that had none.
    pub(super) fn put_dump(&mut self, addr: Addr, from: &Seg) -> Result<(), Stop> {
        let column = match self.entry(addr)? {
            Some((_, e)) if e.state.is_pinned() => {
                let why = format!("new block {addr} is in state {:?}", e.state);
                return Err(Fault::Corrupt(why).into());
            }
            Some((c, _)) => c,
            None => self.place(addr)?,
        };
        let seg = self.blank(self.cached(addr, column))?;
        from.with(|b| seg.copy_from(0, b));
        self.set_state(addr, column, BlockState::Dump)
    }
}

fn less_free(b: &mut [u8]) {
    let s = Super::read(b);
    Super { tfree: s.tfree.saturating_sub(1), ..s }.write(b);
}
