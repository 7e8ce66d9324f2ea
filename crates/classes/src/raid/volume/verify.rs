//! Comparison of a volume's copies with each other, or of its parity with its data, in the
//! background and concurrent with its users.
//!
//! Invariants
//!  V1  Nothing is written between the reads that are compared: all copies are held alone, and the
//!      rows with parity at least shared.
//!  V2  Only a volume in order is compared: all members have everything, and copies and parity
//!      should agree everywhere. When that ends, the comparison does.
//!  V3  Only with `repair` is anything written. Parity is made anew from its row, copies from the
//!      first readable one. Unreadable data is made from the rest of its row. All are read under
//!      the same lock. Where there are two parities, the strip that they agree is wrong is written
//!      instead (`locate`). Nothing is written where they agree on none, unless parity is forced.
//!  V4  Repairs are flushed before they are counted and reported.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use bio::{Errno, Op, Segs, parity};
use geom::Core;

use super::locate::{WrongStrip, locate};
use super::map::{Piece, Row, Spot};
use super::reconstruct::Contents;
use super::shared::{FailureEffect, Table, VolumeShared};
use super::stripes::{Rows, Window};
use super::task_util::{
    MemberRequest, RequestContext, WINDOW, add, blocks, copy, join, part, same, send_all,
};
use crate::members::{Mismatch, MismatchKind, VerifyReport, differences, wait_for_rate};

/// Windows of rows that are compared at once.
const AT_ONCE: usize = 4;

/// Parameters of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct VerifyOptions {
    /// What differs is written anew.
    pub(crate) repair: bool,
    /// Parity too of rows with several strips that are wrong.
    pub(crate) force: bool,
    /// Bytes a second; `None`: as passes have it.
    pub(crate) rate: Option<u64>,
}

/// Compares everything.
pub(crate) fn begin(shared: &Arc<VolumeShared>, wish: VerifyOptions) {
    let round = {
        let mut report = shared.verified();
        *report = VerifyReport {
            round: report.round + 1,
            running: true,
            repair: wish.repair,
            media_bytes: shared.shape.bytes,
            ..VerifyReport::default()
        };
        report.round
    };
    let (shared, notifier) = (shared.clone(), shared.notifier.clone());
    notifier.call(
        0,
        Box::new(move |core| {
            let (on, core) = (core, core.clone());
            let name = shared.name.clone();
            on.spawn_for("raid verify", &name, async move {
                let run = VerifyRun { core, shared, options: wish, round };
                let ended = run.all().await;
                run.update_report(|report| {
                    report.running = false;
                    report.fault = ended.err();
                });
            });
        }),
    );
}

/// Something that a comparison found in one window.
struct WrongRange {
    slot: usize,
    /// Bytes of the disk.
    range: Range<u64>,
    kind: MismatchKind,
    /// What should be there, if that is known.
    right: Option<Segs>,
}

struct VerifyRun {
    core: Rc<Core>,
    shared: Arc<VolumeShared>,
    options: VerifyOptions,
    round: u64,
}

impl VerifyRun {
    fn update_report(&self, f: impl FnOnce(&mut VerifyReport)) -> bool {
        self.shared.verified().update(self.round, f)
    }

    async fn all(&self) -> Result<(), &'static str> {
        let shape = &self.shared.shape;
        let (mut at, mut paid) = (0, self.core.reactor().fresh_now());
        while at < shape.bytes {
            let unit = match shape.parities() {
                0 => WINDOW,
                _ => shape.row_bytes().max(1),
            };
            let slab = (self.shared.tunables.slab_bytes / unit).max(1).saturating_mul(unit);
            let len = slab.min(shape.bytes - at);
            match shape.parities() {
                0 => self.copies(at, len).await?,
                _ => self.rows(at, len).await?,
            }
            at += len;
            if !self.update_report(|report| report.at = at) {
                return Ok(());
            }
            let current = || self.options.rate.unwrap_or_else(|| self.shared.throttle.rate());
            let rate = || self.update_report(|_| ()).then(current);
            paid = wait_for_rate(&self.core, rate, paid, len).await;
        }
        Ok(())
    }

    /// V2
    fn table(&self) -> Result<Arc<Table>, &'static str> {
        let table = self.shared.table(self.core.id());
        if (0..self.shared.shape.members()).any(|slot| table.good(slot).is_none()) {
            return Err("a member is missing or being filled");
        }
        match self.shared.is_consistent(u64::MAX) {
            true => Ok(table),
            false => Err("copies or parity are being resynchronised"),
        }
    }

    async fn rows(&self, at: u64, len: u64) -> Result<(), &'static str> {
        let (core, shared) = (self.core.clone(), self.shared.clone());
        let rows = Rows { core, shared, context: RequestContext::default() };
        for some in rows.windows(at, len).chunks(AT_ONCE) {
            let work = some.iter().map(|window| self.window(&rows, window));
            join(work.collect()).await.into_iter().collect::<Result<(), _>>()?;
        }
        Ok(())
    }

    async fn window(&self, rows: &Rows, window: &Window) -> Result<(), &'static str> {
        let range = self.shared.rows(window.number, window.range.clone());
        let held = self.shared.ranges.lock_task(range.clone(), self.options.repair).await;
        let done = match rows.settle(&range).await {
            true => self.window_held(rows, window).await,
            false => Err("a member does not take the parity that it has to have"),
        };
        self.shared.ranges.unlock(held);
        done
    }

    async fn window_held(&self, rows: &Rows, window: &Window) -> Result<(), &'static str> {
        if !self.update_report(|_| ()) {
            return Ok(());
        }
        let (table, shape) = (self.table()?, &self.shared.shape);
        let row = shape.row(window.number);
        let all: Vec<usize> = (0..shape.members()).collect();
        let (mut contents, unread) =
            rows.fetch_readable(&table, window, &all, 2 * shape.parities()).await;
        let first = window.number.saturating_mul(shape.strip).saturating_add(window.range.start);
        let at = |slot| table.good(slot).map_or(0, |path| path.offset.saturating_add(first));
        let len = window.range.end - window.range.start;
        let mut wrong = Vec::new();
        // If more strips are unread than there are parities, their data is unknown.
        let known = rows.solve(&row, &mut contents);
        for (slot, error) in &unread {
            self.removed_or_failed(*slot, *error)?;
            let range = at(*slot)..at(*slot).saturating_add(len);
            let right = contents.by_slot.get(*slot).and_then(Option::as_ref);
            let right = right.map(|block| part(block, 0, len));
            wrong.push(WrongRange { slot: *slot, range, kind: MismatchKind::Unreadable, right });
        }
        let mut sums = Vec::new();
        for slot in [Some(row.p), row.q].into_iter().flatten().filter(|_| known) {
            let Some(sum) = rows.sum(&row, &mut contents, slot) else { continue };
            if let Some(one) = wrong.iter_mut().find(|one| one.slot == slot) {
                one.right = Some(part(&sum, 0, len));
            }
            sums.push((slot, sum));
        }
        match (row.q, &unread[..]) {
            // Data that was solved for does not verify the parity that it was solved by.
            (None, [_, ..]) | (_, [_, _, ..]) => {}
            (None, []) => {
                for (slot, sum) in &sums {
                    self.compare(
                        (*slot, MismatchKind::Differs),
                        at(*slot),
                        sum,
                        &contents,
                        &mut wrong,
                    );
                }
            }
            (Some(_), []) => self.judge(&row, &sums, at, &contents, &mut wrong),
            (Some(q), [(one, _)]) => {
                // The parity that is left can find something wrong, and not where.
                let other = if *one == q { row.p } else { q };
                let before = wrong.len();
                let sum = sums.iter().find(|(slot, _)| *slot == other);
                if let Some((_, sum)) = sum {
                    self.compare(
                        (other, MismatchKind::Ambiguous),
                        at(other),
                        sum,
                        &contents,
                        &mut wrong,
                    );
                }
                let is_doubtful = wrong.len() > before;
                wrong.iter_mut().filter(|_| is_doubtful).for_each(|one| one.right = None);
            }
        }
        self.conclude(&table, wrong).await
    }

    /// A row with two parities, all of it read: finds the wrong strip.
    fn judge(
        &self,
        row: &Row,
        sums: &[(usize, Segs)],
        at: impl Fn(usize) -> u64,
        contents: &Contents,
        wrong: &mut Vec<WrongRange>,
    ) {
        let [(p, p_sum), (q, q_sum)] = sums else { return };
        let off = |slot: usize, sum: &Segs| {
            let mut bytes = sum.to_vec();
            let held = contents.by_slot.get(slot).and_then(Option::as_ref);
            parity::add(&mut bytes, &held.map(Segs::to_vec).unwrap_or_default());
            bytes
        };
        let is_right = |(slot, sum): &(usize, Segs)| {
            let held = contents.by_slot.get(*slot).and_then(Option::as_ref);
            held.is_some_and(|held| same(held, sum))
        };
        if sums.iter().all(is_right) {
            return;
        }
        let (p_off, q_off) = (off(*p, p_sum), off(*q, q_sum));
        let data: Vec<usize> = (0..self.shared.shape.width()).map(|nth| row.data(nth)).collect();
        match locate(&p_off, &q_off, &data) {
            WrongStrip::Data(slot) => {
                let held = contents.by_slot.get(slot).and_then(Option::as_ref);
                let Some(held) = held else { return };
                // Into memory that is free: the sum is not needed any more.
                copy(q_sum, held);
                add(q_sum, p_sum, 1);
                if let Some(p_held) = contents.by_slot.get(*p).and_then(Option::as_ref) {
                    add(q_sum, p_held, 1);
                }
                self.compare((slot, MismatchKind::Located), at(slot), q_sum, contents, wrong);
            }
            // Only one of them differs.
            WrongStrip::Parity => {
                for (slot, sum) in sums {
                    self.compare((*slot, MismatchKind::Differs), at(*slot), sum, contents, wrong);
                }
            }
            WrongStrip::Untold => {
                let before = wrong.len();
                for (slot, sum) in sums {
                    self.compare((*slot, MismatchKind::Ambiguous), at(*slot), sum, contents, wrong);
                }
                let untold = wrong.iter_mut().skip(before);
                untold.filter(|_| !self.options.force).for_each(|one| one.right = None);
            }
        }
    }

    /// Sectors of a member in a row, at a byte of its disk, that are not as they should be.
    fn compare(
        &self,
        (slot, ill): (usize, MismatchKind),
        at: u64,
        right: &Segs,
        contents: &Contents,
        wrong: &mut Vec<WrongRange>,
    ) {
        let found = contents.by_slot.get(slot).and_then(Option::as_ref);
        self.compare_with((slot, ill), at, right, found, wrong);
    }

    /// The same, with the data found there.
    fn compare_with(
        &self,
        (slot, ill): (usize, MismatchKind),
        at: u64,
        right: &Segs,
        found: Option<&Segs>,
        wrong: &mut Vec<WrongRange>,
    ) {
        let Some(found) = found.filter(|found| !same(found, right)) else { return };
        for run in differences(&right.to_vec(), &found.to_vec(), self.shared.sector as usize) {
            let range = at.saturating_add(run.start as u64)..at.saturating_add(run.end as u64);
            let right = Some(part(right, run.start as u64, (run.end - run.start) as u64));
            wrong.push(WrongRange { slot, range, kind: ill, right });
        }
    }

    /// A removed member is not compared.
    fn removed_or_failed(&self, slot: usize, error: Errno) -> Result<(), &'static str> {
        if error == Errno::NxIo {
            self.shared.report_failure(slot, error, FailureEffect::Order);
            return Err("a member was removed");
        }
        Ok(())
    }

    async fn copies(&self, at: u64, len: u64) -> Result<(), &'static str> {
        for piece in self.shared.shape.pieces(at, len) {
            let mut from = 0;
            while from < piece.len {
                let len = WINDOW.min(piece.len - from);
                let at = piece.at.saturating_add(from);
                let held = self.shared.ranges.lock_task(at..at.saturating_add(len), true).await;
                let done = self.piece(Piece { at, len, skip: 0 }).await;
                self.shared.ranges.unlock(held);
                done?;
                from += len;
            }
        }
        Ok(())
    }

    async fn piece(&self, piece: Piece) -> Result<(), &'static str> {
        if !self.update_report(|_| ()) {
            return Ok(());
        }
        let (table, shape) = (self.table()?, &self.shared.shape);
        let spots: Vec<Spot> = (0..shape.copies()).map(|nth| shape.spot(piece.at, nth)).collect();
        let read = blocks(&self.core, spots.len(), piece.len as usize).await;
        let (mut all, mut places) = (Vec::new(), Vec::new());
        for (spot, block) in spots.iter().zip(&read) {
            let Some(path) = table.good(spot.slot) else { continue };
            let at = path.offset.saturating_add(spot.at);
            let (slot, edge, op, len) = (spot.slot, path.edge, Op::Read, piece.len);
            all.push(MemberRequest { slot, edge, op, at, len, data: part(block, 0, len) });
            places.push((at, block));
        }
        let ended = send_all(&self.core, all, RequestContext::default()).await;
        let good = ended.iter().zip(&places).find(|((_, status), _)| status.is_ok());
        let right = good.map(|((slot, _), (_, block))| (*slot, *block));
        let mut wrong = Vec::new();
        for ((slot, status), (at, block)) in ended.into_iter().zip(places) {
            match (status, right) {
                (Err(error), _) => {
                    self.removed_or_failed(slot, error)?;
                    let right = right.map(|(_, right)| part(right, 0, piece.len));
                    let range = at..at.saturating_add(piece.len);
                    wrong.push(WrongRange { slot, range, kind: MismatchKind::Unreadable, right });
                }
                (Ok(()), Some((first, right))) if first != slot => {
                    self.compare_with(
                        (slot, MismatchKind::Differs),
                        at,
                        right,
                        Some(block),
                        &mut wrong,
                    );
                }
                (Ok(()), _) => {}
            }
        }
        self.conclude(&table, wrong).await
    }

    /// Reports the differences, and repairs them if requested.
    async fn conclude(&self, table: &Table, wrong: Vec<WrongRange>) -> Result<(), &'static str> {
        for WrongRange { slot, range, kind: ill, .. } in &wrong {
            let place = Mismatch { slot: *slot, range: range.clone(), kind: *ill };
            self.update_report(|report| report.add_mismatch(place, self.shared.sector));
        }
        let wrong = wrong.into_iter().filter(|_| self.options.repair);
        let (mut all, mut sectors, mut edges) = (Vec::new(), 0, Vec::new());
        for WrongRange { slot, range, right, .. } in wrong {
            let (Some(path), Some(data)) = (table.good(slot), right) else { continue };
            let (edge, op, at, len) = (path.edge, Op::Write, range.start, range.end - range.start);
            sectors += len / self.shared.sector.max(1);
            all.push(MemberRequest { slot, edge, op, at, len, data });
            edges.push((slot, edge));
        }
        self.done(all).await?;
        edges.dedup_by_key(|(slot, _)| *slot);
        let flush = |(slot, edge)| {
            let (at, len, data) = (0, 0, Segs::new());
            MemberRequest { slot, edge, op: Op::Flush, at, len, data }
        };
        self.done(edges.into_iter().map(flush).collect()).await?;
        // V4
        self.update_report(|report| report.repaired += sectors);
        Ok(())
    }

    async fn done(&self, all: Vec<MemberRequest>) -> Result<(), &'static str> {
        let mut done = Ok(());
        for (slot, status) in send_all(&self.core, all, RequestContext::default()).await {
            match status {
                // A member without a cache has nothing to flush.
                Ok(()) | Err(Errno::NotSup) => {}
                Err(e) => {
                    self.shared.report_failure(slot, e, FailureEffect::Doubt);
                    done = Err("a member failed a write");
                }
            }
        }
        done
    }
}
