//! What each core keeps of its own, and the table of members that all of them go by.
//!
//! ```text
//!   geom:  set(table) --> lock, leave it with every core, count, unlock
//!   core:  own() -------> counted since I last looked? --> lock, take the table over, unlock
//!                    \--> otherwise: no lock, nothing written that another core reads
//! ```
//!
//! Invariants
//!  N1  When [`Lanes::set`] has returned, [`Lanes::own`] gives every core the new table.
//!  N2  What is kept beside the table under the lock goes by that table: a core that finds another
//!      one there ([`Lanes::left`]) than it goes by looks again.
//!
//! N1 holds because the count changes before `set` unlocks, and a core that learns of that in
//! whatever way (a message, a lock, an answer) reads it afterwards.

use std::cell::RefMut;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bio::Owned;

/// What a core keeps of its own.
pub(crate) trait Own: Default + Send {
    /// What it goes by.
    type Table: Default + Send + Sync;
    /// What others leave with it.
    type Left: Default + Send;
    /// There is a new table.
    fn take_over(&mut self, table: Arc<Self::Table>);
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

    /// What [`Lanes::own`] gives, if there is nothing to do first: for the short way of a request
    /// that takes the long one otherwise.
    #[inline(always)]
    pub(crate) fn at_hand(&self, core: usize) -> Option<RefMut<'_, O>> {
        let lane = self.0.get(core)?;
        let seat = lane.seat.at_hand()?;
        // N1
        if seat.seen != lane.tables.load(SeqCst) {
            return None;
        }
        Some(RefMut::map(seat, |seat| &mut seat.own))
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
        }
    }
}

impl<O: Own> Lane<O> {
    fn left(&self) -> MutexGuard<'_, Left<O>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn take_over(&self, seat: &mut Seat<O>) {
        let left = self.left();
        seat.seen = self.tables.load(SeqCst);
        seat.own.take_over(left.table.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct One {
        table: Arc<u32>,
        taken: u32,
    }

    impl Own for One {
        type Table = u32;
        type Left = Vec<u32>;

        fn take_over(&mut self, table: Arc<u32>) {
            self.table = table;
            self.taken += 1;
        }
    }

    #[test]
    fn every_core_takes_a_table_over_once() {
        let lanes = Lanes::<One>::new(2);
        let seen = |core: usize| {
            let own = lanes.own(core);
            (*own.table, own.taken)
        };
        assert!(lanes.at_hand(0).is_none(), "there is a table to take over");
        assert_eq!(seen(0), (0, 1));
        assert_eq!(lanes.at_hand(0).map(|own| *own.table), Some(0));
        assert!(Arc::ptr_eq(&lanes.left(0).table, &lanes.own(0).table), "N2");
        lanes.set(|| 5, |core, left| left.push(core as u32));
        lanes.set(|| 6, |core, left| left.push(core as u32));
        assert!(lanes.at_hand(0).is_none(), "N1");
        for (core, taken) in [(0, 2), (1, 1)] {
            assert_eq!((seen(core), seen(core)), ((6, taken), (6, taken)));
            assert_eq!(lanes.left(core).other, vec![core as u32; 2]);
            assert!(Arc::ptr_eq(&lanes.left(core).table, &lanes.own(core).table), "N2");
        }
    }

    #[test]
    fn a_table_that_another_thread_sets_is_there_when_that_has_ended() {
        let lanes = Lanes::<One>::new(1);
        for n in 1..200 {
            std::thread::scope(|s| {
                s.spawn(|| lanes.set(|| n, |_, _| ()));
                let seen = *lanes.own(0).table;
                assert!(seen == n || seen + 1 == n);
            });
            assert_eq!(*lanes.own(0).table, n, "N1");
        }
    }
}
