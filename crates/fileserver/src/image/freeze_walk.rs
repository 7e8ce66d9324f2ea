//! The walk of a frozen tree: its dirty blocks become the dump's.
//!
//! ```text
//!   freeze: from now on the live tree does not change the blocks of the frozen one (I5, I7)
//!   walk:   lower blocks first:  dirty -> dump.  Below a clean block no block is dirty (I6)
//!   thaw:   blocks that the live tree gave back meanwhile, and the walk did not find, are free
//! ```
//! Clients continue to work all the time. If the power fails in between, blocks in state dump that
//! no superblock knows are copied like others. Blocks that only the frozen tree had are lost until
//! the next repair: they are never given again.

use std::collections::BTreeSet;

use super::Image;
use super::format::{BlockState, DENTRIES, DIRECT, Dentry, POINTERS, Tag, mode, path, u64_at};
use super::step::Step;
use crate::fault::{Addr, Fault, Stop};
use crate::volume::View;

/// Levels of a tree, indirect blocks counted.
const DEPTH_MAX: usize = 1000;
/// Blocks of contents frozen in one step.
const AT_ONCE: usize = 64;

/// A block that a walk visits.
#[derive(Clone, Copy)]
pub(super) struct Visit {
    pub addr: Addr,
    pub tag: Tag,
    /// The tag of the leaves below an indirect block.
    pub leaf: Tag,
    /// The file whose it is.
    pub of: u64,
}

impl Visit {
    /// That of the live tree, or of the dumps.
    pub fn root(addr: Addr) -> Visit {
        Visit { addr, tag: Tag::Dir, leaf: Tag::Dir, of: path::ROOT }
    }
}

impl Step<'_> {
    /// Blocks that a block leads to.
    pub(super) fn children(&mut self, v: &Visit) -> Result<Vec<Visit>, Stop> {
        if v.tag == Tag::File {
            return Ok(Vec::new());
        }
        let block = self.block(View::Live, v.addr, v.tag, v.of)?;
        let mut out = Vec::new();
        if v.tag == Tag::Dir {
            for slot in 0..DENTRIES {
                let d = block.with(|b| Dentry::read(b, slot));
                if d.mode & (mode::ALLOC | mode::TMP) != mode::ALLOC {
                    continue;
                }
                for (index, addr) in d.direct.iter().chain(&d.indirect).enumerate() {
                    let tag = match index.checked_sub(DIRECT) {
                        None => d.tag(),
                        Some(i) => Tag::indirect(i + 1),
                    };
                    out.push(Visit { addr: *addr, tag, leaf: d.tag(), of: d.path });
                }
            }
        } else {
            for index in 0..POINTERS {
                let addr = block.with(|b| u64_at(b, 8 * index));
                out.push(Visit { addr, tag: v.tag.below(v.leaf), ..*v });
            }
        }
        out.retain(|v| v.addr != 0);
        Ok(out)
    }

    /// A block becomes a dump's, if none has it; how many that are, 1 or 0.
    fn freeze_one(&mut self, addr: Addr) -> Result<u64, Stop> {
        match self.entry(addr)? {
            Some((c, e)) if e.state == BlockState::Dirty => {
                self.set_state(addr, c, BlockState::Dump)?;
                Ok(1)
            }
            _ => Ok(0),
        }
    }

    /// All of a small tree becomes a dump's; how many blocks that are. A tree of a damaged image
    /// that leads back to itself ends where that is no longer dirty.
    pub(super) fn freeze_below(&mut self, root: Visit) -> Result<u64, Stop> {
        let (mut open, mut blocks) = (vec![root], 0);
        while let Some(v) = open.pop() {
            open.extend(self.dirty_below(&v)?);
            blocks += self.freeze_one(v.addr)?;
        }
        Ok(blocks)
    }

    /// Blocks below one of the frozen tree, if it is dirty.
    fn dirty_below(&mut self, v: &Visit) -> Result<Vec<Visit>, Stop> {
        match self.state(v.addr)? {
            BlockState::Dirty => self.children(v),
            _ => Ok(Vec::new()),
        }
    }
}

/// The live tree is frozen, until it is dropped.
pub(super) struct Frozen<'a> {
    image: &'a Image,
    /// Its root.
    pub root: Addr,
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.image.0.state.borrow_mut().since = None;
        self.image.0.gates_changed.notify_all();
    }
}

impl Image {
    /// Freezes the live tree as it is. One at a time.
    pub(super) fn freeze(&self) -> Frozen<'_> {
        let mut state = self.0.state.borrow_mut();
        state.since = Some(BTreeSet::new());
        Frozen { image: self, root: state.header.root }
    }

    /// Everything of a frozen tree is in state dump, or on the WORM; how many blocks were not so
    /// before.
    pub(super) async fn walk(&self, root: Addr) -> Result<u64, Fault> {
        let root = Visit::root(root);
        let (rest, mut blocks) = self.freeze_leaves(root).await?;
        let mut open = vec![(root, rest)];
        while let Some((_, waiting)) = open.last_mut() {
            if let Some(next) = waiting.pop() {
                if open.len() > DEPTH_MAX {
                    return Err(Fault::Corrupt("the tree is too deep".into()));
                }
                let (rest, leaves) = self.freeze_leaves(next).await?;
                blocks += leaves;
                open.push((next, rest));
            } else if let Some((done, _)) = open.pop() {
                blocks += self.step(&mut |s| s.freeze_one(done.addr)).await?;
            }
            self.0.reactor.yield_now().await;
        }
        Ok(blocks)
    }

    /// Blocks of contents below one become the dump's, so many; the others are still to be walked.
    async fn freeze_leaves(&self, v: Visit) -> Result<(Vec<Visit>, u64), Fault> {
        let all = self.step(&mut |s| s.dirty_below(&v)).await?;
        let (leaves, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|v| v.tag == Tag::File);
        let mut blocks = 0;
        for some in leaves.chunks(AT_ONCE) {
            let mut freeze = |s: &mut Step<'_>| some.iter().map(|v| s.freeze_one(v.addr)).sum();
            blocks += self.step::<u64>(&mut freeze).await?;
            self.0.reactor.yield_now().await;
        }
        Ok((rest, blocks))
    }
}
