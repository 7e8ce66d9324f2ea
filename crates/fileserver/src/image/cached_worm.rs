//! Blocks of the file system by their address: where each of them is, and what happens to it when
//! it is read, changed, made and given back.

use bio::Seg;

use super::format::{self, BlockState, Bucket, Entry, FIRST, Tag, once_bit};
use super::state::WORM;
use super::step::Step;
use crate::fault::{Addr, Fault, Stop, Wait};
use crate::volume::View;

/// Root of a plain file system.
const PLAIN_ROOT: Addr = FIRST + 1;

pub(super) const BUCKET_FULL: Fault = Fault::NoSpace(
    "a bucket of the cache device is full of blocks that are not on the WORM yet: dump first",
);

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
        let block = self.read_block(at)?;
        let block = self.checked(block, at, Tag::Buckets, at)?;
        Ok(block.with(|b| Bucket::of(b, row).find(addr)))
    }

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
        self.set_entry((self.row(addr), column), state, addr)
    }

    /// The same of a place, whichever address it has.
    pub(super) fn set_entry(
        &mut self,
        (row, column): (u64, usize),
        state: BlockState,
        addr: Addr,
    ) -> Result<(), Stop> {
        let at = self.header().bucket_at(row);
        let block = self.block_mut(at)?;
        let was = block.with(|b| Bucket::of(b, row).entry(column)).unwrap_or_default().state;
        block.with_mut(|b| format::set_entry(b, row, column, state, addr));
        let counts = &mut self.s.counts;
        counts[was as usize] = counts[was as usize].saturating_sub(1);
        counts[state as usize] += 1;
        Ok(())
    }

    /// A place in its bucket for an address that has none.
    pub(super) fn allocate_column(&mut self, addr: Addr) -> Result<usize, Stop> {
        let row = self.row(addr);
        let block = self.read_block(self.header().bucket_at(row))?;
        let place = block.with(|b| Bucket::of(b, row).victim_column());
        place.ok_or(Stop::Fail(BUCKET_FULL))
    }

    pub(super) fn in_range(&self, addr: Addr) -> Result<(), Stop> {
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
        self.read_block(WORM | addr)
    }

    /// Whether a fake WORM has a block; other WORMs do not record that, so always true.
    pub(super) fn was_written(&mut self, addr: Addr) -> Result<bool, Stop> {
        if !self.s.shape.once {
            return Ok(true);
        }
        let (at, byte, mask) = once_bit(self.s.shape.raw, addr);
        let bits = self.read_block(WORM | at)?;
        let bits = self.checked(bits, at, Tag::Virgin, at)?;
        Ok(bits.with(|b| b[byte] & mask != 0))
    }

    /// Where the newest copy of a block is, as a view sees it.
    pub(super) fn at(&mut self, view: View, addr: Addr) -> Result<Addr, Stop> {
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
            0 => self.read_block(at)?,
            _ => self.worm(addr)?,
        };
        let seg = self.checked(seg, addr, tag, of)?;
        if at & WORM != 0 && view == View::Live && !self.s.shape.fastworm && !self.peeks {
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

    /// A block read from the WORM is kept on the cache device too, where it has space.
    fn keep(&mut self, addr: Addr, seg: &Seg) -> Result<(), Stop> {
        if self.s.shape.log.is_none() || self.s.refused.is_some() {
            return Ok(());
        }
        let Ok(column) = self.allocate_column(addr) else { return Ok(()) };
        let copy = self.blank_block(self.cached(addr, column))?;
        seg.with(|b| copy.copy_from(0, b));
        self.set_state(addr, column, BlockState::Read)
    }

    /// The live tree may change a block where it is: no dump has it, and none is about to (I5).
    fn is_own(&mut self, addr: Addr) -> Result<bool, Stop> {
        use BlockState as S;
        Ok(match self.state(addr)? {
            S::Dirty => !self.is_frozen(addr),
            S::Write => !self.moving && !self.is_frozen(addr),
            _ => false,
        })
    }

    /// A tree is frozen that may have it.
    pub(super) fn is_frozen(&self, addr: Addr) -> bool {
        self.s.since.as_ref().is_some_and(|since| !since.contains(&addr))
    }

    /// Where the live tree may change a block: where it is, or at an address of its own that each
    /// pointer to it has to name from now on.
    pub(super) fn writable_address(&mut self, addr: Addr, tag: Tag, of: u64) -> Result<Addr, Stop> {
        self.in_range(addr)?;
        if !self.has_worm() || self.is_own(addr)? {
            return Ok(addr);
        }
        let old = self.block(View::Live, addr, tag, of)?;
        let (new, seg) = match self.alloc(tag, of) {
            // It does not change while it is frozen.
            Err(Stop::Fail(Fault::NoSpace(_))) if self.is_frozen(addr) => {
                return Err(Stop::Wait(Wait::Thaw));
            }
            // A block that is on the WORM for good may change in place, as in cwfs64x.
            Err(Stop::Fail(Fault::NoSpace(_))) if !self.moving => {
                self.modify_in_place(addr, &old)?;
                self.s.loose += 1;
                return Ok(addr);
            }
            new => new?,
        };
        old.with(|b| seg.copy_from(0, b));
        // If both devices have the block, the cached copy still serves readers of the dump.
        if self.state(addr)? != BlockState::Read {
            self.free(addr)?;
        }
        Ok(new)
    }

    /// A block becomes newer on the cache device than on the WORM, which has it.
    pub(super) fn modify_in_place(&mut self, addr: Addr, old: &Seg) -> Result<(), Stop> {
        use BlockState as S;
        match self.entry(addr)? {
            Some((_, e)) if matches!(e.state, S::Dirty | S::Write) => Ok(()),
            Some((c, e)) if e.state == S::Read => self.set_state(addr, c, S::Write),
            Some(_) => Err(Stop::Wait(Wait::Copy(addr))),
            None => {
                let column = self.allocate_column(addr)?;
                let seg = self.blank_block(self.cached(addr, column))?;
                old.with(|b| seg.copy_from(0, b));
                self.set_state(addr, column, S::Write)
            }
        }
    }

    /// Memory of a block that the live tree may change where it is.
    pub(super) fn edit(&mut self, addr: Addr, tag: Tag, of: u64) -> Result<Seg, Stop> {
        self.block(View::Live, addr, tag, of)?;
        let at = self.at(View::Live, addr)?;
        self.block_mut(at)
    }

    /// A new block of zeros with its tag.
    pub(super) fn fresh(&mut self, addr: Addr, tag: Tag, of: u64) -> Result<Seg, Stop> {
        use BlockState as S;
        self.in_range(addr)?;
        let seg = if self.has_worm() {
            let column = match self.entry(addr)? {
                Some((c, e)) if e.state == S::Dirty => c,
                Some((c, e)) if e.state == S::Write => {
                    self.s.loose += 1;
                    c
                }
                Some((_, e)) => {
                    let why = format!("free block {addr} is in state {:?}", e.state);
                    return Err(Fault::Corrupt(why).into());
                }
                None => {
                    let column = self.allocate_column(addr)?;
                    self.set_state(addr, column, S::Write)?;
                    self.s.loose += 1;
                    column
                }
            };
            self.blank_block(self.cached(addr, column))?
        } else {
            self.blank_block(addr)?
        };
        seg.with_mut(|b| format::set_tag(b, tag, of));
        Ok(seg)
    }

    /// A block that is a dump's from now on, at an address that had none.
    pub(super) fn put_dump(&mut self, addr: Addr, from: &Seg) -> Result<Seg, Stop> {
        let column = match self.entry(addr)? {
            Some((_, e)) if e.state.is_pinned() => {
                let why = format!("new block {addr} is in state {:?}", e.state);
                return Err(Fault::Corrupt(why).into());
            }
            Some((c, _)) => c,
            None => self.allocate_column(addr)?,
        };
        let seg = self.blank_block(self.cached(addr, column))?;
        from.with(|b| seg.copy_from(0, b));
        self.set_state(addr, column, BlockState::Dump)?;
        Ok(seg)
    }
}
