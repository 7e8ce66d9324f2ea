//! The log of partial parity of a volume that has one: units written to a member's log before the
//! rows that have their parity on that member.
//!
//! ```text
//!   rows arrive --> gathered --> the unit before is over, and everything flushed --> written
//!      |                                                                                (FUA) |
//!      +-- wait ------------------------------------------------------------------------------+
//!      v
//!   data and parity are sent --> the row leaves --> the last one has left: the unit is over
//! ```
//!
//! The first row that reaches a unit writes it, for all that have arrived meanwhile.
//!
//! Invariants
//!  L1  Nothing of a row is sent before its entry is on stable storage, on the member that is to
//!      have its parity. If the member of the parity is missing or still being filled, the row has
//!      no entry: no record calls that member one in order.
//!  L2  The unit in force describes all rows that may be half written. A new one is written only
//!      when all rows of the last have left and every member has been flushed. A lost member cannot
//!      be flushed. So its writes of them do not count once a record marks it as removed, and that
//!      record is waited for.
//!  L3  Replaying a unit whose rows are in order changes nothing: all later changes of a row are in
//!      a later unit. A log is therefore begun before a record is marked dirty, and the log of a
//!      member before the member is filled.
//!  L4  A row that ends, and its members may not agree, raises the doubt before it leaves. Units
//!      record from then on that all parity is to be made anew.
//!  L5  A holder of a unit never waits for another one.
//!  L6  A row is sent only to the present members. If members were added or removed while it waited
//!      for its unit, it is divided anew (E1 of `ppl_accounting`). Before a record changes the
//!      members, the rows sent to the old members have ended, or wait for that record. Every member
//!      has been flushed. The reason: data of a member that is out on record is known only from the
//!      others. One that is in order on record has no unit for the rows that were sent while it was
//!      being filled.

mod begin;
mod sends;

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};

use bio::sync::Mutex;
use bio::{Errno, Flags, Op, Segs};
use geom::{Core, Edge};

use super::shared::{FailureEffect, Path, VolumeShared};
use super::task_util::{MemberRequest, RequestContext, bit, is_members_fault, send_all};
use crate::raid::imsm::ppl::{self, Entry, HEADER, Header};
use begin::{Begin, memory};
use sends::Sends;

pub(super) use begin::area;
pub(super) use sends::Sending;

/// Where a volume's logs are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogLocation {
    /// Bytes from the start of a member's part.
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    pub(crate) signature: u32,
}

/// Where a log continues.
#[derive(Clone, Copy, Debug)]
struct LogPosition {
    /// On which way to the member this is known.
    edge: Edge,
    at: u64,
    generation: u64,
}

/// Rows that wait for a unit.
#[derive(Default)]
struct Gathered {
    entries: Vec<Entry>,
    parity: Vec<u8>,
    rows: usize,
}

impl Gathered {
    fn fits(&self, entries: usize, parity: usize) -> bool {
        // One entry is reserved for the unit's own state.
        self.entries.len() + entries < ppl::ENTRIES_MAX
            && self.parity.len() + parity <= ppl::PARITY_MAX
    }
}

/// Why a row may not be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RowStop {
    /// The member is out on record: the row continues without it.
    Out,
    /// Others are members than those that it was made for (L6): it is made anew.
    Stale,
    /// It ends with this.
    Error(Errno),
}

type Written = Result<(), RowStop>;

#[derive(Default)]
struct Slot {
    next: Option<LogPosition>,
    gathered: Gathered,
    /// The number of the unit that is gathered.
    number: u64,
    /// Rows of the last unit that have not left, or were not notified that it was not written.
    inside: usize,
    /// The last unit is being written.
    writing: bool,
    /// How the last unit ended, by number.
    ended: Option<(u64, Written)>,
    /// Rows have left since the members were flushed.
    unsettled: bool,
    wakers: Vec<Waker>,
}

impl Slot {
    fn wake(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers)
    }

    fn wait<T>(&mut self, cx: &Context<'_>) -> Poll<T> {
        if !self.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// See the module.
pub(crate) struct Log {
    place: LogLocation,
    /// It is written, not only a place for one.
    kept: AtomicBool,
    /// The content of the logs was replayed: it may describe rows of members that were missing
    /// then.
    replayed: AtomicBool,
    doubt: AtomicBool,
    slots: Box<[Mutex<Slot>]>,
    sends: Sends,
}

impl Log {
    pub(crate) fn new(place: LogLocation, members: usize, kept: bool, replayed: bool) -> Log {
        let slots = (0..members).map(|_| Mutex::default()).collect();
        let [kept, replayed, doubt] = [kept, replayed, false].map(AtomicBool::new);
        Log { place, kept, replayed, doubt, slots, sends: Sends::default() }
    }

    /// Where it is on each member.
    pub(crate) fn place(&self) -> LogLocation {
        self.place
    }

    /// Whether it is written.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.load(SeqCst)
    }

    /// J9 of `geom`: it is written from now on, or no longer. A log that begins again describes no
    /// row: its content is older than the writes made without it (L3).
    pub(crate) fn keep(&self, keep: bool) {
        for slot in &self.slots {
            *slot.lock() = Slot::default();
        }
        self.replayed.store(false, SeqCst);
        self.doubt.store(false, SeqCst);
        self.kept.store(keep, SeqCst);
    }

    /// L6: a row is sent from now on. Its receivers are looked up after this.
    pub(super) fn sending(&self) -> Sending<'_> {
        self.sends.begin()
    }

    /// L6: returns when no row is under way that was so when this was called. One waits at a time.
    pub(crate) async fn quiesce(&self) {
        self.sends.quiesce().await;
    }

    /// L4: units record that all parity is to be made anew.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubt.load(SeqCst)
    }

    /// L4
    pub(crate) fn set_doubt(&self) {
        self.doubt.store(true, SeqCst);
    }

    /// All parity has been made right.
    pub(crate) fn clear_doubt(&self) {
        self.doubt.store(false, SeqCst);
    }

    fn is_ready(&self, slot: usize, edge: Edge) -> bool {
        self.next(slot).is_some_and(|next| next.edge == edge)
    }

    /// A row arrives: returns when a unit with its entries is on the member, which it then has to
    /// [`Log::leave`].
    pub(super) async fn enter(
        &self,
        core: &Rc<Core>,
        shared: &VolumeShared,
        slot: usize,
        entries: &[Entry],
        parity: &[u8],
    ) -> Written {
        let Some(of) = self.slots.get(slot) else { return Err(RowStop::Error(Errno::Inval)) };
        let (number, first) = poll_fn(|cx| {
            let mut all = of.lock();
            if !all.gathered.fits(entries.len(), parity.len()) && all.gathered.rows > 0 {
                return all.wait(cx);
            }
            all.gathered.entries.extend_from_slice(entries);
            all.gathered.parity.extend_from_slice(parity);
            all.gathered.rows += 1;
            Poll::Ready((all.number, all.gathered.rows == 1))
        })
        .await;
        if first {
            self.lead(core, shared, slot, of).await;
        }
        let ended = poll_fn(|cx| {
            let mut all = of.lock();
            match all.ended {
                Some((of, ended)) if of == number && !all.writing => Poll::Ready(ended),
                _ => all.wait(cx),
            }
        })
        .await;
        if ended.is_err() {
            self.row_left(of, false);
        }
        ended
    }

    /// L2: waits until the previous unit is over, then writes the gathered rows.
    async fn lead(&self, core: &Rc<Core>, shared: &VolumeShared, slot: usize, of: &Mutex<Slot>) {
        let (unit, unsettled, wakers) = poll_fn(|cx| {
            let mut all = of.lock();
            if all.inside > 0 || all.writing {
                return all.wait(cx);
            }
            let unit = std::mem::take(&mut all.gathered);
            (all.inside, all.writing) = (unit.rows, true);
            all.ended = Some((all.number, Ok(())));
            all.number += 1;
            Poll::Ready((unit, std::mem::take(&mut all.unsettled), all.wake()))
        })
        .await;
        wakers.into_iter().for_each(Waker::wake);
        let mut ended = match unsettled {
            true => self.settle(core, shared).await,
            false => Ok(()),
        };
        let settled = ended.is_ok();
        if settled {
            ended = self.write(core, shared, slot, unit).await;
        }
        let wakers = {
            let mut all = of.lock();
            all.writing = false;
            all.unsettled |= !settled;
            all.ended = all.ended.map(|(number, _)| (number, ended));
            all.wake()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// A row of the unit in force has ended.
    pub(super) fn leave(&self, slot: usize) {
        if let Some(of) = self.slots.get(slot) {
            self.row_left(of, true);
        }
    }

    fn row_left(&self, of: &Mutex<Slot>, sent: bool) {
        let wakers = {
            let mut all = of.lock();
            all.unsettled |= sent;
            all.inside = all.inside.saturating_sub(1);
            if all.inside == 0 { all.wake() } else { Vec::new() }
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Makes every member's data durable.
    async fn settle(&self, core: &Rc<Core>, shared: &VolumeShared) -> Written {
        let table = shared.table(core.id());
        let flush = |(slot, path): (usize, &Path)| {
            let (at, len, data) = (0, 0, Segs::new());
            MemberRequest { slot, edge: path.edge, op: Op::Flush, at, len, data }
        };
        let requests = table.all().map(flush).collect();
        let (mut failed, mut gone) = (0, 0);
        for (slot, status) in send_all(core, requests, RequestContext::default()).await {
            match status {
                Ok(()) | Err(Errno::NotSup) => {}
                Err(e) if is_members_fault(e) => {
                    failed |= bit(slot);
                    gone |= if e == Errno::NxIo { bit(slot) } else { 0 };
                }
                Err(e) => return Err(RowStop::Error(e)),
            }
        }
        // A member that was lost without a request and gets no requests any more: it has not
        // flushed.
        let waits = failed | table.unrecorded;
        match waits == 0 || shared.await_decision(waits, (failed, gone), FailureEffect::Doubt).await
        {
            true => Ok(()),
            false => Err(RowStop::Error(Errno::Io)),
        }
    }

    async fn write(
        &self,
        core: &Rc<Core>,
        shared: &VolumeShared,
        slot: usize,
        unit: Gathered,
    ) -> Written {
        let table = shared.table(core.id());
        let Some(path) = table.good(slot).copied() else { return Err(RowStop::Out) };
        let mut done = Ok(());
        if !self.is_ready(slot, path.edge) {
            done = self.begin(core, slot, &path, Begin::Over).await;
        }
        if let (Ok(()), Some(next)) = (done, self.next(slot)) {
            let put = self.put(core, &path, next, unit.entries, &unit.parity).await;
            done = put.map(|next| self.set_next(slot, next));
        }
        let Err(error) = done else { return Ok(()) };
        let gone = if error == Errno::NxIo { bit(slot) } else { 0 };
        // Nothing of the rows was sent.
        let (failed, order) = (bit(slot), FailureEffect::Order);
        match is_members_fault(error) && shared.await_decision(failed, (failed, gone), order).await
        {
            true => Err(RowStop::Out),
            false => Err(RowStop::Error(Errno::Io)),
        }
    }

    /// Writes a unit where the log continues; returns where it continues behind that.
    async fn put(
        &self,
        core: &Rc<Core>,
        path: &Path,
        next: LogPosition,
        mut entries: Vec<Entry>,
        parity: &[u8],
    ) -> Result<LogPosition, Errno> {
        match self.is_in_doubt() {
            true => entries.push(Entry::DOUBT),
            false if entries.is_empty() => entries.push(Entry::default()),
            false => {}
        }
        let LogLocation { bytes, signature, .. } = self.place;
        let header = Header { signature, generation: next.generation, entries };
        let len = (HEADER + parity.len()) as u64;
        let at = if next.at.saturating_add(len) > bytes { 0 } else { next.at };
        let data = memory(HEADER + parity.len()).await;
        data.copy_from(0, &header.encode());
        data.copy_from(HEADER, parity);
        self.io(core, path, Op::Write, at, data, Flags::FUA).await?;
        let generation = next.generation.saturating_add(1);
        Ok(LogPosition { edge: path.edge, at: at.saturating_add(len), generation })
    }

    fn next(&self, slot: usize) -> Option<LogPosition> {
        self.slots.get(slot).and_then(|slot| slot.lock().next)
    }

    fn set_next(&self, slot: usize, next: LogPosition) {
        if let Some(slot) = self.slots.get(slot) {
            slot.lock().next = Some(next);
        }
    }
}
