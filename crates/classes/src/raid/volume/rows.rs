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
//!  R4  A row is let go of only when its parity goes with what its members hold: a write that one
//!      of them failed is judged before. If that member is out, the parity stands for it. If it
//!      stays, for the volume needs it, it is tried again, or the parity is made for what it still
//!      holds: otherwise data that another, missing, member had, and nobody wrote, would be
//!      solved for wrongly.
//!  R5  Two parities that data is known by alone change both or not at all: when a member that
//!      stays fails one, the other is written back as it was.
//!  R6  A member that is out is not waited for, though no record can say so: the row goes with what
//!      the others hold, and the write ends with an error.
//!  R7  Parity that a member which stays did not take, and for which data was written, is owed to
//!      it (`owed`).

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use bio::{Errno, Op, Segs, parity};
use geom::Core;

use super::hands::{
    Ask, Manner, WINDOW, add, ask, bit, blocks, copy, is_members_fault, more, part, scale, sums,
};
use super::log::{Sending, Stop};
use super::map::Row;
use super::shared::{Shared, Table};

/// A part of a row: the same bytes of each strip.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) number: u64,
    /// Bytes within the strips.
    pub(super) range: Range<u64>,
}

/// What a range of the volume gets.
#[derive(Clone, Copy)]
pub(super) enum What<'a> {
    /// These bytes, from the first on.
    Data(&'a Segs),
    /// Zeroes, over and over these, which are as long as a window or longer.
    Zeroes(&'a Segs),
}

/// A data strip's part of a request.
pub(super) struct Touch {
    pub(super) slot: usize,
    /// Bytes within the strip.
    pub(super) range: Range<u64>,
    pub(super) new: Segs,
}

/// How a row's write ended.
#[derive(Clone, Copy, Default)]
pub(super) struct Outcome {
    /// Slots that failed it and are still to be judged (a bit a slot).
    pub(super) failed: u64,
    /// Those of them that answered as if they were gone.
    pub(super) gone: u64,
    /// An error that no member is to blame for.
    pub(super) error: Option<Errno>,
    /// Slots that were lost and not on record when it was written.
    pub(super) unrecorded: u64,
    /// Nothing was written, for others are members now: it is made anew.
    pub(super) stale: bool,
}

impl Outcome {
    pub(super) fn and(self, other: Outcome) -> Outcome {
        Outcome {
            failed: self.failed | other.failed,
            gone: self.gone | other.gone,
            error: self.error.or(other.error),
            unrecorded: self.unrecorded | other.unrecorded,
            stale: self.stale | other.stale,
        }
    }
}

/// Contents of a window, by slot; and memory that is still free.
pub(super) struct Contents {
    pub(super) by_slot: Vec<Option<Segs>>,
    free: Vec<Segs>,
}

impl Contents {
    fn has(&self, slot: usize) -> bool {
        self.by_slot.get(slot).is_some_and(Option::is_some)
    }
}

/// What is written to a row: data, and the parity that allows for all of it.
pub(super) struct Turn<'a> {
    pub(super) table: &'a Table,
    pub(super) window: &'a Window,
    pub(super) row: &'a Row,
    pub(super) touched: &'a [Touch],
    pub(super) new: Vec<(usize, Segs)>,
    /// What its members hold is no row: nothing of it can be kept (Z1 of `zero`).
    void: bool,
    /// While it is sent, where a log is kept.
    pub(super) sending: Option<Sending<'a>>,
}

/// Parities before a row is written, and memory for one more block.
#[derive(Default)]
struct Before {
    sums: Vec<(usize, Segs)>,
    spare: Option<Segs>,
}

/// How writes to members ended (a bit a slot).
#[derive(Default)]
struct Sent {
    failed: u64,
    /// Those that failed as if they were gone.
    gone: u64,
    /// Errors that no member is to blame for, and the first.
    refused: u64,
    error: Option<Errno>,
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
    fn touched(&self, window: &Window, row: &Row, of: &Range<u64>, what: What<'_>) -> Vec<Touch> {
        let shape = &self.shared.shape;
        let mut all = Vec::new();
        for nth in 0..shape.width() {
            let strip = window.number * shape.row_bytes() + nth as u64 * shape.strip;
            let from = (strip + window.range.start).max(of.start);
            let to = (strip + window.range.end).min(of.end);
            if from < to {
                let new = match what {
                    What::Data(data) => part(data, from - of.start, to - from),
                    What::Zeroes(zeroes) => part(zeroes, 0, to - from),
                };
                let range = from - strip..to - strip;
                all.push(Touch { slot: row.data(nth), range, new });
            }
        }
        all
    }

    /// Writes what of a range of the volume lies in a window.
    pub(super) async fn write(&self, window: Window, of: Range<u64>, what: What<'_>) -> Outcome {
        let row = self.shared.shape.row(window.number);
        let touched = self.touched(&window, &row, &of, what);
        let from = touched.iter().map(|t| t.range.start).min();
        let to = touched.iter().map(|t| t.range.end).max();
        let (Some(from), Some(to)) = (from, to) else { return Outcome::default() };
        let window = Window { range: from..to, ..window };
        let rows = self.shared.rows(window.number, from..to);
        let held = self.shared.ranges.lock_task(rows, true).await;
        let outcome = self.write_held(window, &row, &touched, false).await;
        self.shared.ranges.unlock(held);
        outcome
    }

    /// Writes zeroes to all data of a window, which is held alone.
    pub(super) async fn clear_held(&self, window: Window, zeroes: &Segs) -> Outcome {
        let (shape, row) = (&self.shared.shape, self.shared.shape.row(window.number));
        let first = window.number.saturating_mul(shape.row_bytes());
        let of = first..first.saturating_add(shape.row_bytes());
        let touched = self.touched(&window, &row, &of, What::Zeroes(zeroes));
        self.write_held(window, &row, &touched, true).await
    }

    async fn write_held(
        &self,
        window: Window,
        row: &Row,
        touched: &[Touch],
        void: bool,
    ) -> Outcome {
        if self.shared.log.is_none() {
            return self.write_part(window, row, touched, void).await;
        }
        let mut outcome = Outcome::default();
        let mut todo = VecDeque::from(self.apart(touched));
        while let Some(part) = todo.pop_front() {
            let from = part.iter().map(|t| t.range.start).min().unwrap_or(window.range.start);
            let to = part.iter().map(|t| t.range.end).max().unwrap_or(window.range.end);
            let window = Window { range: from..to, ..window };
            // The log keeps what is not written, so it is never void.
            let done = self.write_part(window, row, part, false).await;
            if done.stale {
                self.apart(part).into_iter().rev().for_each(|part| todo.push_front(part));
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
        touched: &[Touch],
        void: bool,
    ) -> Outcome {
        let (mut lost, mut left) = (0, self.shared.shape.parities() + 1);
        let rows = self.shared.rows(window.number, window.range.clone());
        if self.shared.owed.is_full() || !self.settle(&rows).await {
            return Outcome { error: Some(Errno::Io), ..Outcome::default() };
        }
        loop {
            match self.attempt((&window, row, void), touched, lost).await {
                Ok(outcome) => break outcome,
                Err(bits) if left > 0 && bits & !lost != 0 => {
                    (lost, left) = (lost | bits, left - 1)
                }
                Err(_) => break Outcome { error: Some(Errno::Io), ..Outcome::default() },
            }
        }
    }

    /// One try; the error is the slots that could not be read.
    async fn attempt(
        &self,
        (window, row, void): (&Window, &Row, bool),
        touched: &[Touch],
        lost: u64,
    ) -> Result<Outcome, u64> {
        let table = self.shared.table(self.core.id());
        if self.is_cut_otherwise(&table, touched) {
            return Ok(Outcome { stale: true, ..Outcome::default() });
        }
        let turn = |new| Turn { table: &table, window, row, touched, new, void, sending: None };
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

    async fn modify(&self, turn: Turn<'_>, live: &[usize], lost: u64) -> Result<Outcome, u64> {
        let Turn { table, window, row, touched, void, .. } = turn;
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
        self.put(Turn { table, window, row, touched, new, void, sending: None }, lost).await
    }

    /// Writes data and parity to whoever takes them. Where data of the row is known by its parity
    /// alone, no data is written before the parity that allows for it is (R4). Nothing is written
    /// before the log has its entries; the error is a slot whose log could not be written.
    async fn put(&self, mut turn: Turn<'_>, lost: u64) -> Result<Outcome, u64> {
        let Some(log) = &self.shared.log else { return Ok(self.put_logged(&turn, lost).await.0) };
        let logged = match self.enter_log(log, &mut turn).await {
            Ok(logged) => logged,
            Err(Stop::Out) => return Err(bit(turn.row.p)),
            Err(Stop::Stale) => return Ok(Outcome { stale: true, ..Outcome::default() }),
            Err(Stop::Error(e)) => return Ok(Outcome { error: Some(e), ..Outcome::default() }),
        };
        let (outcome, agree) = self.put_logged(&turn, lost).await;
        if let Some(slot) = logged {
            if !agree {
                log.doubt();
            }
            log.leave(slot);
        }
        Ok(outcome)
    }

    /// Whether the members agree comes with the outcome.
    async fn put_logged(&self, turn: &Turn<'_>, lost: u64) -> (Outcome, bool) {
        let parity = turn.new.iter().fold(0, |all, (slot, _)| all | bit(*slot));
        let data = turn.touched.iter().fold(0, |all, touch| all | bit(touch.slot));
        let gone = |slot: &usize| turn.table.good(*slot).is_none() || lost & bit(*slot) != 0;
        let apart = !turn.void && parity != 0 && self.data(turn.row).iter().any(gone);
        let steps = match apart {
            true => [parity, data],
            false => [parity | data, 0],
        };
        let mut outcome = Outcome { unrecorded: turn.table.unrecorded, ..Outcome::default() };
        let mut before = match apart && turn.new.len() > 1 {
            true => self.before(turn).await,
            false => Before::default(),
        };
        let mut agree = true;
        for which in steps {
            let (left, error) = self.send_judged(turn, which).await;
            agree &= error.is_none();
            if left & data != 0 {
                agree = self.follow(turn, left & data, before.spare.take()).await;
            } else if left & parity != 0 && apart {
                self.put_back(turn, &before, parity & !left).await;
            } else if left & parity != 0 {
                self.owe(turn, &turn.new, left & parity);
            }
            outcome.error = outcome.error.or(error);
            if left != 0 {
                break;
            }
        }
        (outcome, agree)
    }

    /// R5: the parities as they are. One that cannot be read is not known.
    async fn before(&self, turn: &Turn<'_>) -> Before {
        let len = Self::len(turn.window);
        let mut free = more(turn.new.len() + 1, len as usize).await;
        let spare = free.pop();
        let mut all = Vec::new();
        for ((slot, _), block) in turn.new.iter().zip(&free) {
            let Some(path) = turn.table.good(*slot) else { continue };
            let at = path.offset.saturating_add(self.member_at(turn.window));
            let data = part(block, 0, len);
            all.push(Ask { slot: *slot, edge: path.edge, op: Op::Read, at, len, data });
        }
        let read = ask(&self.core, all, Manner::default()).await;
        let is_read = |slot: usize| read.iter().any(|(s, status)| *s == slot && status.is_ok());
        let sums = turn.new.iter().map(|(slot, _)| *slot).zip(free);
        Before { sums: sums.filter(|(slot, _)| is_read(*slot)).collect(), spare }
    }

    /// R5
    async fn put_back(&self, turn: &Turn<'_>, before: &Before, slots: u64) {
        let mut all = Vec::new();
        for (slot, sum) in before.sums.iter().filter(|(slot, _)| slots & bit(*slot) != 0) {
            let Some(path) = turn.table.path(*slot) else { continue };
            let at = path.offset.saturating_add(self.member_at(turn.window));
            let (len, data) = (sum.len() as u64, part(sum, 0, sum.len() as u64));
            all.push(Ask { slot: *slot, edge: path.edge, op: Op::Write, at, len, data });
        }
        let mut failed = 0;
        for (slot, status) in ask(&self.core, all, Manner::default()).await {
            if let Err(e) = status {
                failed |= bit(slot);
                self.shared.accuse(slot, e);
            }
        }
        self.owe(turn, &before.sums, failed);
    }

    /// R7: these parities, of some slots, are owed.
    fn owe(&self, turn: &Turn<'_>, sums: &[(usize, Segs)], slots: u64) {
        let at = self.shared.rows(turn.window.number, turn.window.range.clone()).start;
        for (slot, sum) in sums.iter().filter(|(slot, _)| slots & bit(*slot) != 0) {
            if let Some(path) = turn.table.path(*slot) {
                self.shared.owed.note(*slot, path.edge, at, sum.to_vec());
            }
        }
    }

    /// Writes to some slots. Members that fail it are judged; those that stay are tried once more.
    /// Returns slots that have it not, but are members still; and an error if there are any, or
    /// if one is out and no record says so (R6).
    async fn send_judged(&self, turn: &Turn<'_>, which: u64) -> (u64, Option<Errno>) {
        let first = self.send(turn, which).await;
        let failed = first.failed;
        if failed == 0 {
            return (first.refused, first.error);
        }
        // W1; and a row is not left before it is known whether its members agree (R4).
        turn.sending.iter().for_each(Sending::pause);
        let is_out = self.shared.verdict(failed, failed, first.gone).await;
        turn.sending.iter().for_each(Sending::resume);
        if is_out {
            return (first.refused, first.error);
        }
        let now = self.shared.table(self.core.id());
        let edge = |table: &Table, slot| table.path(slot).map(|path| path.edge);
        let stays = (0..self.shared.shape.members())
            .filter(|slot| edge(&now, *slot) == edge(turn.table, *slot))
            .fold(0, |all, slot| all | bit(slot));
        let again = self.send(turn, failed & stays).await;
        let left = first.refused | again.refused | again.failed;
        let is_short = left != 0 || failed & !stays != 0;
        (left, first.error.or(again.error).or(is_short.then_some(Errno::Io)))
    }

    async fn send(&self, turn: &Turn<'_>, which: u64) -> Sent {
        let first = turn.window.number.saturating_mul(self.shared.shape.strip);
        let data = turn.touched.iter().map(|touch| (touch.slot, touch.range.start, &touch.new));
        let sums = turn.new.iter().map(|(slot, sum)| (*slot, turn.window.range.start, sum));
        let ways = data.chain(sums).filter(|(slot, ..)| which & bit(*slot) != 0);
        let all = ways.filter_map(|(slot, at, data)| {
            let path = turn.table.path(slot)?;
            let at = path.offset.saturating_add(first).saturating_add(at);
            let (edge, op, len) = (path.edge, Op::Write, data.len() as u64);
            Some(Ask { slot, edge, op, at, len, data: part(data, 0, len) })
        });
        let mut sent = Sent::default();
        for (slot, status) in ask(&self.core, all.collect(), self.how).await {
            match status {
                Ok(()) => {}
                Err(e) if is_members_fault(e) => {
                    sent.failed |= bit(slot);
                    if e == Errno::NxIo {
                        sent.gone |= bit(slot);
                    }
                }
                Err(e) => {
                    sent.refused |= bit(slot);
                    sent.error = sent.error.or(Some(e));
                }
            }
        }
        sent
    }

    /// R4: members that stay have not taken their data: the parity is made for what they hold. One
    /// that cannot be read either is left: what is on it is lost, and says so when it is read. True
    /// when the parity is right.
    async fn follow(&self, turn: &Turn<'_>, slots: u64, spare: Option<Segs>) -> bool {
        let spare = match spare {
            Some(spare) => Some(spare),
            None => more(1, Self::len(turn.window) as usize).await.pop(),
        };
        let Some(spare) = spare else { return false };
        let mut right = true;
        let first = turn.window.number.saturating_mul(self.shared.shape.strip);
        for touch in turn.touched.iter().filter(|touch| slots & bit(touch.slot) != 0) {
            let Some(path) = turn.table.path(touch.slot) else { continue };
            let len = touch.range.end - touch.range.start;
            let held = part(&spare, 0, len);
            let at = path.offset.saturating_add(first).saturating_add(touch.range.start);
            let (slot, edge, op, data) = (touch.slot, path.edge, Op::Read, part(&held, 0, len));
            let asked = vec![Ask { slot, edge, op, at, len, data }];
            if ask(&self.core, asked, Manner::default()).await.iter().any(|(_, s)| s.is_err()) {
                right = false;
                continue;
            }
            let at = touch.range.start - turn.window.range.start;
            for (parity, sum) in &turn.new {
                let factor = if Some(*parity) == turn.row.q { Self::weight(slot) } else { 1 };
                let sum = part(sum, at, len);
                add(&sum, &touch.new, factor);
                add(&sum, &held, factor);
            }
        }
        let parity = turn.new.iter().fold(0, |all, (slot, _)| all | bit(*slot));
        let failed = self.send(turn, parity).await;
        self.owe(turn, &turn.new, failed.failed | failed.refused);
        for slot in (0..self.shared.shape.members()).filter(|s| failed.failed & bit(*s) != 0) {
            let gone = failed.gone & bit(slot) != 0;
            self.shared.accuse(slot, if gone { Errno::NxIo } else { Errno::Io });
        }
        right && failed.failed == 0 && failed.refused == 0
    }

    /// Reads a window of some slots, with `spare` further blocks of memory (R3). The error is the
    /// slots that could not be read; their members are accused.
    pub(super) async fn fetch(
        &self,
        table: &Table,
        window: &Window,
        slots: &[usize],
        spare: usize,
    ) -> Result<Contents, u64> {
        let (contents, unread) = self.peek(table, window, slots, spare).await;
        for (slot, e) in &unread {
            self.shared.read_failed(*slot, *e, false);
        }
        let failed = slots.iter().filter(|slot| !contents.has(**slot));
        match failed.fold(0, |all, slot| all | bit(*slot)) {
            0 => Ok(contents),
            failed => Err(failed),
        }
    }

    /// The same; what cannot be read is not there, and who failed it is said.
    pub(super) async fn peek(
        &self,
        table: &Table,
        window: &Window,
        slots: &[usize],
        spare: usize,
    ) -> (Contents, Vec<(usize, Errno)>) {
        let len = Self::len(window);
        let mut free = blocks(&self.core, slots.len() + spare, len as usize).await;
        let mut by_slot: Vec<Option<Segs>> = Vec::new();
        by_slot.resize_with(self.shared.shape.members(), || None);
        let mut all = Vec::new();
        for slot in slots {
            let (Some(path), Some(block)) = (table.good(*slot), free.pop()) else { continue };
            let at = path.offset.saturating_add(self.member_at(window));
            let data = part(&block, 0, len);
            all.push(Ask { slot: *slot, edge: path.edge, op: Op::Read, at, len, data });
            if let Some(place) = by_slot.get_mut(*slot) {
                *place = Some(block);
            }
        }
        let how = Manner { origin: self.how.origin, ..Manner::default() };
        let mut unread = Vec::new();
        for (slot, status) in ask(&self.core, all, how).await {
            if let (Err(e), Some(place)) = (status, by_slot.get_mut(slot)) {
                free.extend(place.take());
                unread.push((slot, e));
            }
        }
        (Contents { by_slot, free }, unread)
    }

    /// Finds what the data strips held that were not read; false when too much is lost.
    pub(super) fn solve(&self, row: &Row, contents: &mut Contents) -> bool {
        let data = self.data(row);
        let unknown: Vec<usize> =
            data.iter().copied().filter(|slot| !contents.has(*slot)).collect();
        let known: Vec<usize> = data.iter().copied().filter(|slot| contents.has(*slot)).collect();
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
        let has = |parity: Option<usize>, c: &Contents| parity.is_some_and(|slot| c.has(slot));
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
        let mut from = Vec::new();
        for slot in self.data(row) {
            from.push((contents.by_slot.get(slot)?.as_ref()?, slot));
        }
        match Some(slot) == row.q {
            true => sums(None, Some(&sum), &from),
            false => sums(Some(&sum), None, &from),
        }
        Some(sum)
    }
}
