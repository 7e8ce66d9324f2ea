//! Spare addresses: free, and on no list as long as the superblock may not be changed (I8).
//!
//! ```text
//!   given back ->  in memory, a few       ->  nodes on the cache device, as many as it takes
//!   given out  <-  the log's head has them <-  the log's head leads to the last one
//! ```
//! Nodes have the form of the free list's, and are stored at spare addresses themselves. Only the
//! head of the log leads to them: for another program they are unnamed blocks, as all spare ones
//! are. They join the free list when the superblock has been copied.

use bio::Seg;

use super::commit::SPARE;
use super::format::{self, FREES, Tag, path};
use super::step::Step;
use crate::fault::{Addr, Fault, Stop};
use crate::volume::View;

/// As many in memory are too many: the log's head has to hold them, and those of one growth.
const MANY: usize = SPARE / 2;
/// Addresses moved to nodes, or taken from them, in one step.
const MOVED: usize = 64;

impl Step<'_> {
    /// An address is spare from now on.
    pub(super) fn keep_spare(&mut self, addr: Addr) -> Result<(), Stop> {
        if self.s.spare.len() >= MANY {
            for _ in 0..MOVED {
                let Some(addr) = self.take_spare() else { break };
                self.fold(addr)?;
            }
        }
        self.spare(addr);
        Ok(())
    }

    /// One that is no longer.
    pub(super) fn any_spare(&mut self) -> Result<Option<Addr>, Stop> {
        if self.s.spare.is_empty() {
            for _ in 0..MOVED {
                let Some(addr) = self.unfold()? else { break };
                self.spare(addr);
            }
        }
        Ok(self.take_spare())
    }

    /// There are such.
    pub(super) fn has_spare(&self) -> bool {
        !self.s.spare.is_empty() || self.s.folded != 0
    }

    /// It is added to the last node, or becomes that.
    fn fold(&mut self, addr: Addr) -> Result<(), Stop> {
        let last = self.s.folded;
        let n = if last == 0 { FREES } else { self.node(last)?.1 };
        if n < FREES {
            let node = self.edit(last, Tag::Free, path::NONE)?;
            node.with_mut(|b| {
                format::set_free(b, n, addr);
                format::set_frees(b, n + 1);
            });
            return Ok(());
        }
        let node = self.fresh(addr, Tag::Free, path::NONE)?;
        node.with_mut(|b| {
            format::set_free(b, 0, last);
            format::set_frees(b, 1);
        });
        self.s.folded = addr;
        Ok(())
    }

    /// The last address of the last node: when it has no other, its own.
    pub(super) fn unfold(&mut self) -> Result<Option<Addr>, Stop> {
        let last = self.s.folded;
        if last == 0 {
            return Ok(None);
        }
        let (_, n) = self.node(last)?;
        let node = self.edit(last, Tag::Free, path::NONE)?;
        let addr = node.with(|b| format::free(b, n - 1));
        if n == 1 {
            self.s.folded = addr;
            return Ok(Some(last));
        }
        node.with_mut(|b| format::set_frees(b, n - 1));
        Ok(Some(addr))
    }

    /// A node, and how many addresses it has: the first leads to the node before it.
    pub(super) fn node(&mut self, at: Addr) -> Result<(Seg, usize), Stop> {
        let node = self.block(View::Live, at, Tag::Free, path::NONE)?;
        let n = node.with(format::frees).filter(|n| *n > 0);
        let why = || Fault::Corrupt(format!("block {at} of the spare addresses has no length"));
        Ok((node, n.ok_or_else(why)?))
    }
}
