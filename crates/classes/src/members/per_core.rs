//! Per-core state of a layer, and the table of members that all cores use.
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
//!  N1  When [`PerCore::set`] has returned, [`PerCore::own`] gives every core the new table.
//!  N2  Data kept beside the table under the lock refers to that table. A core that finds another
//!      table there ([`PerCore::left`]) than the one it uses looks again.
//!  N3  An open short path always uses the newest table. [`PerCore::set`] closes all of them under
//!      the lock. Only the core that takes the table over, also under the lock, opens one again.
//!      The data beside it ([`CoreLocal::Short`]) is written by its core alone.
//!
//! N1 holds because the count changes before `set` unlocks, and a core that learns of that in
//! any way (a message, a lock, an answer) reads it afterwards.

use std::cell::RefMut;
use std::sync::Arc;

use bio::Owned;

use super::sync::{AtomicU64, Mutex, MutexGuard, Relaxed, SeqCst};

/// The private state of a core.
pub(crate) trait CoreLocal: Default + Send {
    type Table: Default + Send + Sync;
    /// What others leave with it.
    type Left: Default + Send;
    /// The data of requests on the short path, and their counters: atomics that only this core
    /// writes, so that nothing is claimed for them (N3).
    type Short: Default + Send + Sync;
    /// Takes over a new table. Returns the open part of the short path in the class's own bits.
    /// Zero means that nothing is open, and [`PerCore::fast_path`] returns nothing.
    fn take_over(&mut self, table: Arc<Self::Table>, short: &Self::Short) -> u64;
}

/// Data left with a core by other threads.
pub(crate) struct CoreInbox<O: CoreLocal> {
    pub(crate) table: Arc<O::Table>,
    pub(crate) posted: O::Left,
}

/// One core's own, and how many tables it has seen.
#[derive(Default)]
struct LocalState<O> {
    tables_seen: u64,
    state: O,
}

/// On cache lines of its own.
#[repr(align(128))]
struct CoreSlot<O: CoreLocal> {
    /// The open part of the short path (N3).
    open: AtomicU64,
    fast_path: O::Short,
    local: Owned<LocalState<O>>,
    /// Tables that were left here.
    tables: AtomicU64,
    writes: AtomicU64,
    inbox: Mutex<CoreInbox<O>>,
}

/// See the module.
pub(crate) struct PerCore<O: CoreLocal>(Box<[CoreSlot<O>]>);

impl<O: CoreLocal> PerCore<O> {
    /// For so many cores, with a table that is empty.
    pub(crate) fn new(cores: usize) -> PerCore<O> {
        let core_slot = |_| CoreSlot {
            open: AtomicU64::new(0),
            fast_path: O::Short::default(),
            local: Owned::default(),
            // One is there from the start, so that N2 holds from the start.
            tables: AtomicU64::new(1),
            writes: AtomicU64::new(0),
            inbox: Mutex::new(CoreInbox { table: Arc::default(), posted: O::Left::default() }),
        };
        PerCore((0..cores.max(1)).map(core_slot).collect())
    }

    #[inline]
    fn core_slot(&self, core: usize) -> &CoreSlot<O> {
        // There are as many as cores; a remainder would cost more than all else here.
        self.0.get(core).unwrap_or(&self.0[0])
    }

    /// The core's own state, which uses the newest table (N1). For that core's thread, for a few
    /// instructions.
    #[inline]
    pub(crate) fn local(&self, core: usize) -> RefMut<'_, O> {
        let core_slot = self.core_slot(core);
        let mut seat = core_slot.local.get();
        if seat.tables_seen != core_slot.tables.load(SeqCst) {
            core_slot.take_over(&mut seat);
        }
        RefMut::map(seat, |seat| &mut seat.state)
    }

    /// The open members of the core's short path by the newest table (N3), and the data of that
    /// path. `None` when nothing is open: then the caller uses [`PerCore::own`].
    #[inline(always)]
    pub(crate) fn fast_path(&self, core: usize) -> Option<(u64, &O::Short)> {
        let core_slot = self.0.get(core)?;
        match core_slot.open.load(SeqCst) {
            0 => None,
            open => Some((open, &core_slot.fast_path)),
        }
    }

    /// The core's own counters, independent of the table: for that core's thread.
    #[inline(always)]
    pub(crate) fn counters(&self, core: usize) -> &O::Short {
        &self.core_slot(core).fast_path
    }

    /// Closes the core's short path until the next table: for that core's thread.
    pub(crate) fn close(&self, core: usize) {
        self.core_slot(core).open.store(0, SeqCst);
    }

    /// A write passed on this core: for that core's thread.
    #[inline]
    pub(crate) fn count_write(&self, core: usize) {
        let writes = &self.core_slot(core).writes;
        writes.store(writes.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Writes that passed so far, of all cores.
    pub(crate) fn writes(&self) -> u64 {
        self.0.iter().fold(0, |sum, core_slot| sum.wrapping_add(core_slot.writes.load(Relaxed)))
    }

    /// The data left with a core; from any thread.
    pub(crate) fn inbox(&self, core: usize) -> MutexGuard<'_, CoreInbox<O>> {
        self.core_slot(core).inbox()
    }

    /// The data left with each core.
    pub(crate) fn inboxes(&self) -> impl Iterator<Item = MutexGuard<'_, CoreInbox<O>>> {
        self.0.iter().map(CoreSlot::inbox)
    }

    /// Leaves a new table with every core (N1). Each core gets a copy of its own, so that no
    /// reference count is shared. `other(core, left)` changes the other data there (N2).
    pub(crate) fn set(
        &self,
        table: impl Fn() -> O::Table,
        mut other: impl FnMut(usize, &mut O::Left),
    ) {
        for (core, core_slot) in self.0.iter().enumerate() {
            let mut left = core_slot.inbox();
            left.table = Arc::new(table());
            other(core, &mut left.posted);
            core_slot.tables.fetch_add(1, SeqCst);
            // N3
            core_slot.open.store(0, SeqCst);
        }
    }
}

impl<O: CoreLocal> CoreSlot<O> {
    fn inbox(&self) -> MutexGuard<'_, CoreInbox<O>> {
        self.inbox.lock()
    }

    #[cold]
    fn take_over(&self, seat: &mut LocalState<O>) {
        let left = self.inbox();
        seat.tables_seen = self.tables.load(SeqCst);
        let open = seat.state.take_over(left.table.clone(), &self.fast_path);
        // N3: the lock is held, so no other table can be left meanwhile.
        self.open.store(open, SeqCst);
    }
}
