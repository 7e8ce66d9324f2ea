//! Repair of an image: a check and the repairs of its findings, repeated until no finding can be
//! repaired. Clients and dumps wait meanwhile. A dump is never changed.
//!
//! In this order, so that a repair never takes an address that may be in use, and another file's
//! copy is never taken for a block of the tree. First a wrong free list becomes empty, and
//! untrusted copies are forgotten. Then unnamed addresses are put on the list, if all of the tree
//! can be read; then the rest follows. A loss of power in between makes nothing worse.

use std::collections::HashSet;

use super::Image;
use super::format::Dentry;
use super::repair::{Finding, Repair};
use crate::fault::{Addr, Fault};
use crate::files::{Ino, Repairs};
use crate::volume::View;

/// Checks until it is given up: each repaired something.
const PASSES: usize = 64;
/// Addresses that are given back in one step.
const GIVEN: usize = 64;

impl Image {
    /// See the module; `rdall`: tags of all blocks are checked. With `dry` it reports the first
    /// repairs, and does nothing.
    ///
    /// # Errors
    /// A device that fails; the superblock or the root cannot be read.
    pub async fn repair(&self, rdall: bool, dry: bool) -> Result<Repairs, Fault> {
        let _turn = self.lock_freezing().await;
        let _looking = self.begin_check()?;
        let _halt = self.halt();
        let (mut done, mut suspects) = (Repairs::new(), HashSet::new());
        for _ in 0..PASSES {
            if !dry {
                self.settle().await?;
            }
            let l = self.survey_at_rest(rdall, suspects.clone()).await?;
            if !l.twice.is_subset(&suspects) {
                suspects.extend(&l.twice);
                continue;
            }
            let (first, rest): (Vec<_>, Vec<_>) =
                l.findings.into_iter().partition(|f| f.repair.is_some_and(Repair::is_root_cause));
            let lost = if l.incomplete || !first.is_empty() { Vec::new() } else { l.lost };
            let now = if first.is_empty() { rest } else { first };
            let given = || format!("{} blocks without an owner: freed", lost.len());
            let line_of = |f: &Finding| f.repair.map(|repair| format!("{}: {repair}", f.text));
            if dry {
                done.extend(now.iter().filter_map(line_of));
                done.extend((!lost.is_empty()).then(given));
                return Ok(done);
            }
            for some in lost.chunks(GIVEN) {
                self.step(&mut |s| s.give_lost(some)).await?;
            }
            done.extend((!lost.is_empty()).then(given));
            let before = done.len();
            for f in &now {
                match self.step(&mut |s| s.repair(f)).await {
                    Ok(true) => done.extend(line_of(f)),
                    // The fault stays, and the next check reports it.
                    Ok(false) | Err(Fault::NotFound | Fault::Corrupt(_) | Fault::Io(..)) => {}
                    Err(fault) => return Err(fault),
                }
            }
            if done.len() == before {
                break;
            }
        }
        self.sync().await?;
        Ok(done)
    }

    /// Removes a name and its entry, and gives nothing back: `mend` does. The contents of a
    /// directory are removed with it. False: there is no such name.
    pub async fn forget(&self, dir: Ino, name: &[u8]) -> Result<bool, Fault> {
        self.run(|s| s.forget(dir, name)).await
    }

    /// Makes a directory empty with any contents; nothing of that is given back: `mend` does.
    pub async fn clear_dir(&self, dir: Ino) -> Result<(), Fault> {
        self.run(|s| {
            let (d, _) = s.dentry(View::Live, dir)?;
            if !d.is_dir() {
                return Err(Fault::NotDir.into());
            }
            let (direct, indirect) = Default::default();
            s.put(dir, &Dentry { direct, indirect, size: 0, ..d })
        })
        .await
    }

    /// Makes a hole of a block of a file with any contents; returns its previous address. Its
    /// blocks are given back by `mend`.
    pub async fn make_hole(&self, file: Ino, block: u64) -> Result<Addr, Fault> {
        self.run(|s| {
            let (d, _) = s.dentry(View::Live, file)?;
            if d.is_dir() {
                return Err(Fault::IsDir.into());
            }
            let was = s.map(View::Live, &d, block)?;
            s.unmap(file, block, 0)?;
            Ok(was)
        })
        .await
    }
}
