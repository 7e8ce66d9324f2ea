//! volume: a cached WORM.
//!
//! ```text
//!   operation -> Step over State (memory)            never waits; undone when it misses something
//!                    |  dirty frames
//!   commit     slots of the cache device, then a record of the journal: atomic
//!                    |
//!   dump       a superblock and checksums are added, and everything below a line is frozen
//!                    |
//!   copier     a task for each leg of the WORM: blocks, flush, superblock, flush
//! ```
//!
//! An address (w) is given to a block when it is made. Addresses only increase from one dump to the
//! next, and `frozen` is the line. A block below it belongs to a dump and never changes, so that
//! taking a dump is moving the line. A block above it is changed in place; one below is copied to a
//! new address, with the blocks that lead to it. So a dump costs the same for any size of the tree.
//! Its blocks are one range of the WORM, and the progress of a leg is one number.
//!
//! The states that the first file servers kept for each block follow from its address:
//!
//! | state | here |
//! |---|---|
//! | none  | on the WORM and not on the cache device |
//! | dirty | at or above `frozen` |
//! | dump  | below `frozen`, above the progress of the last leg |
//! | read  | on the cache device and on the WORM |
//! | write | never: a changed block of a dump gets its new address at once |
//! | dump1 | never: a block that a leg cannot write stays on the cache device; the leg is behind |
//!
//! Invariants
//!  V1  Blocks below `frozen` are never changed, in memory, on the cache device or on the WORM.
//!  V2  A commit is found after a loss of power as a whole or not at all; synced data is found.
//!  V3  A superblock reaches a leg after everything that it vouches for is durable there.
//!  V4  A block leaves the cache device only when a leg has it for good.
//!  V5  Nothing is acknowledged after another server took the WORM.

mod addr_index;
mod commit;
mod compare;
mod copy;
mod dump;
mod facts;
mod fence;
pub(crate) mod frames;
mod grow;
mod join;
mod journal;
mod layout;
mod load;
mod open;
mod point;
mod recover;
mod replace;
pub mod seal;
mod space;
mod state;
mod step;
mod table;
mod worm;
mod worm_reads;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use reactor::Reactor;

use crate::ahead::{self, Ahead};
use crate::fault::{Addr, Fault, Stop, Wait};
use crate::inflight_loads::Loads;
use crate::medium::Medium;
use crate::notify::Notify;
use crate::orphans::InodeRefs;
use crate::turn_budget::TurnBudget;
use state::VolumeState;
pub(crate) use table::AddrMap;

pub use crate::ahead::ReadAhead;
pub use compare::Copy;
pub use copy::{Remedy, Report};
pub use facts::{Facts, percent};
pub use fence::Owner;
pub use frames::{GivenBack, LENT_PART};
pub use layout::BLOCKS;
pub use open::{MEMBER_COUNT_DIFFERS, Options, is_formatted, open, ream};
pub use point::{Dump, MEMBERS_MAX};
pub use recover::{dumps_on_worm, recover};
pub use space::{is_scratch, scratch_index};
pub use step::{Step, View};
pub use worm::Label;

/// Why a cache device has no space for a change, and what frees some: a dump ...
const FULL: &str = "the cache device is full of blocks that no WORM has yet";
/// ... but not of these.
const FULL_OF_TEMPORARY: &str = "the cache device is full of temporary files (mode t), which no \
                                 dump takes away: remove some; `check --rtmp` removes all";
/// It needs more at once than there is memory for.
const TOO_SMALL: Fault = Fault::NoSpace("the block cache is too small for the operation");
/// An operation that loads so many times the blocks that fit evicts blocks that it needs itself.
const LOADS: usize = 64;
/// Blocks evicted from memory at a time.
const EVICT: usize = 64;
/// Commits that an operation waits for, for memory or for slots, without any gain.
const ROUNDS: u32 = 8;
/// Waits of an operation, with all its loads, for memory that unsent replies hold, and the length
/// of one, ns. After these the operation is refused as one that is too large for the block cache.
const LENT_WAITS: usize = 10_000;
/// See [`LENT_WAITS`].
const LENT_WAIT_NS: u64 = 1_000_000;
/// A commit is begun when so many thousandths of the block cache are dirty, or so many blocks were
/// changed or given up. They are captured in one turn, while clients wait ...
const COMMIT_AT: usize = 250;
const COMMIT_BLOCKS: usize = 1024;
/// ... and operations wait for it at so many.
const COMMIT_BOUND: usize = 600;

struct Inner {
    reactor: Reactor,
    pool: bio::Pool,
    cache: Rc<dyn Medium>,
    members: Vec<Rc<dyn Medium>>,
    state: RefCell<VolumeState>,
    clock: Rc<dyn Fn() -> u64>,
    ahead: Ahead,
    /// Dumps are copied to the legs.
    copying: Cell<bool>,
    /// The cache device is being made larger.
    growing: Cell<bool>,
    /// It has been.
    grown: Notify,
    /// Blocks on their way into memory.
    loads: Loads,
    /// Commits begun and ended, and the fault of the last one.
    begun: Cell<u64>,
    ended: Cell<u64>,
    fault: RefCell<Option<Fault>>,
    committing: Cell<bool>,
    committed: Notify,
    /// Work of the commit between two turns of clients.
    budget: TurnBudget,
    /// A dump was committed, or a leg got further.
    dumped: Notify,
    ring: RefCell<journal::Ring>,
    /// The identity of this server.
    owner: fence::Owner,
    name: String,
    /// Its seat on each leg that has answered.
    fence_slots: RefCell<Vec<Option<u64>>>,
    /// Of each leg: blocks of the dump that is being copied to it are on it for good below this.
    partial: RefCell<Vec<Addr>>,
    /// Where the first superblock of its epoch is.
    start: Cell<Addr>,
    /// Nothing is begun any more.
    closed: Cell<bool>,
    /// How each leg answers reads.
    read_stats: RefCell<Vec<worm_reads::ReadStats>>,
    /// There is a new device in the place of one.
    replaced: Notify,
    /// The device that is being replaced: no other task writes to it.
    replacing: Cell<Option<usize>>,
    /// The state of the legs, for reports.
    reports: RefCell<Vec<copy::Report>>,
    /// A look at the fence ended.
    fence_replied: Notify,
    /// Legs that did not answer the last one.
    unresponsive: RefCell<Vec<bool>>,
    /// Keepers of files that have lost their names.
    inode_refs: InodeRefs,
}

/// A handle on a volume. Clones share it; it never leaves its core.
#[derive(Clone)]
pub struct Volume(Rc<Inner>);

impl Volume {
    /// Runs `op` until all blocks that it needs are in memory. It may run several times; its
    /// changes before it stopped are undone, except contents of blocks that [`Step::data_mut`]
    /// gave.
    pub async fn run<T>(
        &self,
        mut op: impl FnMut(&mut Step<'_>) -> Result<T, Stop>,
    ) -> Result<T, Fault> {
        let mut patience = SpaceWait::default();
        loop {
            let stopped = {
                let mut state = self.0.state.borrow_mut();
                state.now_ns = (self.0.clock)();
                state.tick = self.0.reactor.now();
                let mut step = Step::new(&mut state, &self.0.inode_refs, self.read_ahead());
                match op(&mut step) {
                    Ok(done) => {
                        step.end();
                        Ok(done)
                    }
                    Err(stop) => {
                        step.undo();
                        Err(stop)
                    }
                }
            };
            match stopped {
                Ok(done) => {
                    self.relieve();
                    self.fetch_wanted();
                    return Ok(done);
                }
                Err(Stop::Fail(fault)) => return Err(fault),
                Err(Stop::Missing(addr)) => {
                    patience.loads += 1;
                    if patience.loads > self.0.state.borrow().frames.limit() * LOADS {
                        return Err(TOO_SMALL);
                    }
                    self.fetch_wanted();
                    self.load_after(addr, &mut patience.waits).await?;
                }
                Err(Stop::Wait(Wait::Reap(ino))) => return Err(Fault::Unfinished(ino)),
                Err(Stop::Wait(Wait::Settle(ino))) => return Err(Fault::Unsettled(ino)),
                Err(Stop::Wait(Wait::Fence)) => self.renew().await?,
                Err(Stop::Wait(wait)) => self.make_space(wait, &mut patience).await?,
            }
        }
    }

    /// Begins a commit when much is dirty.
    fn relieve(&self) {
        let state = self.0.state.borrow();
        let (dirty, limit) = (state.frames.dirty(), state.frames.limit());
        // Those that a commit examines, though they are not dirty any more.
        let captured = state.frames.dirtied().max(state.dropped.len());
        drop(state);
        let many = dirty * 1000 > limit * COMMIT_AT || captured > COMMIT_BLOCKS;
        if many && !self.0.committing.get() {
            self.begin_commit();
        }
    }

    /// Memory, slots or numbers for an operation that stopped for want of them.
    async fn make_space(&self, wait: Wait, patience: &mut SpaceWait) -> Result<(), Fault> {
        if wait == Wait::Memory {
            let (gone, busy) = {
                let mut state = self.0.state.borrow_mut();
                let busy = state.frames.dirty() * 1000 > state.frames.limit() * COMMIT_BOUND;
                (state.frames.evict(EVICT), busy)
            };
            if gone > 0 && !busy || self.is_lent(&mut patience.waits).await {
                return Ok(());
            }
            // Eviction frees slots for the operation, until nothing clean is left.
            if gone == 0 {
                patience.memory_rounds += 1;
            }
            if patience.memory_rounds > ROUNDS {
                return Err(TOO_SMALL);
            }
            return self.sync().await;
        }
        patience.slot_rounds += 1;
        // The slots that a commit leaves are free after the record of the next one.
        let before = self.0.state.borrow().slots_left();
        self.empty_slots().await;
        self.sync().await?;
        let after = self.0.state.borrow().slots_left();
        patience.observe_free(after);
        // The remaining slots may be fewer than one operation needs: then it is full too.
        let none = before == 0 && after == 0 && patience.slot_rounds > 2;
        if none || patience.slot_rounds > ROUNDS {
            let is_temporary = self.facts().is_temporary();
            return Err(Fault::NoSpace(if is_temporary { FULL_OF_TEMPORARY } else { FULL }));
        }
        Ok(())
    }

    /// Memory that unsent replies hold returns, and a commit makes no more of it: waits a
    /// moment for that. False: none is lent, or it was waited for long enough.
    async fn is_lent(&self, waits: &mut usize) -> bool {
        if !self.0.state.borrow().frames.is_lent() || *waits >= LENT_WAITS {
            return false;
        }
        *waits += 1;
        if self.0.state.borrow().frames.dirty() > 0 && !self.0.committing.get() {
            self.begin_commit();
        }
        self.0.reactor.sleep(LENT_WAIT_NS).await;
        true
    }

    /// Makes operations durable that ended before the call.
    pub async fn sync(&self) -> Result<(), Fault> {
        if let Some(why) = &self.0.state.borrow().refused {
            return Err(why.clone());
        }
        // A commit that is under way may have begun before the changes that are to be durable.
        let wanted = self.0.begun.get() + 1;
        while self.0.ended.get() < wanted {
            let seen = self.0.committed.count();
            if !self.0.committing.get() {
                self.begin_commit();
            }
            self.0.committed.after(seen).await;
            if let Some(fault) = &*self.0.fault.borrow() {
                return Err(fault.clone());
            }
        }
        Ok(())
    }

    /// Keepers of files without a name.
    pub fn inode_refs(&self) -> &InodeRefs {
        &self.0.inode_refs
    }

    /// True once it was closed.
    pub fn is_closed(&self) -> bool {
        self.0.closed.get()
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
        self.0.state.borrow_mut().fastworm = set;
    }

    /// Sets the size of the block cache, bytes. [`Self::give_back_some`] frees what is beyond it.
    pub fn set_memory(&self, bytes: usize) {
        self.0.state.borrow_mut().frames.set_memory(bytes);
    }

    /// Frees a part of the memory beyond the size of the block cache.
    pub fn give_back_some(&self) -> GivenBack {
        self.0.state.borrow_mut().frames.give_back_some()
    }

    /// Runs a task on the volume's core.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + 'static) {
        self.0.reactor.spawn(name, task);
    }

    /// Lets other tasks of the volume's core run.
    pub(crate) async fn yield_now(&self) {
        self.0.reactor.yield_now().await;
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
        for addr in wanted {
            let volume = self.clone();
            // The operation that needs the block reports the fault.
            self.0.reactor.spawn("fs-load", async move { drop(volume.load(addr).await) });
        }
    }

    /// Blocks of the live tree alone: those that a dump would hold if it were taken now, and those
    /// that none will.
    pub fn used_by_live(&self) -> (u64, u64) {
        self.0.state.borrow().space.counts()
    }

    /// Addresses below are dumps'.
    pub(crate) fn frozen(&self) -> Addr {
        self.0.state.borrow().space.frozen()
    }

    /// True if a block may be stored at the address.
    pub(crate) fn was_allocated(&self, addr: Addr) -> bool {
        self.0.state.borrow().space.was_allocated(addr)
    }

    /// Addresses that belong to no dump and are in use, but not those that are `named`.
    pub(crate) fn unnamed(&self, named: impl Fn(Addr) -> bool) -> Vec<Addr> {
        self.0.state.borrow().space.used().filter(|a| !named(*a)).collect()
    }

    fn evict_for(&self, want: usize) -> bool {
        let mut state = self.0.state.borrow_mut();
        state.frames.evict(want.max(EVICT)) > 0
    }

    fn block(&self) -> usize {
        self.0.state.borrow().block()
    }

    fn refuse(&self, why: Fault) -> Fault {
        self.0.state.borrow_mut().refused.get_or_insert(why).clone()
    }

    /// True while `addr` may be read from a leg.
    fn is_on_member(&self, leg: usize, addr: Addr) -> bool {
        self.0.state.borrow().members.get(leg).is_some_and(|l| addr < l.done)
    }
}

/// How long an operation waits for space: as long as the number of free slots reaches a new maximum
/// since it began. An increase from one round to the next is not enough: the operation's own
/// allocations and releases look like that for ever.
#[derive(Default)]
struct SpaceWait {
    /// Commits that were waited for, for memory, since there were more slots than before.
    memory_rounds: u32,
    /// The same for slots or numbers: a wait for memory is no sign of the cache device.
    slot_rounds: u32,
    /// The most slots that were seen free.
    most: usize,
    /// Blocks that were loaded for it.
    loads: usize,
    /// Waits for memory that was lent.
    waits: usize,
}

impl SpaceWait {
    fn observe_free(&mut self, slots: usize) {
        if slots > self.most {
            (self.memory_rounds, self.slot_rounds, self.most) = (0, 0, slots);
        }
    }
}
