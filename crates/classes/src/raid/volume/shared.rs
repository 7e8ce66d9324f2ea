//! State of one volume shared by the cores: each has a table of the members, replaced by the geom.
//!
//! Invariants
//!  T1  When [`Shared::set`] has returned, every request that starts uses the new table.
//!  T2  A writer to a volume with copies or parity holds the range. Filling a member or making
//!      copies or parity right holds it alone. A write that began with an older table has therefore
//!      ended before the range that it wrote is filled.
//!  T3  [`Shared::consistent_to`] grows only while the range below is held alone, or was.

use std::cell::RefMut;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::task::{Poll, Waker};

use bio::Errno;
use bio::sync::{Mutex, MutexGuard};
use geom::{CopyMeter, Edge, GeomId, Notifier};

use super::log::{Log, LogLocation};
use super::map::Shape;
use super::missed_parity::MissedParity;
use super::task_util::bit;
use crate::members::{
    CoreLocal, FailureId, Loads, PartialFailures, PerCore, RangeLocks, Throttle, VerifyReport,
    WriteGate,
};
use crate::raid::class::Tunables;
use crate::raid::geom::Message;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Has everything.
    Good,
    /// Being filled: it is written, and not read.
    Filling,
}

/// One member, as the data path sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) edge: Edge,
    /// Where its part begins on the disk, bytes.
    pub(crate) offset: u64,
    pub(crate) role: Role,
    pub(crate) deletes: bool,
    /// What reads as zeroes there does so for good.
    pub(crate) keeps_zeroes: bool,
}

/// The members, by slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) paths: Vec<Option<Path>>,
    /// Slots of members that are lost and without a record of that yet (a bit a slot): nothing is
    /// acknowledged without them before.
    pub(crate) unrecorded: u64,
    /// Slots of members that have everything, and without a record of that yet.
    pub(crate) fresh: u64,
}

impl Table {
    /// Whether a slot's member has everything by the records too.
    pub(crate) fn is_good_on_record(&self, slot: usize) -> bool {
        self.good(slot).is_some() && self.fresh & bit(slot) == 0
    }

    /// The member in a slot, if it is one.
    pub(crate) fn path(&self, slot: usize) -> Option<&Path> {
        self.paths.get(slot)?.as_ref()
    }

    /// The member in a slot, if it has everything.
    pub(crate) fn good(&self, slot: usize) -> Option<&Path> {
        self.path(slot).filter(|p| p.role == Role::Good)
    }

    /// Members with their slots.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &Path)> {
        self.paths.iter().enumerate().filter_map(|(slot, p)| Some((slot, p.as_ref()?)))
    }
}

/// What one core keeps, of its own.
#[derive(Default)]
pub(crate) struct CoreState {
    pub(crate) table: Arc<Table>,
}

impl CoreLocal for CoreState {
    type Table = Table;
    type Left = ();
    /// Members that have everything, and for volumes with copies their load of reads; places count
    /// from the start of a member's part. The open set contains their slots (a bit a slot).
    type Short = Loads;

    fn take_over(&mut self, table: Arc<Table>, loads: &Loads) -> u64 {
        let good = table.all().filter(|(slot, _)| table.good(*slot).is_some());
        let open = loads.lead(good.map(|(slot, path)| (slot, path.edge, path.offset)));
        self.table = table;
        open
    }
}

/// The answer to a task that waits for a decision.
#[derive(Default)]
struct FailureDecision {
    given: Option<bool>,
    waker: Option<Waker>,
}

/// Effect of a failed request of a member, should that member stay (J8 of `geom`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FailureEffect {
    /// Rows whose parity matches the data of their members, or is owed.
    Order,
    /// Anything.
    Doubt,
}

/// Which volume it is, and its layout on the members.
pub(crate) struct VolumeSpec {
    pub(crate) key: u32,
    pub(crate) name: String,
    pub(crate) shape: Shape,
    pub(crate) sector: u64,
    /// The log of partial parity that is kept, or could be.
    pub(crate) log: Option<Log>,
}

/// See the module.
pub(crate) struct VolumeShared {
    /// Number of the volume among those of its geom.
    pub(crate) key: u32,
    /// Its provider's name, which identifies its passes.
    pub(crate) name: String,
    pub(crate) shape: Shape,
    pub(crate) sector: u64,
    pub(crate) gate: WriteGate,
    pub(crate) ranges: RangeLocks,
    /// Bytes of the volume from its start in which copies agree and parity is right, as far as
    /// that is known; all ones: everywhere.
    pub(crate) consistent_to: AtomicU64,
    /// The pass that may continue; another number, and it ends.
    pub(crate) round: AtomicU64,
    /// No record can be written on any disk: writes end with EIO.
    pub(crate) records_failed: AtomicBool,
    /// The log of partial parity that is kept, or could be.
    log: Option<Log>,
    /// DELETE is served, as reported when the volume was offered (levels with parity).
    pub(crate) deletes: AtomicBool,
    /// Slots of members that do not take WRITE ZEROES, as far as that is known (a bit a slot).
    pub(crate) no_zeroes: AtomicU64,
    pub(crate) notifier: Notifier,
    pub(crate) geom: GeomId,
    pub(crate) tunables: Tunables,
    /// Rate and pause of passes.
    pub(crate) throttle: Arc<Throttle>,
    /// Position and rate of the pass; empty while there is none.
    meter: Mutex<CopyMeter>,
    /// Parity that members did not take and have to have.
    pub(super) missed_parity: MissedParity,
    /// A row was left for which it is unknown whether its parity matches the data of its members;
    /// the geom has been notified.
    pub(crate) row_inconsistent: AtomicBool,
    /// Result of the running or the last comparison.
    verified: Mutex<VerifyReport>,
    per_core: PerCore<CoreState>,
    failures: PartialFailures<Arc<Mutex<FailureDecision>>>,
}

impl VolumeShared {
    pub(crate) fn new(
        notifier: Notifier,
        geom: GeomId,
        of: VolumeSpec,
        tunables: Tunables,
        throttle: Arc<Throttle>,
    ) -> Arc<VolumeShared> {
        let VolumeSpec { key, name, shape, sector, log } = of;
        let cores = notifier.cores().max(1);
        let (notify, wake, free) = (notifier.clone(), notifier.clone(), notifier.clone());
        // Rows are locked by their place on the members; copies by their place on the volume.
        let stride = if shape.parities() > 0 { shape.strip } else { 0 };
        Arc::new(VolumeShared {
            key,
            name,
            gate: WriteGate::new(
                cores,
                move |word| notify.post(geom, Box::new(Message::Gate(key, word))),
                move |core, ticket| wake.restart(core, ticket),
            ),
            ranges: RangeLocks::new(stride, move |core, ticket| free.restart(core, ticket)),
            consistent_to: AtomicU64::new(u64::MAX),
            round: AtomicU64::new(0),
            records_failed: AtomicBool::new(false),
            log,
            deletes: AtomicBool::new(false),
            no_zeroes: AtomicU64::new(0),
            missed_parity: MissedParity::default(),
            row_inconsistent: AtomicBool::new(false),
            verified: Mutex::default(),
            per_core: PerCore::new(cores),
            failures: PartialFailures::default(),
            shape,
            sector,
            notifier,
            geom,
            tunables,
            throttle,
            meter: Mutex::default(),
        })
    }

    /// The log of partial parity, if one is kept now (J9 of `geom`).
    #[inline]
    pub(crate) fn log(&self) -> Option<&Log> {
        self.log.as_ref().filter(|log| log.is_kept())
    }

    /// Where its log is, or would be.
    pub(crate) fn log_place(&self) -> Option<LogLocation> {
        self.log.as_ref().map(Log::place)
    }

    /// J9 of `geom`: a log is kept from now on, or no longer.
    pub(crate) fn keep_log(&self, keep: bool) {
        self.log.iter().for_each(|log| log.keep(keep));
    }

    /// Notifies the geom.
    pub(crate) fn post(&self, message: Message) {
        self.notifier.post(self.geom, Box::new(message));
    }

    /// A member failed a request that no task waits for.
    pub(crate) fn report_failure(&self, slot: usize, error: Errno, leaves: FailureEffect) {
        self.post(Message::Failed { volume: self.key, slot, gone: error == Errno::NxIo, leaves });
    }

    /// A row is left for which it is unknown whether its parity matches the data of its members.
    /// The caller holds the row, and is inside the gate: the geom is notified before the gate is
    /// drained.
    pub(super) fn report_inconsistent_row(&self) {
        self.row_inconsistent.store(true, SeqCst);
        self.post(Message::RowInconsistent(self.key));
    }

    /// Position and rate of the pass.
    pub(crate) fn meter(&self) -> MutexGuard<'_, CopyMeter> {
        self.meter.lock()
    }

    /// Changes the meter of this pass, if it is still wanted.
    pub(crate) fn update_meter(&self, round: u64, f: impl FnOnce(&mut CopyMeter)) {
        let mut meter = self.meter();
        if self.round.load(SeqCst) == round {
            f(&mut meter);
        }
    }

    /// Whether all parity is on the members that is to be there, or known not to be.
    pub(crate) fn is_settled(&self) -> bool {
        self.missed_parity.is_empty()
    }

    /// All parity is right, unless some is owed or a row was left in an unknown state. The log
    /// records this from now on.
    pub(crate) fn mark_parity_valid(self: &Arc<VolumeShared>) {
        let Some(log) = self.log().filter(|log| log.is_in_doubt()) else { return };
        log.clear_doubt();
        // A caller that raises the doubt has noted the reason before.
        if !self.is_settled() || self.row_inconsistent.load(SeqCst) {
            return log.set_doubt();
        }
        Log::write_doubt(self);
    }

    /// A member could not read something; with `mended` it was written there anew.
    pub(crate) fn read_failed(&self, slot: usize, error: Errno, mended: bool) {
        let gone = error == Errno::NxIo;
        self.post(Message::Unread { volume: self.key, slot, gone, mended });
    }

    /// The core's own, for that core's thread: held for a few instructions.
    #[inline]
    pub(crate) fn core_state(&self, core: u32) -> RefMut<'_, CoreState> {
        self.per_core.local(core as usize)
    }

    /// Members that have everything (a bit a slot), and the ways to them.
    #[inline(always)]
    pub(crate) fn fast_path(&self, core: u32) -> Option<(u64, &Loads)> {
        self.per_core.fast_path(core as usize)
    }

    /// How busy the members have been with reads of this core: for its thread.
    #[inline(always)]
    pub(crate) fn loads(&self, core: u32) -> &Loads {
        self.per_core.counters(core as usize)
    }

    pub(crate) fn table(&self, core: u32) -> Arc<Table> {
        self.core_state(core).table.clone()
    }

    /// Gives every core a new table (T1).
    pub(crate) fn set(&self, table: &Table) {
        self.no_zeroes.store(0, Relaxed);
        self.per_core.set(|| table.clone(), |_, ()| ());
        self.missed_parity.keep(table);
    }

    /// A write passed on this core.
    pub(crate) fn count_write(&self, core: u32) {
        self.per_core.count_write(core as usize);
    }

    /// Writes that passed so far, of all cores.
    pub(crate) fn writes(&self) -> u64 {
        self.per_core.writes()
    }

    /// Result of a comparison.
    pub(crate) fn verified(&self) -> MutexGuard<'_, VerifyReport> {
        self.verified.lock()
    }

    /// Whether copies agree and parity is right in a range that ends at byte `end`.
    pub(crate) fn is_consistent(&self, end: u64) -> bool {
        end <= self.consistent_to.load(SeqCst)
    }

    /// The range that is locked, of the members' bytes in a row or of the volume's.
    pub(crate) fn rows(&self, row: u64, within: Range<u64>) -> Range<u64> {
        let first = row.saturating_mul(self.shape.strip);
        first.saturating_add(within.start)..first.saturating_add(within.end)
    }

    /// Reports failures of the members of `failed` (a bit a slot; `gone`: those that answered as if
    /// they were missing) with the given effect, and waits for the decisions on those of `waits`.
    /// True when the results of the others may be acknowledged.
    ///
    /// Order of calls: the waiting task is registered before a failure is reported, and the geom
    /// decides nothing before it has received all reports.
    pub(crate) async fn await_decision(
        &self,
        waits: u64,
        (failed, gone): (u64, u64),
        leaves: FailureEffect,
    ) -> bool {
        let answer = Arc::new(Mutex::new(FailureDecision::default()));
        let Some(number) = self.failures.open(waits, answer.clone()) else { return false };
        for slot in (0..self.shape.members()).filter(|slot| failed & bit(*slot) != 0) {
            let gone = gone & bit(slot) != 0;
            self.post(Message::Failed { volume: self.key, slot, gone, leaves });
        }
        self.post(Message::AllReported { volume: self.key, number });
        poll_fn(|cx| {
            let mut answer = answer.lock();
            match answer.given {
                Some(given) => Poll::Ready(given),
                None => {
                    answer.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// The geom has received all failures that a write reported.
    pub(crate) fn set_reported(&self, number: FailureId) {
        self.failures.set_reported(number);
    }

    fn answer_waiters(all: Vec<Arc<Mutex<FailureDecision>>>, given: bool) {
        for one in all {
            let waker = {
                let mut answer = one.lock();
                answer.given = Some(given);
                answer.waker.take()
            };
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Releases those that wait for none of the slots still `open` (a bit a slot).
    pub(crate) fn release(&self, open: u64) {
        Self::answer_waiters(self.failures.released(open), true);
    }

    /// Requests that wait for one of these slots end with an error: no record contains that these
    /// members lack the written data.
    pub(crate) fn fail_waiting(&self, slots: u64) {
        Self::answer_waiters(self.failures.refused(slots), false);
    }

    /// The volume is removed: waiting and later requests end with an error.
    pub(crate) fn close(&self) {
        self.records_failed.store(true, SeqCst);
        self.round.store(0, SeqCst);
        self.verified().running = false;
        Self::answer_waiters(self.failures.closed(), false);
        for (core, ticket) in self.gate.close() {
            self.notifier.restart(core, ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raid::model::{Layout, Level, Member, SubdiskState, Volume};

    fn logged() -> Arc<VolumeShared> {
        let member = |disk| Member { disk, offset: 0, bytes: 8192, state: SubdiskState::Active };
        let shape = Shape::of(&Volume {
            name: "v".into(),
            id: [0; 24],
            level: Level::Raid5(Layout::LeftAsymmetric),
            strip: 8192,
            bytes: 16384,
            members: (0..3).map(member).collect(),
            dirty: false,
            migration: None,
            log: None,
        });
        let place = LogLocation { at: 8192, bytes: 1 << 20, signature: 1 };
        let log = Some(Log::new(place, 3, true, false));
        let of = VolumeSpec { key: 1, name: "v".into(), shape, sector: 512, log };
        let (notifier, throttle) = (Notifier::default(), Arc::default());
        VolumeShared::new(notifier, GeomId::default(), of, Tunables::default(), throttle)
    }

    /// All parity was made right while a row was left in an unknown state, before the geom is
    /// notified of it.
    #[test]
    fn log_stays_in_doubt_while_a_row_is_uneven() {
        let shared = logged();
        let in_doubt = || shared.log().is_some_and(Log::is_in_doubt);
        shared.log().expect("a log").set_doubt();
        shared.report_inconsistent_row();
        shared.mark_parity_valid();
        assert!(in_doubt());
        // It was notified, and all parity was made right again.
        shared.row_inconsistent.store(false, SeqCst);
        shared.mark_parity_valid();
        assert!(!in_doubt());
    }

    #[test]
    fn log_stays_in_doubt_while_parity_is_owed() {
        let shared = logged();
        shared.log().expect("a log").set_doubt();
        shared.missed_parity.note(2, Edge(0), 0, vec![0; 512]);
        shared.mark_parity_valid();
        assert!(shared.log().is_some_and(Log::is_in_doubt));
    }
}
