//! What each core keeps of its own, and the table of members that all of them go by.
//!
//! ```text
//!   geom:  set(table) --> lock, leave it with every core, count, unlock
//!          short: nothing is open
//!   core:  own() -------> counted since I last looked? --> lock, take the table over, unlock
//!                    \--> otherwise: no lock, nothing written that another core reads
//!          short() -----> is something open? no claim, no lock: a load
//! ```
//!
//! Invariants
//!  N1  When [`Lanes::set`] has returned, [`Lanes::own`] gives every core the new table.
//!  N2  What is kept beside the table under the lock goes by that table: a core that finds another
//!      one there ([`Lanes::left`]) than it goes by looks again.
//!  N3  Whatever is open goes by the newest table: [`Lanes::set`] closes all under the lock, and
//!      only the core that takes the table over, under the lock too, opens something again. What
//!      is beside ([`Own::Short`]) its core alone writes.
//!
//! N1 holds because the count changes before `set` unlocks, and a core that learns of that in
//! whatever way (a message, a lock, an answer) reads it afterwards.

use std::cell::RefMut;
use std::sync::Arc;

use bio::Owned;

use super::sync::{AtomicU64, Mutex, MutexGuard, Relaxed, SeqCst};

/// What a core keeps of its own.
pub(crate) trait Own: Default + Send {
    /// What it goes by.
    type Table: Default + Send + Sync;
    /// What others leave with it.
    type Left: Default + Send;
    /// What its requests go by that take a short way, and counters of theirs: atomics that this
    /// core alone writes, so that nothing is claimed for them (N3).
    type Short: Default + Send + Sync;
    /// There is a new table. Answers what of the short way is open from now on, in the class's own
    /// bits; zero: nothing, and [`Lanes::short`] gives nothing.
    fn take_over(&mut self, table: Arc<Self::Table>, short: &Self::Short) -> u64;
}

/// What was left with a core.
pub(crate) struct Left<O: Own> {
    pub(crate) table: Arc<O::Table>,
    pub(crate) other: O::Left,
}

/// One core's own, and how many tables it has seen.
#[derive(Default)]
struct Seat<O> {
    seen: u64,
    own: O,
}

/// On cache lines of its own.
#[repr(align(128))]
struct Lane<O: Own> {
    /// What of the short way is open (N3).
    open: AtomicU64,
    short: O::Short,
    seat: Owned<Seat<O>>,
    /// Tables that were left here.
    tables: AtomicU64,
    /// Writes that passed on this core.
    writes: AtomicU64,
    left: Mutex<Left<O>>,
}

/// See the module.
pub(crate) struct Lanes<O: Own>(Box<[Lane<O>]>);

impl<O: Own> Lanes<O> {
    /// For so many cores, with a table that is empty.
    pub(crate) fn new(cores: usize) -> Lanes<O> {
        let lane = |_| Lane {
            open: AtomicU64::new(0),
            short: O::Short::default(),
            seat: Owned::default(),
            // One is there from the start, so that N2 holds from the start.
            tables: AtomicU64::new(1),
            writes: AtomicU64::new(0),
            left: Mutex::new(Left { table: Arc::default(), other: O::Left::default() }),
        };
        Lanes((0..cores.max(1)).map(lane).collect())
    }

    #[inline]
    fn lane(&self, core: usize) -> &Lane<O> {
        // There are as many as cores; a remainder would cost more than all else here.
        self.0.get(core).unwrap_or(&self.0[0])
    }

    /// The core's own, which goes by the newest table (N1). For that core's thread, for a few
    /// instructions.
    #[inline]
    pub(crate) fn own(&self, core: usize) -> RefMut<'_, O> {
        let lane = self.lane(core);
        let mut seat = lane.seat.get();
        if seat.seen != lane.tables.load(SeqCst) {
            lane.take_over(&mut seat);
        }
        RefMut::map(seat, |seat| &mut seat.own)
    }

    /// What is open of the core's short way by the newest table (N3), and what it goes by; `None`
    /// when nothing is: then [`Lanes::own`] has what there is to know.
    #[inline(always)]
    pub(crate) fn short(&self, core: usize) -> Option<(u64, &O::Short)> {
        let lane = self.0.get(core)?;
        match lane.open.load(SeqCst) {
            0 => None,
            open => Some((open, &lane.short)),
        }
    }

    /// Counters of the core's own, whatever table it goes by: for that core's thread.
    #[inline(always)]
    pub(crate) fn counters(&self, core: usize) -> &O::Short {
        &self.lane(core).short
    }

    /// The core closes its short way until the next table: for that core's thread.
    pub(crate) fn close(&self, core: usize) {
        self.lane(core).open.store(0, SeqCst);
    }

    /// A write passed on this core: for that core's thread.
    #[inline]
    pub(crate) fn count_write(&self, core: usize) {
        let writes = &self.lane(core).writes;
        writes.store(writes.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Writes that passed so far, of all cores.
    pub(crate) fn writes(&self) -> u64 {
        self.0.iter().fold(0, |sum, lane| sum.wrapping_add(lane.writes.load(Relaxed)))
    }

    /// What was left with a core; from any thread.
    pub(crate) fn left(&self, core: usize) -> MutexGuard<'_, Left<O>> {
        self.lane(core).left()
    }

    /// What was left with each core.
    pub(crate) fn all_left(&self) -> impl Iterator<Item = MutexGuard<'_, Left<O>>> {
        self.0.iter().map(Lane::left)
    }

    /// Leaves every core a new table (N1), a copy each: counting who holds it is nobody else's
    /// business. `other(core, left)` changes what else is there (N2).
    pub(crate) fn set(
        &self,
        table: impl Fn() -> O::Table,
        mut other: impl FnMut(usize, &mut O::Left),
    ) {
        for (core, lane) in self.0.iter().enumerate() {
            let mut left = lane.left();
            left.table = Arc::new(table());
            other(core, &mut left.other);
            lane.tables.fetch_add(1, SeqCst);
            // N3
            lane.open.store(0, SeqCst);
        }
    }
}

impl<O: Own> Lane<O> {
    fn left(&self) -> MutexGuard<'_, Left<O>> {
        self.left.lock()
    }

    #[cold]
    fn take_over(&self, seat: &mut Seat<O>) {
        let left = self.left();
        seat.seen = self.tables.load(SeqCst);
        let open = seat.own.take_over(left.table.clone(), &self.short);
        // N3: while nobody can leave another table.
        self.open.store(open, SeqCst);
    }
}
