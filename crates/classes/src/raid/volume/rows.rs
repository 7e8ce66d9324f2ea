//! Rows of levels with parity: read, solved for what is missing, and written.
//!
//! The first parity is the sum of a row's data; the second the sum of the data, each times
//! `2 ^ slot` (DDF counts every slot, also those that hold parity).
//!
//! Ways to write a part of a row:
//!
//! ```text
//! modify   old data and parity are read; parity += old + new          few columns change
//! rebuild  the columns that do not change are read; parity anew       many change, or all
//! restore  everything that can be read is; what is lost is solved     a changing column is lost
//!          for, changed, and the parity made anew
//! ```
//!
//! Invariants
//!  R1  A row is written by one at a time, and not while it is read to be solved.
//!  R2  Parity that is not known to be right is made anew, not modified, by whoever writes its row.
//!  R3  All memory for a row is taken before it is read: nobody waits for memory with some in hand.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use bio::{Errno, Op, Segs, parity};
use geom::Core;

use super::hands::{
    Ask, Manner, WINDOW, add, ask, bit, blocks, clear, copy, is_members_fault, part, scale,
};
use super::map::Row;
use super::shared::{Shared, Table};

/// A part of a row: the same bytes of each strip.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) number: u64,
    /// Bytes within the strips.
    pub(super) range: Range<u64>,
}

/// A data strip's part of a request.
struct Touch {
    slot: usize,
    /// Bytes within the strip.
    range: Range<u64>,
    new: Segs,
}

/// How a row's write ended.
#[derive(Clone, Copy, Default)]
pub(super) struct Outcome {
    /// Slots that failed it (a bit a slot).
    pub(super) failed: u64,
    /// An error that no member is to blame for.
    pub(super) error: Option<Errno>,
    /// Slots that were lost and not on record when it was written.
    pub(super) unrecorded: u64,
}

impl Outcome {
    pub(super) fn and(self, other: Outcome) -> Outcome {
        Outcome {
            failed: self.failed | other.failed,
            error: self.error.or(other.error),
            unrecorded: self.unrecorded | other.unrecorded,
        }
    }
}

/// Contents of a window, by slot; and memory that is still free.
pub(super) struct Contents {
    pub(super) by_slot: Vec<Option<Segs>>,
    free: Vec<Segs>,
}

/// Who works on rows.
#[derive(Clone)]
pub(super) struct Rows {
    pub(super) core: Rc<Core>,
    pub(super) shared: Arc<Shared>,
    pub(super) how: Manner,
}

impl Rows {
    fn len(window: &Window) -> u64 {
        window.range.end - window.range.start
    }

    fn member_at(&self, window: &Window) -> u64 {
        window.number.saturating_mul(self.shared.shape.strip).saturating_add(window.range.start)
    }

    /// Slots of a row's data strips.
    pub(super) fn data(&self, row: &Row) -> Vec<usize> {
        (0..self.shared.shape.width()).map(|nth| row.data(nth)).collect()
    }

    /// A slot's weight in the second parity.
    fn weight(slot: usize) -> u8 {
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
    fn touched(&self, window: &Window, row: &Row, offset: u64, data: &Segs) -> Vec<Touch> {
        let shape = &self.shared.shape;
        let end = offset.saturating_add(data.len() as u64);
        let mut all = Vec::new();
        for nth in 0..shape.width() {
            let strip = window.number * shape.row_bytes() + nth as u64 * shape.strip;
            let from = (strip + window.range.start).max(offset);
            let to = (strip + window.range.end).min(end);
            if from < to {
                let new = part(data, from - offset, to - from);
                let range = from - strip..to - strip;
                all.push(Touch { slot: row.data(nth), range, new });
            }
        }
        all
    }

    /// Writes what of `data`, which begins at byte `offset` of the volume, lies in a window.
    pub(super) async fn write(&self, window: Window, offset: u64, data: &Segs) -> Outcome {
        let row = self.shared.shape.row(window.number);
        let touched = self.touched(&window, &row, offset, data);
        let from = touched.iter().map(|t| t.range.start).min();
        let to = touched.iter().map(|t| t.range.end).max();
        let (Some(from), Some(to)) = (from, to) else { return Outcome::default() };
        let window = Window { range: from..to, ..window };
        let rows = self.shared.rows(window.number, from..to);
        let held = self.shared.ranges.lock_task(rows, true).await;
        let (mut lost, mut left) = (0, self.shared.shape.parities() + 1);
        let outcome = loop {
            match self.attempt(&window, &row, &touched, lost).await {
                Ok(outcome) => break outcome,
                Err(bits) if left > 0 && bits & !lost != 0 => {
                    (lost, left) = (lost | bits, left - 1)
                }
                Err(_) => break Outcome { error: Some(Errno::Io), ..Outcome::default() },
            }
        };
        self.shared.ranges.unlock(held);
        outcome
    }

    /// One try; the error is the slots that could not be read.
    async fn attempt(
        &self,
        window: &Window,
        row: &Row,
        touched: &[Touch],
        lost: u64,
    ) -> Result<Outcome, u64> {
        let table = self.shared.table(self.core.id());
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
        let can_modify = self.shared.is_even(end)
            && touched.iter().all(|touch| readable(touch.slot))
            && live.iter().all(|slot| readable(*slot));
        let can_rebuild = kept.iter().all(|slot| readable(*slot));
        if live.is_empty() && touched.iter().all(|touch| table.path(touch.slot).is_some()) {
            return Ok(self.put(&table, window, touched, Vec::new()).await);
        }
        if can_modify && (!can_rebuild || touched.len() + live.len() < kept.len()) {
            return self.modify(&table, window, row, touched, &live).await;
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
                return Ok(Outcome { error, ..Outcome::default() });
            }
            contents
        };
        for touch in touched {
            if touch.range == window.range {
                // Whatever was there before does not matter.
                let old = contents.by_slot.get_mut(touch.slot).and_then(Option::take);
                contents.free.extend(old);
            } else if let Some(Some(block)) = contents.by_slot.get(touch.slot) {
                let len = touch.range.end - touch.range.start;
                copy(&part(block, touch.range.start - window.range.start, len), &touch.new);
            }
        }
        let whole =
            |slot: usize| touched.iter().find(|touch| touch.slot == slot).map(|touch| &touch.new);
        let mut new = Vec::new();
        for slot in &live {
            let Some(sum) = contents.free.pop() else { return Err(0) };
            clear(&sum);
            for from in &data {
                let factor = if Some(*slot) == row.q { Self::weight(*from) } else { 1 };
                let block = contents.by_slot.get(*from).and_then(Option::as_ref);
                let Some(block) = block.or_else(|| whole(*from)) else { return Err(0) };
                add(&sum, block, factor);
            }
            new.push((*slot, sum));
        }
        Ok(self.put(&table, window, touched, new).await)
    }

    async fn modify(
        &self,
        table: &Table,
        window: &Window,
        row: &Row,
        touched: &[Touch],
        live: &[usize],
    ) -> Result<Outcome, u64> {
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
        Ok(self.put(table, window, touched, new).await)
    }

    /// Writes data and parity to whoever takes them.
    async fn put(
        &self,
        table: &Table,
        window: &Window,
        touched: &[Touch],
        new: Vec<(usize, Segs)>,
    ) -> Outcome {
        let first = window.number.saturating_mul(self.shared.shape.strip);
        let mut all = Vec::new();
        let mut write = |slot: usize, at: u64, data: Segs| {
            if let Some(path) = table.path(slot) {
                let at = path.offset.saturating_add(first).saturating_add(at);
                let len = data.len() as u64;
                all.push(Ask { slot, edge: path.edge, op: Op::Write, at, len, data });
            }
        };
        for touch in touched {
            write(touch.slot, touch.range.start, part(&touch.new, 0, touch.new.len() as u64));
        }
        for (slot, sum) in new {
            write(slot, window.range.start, sum);
        }
        let mut outcome = Outcome { unrecorded: table.unrecorded, ..Outcome::default() };
        for (slot, status) in ask(&self.core, all, self.how).await {
            match status {
                Ok(()) => {}
                Err(e) if is_members_fault(e) => {
                    self.shared.accuse(slot, e);
                    outcome.failed |= bit(slot);
                }
                Err(e) => outcome.error = outcome.error.or(Some(e)),
            }
        }
        outcome
    }

    /// Reads a window of some slots, with `spare` further blocks of memory (R3). The error is the
    /// slots that could not be read.
    pub(super) async fn fetch(
        &self,
        table: &Table,
        window: &Window,
        slots: &[usize],
        spare: usize,
    ) -> Result<Contents, u64> {
        let len = Self::len(window);
        let mut free = blocks(&self.core, slots.len() + spare, len as usize).await;
        let mut by_slot: Vec<Option<Segs>> = Vec::new();
        by_slot.resize_with(self.shared.shape.members(), || None);
        let (mut all, mut failed) = (Vec::new(), 0);
        for slot in slots {
            let (Some(path), Some(block)) = (table.good(*slot), free.pop()) else {
                return Err(bit(*slot));
            };
            let at = path.offset.saturating_add(self.member_at(window));
            let data = part(&block, 0, len);
            all.push(Ask { slot: *slot, edge: path.edge, op: Op::Read, at, len, data });
            if let Some(place) = by_slot.get_mut(*slot) {
                *place = Some(block);
            }
        }
        let how = Manner { origin: self.how.origin, ..Manner::default() };
        for (slot, status) in ask(&self.core, all, how).await {
            if let Err(e) = status {
                self.shared.read_failed(slot, e, false);
                failed |= bit(slot);
            }
        }
        if failed != 0 { Err(failed) } else { Ok(Contents { by_slot, free }) }
    }

    /// Finds what the data strips held that were not read; false when too much is lost.
    pub(super) fn solve(&self, row: &Row, contents: &mut Contents) -> bool {
        let data = self.data(row);
        let there = |c: &Contents, slot: usize| c.by_slot.get(slot).is_some_and(Option::is_some);
        let unknown: Vec<usize> =
            data.iter().copied().filter(|slot| !there(contents, *slot)).collect();
        let known: Vec<usize> =
            data.iter().copied().filter(|slot| there(contents, *slot)).collect();
        let (p, q) = (Some(row.p), row.q);
        // A parity and the data that is known, added up: what is left is the unknown.
        let rest = |contents: &mut Contents, parity: Option<usize>| {
            let sum = contents.free.pop()?;
            let from = contents.by_slot.get(parity?)?.as_ref()?;
            copy(&sum, from);
            for slot in &known {
                let factor = if parity == q { Self::weight(*slot) } else { 1 };
                add(&sum, contents.by_slot.get(*slot)?.as_ref()?, factor);
            }
            Some(sum)
        };
        let has = |parity: Option<usize>, c: &Contents| parity.is_some_and(|slot| there(c, slot));
        let mut found = Vec::new();
        match unknown[..] {
            [] => return true,
            [one] if has(p, contents) => found.push((one, rest(contents, p))),
            [one] => {
                let sum = rest(contents, q);
                if let Some(sum) = &sum {
                    scale(sum, parity::inverse(Self::weight(one)));
                }
                found.push((one, sum));
            }
            [one, two] => {
                let (Some(both), Some(heavy)) = (rest(contents, p), rest(contents, q)) else {
                    return false;
                };
                let (w1, w2) = (Self::weight(one), Self::weight(two));
                // both = a + b, heavy = w1 a + w2 b: so heavy + w2 both = (w1 + w2) a.
                add(&heavy, &both, w2);
                scale(&heavy, parity::inverse(w1 ^ w2));
                add(&both, &heavy, 1);
                found.extend([(one, Some(heavy)), (two, Some(both))]);
            }
            _ => return false,
        }
        for (slot, block) in found {
            let (Some(place), Some(block)) = (contents.by_slot.get_mut(slot), block) else {
                return false;
            };
            *place = Some(block);
        }
        true
    }

    /// What a parity of the row should be; `None` when data is missing, or memory.
    pub(super) fn sum(&self, row: &Row, contents: &mut Contents, slot: usize) -> Option<Segs> {
        let sum = contents.free.pop()?;
        clear(&sum);
        for from in self.data(row) {
            let factor = if Some(slot) == row.q { Self::weight(from) } else { 1 };
            add(&sum, contents.by_slot.get(from)?.as_ref()?, factor);
        }
        Some(sum)
    }
}
