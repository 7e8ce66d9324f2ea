//! State that the cores share: each has its own table of the paths, replaced by the geom.
//!
//! Invariants
//!  T1  When [`Shared::set`] has returned, every request that starts uses the new table.
//!  T2  A request waits in its core's slot only while no path of the table is good and the table
//!      lets requests wait. It is put there under the lock under which tables change, if the
//!      table is still the one that was read. So no request is left waiting.

use std::cell::RefMut;
use std::sync::Arc;

use bio::Ticket;
use geom::{Edge, GeomId, Notifier};

use super::metadata::Mode;
use super::paths::PATHS_MAX;
use super::timers::Timer;
use crate::members::{CoreLocal, PerCore, post_after};

/// One path, as the data path sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) slot: usize,
    pub(super) edge: Edge,
    pub(super) good: bool,
    /// No good path has a better access state.
    pub(super) best: bool,
    /// It is in transition: not good, and not failed either.
    pub(super) in_transition: bool,
    pub(super) round: u16,
}

impl Path {
    /// Its bit among all slots'.
    pub(super) fn bit(&self) -> u32 {
        1u32.checked_shl(self.slot as u32).unwrap_or(0)
    }

    /// The path as bits of a frame's word: the slot in 32..37, the round in 40..56.
    pub(super) fn in_frame(&self) -> u64 {
        ((self.slot % PATHS_MAX) as u64) << 32 | u64::from(self.round) << 40
    }
}

/// In a frame's word: it was sent with [`bio::Flags::FAIL_FAST`] by this layer, because another
/// path is good.
pub(super) const HASTY: u64 = 1 << 59;

/// A path in a word: its edge in 0..32, above it the bits of [`Path::in_frame`], [`HASTY`] if
/// another one is good too, and [`DirectPath::IS`].
#[derive(Clone, Copy)]
pub(super) struct DirectPath(u64);

impl DirectPath {
    /// No path's word is zero.
    const IS: u64 = 1 << 63;
    const EDGE: u64 = u32::MAX as u64;

    fn pack(table: &Table, path: &Path) -> u64 {
        let hasty = if table.has_other(path, 0) { HASTY } else { 0 };
        DirectPath::IS | hasty | path.in_frame() | u64::from(path.edge.0)
    }

    #[inline(always)]
    pub(super) fn edge(self) -> Edge {
        Edge(self.0 as u32)
    }

    #[inline(always)]
    pub(super) fn in_frame(self) -> u64 {
        self.0 & !(DirectPath::IS | DirectPath::EDGE)
    }
}

/// The paths, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) paths: Vec<Path>,
    pub(super) mode: Mode,
    pub(super) active: Option<usize>,
    /// Requests wait when no path is good.
    pub(super) queues: bool,
    /// Failed paths are looked at by the checker: requests that may wait need not try them.
    pub(super) checked: bool,
}

impl Table {
    /// The path for a request that is not spread, of those that are good and not of `not` (a bit
    /// a slot).
    pub(super) fn direct_path(&self, not: u32) -> Option<&Path> {
        let mut good = self.paths.iter().filter(|p| p.good && not & p.bit() == 0);
        let is_active = |p: &&Path| Some(p.slot) == self.active;
        let first = good.clone().find(is_active).or_else(|| good.clone().find(|p| p.best));
        first.or_else(|| good.next())
    }

    /// There is another good path than this one, not of `not`.
    pub(super) fn has_other(&self, path: &Path, not: u32) -> bool {
        let not = not | path.bit();
        self.paths.iter().any(|p| p.good && not & p.bit() == 0)
    }
}

/// How busy a path is with requests of this core. A path that has the slot of a removed one may
/// be counted too low for a while.
#[derive(Clone, Copy, Default)]
pub(super) struct Load {
    pub(super) in_flight: u32,
    /// Number of the choice that fell on it last.
    pub(super) chosen: u64,
}

#[derive(Default)]
pub(super) struct CoreState {
    pub(super) table: Arc<Table>,
    /// Paths that failed a request of this core, a bit a slot, until the geom has decided.
    pub(super) bad: u32,
    /// Those of them that were only left with EAGAIN.
    pub(super) left_with_eagain: u32,
    /// By slot.
    pub(super) loads: Vec<Load>,
    pub(super) choices: u64,
}

impl CoreLocal for CoreState {
    type Table = Table;
    /// Requests that wait for a path: up to all requests in flight above.
    type Left = Vec<Ticket>;
    /// The open word has all data ([`DirectPath`]): the path of requests that are not spread, while
    /// none of this core's paths is bad.
    type Short = ();

    fn take_over(&mut self, table: Arc<Table>, (): &()) -> u64 {
        let slots = table.paths.iter().map(|p| p.slot + 1).max().unwrap_or(0);
        if self.loads.len() < slots {
            self.loads.resize(slots, Load::default());
        }
        (self.bad, self.left_with_eagain) = (0, 0);
        let passive = table.mode == Mode::Passive;
        let straight = table.direct_path(0).filter(|_| passive);
        let straight = straight.map_or(0, |path| DirectPath::pack(&table, path));
        self.table = table;
        straight
    }
}

#[derive(Debug)]
pub(super) enum Message {
    /// A path failed a request; `tried`: all that failed it, a bit a slot.
    Failed { slot: usize, round: u16, tried: u32 },
    /// A path would have had a request wait, which was sent on another one.
    Left { slot: usize, round: u16 },
    /// A failed path served a request, or answered the checker.
    Works { slot: usize, round: u16 },
    /// A failed path did not answer the checker.
    StillBad { slot: usize },
    /// Every core has a path that was attached before.
    Known { slot: usize, round: u16 },
    /// A timer has run out: the one with this number.
    Time(Timer, u64),
    /// The record was rewritten, or the reason why not.
    Written(Result<(), bio::Errno>),
}

/// Between the geom and its layer and tasks.
pub(super) struct MultipathShared {
    /// The device's name, which distinguishes its path checks from others.
    pub(super) name: String,
    per_core: PerCore<CoreState>,
    pub(super) notifier: Notifier,
    pub(super) geom: GeomId,
}

impl MultipathShared {
    pub(super) fn new(name: &str, notifier: Notifier, geom: GeomId) -> Arc<MultipathShared> {
        let name = name.to_owned();
        Arc::new(MultipathShared { name, per_core: PerCore::new(notifier.cores()), notifier, geom })
    }

    /// Notifies the geom.
    pub(super) fn post(&self, message: Message) {
        self.notifier.post(self.geom, Box::new(message));
    }

    pub(super) fn post_after(&self, ns: u64, message: Message) {
        post_after(&self.notifier, self.geom, ns, message);
    }

    /// The core's own, for that core's thread: held for a few instructions.
    #[inline]
    pub(super) fn core_state(&self, core: usize) -> RefMut<'_, CoreState> {
        self.per_core.local(core)
    }

    /// The path of requests that are not spread, if there is nothing else to look at.
    #[inline(always)]
    pub(super) fn direct_path(&self, core: usize) -> Option<DirectPath> {
        self.per_core.fast_path(core).map(|(open, ())| DirectPath(open))
    }

    /// A path failed a request of this core: until the geom has decided every request looks.
    pub(super) fn close(&self, core: usize) {
        self.per_core.close(core);
    }

    /// Has a request wait for a path (T2). False, and it does not, when `table` is not the core's
    /// table any more.
    pub(super) fn wait(&self, core: usize, table: &Arc<Table>, ticket: Ticket) -> bool {
        let mut left = self.per_core.inbox(core);
        let same = Arc::ptr_eq(&left.table, table);
        if same {
            left.posted.push(ticket);
        }
        same
    }

    /// Gives every core a new table (T1); those that waited for a path, or may no longer wait,
    /// continue (T2).
    pub(super) fn set(&self, table: &Table) {
        let hold = table.queues && !table.paths.iter().any(|p| p.good);
        let mut freed = Vec::new();
        let free = |core: usize, waiting: &mut Vec<Ticket>| {
            if !hold {
                freed.extend(waiting.drain(..).map(|ticket| (core, ticket)));
            }
        };
        self.per_core.set(|| table.clone(), free);
        freed.into_iter().for_each(|(core, ticket)| self.notifier.restart(core, ticket));
    }

    /// Requests that wait for a path, of all cores.
    pub(super) fn waiting(&self) -> usize {
        self.per_core.inboxes().map(|left| left.posted.len()).sum()
    }
}
