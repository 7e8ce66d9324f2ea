//! Reclamation of blocks: contents of files without a name, and tails that were cut off. It runs in
//! steps, so that no operation waits for the removal of a large file.

use super::contents::RUN;
use super::{FileSystem, Ino, Inode, VolumeFiles};
use crate::fault::{Fault, Stop};
use crate::tree::{self, Blocks, Key, Kind as Item};
use crate::volume::View;

/// Items of addresses that one step gives back.
pub(super) const RUNS_PER_STEP: usize = 64;
/// A file of at most so many blocks is given back with its name.
const SMALL: u64 = 8 * RUN;

impl VolumeFiles<'_, '_> {
    /// A name of the file was removed.
    pub(super) fn unlink(&mut self, ino: Ino, mut inode: Inode) -> Result<(), Stop> {
        inode.links = inode.links.saturating_sub(1);
        inode.ctime_ns = self.now_ns();
        if inode.links > 0 {
            return self.put_inode(ino, &inode);
        }
        let blocks = inode.size.div_ceil(self.step.block() as u64).max(inode.garbage.1);
        if !self.step.is_held(ino) && blocks <= SMALL && inode.garbage.0 >= inode.garbage.1 {
            self.give_back(ino, 0, blocks.div_ceil(RUN))?;
            return self.forget_inode(ino);
        }
        self.put_inode(ino, &inode)?;
        self.put(&Key::new(0, Item::Orphan, ino), &[1])?;
        self.step.reap(ino);
        Ok(())
    }

    /// Frees all blocks of some runs.
    fn give_back(&mut self, ino: Ino, from: u64, to: u64) -> Result<(), Stop> {
        for n in from..to {
            let run = self.run_of(View::Live, ino, n)?;
            if run.iter().any(|a| *a != 0) {
                run.iter().for_each(|a| self.step.free(*a));
                self.take(&Key::new(ino, Item::Run, n))?;
            }
        }
        Ok(())
    }

    /// One step of reaping a file; true when there is nothing left to do for it now.
    pub(super) fn reap_some(&mut self, ino: Ino) -> Result<bool, Stop> {
        self.step.to_give_back();
        let orphan = Key::new(0, Item::Orphan, ino);
        let mut inode = match self.inode(View::Live, ino) {
            Ok(inode) => inode,
            Err(Stop::Fail(Fault::NotFound)) => return self.take(&orphan).map(|_| true),
            Err(stop) => return Err(stop),
        };
        let gone = inode.links == 0;
        if gone && self.step.is_held(ino) && inode.garbage.0 >= inode.garbage.1 {
            return Ok(true);
        }
        let frees_all = gone && !self.step.is_held(ino);
        let from = if frees_all { 0 } else { inode.garbage.0 };
        if !frees_all && inode.garbage.0 >= inode.garbage.1 {
            return self.take(&orphan).map(|_| true);
        }
        let runs = self.runs_from(ino, from / RUN)?;
        for n in &runs {
            let mut run = self.run_of(View::Live, ino, *n)?;
            let first = n.saturating_mul(RUN);
            for (i, at) in (0..RUN).zip(&mut run) {
                if first.saturating_add(i) >= from {
                    self.step.free(std::mem::take(at));
                }
            }
            self.put_run(ino, *n, &run)?;
        }
        if runs.len() == RUNS_PER_STEP {
            return Ok(false);
        }
        if frees_all {
            self.forget_inode(ino)?;
        } else {
            inode.garbage = (0, 0);
            self.put_inode(ino, &inode)?;
        }
        if !gone || frees_all {
            self.take(&orphan)?;
        }
        Ok(true)
    }

    /// Numbers of the file's items from `first` on, as many as a step takes. The item that is cut
    /// in its middle keeps its head, and so is first again: it has nothing to give then.
    pub(super) fn runs_from(&mut self, ino: Ino, first: u64) -> Result<Vec<u64>, Stop> {
        self.offsets((ino, Item::Run, first), RUNS_PER_STEP)
    }

    /// Offsets of a file's items of a kind from one on, at most so many.
    pub(super) fn offsets(
        &mut self,
        (ino, kind, first): (Ino, Item, u64),
        most: usize,
    ) -> Result<Vec<u64>, Stop> {
        let root = self.step.root(View::Live)?;
        let mut out = Vec::new();
        tree::scan(self.step, root, Key::new(ino, kind, first), |k, _| {
            let mine = k.ino == ino && k.kind == kind as u8;
            if mine {
                out.push(k.offset);
            }
            mine && out.len() < most
        })?;
        Ok(out)
    }

    /// Some files that wait to be reaped, from a number on.
    fn orphans(&mut self, from: Ino) -> Result<Vec<Ino>, Stop> {
        self.offsets((0, Item::Orphan, from), 1000)
    }
}

impl FileSystem {
    /// Gives back all that a file lost.
    pub(super) async fn reap(&self, ino: Ino) -> Result<(), Fault> {
        while !self.volume.run(|step| VolumeFiles { step }.reap_some(ino)).await? {
            self.volume.yield_now().await;
        }
        Ok(())
    }

    /// Reaps the files that were left when the volume was closed, then those that are released.
    pub(super) async fn keep_reaping(self) {
        let mut from = 0;
        loop {
            let Ok(some) = self.native(|f| f.orphans(from)).await else { break };
            let Some(last) = some.last() else { break };
            from = last + 1;
            for ino in some {
                if self.reap(ino).await.is_err() {
                    return;
                }
            }
        }
        while !self.volume.is_closed() {
            for ino in self.volume.inode_refs().released().await {
                // Blocks that cannot be given back now are given back when the volume is opened
                // again.
                let _ = self.reap(ino).await;
            }
        }
    }
}
