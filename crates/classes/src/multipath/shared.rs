//! What the cores go by: each has a table of the paths of its own, replaced by the geom.
//!
//! Invariants
//!  T1  When [`Shared::set`] has returned, every request that starts goes by the new table.
//!  T2  A request waits in its core's lane only while no path of the table is good and the table
//!      says that requests wait; both are looked at under the lane's lock, so nobody is forgotten.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bio::Ticket;
use geom::{Edge, GeomId, Switchboard};

use super::metadata::Mode;

/// One path, as the data path sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) slot: usize,
    pub(super) edge: Edge,
    pub(super) good: bool,
    pub(super) round: u16,
}

impl Path {
    /// Its bit among all slots'.
    pub(super) fn bit(&self) -> u32 {
        1u32.checked_shl(self.slot as u32).unwrap_or(0)
    }
}

/// The paths, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) paths: Vec<Path>,
    pub(super) mode: Mode,
    /// Slot of the active one.
    pub(super) active: Option<usize>,
    /// Requests wait when no path is good.
    pub(super) queues: bool,
    /// Failed paths are looked at by the checker: requests that may wait need not try them.
    pub(super) checked: bool,
}

/// How busy a path is with requests of this core. A path that has the slot of one that went may
/// be counted too low for a while.
#[derive(Clone, Copy, Default)]
pub(super) struct Load {
    pub(super) in_flight: u32,
    /// Number of the choice that fell on it last.
    pub(super) chosen: u64,
}

/// What one core keeps.
#[derive(Default)]
pub(super) struct LaneState {
    pub(super) table: Table,
    /// Paths that failed a request of this core, a bit a slot, until the geom has decided.
    pub(super) bad: u32,
    /// By slot.
    pub(super) loads: Vec<Load>,
    /// Choices made.
    pub(super) choices: u64,
    /// Requests that wait for a path: as many as those above have in flight.
    pub(super) waiting: Vec<Ticket>,
}

/// On cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct Lane(Mutex<LaneState>);

/// What the geom is told.
#[derive(Debug)]
pub(super) enum Told {
    /// A path failed a request; `tried`: all that failed it, a bit a slot.
    Failed { slot: usize, round: u16, tried: u32 },
    /// A failed path served a request, or answered the checker.
    Works { slot: usize, round: u16 },
    /// A failed path did not answer the checker.
    StillBad { slot: usize },
    /// Every core knows a path that was attached before.
    Known { slot: usize, round: u16 },
    /// Time to look at failed paths.
    Check(u64),
    /// Time to go back to the preferred path.
    Failback(u64),
    /// Requests have waited long enough for a path.
    NoPath(u64),
    /// The record was written anew, or why not.
    Written(Result<(), bio::Errno>),
}

/// Between the geom and its layer and tasks.
pub(super) struct Shared {
    lanes: Box<[Lane]>,
    pub(super) board: Switchboard,
    pub(super) geom: GeomId,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(board: Switchboard, geom: GeomId) -> Arc<Shared> {
        let lanes = (0..board.cores().max(1)).map(|_| Lane::default()).collect();
        Arc::new(Shared { lanes, board, geom })
    }

    /// Says something to the geom.
    pub(super) fn tell(&self, told: Told) {
        self.board.tell(self.geom, Box::new(told));
    }

    /// The core's own; held for a few instructions, and by others only when tables change.
    pub(super) fn lane(&self, core: usize) -> MutexGuard<'_, LaneState> {
        lock(&self.lanes[core % self.lanes.len()].0)
    }

    /// Gives every core a new table (T1); those that waited for a path, or may no longer wait, go
    /// on (T2).
    pub(super) fn set(&self, table: &Table) {
        let slots = table.paths.iter().map(|p| p.slot + 1).max().unwrap_or(0);
        let hold = table.queues && !table.paths.iter().any(|p| p.good);
        for (core, lane) in self.lanes.iter().enumerate() {
            let mut lane = lock(&lane.0);
            lane.table = table.clone();
            lane.bad = 0;
            if lane.loads.len() < slots {
                lane.loads.resize(slots, Load::default());
            }
            let freed = if hold { Vec::new() } else { std::mem::take(&mut lane.waiting) };
            drop(lane);
            freed.into_iter().for_each(|ticket| self.board.restart(core, ticket));
        }
    }

    /// Requests that wait for a path, of all cores.
    pub(super) fn waiting(&self) -> usize {
        self.lanes.iter().map(|lane| lock(&lane.0).waiting.len()).sum()
    }
}
