//! Zeroing of ranges. In a volume with parity: the parity of zeroes is zeroes.
//!
//! ```text
//!   the ends, which are no whole rows   written like any other data
//!   whole rows                          held; all members have everything: each zeroes its strips
//!                                       of all of them, parities too --> one cannot, or fails
//!                                       --> written
//! ```
//!
//! Invariants
//!  Z1  Rows being zeroed are held until all members have done it, or until the rows have been
//!      written whole. Writing whole rows reads nothing of them, so it does not matter that they
//!      are no longer consistent.
//!  Z2  Rows are taken in order, and a holder of rows waits for rows alone: no holder of a later
//!      row waits for an earlier one.
//!  Z3  Members get requests to zero only while all have everything. Data of a missing member, or
//!      of one being filled, is known only from the rows. If some members were zeroed and a further
//!      needed member failed to do so, that data would be lost.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use bio::{Errno, Flags, Op, Segs, Status};
use geom::Edge;

use super::stripes::{NewData, RowOutcome, Rows, Window};
use super::task_util::{MemberRequest, RequestContext, WINDOW, bit, join, part, send_all};
use super::tasks::RequestTask;
use crate::members::zero_page;

/// Rows that are held at once; those behind them are processed later.
const ROWS_HELD: u64 = 64;

/// Windows that are written at once where members cannot zero.
const AT_ONCE: usize = 16;

impl RequestTask {
    /// A WRITE ZEROES or DELETE that has passed the gate.
    pub(super) async fn zero(&self) -> RowOutcome {
        let Some(zeroes) = zero_page() else {
            return RowOutcome { error: Some(Errno::NoMem), ..RowOutcome::default() };
        };
        let flags = self.context.flags.without(Flags::NO_HOLE);
        let rows = Rows { context: RequestContext { flags, ..self.context }, ..self.rows() };
        let row_bytes = self.shared.shape.row_bytes().max(1);
        let (from, end) = (self.offset, self.offset.saturating_add(self.length));
        let (first, behind) = (from.div_ceil(row_bytes), end / row_bytes);
        if first >= behind {
            return Self::to_rows(&rows, from..end, NewData::Zeroes(&zeroes)).await;
        }
        let head = from..first.saturating_mul(row_bytes);
        let tail = behind.saturating_mul(row_bytes)..end;
        let mut outcome = RowOutcome::default();
        for end in [head, tail].into_iter().filter(|range| !range.is_empty()) {
            let ended = Self::to_rows(&rows, end, NewData::Zeroes(&zeroes)).await;
            outcome = outcome.and(ended);
        }
        let mut at = first;
        while at < behind {
            let some = at..behind.min(at.saturating_add(ROWS_HELD));
            at = some.end;
            outcome = outcome.and(self.zero_rows(&rows, some, &zeroes).await);
        }
        outcome
    }

    async fn zero_rows(&self, rows: &Rows, some: Range<u64>, zeroes: &Segs) -> RowOutcome {
        let strip = self.shared.shape.strip;
        let mut held = Vec::new();
        for number in some.clone() {
            // Z2
            let row = self.shared.rows(number, 0..strip);
            held.push(self.shared.ranges.lock_task(row, true).await);
        }
        let all =
            self.shared.rows(some.start, 0..strip).start..self.shared.rows(some.end, 0..0).start;
        let outcome = match rows.settle(&all).await {
            false => Some(RowOutcome { error: Some(Errno::Io), ..RowOutcome::default() }),
            true => self.zero_members(&some).await,
        };
        let outcome = match outcome {
            Some(outcome) => outcome,
            None => Self::write_rows_held(rows, &some, zeroes).await,
        };
        held.into_iter().for_each(|held| self.shared.ranges.unlock(held));
        outcome
    }

    /// Every member zeroes its strips of some rows, which are held. `None` when one did not, or was
    /// not requested to: a member lacks something (Z3).
    async fn zero_members(&self, some: &Range<u64>) -> Option<RowOutcome> {
        let shape = &self.shared.shape;
        let table = self.shared.table(self.core.id());
        let first = some.start.saturating_mul(shape.strip);
        let len = (some.end - some.start).saturating_mul(shape.strip);
        // The log speaks of rows that are written.
        if self.shared.no_zeroes.load(Relaxed) != 0 || self.shared.log().is_some() {
            return None;
        }
        let mut all = Vec::with_capacity(shape.members());
        for slot in 0..shape.members() {
            let path = table.good(slot)?;
            let at = path.offset.saturating_add(first);
            let (edge, op, data) = (path.edge, Op::WriteZeroes, Segs::new());
            all.push(MemberRequest { slot, edge, op, at, len, data });
        }
        let mut done = true;
        for (slot, status) in send_all(&self.core, all, self.context).await {
            if status == Err(Errno::NotSup) {
                self.shared.no_zeroes.fetch_or(bit(slot), Relaxed);
            }
            done &= status.is_ok();
        }
        done.then(|| RowOutcome { unrecorded: table.unrecorded, ..RowOutcome::default() })
    }

    /// Copies whose members do not take WRITE ZEROES are written: others may have been zeroed, or a
    /// part of that one.
    pub(super) async fn zero_others(
        &self,
        ended: &mut [(usize, Status)],
        places: impl Iterator<Item = (Edge, u64, u64)>,
    ) {
        let refused = |(_, status): &(usize, Status)| *status == Err(Errno::NotSup);
        if self.op != Op::WriteZeroes {
            return;
        }
        for (one, (edge, at, len)) in ended.iter_mut().zip(places) {
            if refused(one) {
                one.1 = self.write_zeroes(one.0, edge, at..at.saturating_add(len)).await;
            }
        }
    }

    async fn write_zeroes(&self, slot: usize, edge: Edge, range: Range<u64>) -> Status {
        let zeroes = zero_page().ok_or(Errno::NoMem)?;
        let how =
            RequestContext { flags: self.context.flags.without(Flags::NO_HOLE), ..self.context };
        let mut at = range.start;
        while at < range.end {
            let len = WINDOW.min(range.end - at);
            let data = part(&zeroes, 0, len);
            let one = vec![MemberRequest { slot, edge, op: Op::Write, at, len, data }];
            send_all(&self.core, one, how).await.into_iter().try_for_each(|(_, status)| status)?;
            at += len;
        }
        Ok(())
    }

    /// Z1
    async fn write_rows_held(rows: &Rows, some: &Range<u64>, zeroes: &Segs) -> RowOutcome {
        let row_bytes = rows.shared.shape.row_bytes();
        let len = (some.end - some.start).saturating_mul(row_bytes);
        let windows: Vec<Window> = rows.windows(some.start.saturating_mul(row_bytes), len);
        let mut outcome = RowOutcome::default();
        for some in windows.chunks(AT_ONCE) {
            let work = some.iter().map(|window| rows.clear_held(window.clone(), zeroes));
            let ended = join(work.collect()).await;
            outcome = ended.into_iter().fold(outcome, RowOutcome::and);
        }
        outcome
    }
}
