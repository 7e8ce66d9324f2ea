//! Rows of levels with parity, and how they are written. `reconstruct` reads them, and solves for
//! missing data; `send` writes to their members, and repairs rows after failures of these.
//!
//! The first parity is the sum of a row's data; the second the sum of the data, each times
//! `2 ^ slot` (DDF counts every slot, also those that hold parity).
//!
//! Ways to write a part of a row:
//!
//! ```text
//! modify   old data and parity are read; parity += old + new          few columns change
//! rebuild  the columns that do not change are read; parity anew       many change, or all
//! restore  everything readable is read; the lost part is solved for   a changing column is lost
//!          for, changed, and the parity made anew
//! ```
//!
//! Invariants
//!  R1  A row is written by one at a time, and not while it is read to be solved.
//!  R2  Parity that is not known to be right is made anew by the writer of its row, not modified.
//!  R3  All memory for a row is taken before it is read: a holder of memory never waits for memory.
//!  R4  A row is released only when its parity matches the data of its members: a write that one of
//!      them failed is judged before. If that member is out, the parity stores its data. If the
//!      volume needs it and it stays, the write is tried again, or the parity is made for its old
//!      data. Otherwise unwritten data of another, missing, member would be solved for wrongly.
//!  R5  Two parities that data is known by alone change both or not at all. When a member that
//!      stays fails one, the other is written back as it was.
//!  R6  A member that is out is not waited for, though no record can be written about it. The row
//!      matches the data of the others, and the write ends with an error.
//!  R7  Parity that a member which stays did not take, and for which data was written, is owed to
//!      that member until it is written.
//!  R8  A row that cannot be left consistent is reported as uneven. Data of a member cannot be read
//!      in such a row, or a parity of it could not be written back. The data of another, missing,
//!      member in it may be solved for wrongly, and this cannot be detected at that time.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use bio::{Errno, Segs, parity};
use geom::Core;

use super::log::Sending;
use super::map::Row;
use super::shared::{Table, VolumeShared};
use super::task_util::{RequestContext, WINDOW, add, bit, copy, part, sums};

/// A part of a row: the same bytes of each strip.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) number: u64,
    /// Bytes within the strips.
    pub(super) range: Range<u64>,
}

/// The new content of a range of the volume.
#[derive(Clone, Copy)]
pub(super) enum NewData<'a> {
    /// These bytes, from the first on.
    Data(&'a Segs),
    /// Zeroes, over and over these, which are as long as a window or longer.
    Zeroes(&'a Segs),
}

/// A data strip's part of a request.
pub(super) struct StripPart {
    pub(super) slot: usize,
    /// Bytes within the strip.
    pub(super) range: Range<u64>,
    pub(super) new: Segs,
}

/// How a row's write ended.
#[derive(Clone, Copy, Default)]
pub(super) struct RowOutcome {
    /// Slots that failed it and are still to be judged (a bit a slot).
    pub(super) failed: u64,
    /// Those of them that answered as if they were missing.
    pub(super) gone: u64,
    /// An error that no member caused.
    pub(super) error: Option<Errno>,
    /// Slots that were lost and not on record when it was written.
    pub(super) unrecorded: u64,
    /// Nothing was written, for others are members now: it is made anew.
    pub(super) stale: bool,
}

impl RowOutcome {
    pub(super) fn and(self, other: RowOutcome) -> RowOutcome {
        RowOutcome {
            failed: self.failed | other.failed,
            gone: self.gone | other.gone,
            error: self.error.or(other.error),
            unrecorded: self.unrecorded | other.unrecorded,
            stale: self.stale | other.stale,
        }
    }
}

/// The writes to a row: data, and the parity that matches all of it.
pub(super) struct RowWrite<'a> {
    pub(super) table: &'a Table,
    pub(super) window: &'a Window,
    pub(super) row: &'a Row,
    pub(super) touched: &'a [StripPart],
    pub(super) new: Vec<(usize, Segs)>,
    /// What its members hold is no row: nothing of it can be kept (Z1 of `zero`).
    pub(super) no_old_data: bool,
    /// While it is sent, where a log is kept.
    pub(super) sending: Option<Sending<'a>>,
}

/// Context of work on rows.
#[derive(Clone)]
pub(super) struct Rows {
    pub(super) core: Rc<Core>,
    pub(super) shared: Arc<VolumeShared>,
    pub(super) context: RequestContext,
}

impl Rows {
    pub(super) fn len(window: &Window) -> u64 {
        window.range.end - window.range.start
    }

    pub(super) fn member_at(&self, window: &Window) -> u64 {
        window.number.saturating_mul(self.shared.shape.strip).saturating_add(window.range.start)
    }

    pub(super) fn data(&self, row: &Row) -> Vec<usize> {
        (0..self.shared.shape.width()).map(|nth| row.data(nth)).collect()
    }

    /// A slot's weight in the second parity.
    pub(super) fn weight(slot: usize) -> u8 {
        parity::power(slot)
    }

    /// Windows of all rows that a range of the volume touches.
    pub(super) fn windows(&self, offset: u64, length: u64) -> Vec<Window> {
        let shape = &self.shared.shape;
        let (row_bytes, strip) = (shape.row_bytes().max(1), shape.strip);
        let end = offset.saturating_add(length);
        let mut all = Vec::new();
        for number in offset / row_bytes..end.div_ceil(row_bytes) {
            let mut from = 0;
            while from < strip {
                let range = from..(from + WINDOW).min(strip);
                from = range.end;
                all.push(Window { number, range });
            }
        }
        all
    }

    /// The parts of a write that lie in a window.
    fn touched(
        &self,
        window: &Window,
        row: &Row,
        of: &Range<u64>,
        what: NewData<'_>,
    ) -> Vec<StripPart> {
        let shape = &self.shared.shape;
        let mut all = Vec::new();
        for nth in 0..shape.width() {
            let strip = window.number * shape.row_bytes() + nth as u64 * shape.strip;
            let from = (strip + window.range.start).max(of.start);
            let to = (strip + window.range.end).min(of.end);
            if from < to {
                let new = match what {
                    NewData::Data(data) => part(data, from - of.start, to - from),
                    NewData::Zeroes(zeroes) => part(zeroes, 0, to - from),
                };
                let range = from - strip..to - strip;
                all.push(StripPart { slot: row.data(nth), range, new });
            }
        }
        all
    }

    /// Writes the part of a range of the volume that is in a window.
    pub(super) async fn write(
        &self,
        window: Window,
        of: Range<u64>,
        what: NewData<'_>,
    ) -> RowOutcome {
        let row = self.shared.shape.row(window.number);
        let touched = self.touched(&window, &row, &of, what);
        let from = touched.iter().map(|t| t.range.start).min();
        let to = touched.iter().map(|t| t.range.end).max();
        let (Some(from), Some(to)) = (from, to) else { return RowOutcome::default() };
        let window = Window { range: from..to, ..window };
        let rows = self.shared.rows(window.number, from..to);
        let held = self.shared.ranges.lock_task(rows, true).await;
        let outcome = self.write_held(window, &row, &touched, false).await;
        self.shared.ranges.unlock(held);
        outcome
    }

    /// Writes zeroes to all data of a window, which is held alone.
    pub(super) async fn clear_held(&self, window: Window, zeroes: &Segs) -> RowOutcome {
        let (shape, row) = (&self.shared.shape, self.shared.shape.row(window.number));
        let first = window.number.saturating_mul(shape.row_bytes());
        let of = first..first.saturating_add(shape.row_bytes());
        let touched = self.touched(&window, &row, &of, NewData::Zeroes(zeroes));
        self.write_held(window, &row, &touched, true).await
    }

    async fn write_held(
        &self,
        window: Window,
        row: &Row,
        touched: &[StripPart],
        void: bool,
    ) -> RowOutcome {
        if self.shared.log().is_none() {
            return self.write_part(window, row, touched, void).await;
        }
        let mut outcome = RowOutcome::default();
        let mut todo = VecDeque::from(self.sequential_parts(touched));
        while let Some(part) = todo.pop_front() {
            let from = part.iter().map(|t| t.range.start).min().unwrap_or(window.range.start);
            let to = part.iter().map(|t| t.range.end).max().unwrap_or(window.range.end);
            let window = Window { range: from..to, ..window };
            // The log keeps data that is not written, so it is never void.
            let done = self.write_part(window, row, part, false).await;
            if done.stale {
                self.sequential_parts(part)
                    .into_iter()
                    .rev()
                    .for_each(|part| todo.push_front(part));
                continue;
            }
            outcome = outcome.and(done);
            if outcome.error.is_some() {
                break;
            }
        }
        outcome
    }

    async fn write_part(
        &self,
        window: Window,
        row: &Row,
        touched: &[StripPart],
        void: bool,
    ) -> RowOutcome {
        let (mut lost, mut left) = (0, self.shared.shape.parities() + 1);
        let rows = self.shared.rows(window.number, window.range.clone());
        // A void row is written regardless of parity missed elsewhere: it can only be left whole
        // (Z1).
        if !void && (self.shared.missed_parity.is_full() || !self.settle(&rows).await) {
            return RowOutcome { error: Some(Errno::Io), ..RowOutcome::default() };
        }
        loop {
            match self.attempt((&window, row, void), touched, lost).await {
                Ok(outcome) => break outcome,
                Err(bits) if left > 0 && bits & !lost != 0 => {
                    (lost, left) = (lost | bits, left - 1)
                }
                Err(_) => break RowOutcome { error: Some(Errno::Io), ..RowOutcome::default() },
            }
        }
    }

    /// One try; the error is the slots that could not be read.
    async fn attempt(
        &self,
        (window, row, void): (&Window, &Row, bool),
        touched: &[StripPart],
        lost: u64,
    ) -> Result<RowOutcome, u64> {
        let table = self.shared.table(self.core.id());
        if self.is_split_differently(&table, touched) {
            return Ok(RowOutcome { stale: true, ..RowOutcome::default() });
        }
        let turn = |new| RowWrite {
            table: &table,
            window,
            row,
            touched,
            new,
            no_old_data: void,
            sending: None,
        };
        let readable = |slot: usize| table.good(slot).is_some() && lost & bit(slot) == 0;
        let parities: Vec<usize> = [Some(row.p), row.q].into_iter().flatten().collect();
        let live: Vec<usize> =
            parities.iter().copied().filter(|slot| table.path(*slot).is_some()).collect();
        let data = self.data(row);
        let covers = |slot: usize| {
            touched.iter().any(|touch| touch.slot == slot && touch.range == window.range)
        };
        let kept: Vec<usize> = data.iter().copied().filter(|slot| !covers(*slot)).collect();
        let end = (window.number + 1).saturating_mul(self.shared.shape.row_bytes());
        // R2
        let can_modify = self.shared.is_consistent(end)
            && touched.iter().all(|touch| readable(touch.slot))
            && live.iter().all(|slot| readable(*slot));
        let can_rebuild = kept.iter().all(|slot| readable(*slot));
        if live.is_empty() && touched.iter().all(|touch| table.path(touch.slot).is_some()) {
            return self.put(turn(Vec::new()), lost).await;
        }
        if can_modify && (!can_rebuild || touched.len() + live.len() < kept.len()) {
            let turn = turn(Vec::new());
            return self.modify(turn, &live, lost).await;
        }
        let mut contents = if can_rebuild {
            self.fetch(&table, window, &kept, live.len()).await?
        } else {
            let all = data.iter().chain(&parities).copied().filter(|slot| readable(*slot));
            let all: Vec<usize> = all.collect();
            let spare = self.shared.shape.members() - all.len() + live.len();
            let mut contents = self.fetch(&table, window, &all, spare).await?;
            if !self.solve(row, &mut contents) {
                let error = Some(Errno::Io);
                return Ok(RowOutcome { error, ..RowOutcome::default() });
            }
            contents
        };
        for touch in touched {
            if touch.range == window.range {
                // The former content does not matter.
                let old = contents.by_slot.get_mut(touch.slot).and_then(Option::take);
                contents.free.extend(old);
            } else if let Some(Some(block)) = contents.by_slot.get(touch.slot) {
                let len = touch.range.end - touch.range.start;
                copy(&part(block, touch.range.start - window.range.start, len), &touch.new);
            }
        }
        let whole =
            |slot: usize| touched.iter().find(|touch| touch.slot == slot).map(|touch| &touch.new);
        let mut from = Vec::new();
        for slot in &data {
            let block = contents.by_slot.get(*slot).and_then(Option::as_ref);
            let Some(block) = block.or_else(|| whole(*slot)) else { return Err(0) };
            from.push((block, *slot));
        }
        let (mut new, spare) = (Vec::new(), contents.free.len().saturating_sub(live.len()));
        new.extend(live.iter().copied().zip(contents.free.drain(spare..)));
        if new.len() < live.len() {
            return Err(0);
        }
        let sum = |slot: Option<usize>| {
            let found = new.iter().find(|(of, _)| Some(*of) == slot);
            found.map(|(_, sum): &(usize, Segs)| sum)
        };
        sums(sum(Some(row.p)), sum(row.q), &from);
        self.put(turn(new), lost).await
    }

    async fn modify(
        &self,
        turn: RowWrite<'_>,
        live: &[usize],
        lost: u64,
    ) -> Result<RowOutcome, u64> {
        let RowWrite { table, window, row, touched, no_old_data: void, .. } = turn;
        let slots: Vec<usize> =
            touched.iter().map(|t| t.slot).chain(live.iter().copied()).collect();
        let contents = self.fetch(table, window, &slots, 0).await?;
        let mut new = Vec::new();
        for slot in live {
            let Some(Some(sum)) = contents.by_slot.get(*slot) else { return Err(0) };
            for touch in touched {
                let Some(Some(old)) = contents.by_slot.get(touch.slot) else { return Err(0) };
                let factor = if Some(*slot) == row.q { Self::weight(touch.slot) } else { 1 };
                let at = touch.range.start - window.range.start;
                let len = touch.range.end - touch.range.start;
                let sum = part(sum, at, len);
                add(&sum, &part(old, at, len), factor);
                add(&sum, &touch.new, factor);
            }
            new.push((*slot, part(sum, 0, Self::len(window))));
        }
        self.put(
            RowWrite { table, window, row, touched, new, no_old_data: void, sending: None },
            lost,
        )
        .await
    }
}
