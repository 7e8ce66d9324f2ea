//! State that the cores share: each has its own table of the members, replaced by the geom.
//!
//! Invariants
//!  T1  When [`Shared::set`] has returned, every request that starts uses the new table.
//!  T2  The index of a member is its slot in every table; a slot has one tenant.
//!  V1  A write that waits for a decision is entered in the list of partial failures before its
//!      failures are reported. It is completed successfully only when the geom has received all
//!      of them (C1, C2 of `partial_failures`).

use std::cell::RefMut;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bio::Ticket;
use bio::sync::{Mutex, MutexGuard};
use geom::{CopyMeter, Edge, GeomId, Notifier};

use super::balance;
use super::bitmap::{Bits, MarkQueue};
use super::class::Tunables;
use super::level::Growth;
use super::metadata::Balance;
use crate::members::{
    CoreLocal, FailureId, GateNotice, Loads, LockId, PartialFailures, PerCore, RangeLocks,
    Throttle, VerifyReport, WriteGate, post_after,
};

/// One member, as the data path sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) edge: Edge,
    /// Has everything: it may be read.
    pub(super) active: bool,
    pub(super) priority: u8,
    pub(super) deletes: bool,
    /// Deleted blocks read as zeroes there.
    pub(super) zeroes: bool,
}

/// The members, by slot.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) paths: Vec<Option<Path>>,
    pub(super) balance: Balance,
    /// Bytes of a part of a split read.
    pub(super) slice: u64,
    pub(super) sector: u64,
    /// When the mirror started, it reported that deleted blocks read as zeroes. A later member that
    /// cannot do that is written with zeroes instead.
    pub(super) zeroes: bool,
    /// With bitmaps: a write waits until its bits are set.
    pub(super) bits: Option<Arc<Bits>>,
    /// Slots of lost members that the others' records do not mark yet (a bit a slot): nothing is
    /// acknowledged without them before.
    pub(super) unrecorded: u32,
}

impl Table {
    /// Members that may be read.
    pub(super) fn active(&self) -> impl Iterator<Item = (usize, &Path)> {
        self.all().filter(|(_, path)| path.active)
    }

    /// Members that are written.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, &Path)> {
        self.paths.iter().enumerate().filter_map(|(i, p)| Some((i, p.as_ref()?)))
    }
}

#[derive(Default)]
pub(super) struct CoreState {
    pub(super) table: Arc<Table>,
    /// The slot read last, for round-robin.
    pub(super) round_robin_slot: usize,
    /// Ranges that writes of this core have, or wait for, by the Bio's number.
    pub(super) held: Vec<(u64, LockId)>,
    /// Numbers of writes that wait for bits.
    pub(super) marking: BTreeSet<u64>,
    /// Faults of members in a write in flight, by the Bio's number.
    pub(super) faults: BTreeMap<u64, Faults>,
    /// Members that did not take a WRITE ZEROES in flight (a bit a slot), by the Bio's number.
    pub(super) unable: BTreeMap<u64, u32>,
}

impl CoreState {
    /// The range that a write has, no longer kept here.
    pub(super) fn take_held_range(&mut self, write: u64) -> Option<LockId> {
        let at = self.held.iter().position(|(of, _)| *of == write)?;
        Some(self.held.swap_remove(at).1)
    }
}

impl CoreLocal for CoreState {
    type Table = Table;
    /// Numbers of writes that waited for a decision, or for bits, and must not be acknowledged.
    type Left = BTreeSet<u64>;
    /// Members to read from. The open word is the set of slots (a bit a slot) of which the least
    /// busy one serves a read that was not tried elsewhere. It is empty if the choice has further
    /// criteria.
    type Short = Loads;

    fn take_over(&mut self, table: Arc<Table>, loads: &Loads) -> u64 {
        loads.lead(table.active().map(|(slot, path)| (slot, path.edge, 0)));
        let open = balance::reads(&table);
        self.table = table;
        open
    }
}

#[derive(Clone, Debug)]
pub(super) struct RebuildRound {
    number: u64,
    /// All data up to the position of the meter is copied; otherwise the rebuild copies only the
    /// regions that bitmaps name.
    in_order: bool,
    /// All is copied, but the member is not active yet.
    is_over: bool,
    meter: CopyMeter,
}

impl RebuildRound {
    pub(super) fn new(number: u64, in_order: bool, meter: CopyMeter) -> RebuildRound {
        RebuildRound { number, in_order, is_over: false, meter }
    }
}

/// Members that failed a write (a bit a slot).
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Faults {
    pub(super) broken: u32,
    /// They returned the error of a device that was removed.
    pub(super) gone: u32,
}

/// A member failed a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MemberFailure {
    pub(super) slot: usize,
    /// The device was removed, and did not just answer with an error.
    pub(super) gone: bool,
}

/// A message to a mirror's geom.
#[derive(Debug)]
pub(super) enum Message {
    Gate(GateNotice),
    Failed(MemberFailure),
    /// A write waits for bits.
    Mark,
    /// All failures of a write that waits for the decision have been sent.
    AllReported(FailureId),
    /// The time since the last look is up: has anything been written?
    Idle,
    /// The time to wait for further members is up.
    Due,
    /// Every core has the present members.
    Launch,
    /// Records may be tried again.
    RetryRecords,
    /// Every core has the members that were attached before.
    CoresUpdated(usize),
    /// Records were written, except those of these members.
    Written(Vec<usize>),
    /// Progress of a rebuild, bytes; flushed.
    Progress {
        slot: usize,
        offset: u64,
        round: u64,
    },
    /// A member is rebuilt, and was not taken in yet: records could not be written.
    Copied(usize),
    /// A comparison of the members has ended, by its number.
    Verified(u64),
    /// The members are the same up to the new end, by the growth's number.
    Levelled(u64),
    /// A rebuild has ended.
    Rebuilt {
        slot: usize,
        round: u64,
        result: Result<(), RebuildHalt>,
    },
}

/// Why a rebuild did not complete.
#[derive(Clone, Copy, Debug)]
pub(super) enum RebuildHalt {
    /// The member that was rebuilt failed.
    Target(MemberFailure),
    /// No member that has everything could be read.
    Source,
}

/// Between the geom and its layers and tasks.
pub(super) struct MirrorShared {
    /// The mirror's name, which distinguishes its passes from others.
    pub(super) name: String,
    pub(super) gate: WriteGate,
    pub(super) ranges: RangeLocks,
    /// Something is still to be done to the members: verbs wait for it.
    pub(super) busy: AtomicBool,
    /// The rebuild that may continue, by slot; another number, and it ends.
    pub(super) rounds: Mutex<BTreeMap<usize, RebuildRound>>,
    /// Rate and pause of rebuilds.
    pub(super) throttle: Arc<Throttle>,
    verified: Mutex<VerifyReport>,
    growth: Mutex<Growth>,
    marks: Mutex<MarkQueue>,
    /// Records can be written to no member that has everything: writes end with EIO instead of
    /// waiting for ever.
    pub(super) records_failed: AtomicBool,
    per_core: PerCore<CoreState>,
    /// Writes that were done by some members and failed by others.
    failures: PartialFailures<(usize, Ticket)>,
    pub(super) notifier: Notifier,
    pub(super) geom: GeomId,
    pub(super) tunables: Tunables,
}

impl MirrorShared {
    pub(super) fn new(
        name: &str,
        notifier: Notifier,
        geom: GeomId,
        tunables: Tunables,
        throttle: Arc<Throttle>,
    ) -> Arc<MirrorShared> {
        let cores = notifier.cores().max(1);
        let (notify, wake, free) = (notifier.clone(), notifier.clone(), notifier.clone());
        Arc::new(MirrorShared {
            name: name.to_owned(),
            gate: WriteGate::new(
                cores,
                move |word| notify.post(geom, Box::new(Message::Gate(word))),
                move |core, ticket| wake.restart(core, ticket),
            ),
            ranges: RangeLocks::new(0, move |core, ticket| free.restart(core, ticket)),
            busy: AtomicBool::new(false),
            rounds: Mutex::default(),
            throttle,
            verified: Mutex::default(),
            growth: Mutex::default(),
            marks: Mutex::default(),
            records_failed: AtomicBool::new(false),
            per_core: PerCore::new(cores),
            failures: PartialFailures::default(),
            notifier,
            geom,
            tunables,
        })
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

    /// How busy the members have been, and among which of them a read may choose by that alone.
    #[inline(always)]
    pub(super) fn fast_path(&self, core: usize) -> Option<(u64, &Loads)> {
        self.per_core.fast_path(core)
    }

    /// How busy the members have been with reads of this core: for its thread.
    #[inline(always)]
    pub(super) fn loads(&self, core: usize) -> &Loads {
        self.per_core.counters(core)
    }

    /// Whether a write that waited, by its number, must not be acknowledged. The entry is removed.
    pub(super) fn was_refused(&self, core: usize, number: u64) -> bool {
        self.per_core.inbox(core).posted.remove(&number)
    }

    /// Gives every core a new table (T1).
    pub(super) fn set(&self, table: &Table) {
        self.per_core.set(|| table.clone(), |_, _| ());
    }

    /// Whether this round of a slot's rebuild is still wanted.
    pub(super) fn is_wanted(&self, slot: usize, round: u64) -> bool {
        self.rounds.lock().get(&slot).is_some_and(|of| of.number == round && !of.is_over)
    }

    /// Changes the meter of this round, if it is still wanted.
    pub(super) fn update_meter(&self, slot: usize, round: u64, f: impl FnOnce(&mut CopyMeter)) {
        let mut rounds = self.rounds.lock();
        if let Some(of) = rounds.get_mut(&slot).filter(|of| of.number == round && !of.is_over) {
            f(&mut of.meter);
        }
    }

    /// Progress of a slot's rebuild, bytes of the mirror from its start; it may not be on record
    /// yet. Zero when the rebuild does not follow the order of the disk.
    pub(super) fn copied(&self, slot: usize) -> u64 {
        self.rounds.lock().get(&slot).filter(|of| of.in_order).map_or(0, |of| of.meter.done())
    }

    /// The meter of a slot's rebuild, until the member is active.
    pub(super) fn meter(&self, slot: usize) -> Option<CopyMeter> {
        self.rounds.lock().get(&slot).map(|of| of.meter.clone())
    }

    /// Whether some round of a slot's rebuild is wanted.
    pub(super) fn is_rebuilt(&self, slot: usize) -> bool {
        self.rounds.lock().get(&slot).is_some_and(|of| !of.is_over)
    }

    /// A slot's rebuild gets a number; the one before ends. `None`: there is to be none.
    pub(super) fn want(&self, slot: usize, round: Option<RebuildRound>) {
        match round {
            Some(round) => self.rounds.lock().insert(slot, round),
            None => self.rounds.lock().remove(&slot),
        };
    }

    /// A slot's rebuild has copied all; its meter stays until the member is active.
    pub(super) fn finish_round(&self, slot: usize) {
        if let Some(of) = self.rounds.lock().get_mut(&slot) {
            of.is_over = true;
            of.meter.finish();
        }
    }

    /// The comparison of the members that runs, or the last one.
    pub(super) fn verified(&self) -> MutexGuard<'_, VerifyReport> {
        self.verified.lock()
    }

    /// The growth that is in progress, or the last one.
    pub(super) fn growth(&self) -> MutexGuard<'_, Growth> {
        self.growth.lock()
    }

    /// A write passed on this core: the mirror is not idle.
    pub(super) fn count_write(&self, core: usize) {
        self.per_core.count_write(core);
    }

    /// Writes that passed so far, of all cores.
    pub(super) fn writes(&self) -> u64 {
        self.per_core.writes()
    }

    /// A write waits until its bits are durable. False when the geom was removed.
    pub(super) fn await_bits(
        &self,
        core: usize,
        ticket: Ticket,
        places: impl Iterator<Item = (u64, u64)>,
    ) -> bool {
        let first = {
            let mut marks = self.marks.lock();
            if marks.closed {
                return false;
            }
            marks.wanted.extend(places);
            marks.waiting.push((core, ticket));
            marks.waiting.len() == 1
        };
        if first {
            self.post(Message::Mark);
        }
        true
    }

    /// Takes the regions to mark and the writes that wait for them.
    pub(super) fn take_marks(&self) -> MarkQueue {
        std::mem::take(&mut *self.marks.lock())
    }

    /// Restarts the writes that waited for bits, or ends them with an error.
    pub(super) fn restart(&self, waiting: Vec<(usize, Ticket)>, well: bool) {
        for (core, ticket) in waiting {
            if !well {
                self.per_core.inbox(core).posted.insert(ticket.id().to_word());
            }
            self.notifier.restart(core, ticket);
        }
    }

    pub(super) fn report_failures(&self, faults: Faults) {
        for slot in 0..u32::BITS as usize {
            let of = |bits: u32| bits >> slot & 1 == 1;
            if of(faults.broken | faults.gone) {
                self.post(Message::Failed(MemberFailure { slot, gone: !of(faults.broken) }));
            }
        }
    }

    /// Lets a write wait until the members of `failed` (a bit a slot) are judged; those of them in
    /// `faults` are reported. False when the list is closed.
    pub(super) fn await_decision(
        &self,
        (core, ticket): (usize, Ticket),
        failed: u32,
        faults: Faults,
    ) -> bool {
        // V1
        let Some(number) = self.failures.open(failed.into(), (core, ticket)) else { return false };
        self.report_failures(faults);
        self.post(Message::AllReported(number));
        true
    }

    /// The geom has received all failures of a write.
    pub(super) fn set_reported(&self, number: FailureId) {
        self.failures.set_reported(number);
    }

    /// Releases those that wait for none of the slots still `open` (a bit a slot).
    pub(super) fn release_decided(&self, open: u32) {
        self.restart(self.failures.released(open.into()), true);
    }

    /// Ends requests that wait for one of these slots (a bit a slot) with an error. No record
    /// states that those members lack the written data.
    pub(super) fn fail_waiting(&self, slots: u32) {
        self.restart(self.failures.refused(slots.into()), false);
    }

    /// The geom is removed: all waiting and later requests end with an error.
    pub(super) fn end_all_waiting(&self) {
        self.restart(self.failures.closed(), false);
        let waiting = {
            let mut marks = self.marks.lock();
            marks.closed = true;
            std::mem::take(&mut marks.waiting)
        };
        self.restart(waiting, false);
    }
}
