//! image: file systems that 9front's cwfs64x made, served and written as it would.
//!
//! ```text
//!   operation -> Step over State (memory)        names, contents: by the entries
//!                    |                           cw: states of blocks; alloc: next addresses
//!   commit     all changed blocks to a log in the slack of the cache device, flush; then each to
//!              its place, flush: atomic, which the first file servers were not
//!   dump       the tree is frozen at once and walked while clients continue: tidy, walk, years
//!   copier     blocks in state dump to the WORM, superblocks last
//! ```
//!
//! | state | met here, in the live tree |
//! |---|---|
//! | none, read, dump | a dump's: what changes gets an address of its own, which is dirty |
//! | dirty | changed where it is; in a tree that is frozen it is the dump's already |
//! | write | another program's, or the WORM is full: changed where it is, moved by the next dump |
//! | dump1 | another program's: read; what changes gets an address of its own |
//!
//! The original changes a block of a dump where it is (write) and moves it when the next dump is
//! taken. This moves it at once. Either takes one address a dump, and either's image is the
//! other's.
//!
//! Invariants
//!  I1  A commit is found after a loss of power as a whole or not at all; synced data is found.
//!  I2  A block of a dump never changes, on the cache device or on the WORM.
//!  I3  A superblock reaches the WORM after everything that it vouches for is durable there, and
//!      after the superblock before it.
//!  I4  Changes that another program made since are never overwritten by the log. The log is valid
//!      only while the header is the one before its last commit or after it.
//!  I5  The live tree changes a block where it is only if no dump has it and no frozen tree. It is
//!      dirty, and was given since the freeze. Else the block moves to a new address, and so does
//!      each pointer to it.
//!  I6  In a tidy tree everything that leads to a dirty block is dirty, and nothing is in state
//!      write. A walk from the root reads new blocks only. An operation that breaks that counts it
//!      (`loose`).
//!  I7  An address of a frozen tree is not given again before that is walked. It is then given only
//!      if it is still dirty, so that the dump does not contain it.
//!  I8  A superblock in state dump is not changed. Addresses given meanwhile are below the header's
//!      end and on no list; numbers are within the range of that superblock. So a program that
//!      opens the image then gives none of either again.
//!  I9  The name and the superblock of a dump are written in one step, after everything below it is
//!      in state dump.

mod alloc;
mod cached_worm;
mod check;
mod commit;
mod contents;
mod copy;
mod dump;
mod dump_root;
pub mod format;
mod freeze_walk;
mod grow;
mod names;
mod open;
mod relocate;
mod repair;
mod repair_passes;
mod spare_blocks;
mod state;
mod step;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use bio::{Pool, Seg};
use reactor::Reactor;

use crate::ahead::{self, Ahead, Loader};
use crate::fault::{Addr, Fault, Stop, Wait};
use crate::files::Ino;
use crate::inflight_loads::Loads;
use crate::medium::Medium;
use crate::notify::Notify;
use crate::orphans::InodeRefs;
use crate::turn_budget::TurnBudget;
use crate::volume::{Dump, Facts, GivenBack, ReadAhead, Report};
use format::{BLOCK, Layout};
use state::{ImageState, WORM};

pub use open::{Setup, is_image, open, ream, recover};
pub use step::Step;

/// Largest size of a file.
pub(crate) const SIZE_MAX: u64 = 1 << 57;
/// Blocks evicted from memory at a time.
const EVICT: usize = 64;
/// Looks at a block that changed while it was read.
const TRIES: usize = 4;
/// How often memory is waited for, and how long each time, ns.
const WAITS: usize = 1000;
/// The same while unsent replies hold memory, which returns: of an operation with all its loads.
const WAITS_LENT: usize = 10 * WAITS;
/// No memory became free in time.
const IN_USE: Fault = Fault::NoSpace("the block cache is full of blocks in use");
/// See [`WAITS`].
const WAIT_NS: u64 = 1_000_000;
/// Commits that an operation waits for because the log has no space for it.
const LOG_WAITS: usize = 3;

struct Inner {
    reactor: Reactor,
    pool: Pool,
    first: Rc<dyn Medium>,
    worm: Option<Rc<dyn Medium>>,
    clock: Rc<dyn Fn() -> u64>,
    state: RefCell<ImageState>,
    /// Keepers of files that have lost their names.
    inode_refs: InodeRefs,
    loads: Loads,
    ahead: Ahead,
    /// Commits begun, those that have taken the changed blocks, and those that ended.
    begun: Cell<u64>,
    captured: Cell<u64>,
    ended: Cell<u64>,
    committing: Cell<bool>,
    committed: Notify,
    /// Work of the commit between two turns of clients.
    budget: TurnBudget,
    /// Operations wait.
    halted: Cell<bool>,
    /// A task freezes the tree.
    freezing: Cell<bool>,
    /// A check of the live tree runs; it is to end.
    checking: Cell<bool>,
    /// See `looking`.
    closing: Cell<bool>,
    /// One of these, or the copier moved on.
    gates_changed: Notify,
    /// A task copies to the WORM.
    copying: Cell<bool>,
    /// Dumps are copied.
    copies: Cell<bool>,
    /// Addresses to be copied next.
    queue: RefCell<BTreeSet<Addr>>,
    /// Nothing was in state dump when it was last looked.
    idle: Cell<bool>,
    report: RefCell<Report>,
    closed: Cell<bool>,
}

/// A handle on an open image. Clones share it; it never leaves its core.
#[derive(Clone)]
pub struct Image(Rc<Inner>);

impl Image {
    /// Runs `op` until all blocks that it needs are in memory. It may run several times; its
    /// changes before it stopped are undone.
    pub async fn run<T>(
        &self,
        mut op: impl FnMut(&mut Step<'_>) -> Result<T, Stop>,
    ) -> Result<T, Fault> {
        self.attempt(true, &mut op).await
    }

    /// The same also while clients are halted, for dump and copier.
    async fn step<T>(
        &self,
        op: &mut impl FnMut(&mut Step<'_>) -> Result<T, Stop>,
    ) -> Result<T, Fault> {
        self.attempt(false, op).await
    }

    /// Until no tree is frozen.
    async fn wait_thawed(&self) {
        loop {
            let seen = self.0.gates_changed.count();
            if self.0.state.borrow().since.is_none() {
                return;
            }
            self.0.gates_changed.after(seen).await;
        }
    }

    /// Until clients are not halted.
    async fn wait_unhalted(&self) {
        loop {
            let seen = self.0.gates_changed.count();
            if !self.0.halted.get() {
                return;
            }
            self.0.gates_changed.after(seen).await;
        }
    }

    /// Tries `op` until it is done. A client looks at the gates at every attempt: they may have
    /// been shut while it waited for a block.
    async fn attempt<T>(
        &self,
        is_client: bool,
        op: &mut impl FnMut(&mut Step<'_>) -> Result<T, Stop>,
    ) -> Result<T, Fault> {
        let (mut waits, mut lent_waits, mut log_waits) = (0, 0, 0);
        loop {
            if is_client {
                self.wait_unhalted().await;
            }
            if self.0.closed.get() {
                return Err(Fault::Closed);
            }
            let stopped = {
                let mut state = self.0.state.borrow_mut();
                state.now_ns = (self.0.clock)();
                let mut step = Step::new(&mut state, &self.0.inode_refs, self.read_ahead());
                let done = op(&mut step);
                if done.is_err() {
                    step.undo();
                }
                done
            };
            match stopped {
                Ok(done) => {
                    self.relieve();
                    self.fetch_wanted();
                    return Ok(done);
                }
                Err(Stop::Fail(fault)) => return Err(fault),
                Err(Stop::Missing(at)) => {
                    self.fetch_wanted();
                    self.load_after(at, &mut lent_waits).await?;
                }
                Err(Stop::Wait(Wait::Memory)) => {
                    let gone = self.0.state.borrow_mut().frames.evict(EVICT);
                    if gone == 0 {
                        self.commit_now().await?;
                    }
                    // Of its own each: a long wait for replies leaves all tries to the operation.
                    let is_lent = self.0.state.borrow().frames.is_lent();
                    let (count, most) = match is_lent {
                        true => (&mut lent_waits, WAITS_LENT),
                        false => (&mut waits, WAITS),
                    };
                    *count += 1;
                    if *count > most {
                        return Err(Fault::NoSpace("the block cache is too small"));
                    }
                    if gone == 0 {
                        self.0.reactor.sleep(WAIT_NS).await;
                    }
                }
                Err(Stop::Wait(Wait::Copy(addr))) => Box::pin(self.copied_block(addr)).await?,
                Err(Stop::Wait(Wait::Thaw)) => self.wait_thawed().await,
                Err(Stop::Wait(_)) => {
                    // Of its own: waits for memory are no sign of a full log.
                    log_waits += 1;
                    if log_waits > LOG_WAITS {
                        return Err(Fault::NoSpace(
                            "the operation changes more than the log holds",
                        ));
                    }
                    self.captured().await?;
                }
            }
        }
    }

    /// Begins a commit when much is dirty.
    fn relieve(&self) {
        let state = self.0.state.borrow();
        let dirty = state.frames.dirty();
        let many = state.shape.log.is_some_and(|log_blocks| dirty as u64 * 2 > log_blocks)
            || dirty * 2 > state.frames.limit();
        drop(state);
        if many && !self.0.committing.get() {
            self.begin_commit();
        }
    }

    /// Makes operations durable that ended before the call.
    pub async fn sync(&self) -> Result<(), Fault> {
        if let Some(why) = &self.0.state.borrow().refused {
            return Err(why.clone());
        }
        self.commit_now().await
    }

    async fn commit_now(&self) -> Result<(), Fault> {
        // A commit that is under way may have begun before the changes that are to be durable.
        self.await_commit(&self.0.ended, self.0.begun.get() + 1).await
    }

    /// Until a commit has taken the blocks that are dirty now: the log has space for others.
    async fn captured(&self) -> Result<(), Fault> {
        self.await_commit(&self.0.captured, self.0.captured.get() + 1).await
    }

    /// Until `count`, of commits begun or later, is `wanted`.
    async fn await_commit(&self, count: &Cell<u64>, wanted: u64) -> Result<(), Fault> {
        while count.get() < wanted {
            let seen = self.0.committed.count();
            if !self.0.committing.get() {
                self.begin_commit();
            }
            self.0.committed.after(seen).await;
            if let Some(why) = &self.0.state.borrow().refused {
                return Err(why.clone());
            }
        }
        Ok(())
    }

    /// Loads the blocks that operations announced.
    fn fetch_wanted(&self) {
        let (wanted, later) = {
            let mut state = self.0.state.borrow_mut();
            (std::mem::take(&mut state.wanted), std::mem::take(&mut state.later))
        };
        if !later.is_empty() {
            ahead::load(self, later);
        }
        for at in wanted {
            let image = self.clone();
            // The operation that needs the block reports the fault.
            self.0.reactor.spawn("image-load", async move { drop(image.load(at).await) });
        }
    }

    /// How much is read ahead.
    pub fn read_ahead(&self) -> ReadAhead {
        self.0.ahead.settings.get()
    }

    /// Sets the read-ahead; loads that are under way continue.
    pub fn set_read_ahead(&self, set: ReadAhead) {
        self.0.ahead.settings.set(set);
    }

    /// Sets whether the WORM is as fast as the cache device.
    pub fn set_fastworm(&self, set: bool) {
        self.0.state.borrow_mut().shape.fastworm = set;
    }

    /// Sets the size of the block cache, bytes. [`Self::give_back_some`] frees what is beyond it.
    pub fn set_memory(&self, bytes: usize) {
        self.0.state.borrow_mut().frames.set_memory(bytes);
    }

    /// Frees a part of the memory beyond the size of the block cache.
    pub fn give_back_some(&self) -> GivenBack {
        self.0.state.borrow_mut().frames.give_back_some()
    }

    /// Memory for a block that is loaded.
    async fn memory(&self, at: Addr) -> Result<Seg, Fault> {
        let (mut waits, mut lent_waits) = (0, self.0.loads.waits(at));
        while waits < WAITS && lent_waits < WAITS_LENT {
            if let Some(seg) = self.0.state.borrow().frames.memory() {
                return Ok(seg);
            }
            // Memory of unsent replies is freed when they are sent: the operation waits for it.
            let is_lent = self.0.state.borrow().frames.is_lent();
            let count = if is_lent { &mut lent_waits } else { &mut waits };
            *count += 1;
            self.0.loads.set_waits(at, lent_waits);
            if self.0.state.borrow_mut().frames.evict(EVICT) == 0 {
                self.commit_now().await?;
                self.0.reactor.sleep(WAIT_NS).await;
            }
        }
        Err(IN_USE)
    }

    async fn read_device(&self, at: Addr, seg: &Seg) -> Result<(), Fault> {
        let medium = match at & WORM {
            0 => Some(&self.0.first),
            _ => self.0.worm.as_ref(),
        };
        let Some(medium) = medium else { return Err(Fault::Corrupt("there is no WORM".into())) };
        let block = at & !WORM;
        let read = medium.read(block * BLOCK as u64, seg.clone().into()).await;
        read.map_err(|e| Fault::Io(e, format!("{}: block {block}", medium.name())))
    }

    /// Loads a block, or waits for a load that is under way.
    async fn load(&self, at: Addr) -> Result<(), Fault> {
        self.load_after(at, &mut 0).await
    }

    /// The same for an operation that has waited so many times for memory that unsent replies hold.
    /// The waits of all its loads together are bounded.
    async fn load_after(&self, at: Addr, waits: &mut usize) -> Result<(), Fault> {
        let Some(loading) = self.0.loads.begin(at, waits).await else {
            let state = self.0.state.borrow();
            let fails = *waits >= WAITS_LENT && !state.frames.has(at) && state.frames.is_lent();
            return if fails { Err(IN_USE) } else { Ok(()) };
        };
        let done = self.load_block(at).await;
        *waits = loading.waits();
        done
    }

    async fn load_block(&self, at: Addr) -> Result<(), Fault> {
        for _ in 0..TRIES {
            if self.0.state.borrow().frames.has(at) {
                return Ok(());
            }
            let (seg, ended) = (self.memory(at).await?, self.0.ended.get());
            self.read_device(at, &seg).await?;
            let mut state = self.0.state.borrow_mut();
            // A commit that ended meanwhile may have written it, and memory may have forgotten it.
            if self.0.ended.get() == ended || at & WORM != 0 {
                if !state.frames.has(at) {
                    state.frames.enter(at, seg);
                }
                return Ok(());
            }
        }
        // It is requested again.
        Ok(())
    }

    /// Keepers of files without a name.
    pub fn inode_refs(&self) -> &InodeRefs {
        &self.0.inode_refs
    }

    /// Every dump.
    pub fn dumps(&self) -> Vec<Dump> {
        self.0.state.borrow().dumps.clone()
    }

    /// Finishes making a file shorter, as far as that takes several steps.
    pub async fn shorten(&self, ino: Ino) -> Result<(), Fault> {
        let size = self.0.state.borrow_mut().cutting.remove(&ino);
        let Some(size) = size else { return Ok(()) };
        while !self.run(|s| s.cut_some(ino, size)).await? {
            self.0.reactor.yield_now().await;
        }
        Ok(())
    }

    /// Gives back blocks of files without a name, until it is closed.
    async fn keep_reaping(self) {
        while !self.0.closed.get() {
            for ino in self.0.inode_refs.released().await {
                // A file that fails stays until the image is opened again; it is no part of the
                // tree.
                while let Ok(false) = self.run(|s| s.reap(ino)).await {
                    self.0.reactor.yield_now().await;
                }
            }
        }
    }

    /// Files without a name, in the order of their numbers.
    fn unlinked_files(&self) -> Vec<Ino> {
        let mut gone: Vec<Ino> = self.0.state.borrow().unlinked.keys().copied().collect();
        gone.sort_unstable();
        gone
    }

    /// Files that have neither a name nor a keeper are looked at.
    pub fn reap(&self) {
        let keepers = &self.0.inode_refs;
        self.unlinked_files()
            .into_iter()
            .filter(|ino| !keepers.has(*ino))
            .for_each(|i| keepers.release(i));
    }

    /// Everything is durable, and nothing is begun any more.
    pub async fn close(&self) -> Result<(), Fault> {
        // Blocks that the tree lost during a walk are given back.
        self.0.closing.set(true);
        if self.0.checking.get() {
            drop(self.lock_freezing().await);
        }
        self.0.inode_refs.dismiss();
        for ino in self.unlinked_files() {
            while let Ok(false) = self.run(|s| s.reap(ino)).await {
                self.0.reactor.yield_now().await;
            }
        }
        let writes = self.0.state.borrow().shape.log.is_some();
        let done = if writes { self.settle_and_sync().await } else { Ok(()) };
        self.0.closed.set(true);
        self.0.inode_refs.close();
        for notify in [&self.0.gates_changed, &self.0.committed] {
            notify.notify_all();
        }
        while self.0.state.borrow_mut().frames.discard_some() {
            self.0.reactor.yield_now().await;
        }
        done
    }

    async fn settle_and_sync(&self) -> Result<(), Fault> {
        self.settle().await?;
        self.sync().await
    }

    /// How it is doing.
    pub fn facts(&self) -> Facts {
        use format::BlockState as S;
        let s = self.0.state.borrow();
        let n = |state: S| s.counts[state as usize];
        let pinned = n(S::Dirty) + n(S::Write) + n(S::Dump) + n(S::Dump1);
        let cached = s.shape.worm.is_some();
        let ahead = self.read_ahead();
        Facts {
            block: BLOCK as u64,
            ahead_workers: ahead.workers.into(),
            ahead_bytes: ahead.bytes,
            ahead_loaded: self.0.ahead.loaded.get(),
            ahead_dropped: self.0.ahead.dropped.get(),
            memory: s.frames.limit() as u64,
            dirty: s.frames.dirty() as u64,
            hits: s.frames.hits,
            misses: s.frames.misses,
            slots: if cached { s.header.csize } else { 0 },
            slots_used: pinned + n(S::Read),
            slots_left: s.header.csize.saturating_sub(pinned),
            worm: s.shape.worm.unwrap_or(0),
            next: s.header.fsize,
            sb_last: s.header.sb,
            live: n(S::Dirty) + n(S::Write),
            dumps: s.dumps.len() as u64,
            commits: s.seq,
            refused: s.refused.as_ref().map(ToString::to_string),
            ..Facts::default()
        }
    }

    /// How copying to the WORM is doing.
    pub fn members(&self) -> Vec<Report> {
        match &self.0.worm {
            Some(worm) => {
                let s = self.0.state.borrow();
                let (done, behind) = (s.header.wmax, s.counts[format::BlockState::Dump as usize]);
                let r = self.0.report.borrow().clone();
                vec![Report { name: worm.name().to_owned(), done, behind, ..r }]
            }
            None => Vec::new(),
        }
    }

    /// Nothing may be changed.
    pub fn is_read_only(&self) -> bool {
        self.0.state.borrow().shape.log.is_none()
    }

    /// Rows or columns.
    pub fn layout(&self) -> Layout {
        self.0.state.borrow().shape.layout
    }

    fn refuse(&self, why: Fault) -> Fault {
        self.0.state.borrow_mut().refused.get_or_insert(why).clone()
    }
}

impl Loader for Image {
    fn ahead(&self) -> &Ahead {
        &self.0.ahead
    }

    fn reactor(&self) -> &Reactor {
        &self.0.reactor
    }

    fn is_closed(&self) -> bool {
        self.0.closed.get()
    }

    fn has(&self, at: Addr) -> bool {
        self.0.state.borrow().frames.has(at) || self.0.loads.has(at)
    }

    async fn load(&self, at: Addr) -> Result<(), Fault> {
        self.load(at).await
    }
}
