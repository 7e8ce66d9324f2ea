//! Temporary files: their contents are in no dump and never on the WORM.
//!
//! Their names and attributes are in the tree like any other's, and dumps hide them. Their contents
//! have scratch addresses, which are never below a dump's line.
//!
//! Invariants
//!  T1  New blocks of a temporary file are scratch. Other blocks of it are in a dump from before it
//!      was temporary, or are being moved. Its blocks are not visible in a dump: it has no name
//!      there.
//!  T2  A file that is not temporary has no scratch: the bit is cleared when the last block has
//!      moved.
//!  T3  A temporary file is named by an item. Of an item of an earlier epoch the
//!      contents were lost with the cache device, and the file is removed when the volume is
//!      mounted.
//!  T4  A file that is made in a temporary directory is temporary. The first file servers skipped
//!      such a directory when they took a dump, so that nothing in it reached the WORM either. A
//!      file that was in it before it became temporary is not changed; no dump shows it.
//!
//! ```text
//!   plain --set bit--> unsettled --moved--> temporary --clear bit--> leaving --moved--> plain
//! ```
//! A request that sets or clears the bit is answered when all blocks have moved. Moving takes many
//! steps, between which the file may change: the generation in its item shows that.

use super::contents::RUN;
use super::{FileSystem, Flags, Ino, Inode, Kind, VolumeFiles};
use crate::fault::{Addr, Fault, Stop, Wait};
use crate::tree::{self, Blocks, Key, Kind as Item};
use crate::users::ADM;
use crate::volume::seal::{Decoder, Encoder};
use crate::volume::{View, is_scratch};

/// Blocks moved in one step.
const MOVES: usize = 8;
/// Items looked at in one step.
const ITEMS: usize = 256;

/// The item of a file that may have scratch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note {
    /// In which its addresses were given.
    epoch: u32,
    /// All blocks are at addresses of the right kind.
    settled: bool,
    /// A change of it means that blocks that were already checked have to be moved again.
    generation: u64,
}

impl Note {
    fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        out.u32(self.epoch).u32(u32::from(self.settled)).u64(self.generation);
        out.0
    }

    fn decode(bytes: &[u8]) -> Note {
        let mut t = Decoder(bytes);
        Note { epoch: t.u32(), settled: t.u32() == 1, generation: t.u64() }
    }
}

const fn key(ino: Ino) -> Key {
    Key::new(0, Item::Temporary, ino)
}

impl VolumeFiles<'_, '_> {
    fn wants_scratch(&self, inode: &Inode) -> bool {
        let marked = inode.flags.has(Flags::TMP) && !inode.flags.has(Flags::LEAVING);
        inode.kind == Kind::File && marked && self.step.has_dumps()
    }

    fn note_of(&mut self, ino: Ino) -> Result<Option<Note>, Stop> {
        let root = self.step.root(View::Live)?;
        tree::get(self.step, root, &key(ino), Note::decode)
    }

    fn note(&mut self, ino: Ino, settled: bool) -> Result<(), Stop> {
        let generation = self.step.new_change()?;
        let note = Note { epoch: self.step.epoch(), settled, generation };
        self.put(&key(ino), &note.encode())
    }

    /// Whether new blocks of a file are scratch; then an item names it (T3).
    pub(super) fn scratch_for(&mut self, ino: Ino, inode: &Inode) -> Result<bool, Stop> {
        let scratch = self.wants_scratch(inode);
        if scratch && self.note_of(ino)?.is_none() {
            self.note(ino, true)?;
        }
        Ok(scratch)
    }

    /// Sets the flags of a file; its contents are moved if needed.
    pub(super) fn mark(&mut self, ino: Ino, inode: &mut Inode, flags: Flags) -> Result<(), Stop> {
        let had = self.wants_scratch(inode);
        if inode.flags.has(Flags::TMP) && !flags.has(Flags::TMP) {
            match self.note_of(ino)? {
                None => {}
                Some(n) if n.settled && inode.flags.has(Flags::LEAVING) => {
                    self.take(&key(ino))?;
                }
                Some(_) => return Err(Stop::Wait(Wait::Settle(ino))),
            }
        }
        inode.flags = flags;
        if self.wants_scratch(inode) && !had {
            self.unsettle(ino)?;
        }
        Ok(())
    }

    /// Queues the file's contents to be moved to addresses of the kind in its attributes, before
    /// the request is answered.
    pub(super) fn unsettle(&mut self, ino: Ino) -> Result<(), Stop> {
        self.note(ino, false)?;
        self.step.settle(ino);
        Ok(())
    }

    /// New blocks of a file are where dumps find them, and those that it has are to be moved there.
    fn leave(&mut self, ino: Ino) -> Result<(), Stop> {
        let mut inode = self.inode(View::Live, ino)?;
        if inode.flags.has(Flags::LEAVING) {
            return Ok(());
        }
        inode.flags = inode.flags.with(Flags::LEAVING);
        self.put_inode(ino, &inode)?;
        self.note(ino, false)
    }

    /// Removes the attributes of a file and all that names it.
    pub(super) fn forget_inode(&mut self, ino: Ino) -> Result<(), Stop> {
        self.take(&Key::new(ino, Item::Inode, 0))?;
        self.take(&key(ino)).map(drop)
    }

    /// A block whose address is of the wrong kind. Blocks of a dump stay.
    fn is_misplaced(&self, at: Addr, scratch: bool) -> bool {
        at != 0 && is_scratch(at) != scratch && !self.step.is_frozen(at)
    }

    /// Moves some blocks, those of the file from `from` on; where it continues, or none: that was
    /// the rest of them.
    fn move_some(&mut self, ino: Ino, from: u64, scratch: bool) -> Result<Option<u64>, Stop> {
        let (runs, mut moved) = (self.runs_from(ino, from / RUN)?, 0);
        for n in &runs {
            let mut run = self.run_of(View::Live, ino, *n)?;
            let before = run;
            let mut stopped = None;
            for (block, at) in (n * RUN..).zip(&mut run) {
                if block < from || !self.is_misplaced(*at, scratch) {
                    continue;
                }
                if moved == MOVES {
                    stopped = Some(block);
                    break;
                }
                let had = self.step.data(*at)?;
                let (new, seg) = self.step.fresh_of(scratch)?;
                had.with(|b| seg.copy_from(0, b));
                self.step.free(std::mem::replace(at, new));
                moved += 1;
            }
            if run != before {
                self.put_run(ino, *n, &run)?;
            }
            if stopped.is_some() {
                return Ok(stopped);
            }
        }
        let more = runs.len() == super::reclaim::RUNS_PER_STEP;
        Ok(runs.last().filter(|_| more).map(|n| (n + 1) * RUN))
    }

    /// One step of settling a file; true if it was the last. `done` is the generation of the blocks
    /// that were checked, and how far.
    fn settle_some(&mut self, ino: Ino, done: &mut (u64, u64)) -> Result<bool, Stop> {
        let Some(note) = self.note_of(ino)? else { return Ok(true) };
        let inode = match self.inode(View::Live, ino) {
            Ok(inode) => inode,
            Err(Stop::Fail(Fault::NotFound)) => return self.take(&key(ino)).map(|_| true),
            Err(stop) => return Err(stop),
        };
        let from = if note.generation == done.0 { done.1 } else { 0 };
        let scratch = self.wants_scratch(&inode);
        if let Some(next) = self.move_some(ino, from, scratch)? {
            *done = (note.generation, next);
            return Ok(false);
        }
        if inode.flags.has(Flags::TMP) {
            self.put(&key(ino), &Note { settled: true, ..note }.encode())?;
        } else {
            self.take(&key(ino))?;
        }
        Ok(true)
    }

    /// Resumes the state that a server before this one, or a loss of power, left: true if the
    /// file's contents are still to be moved.
    fn resume(&mut self, ino: Ino) -> Result<bool, Stop> {
        let Some(note) = self.note_of(ino)? else { return Ok(false) };
        let mut inode = match self.inode(View::Live, ino) {
            Ok(inode) => inode,
            Err(Stop::Fail(Fault::NotFound)) => return self.take(&key(ino)).map(|_| false),
            Err(stop) => return Err(stop),
        };
        if note.epoch != self.step.epoch() {
            if let Some((dir, name)) = self.name(View::Live, ino)? {
                self.remove(dir, &name, ADM)?;
            }
            return self.take(&key(ino)).map(|_| false);
        }
        if inode.flags.has(Flags::LEAVING) {
            // The request that cleared the bit was never answered.
            inode.flags = inode.flags.without(Flags::LEAVING);
            self.put_inode(ino, &inode)?;
            self.note(ino, false)?;
            return Ok(true);
        }
        Ok(!note.settled)
    }

    /// Files that are named as temporary, from a number on.
    fn temporary_files(&mut self, from: Ino) -> Result<Vec<Ino>, Stop> {
        self.offsets((0, Item::Temporary, from), ITEMS)
    }
}

impl FileSystem {
    /// Moves a file's contents to addresses of the right kind.
    pub(super) async fn settle(&self, ino: Ino) -> Result<(), Fault> {
        let mut done = (0, 0);
        loop {
            let mut next = done;
            let one = |step: &mut crate::volume::Step<'_>| {
                next = done;
                VolumeFiles { step }.settle_some(ino, &mut next)
            };
            if self.volume.run(one).await? {
                return Ok(());
            }
            done = next;
            self.volume.yield_now().await;
        }
    }

    /// The same for a file that is to be temporary no more.
    pub(super) async fn settle_for_dumps(&self, ino: Ino) -> Result<(), Fault> {
        self.volume.run(|step| VolumeFiles { step }.leave(ino)).await?;
        self.settle(ino).await
    }

    /// After a start: files whose contents were lost with another cache device are removed, and
    /// interrupted moves are completed.
    pub(super) async fn resume_temporary(&self) -> Result<(), Fault> {
        let mut from = Some(0);
        while let Some(first) = from {
            let some = self.native(|f| f.temporary_files(first)).await?;
            from = some.last().and_then(|last| last.checked_add(1));
            for ino in some {
                if self.native(|f| f.resume(ino)).await? {
                    // If there is no space now, it is done at the next start or at the next
                    // request.
                    let _ = self.settle(ino).await;
                }
            }
        }
        Ok(())
    }
}
