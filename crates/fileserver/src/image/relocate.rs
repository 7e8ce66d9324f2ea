//! Relocation of blocks that another program changed in place although a dump has them. Each gets a
//! new address, and so do all blocks that lead to it, so that a tree can be frozen at once (I6).
//!
//! cwfs64x leaves a changed block in place until the next dump, and finds it by a walk of the tree.
//! This is that walk, once for all such blocks; clients continue meanwhile. If a file moved from a
//! part that is still to be walked to a part that has been, a second walk is needed.

use super::Image;
use super::contents::blocks;
use super::format::{BlockState, Dentry, Tag, mode, path};
use super::names::BLOCKS_MAX;
use super::step::Step;
use crate::fault::{Addr, Fault, Stop};
use crate::files::{Ino, ROOT};
use crate::volume::View;

/// Looks before it is given up.
const PASSES: u32 = 3;
/// Blocks looked at in one step, and moved.
const LOOKS: usize = 256;
/// See [`LOOKS`].
const MOVES: usize = 8;
/// Entries of a directory at a time.
const ENTRIES: usize = 62;

impl Step<'_> {
    /// Whether of these blocks, each of which leads to the next, one has to move.
    fn is_loose(&mut self, path: &[Addr]) -> Result<bool, Stop> {
        use BlockState as S;
        let mut above = S::Dirty;
        for addr in path.iter().filter(|a| **a != 0) {
            let state = self.state(*addr)?;
            if matches!(state, S::Write | S::Dump1) || state == S::Dirty && above != S::Dirty {
                return Ok(true);
            }
            above = state;
        }
        Ok(false)
    }

    /// Looks at some blocks of a file from `from` on; returns where to continue.
    fn tidy_some(&mut self, ino: Ino, from: u64) -> Result<Option<u64>, Stop> {
        self.moving = true;
        let (mut d, spot): (Dentry, _) = match self.dentry(View::Live, ino) {
            Err(Stop::Fail(Fault::NotFound)) => return Ok(None),
            found => found?,
        };
        let end = if d.is_dir() { BLOCKS_MAX } else { blocks(d.size) };
        let (mut n, mut moves) = (from, 0);
        for _ in 0..LOOKS {
            if n >= end || moves == MOVES {
                break;
            }
            let mut path: Vec<Addr> = spot.iter().map(|s| s.0).collect();
            let same = self.down(View::Live, &d, n, |addr| path.push(addr))?;
            if d.is_dir() && path.last() == Some(&0) {
                n = end;
                break;
            }
            if self.is_loose(&path)? {
                self.own_block(&mut d, n)?;
                moves += 1;
            }
            n = n.saturating_add(same);
        }
        if moves > 0 {
            self.put(ino, &d)?;
        }
        Ok((n < end).then_some(n))
    }

    fn tidy_root(&mut self) -> Result<(), Stop> {
        self.moving = true;
        let root = self.live_root();
        if self.is_loose(&[root])? {
            let own = self.writable_address(root, Tag::Dir, path::ROOT)?;
            self.set_root(own)?;
        }
        Ok(())
    }
}

/// Files that no dump shows may name blocks that no WORM has, after a recovery from a WORM.
fn readable(hidden: bool, done: Result<(), Fault>) -> Result<(), Fault> {
    match done {
        Err(Fault::Corrupt(_)) if hidden => Ok(()),
        done => done,
    }
}

impl Image {
    /// Until the live tree can be frozen.
    pub(super) async fn tidy(&self) -> Result<(), Fault> {
        for pass in 0..PASSES {
            let loose = {
                let state = self.0.state.borrow();
                if state.is_tidy() {
                    return Ok(());
                }
                state.loose
            };
            let _halt = (pass > 0).then(|| self.halt());
            self.tidy_tree().await?;
            self.0.state.borrow_mut().tidied = loose;
        }
        match self.0.state.borrow().is_tidy() {
            true => Ok(()),
            false => Err(Fault::NoSpace("the WORM has no space for a dump")),
        }
    }

    async fn tidy_tree(&self) -> Result<(), Fault> {
        self.step(&mut |s| s.tidy_root()).await?;
        let mut dirs = vec![(ROOT, false)];
        while let Some((dir, hidden)) = dirs.pop() {
            readable(hidden, self.tidy_dir((dir, hidden), &mut dirs).await)?;
        }
        Ok(())
    }

    /// Files of a directory; the directories in it are to be looked at too. `hidden`: no dump shows
    /// it.
    async fn tidy_dir(
        &self,
        (dir, hidden): (Ino, bool),
        dirs: &mut Vec<(Ino, bool)>,
    ) -> Result<(), Fault> {
        self.tidy_file(dir).await?;
        let mut after = 0;
        loop {
            let some = self
                .step(&mut |s| match s.entries(View::Live, dir, after, ENTRIES) {
                    // It was removed.
                    Err(Stop::Fail(Fault::NotFound)) => Ok(Vec::new()),
                    some => some,
                })
                .await?;
            let Some(last) = some.last() else { return Ok(()) };
            after = last.cookie;
            for e in some {
                match self.step(&mut |s| s.dentry(View::Live, e.ino)).await {
                    Ok((d, _)) => {
                        let hidden = hidden || d.mode & mode::TMP != 0;
                        if d.is_dir() {
                            dirs.push((e.ino, hidden));
                        } else {
                            readable(hidden, self.tidy_file(e.ino).await)?;
                        }
                    }
                    Err(Fault::NotFound) => {}
                    Err(fault) => return Err(fault),
                }
            }
        }
    }

    async fn tidy_file(&self, ino: Ino) -> Result<(), Fault> {
        let mut from = Some(0);
        while let Some(n) = from {
            from = self.step(&mut |s| s.tidy_some(ino, n)).await?;
            self.0.reactor.yield_now().await;
        }
        Ok(())
    }
}
