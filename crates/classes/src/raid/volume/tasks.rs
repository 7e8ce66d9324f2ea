//! Tasks of a volume: writes to more than one member, reads that the first member failed, flushes.
//!
//! Invariants
//!  W1  A write or flush that a member failed is acknowledged only after the records of the others
//!      contain that. Otherwise that member would be believed after a crash.
//!  W2  Only EIO, ENXIO and time-outs speak of the member; other errors are the request's own, but
//!      for a write that another copy took.
//!  W3  A read that another member answered is written back to the one that could not read it,
//!      while no other request writes there.
//!  W4  Copies that a member failed are released when the failure has been judged. Until then a
//!      pass could take the member's old data for the right content.
//!  W5  Writes of the same bytes take turns. Two that are under way together could end in one order
//!      on one copy, and in the other on another.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use bio::{Errno, Op, Segs, Status};
use geom::Core;

use super::map::Piece;
use super::shared::{FailureEffect, Table, VolumeShared};
use super::stripes::{NewData, RowOutcome, Rows, Window};
use super::task_util::{
    MemberRequest, RequestContext, bit, blocks, copy, is_members_fault, join, part, send_all,
};

/// Rows of one request that are worked on at once; more wait for these.
const ROWS_AT_ONCE: usize = 16;

pub(super) struct RequestTask {
    pub(super) core: Rc<Core>,
    pub(super) shared: Arc<VolumeShared>,
    pub(super) context: RequestContext,
    pub(super) op: Op,
    pub(super) offset: u64,
    pub(super) length: u64,
    /// Of a DELETE that names several.
    pub(super) ranges: Vec<Range<u64>>,
    pub(super) data: Segs,
}

impl RequestTask {
    pub(super) fn rows(&self) -> Rows {
        Rows { core: self.core.clone(), shared: self.shared.clone(), context: self.context }
    }

    /// A write or delete that has passed the gate.
    pub(super) async fn write(&self) -> Status {
        let outcome = match self.shared.shape.parities() {
            0 if !self.ranges.is_empty() => return self.delete_list().await,
            0 => return self.write_copies().await,
            _ if self.op == Op::Write => self.write_rows().await,
            _ => self.zero().await,
        };
        self.conclude(outcome).await
    }

    /// W1
    pub(super) async fn conclude(&self, outcome: RowOutcome) -> Status {
        let (failed, gone) = (outcome.failed, outcome.gone);
        let waits = failed | outcome.unrecorded;
        if waits != 0
            && !self.shared.await_decision(waits, (failed, gone), FailureEffect::Doubt).await
        {
            return Err(Errno::Io);
        }
        match outcome.error {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    async fn write_rows(&self) -> RowOutcome {
        let range = self.offset..self.offset.saturating_add(self.length);
        Self::to_rows(&self.rows(), range, NewData::Data(&self.data)).await
    }

    pub(super) async fn to_rows(rows: &Rows, range: Range<u64>, what: NewData<'_>) -> RowOutcome {
        let windows = rows.windows(range.start, range.end.saturating_sub(range.start));
        let mut outcome = RowOutcome::default();
        for some in windows.chunks(ROWS_AT_ONCE) {
            let work = some.iter().map(|w| rows.write(w.clone(), range.clone(), what));
            let ended = join(work.collect()).await;
            outcome = ended.into_iter().fold(outcome, RowOutcome::and);
        }
        outcome
    }

    /// W4, W5
    async fn write_copies(&self) -> Status {
        let range = self.offset..self.offset.saturating_add(self.length);
        let held = self.shared.ranges.lock_task(range, true).await;
        let table = self.shared.table(self.core.id());
        let outcome = self.to_copies(&table).await;
        let status = self.conclude(outcome).await;
        self.shared.ranges.unlock(held);
        status
    }

    async fn to_copies(&self, table: &Table) -> RowOutcome {
        let shape = &self.shared.shape;
        let mut outcome = RowOutcome { unrecorded: table.unrecorded, ..RowOutcome::default() };
        if self.op == Op::Delete && table.all().any(|(_, path)| !path.deletes) {
            return RowOutcome { error: Some(Errno::NotSup), ..outcome };
        }
        let pieces: Vec<Piece> = shape.pieces(self.offset, self.length).collect();
        let (mut all, mut of) = (Vec::new(), Vec::new());
        for (number, piece) in pieces.iter().enumerate() {
            for nth in 0..shape.copies() {
                let spot = shape.spot(piece.at, nth);
                let Some(path) = table.path(spot.slot) else { continue };
                let data = match self.op.has_data() {
                    true => part(&self.data, piece.skip, piece.len),
                    false => Segs::new(),
                };
                let at = path.offset.saturating_add(spot.at);
                let (slot, edge, op, len) = (spot.slot, path.edge, self.op, piece.len);
                all.push(MemberRequest { slot, edge, op, at, len, data });
                of.push((number, table.good(slot).is_some(), (edge, at, len)));
            }
        }
        let mut done = vec![false; pieces.len()];
        let mut ended = send_all(&self.core, all, self.context).await;
        self.zero_others(&mut ended, of.iter().map(|(.., place)| *place)).await;
        for ((_, status), (number, good, _)) in ended.iter().zip(&of) {
            done[*number] |= *good && status.is_ok();
        }
        for ((slot, status), (number, ..)) in ended.into_iter().zip(of) {
            match status {
                Ok(()) => {}
                Err(Errno::NxIo) => {
                    outcome.failed |= bit(slot);
                    outcome.gone |= bit(slot);
                }
                // W2
                Err(e) if is_members_fault(e) || done[number] => outcome.failed |= bit(slot),
                Err(e) => outcome.error = outcome.error.or(Some(e)),
            }
        }
        if done.contains(&false) {
            // No good member has this.
            outcome.error = outcome.error.or(Some(Errno::Io));
        }
        outcome
    }

    /// Everything written before is on stable storage.
    pub(super) async fn flush(&self) -> Status {
        if !self.rows().settle_all().await {
            return Err(Errno::Io);
        }
        let table = self.shared.table(self.core.id());
        let mut outcome = RowOutcome { unrecorded: table.unrecorded, ..RowOutcome::default() };
        let all = table.all().map(|(slot, path)| {
            let (at, len, data) = (0, 0, Segs::new());
            MemberRequest { slot, edge: path.edge, op: Op::Flush, at, len, data }
        });
        for (slot, status) in send_all(&self.core, all.collect(), self.context).await {
            match status {
                // A member without a cache has nothing to flush.
                Ok(()) | Err(Errno::NotSup) => {}
                Err(e) if is_members_fault(e) => {
                    outcome.failed |= bit(slot);
                    if e == Errno::NxIo {
                        outcome.gone |= bit(slot);
                    }
                }
                Err(e) => outcome.error = outcome.error.or(Some(e)),
            }
        }
        self.conclude(outcome).await
    }

    /// A read, piece by piece, from any member that can answer it.
    pub(super) async fn read(&self) -> Status {
        let pieces: Vec<Piece> = self.shared.shape.pieces(self.offset, self.length).collect();
        for some in pieces.chunks(ROWS_AT_ONCE) {
            let ended = join(some.iter().map(|piece| self.read_piece(*piece)).collect()).await;
            ended.into_iter().collect::<Status>()?;
        }
        Ok(())
    }

    async fn read_piece(&self, piece: Piece) -> Status {
        let shape = &self.shared.shape;
        let (mut lost, mut error) = (0, None);
        for nth in 0..shape.copies() {
            // The first good one, always: until copies agree no other may be read.
            let spot = shape.spot(piece.at, nth);
            let table = self.shared.table(self.core.id());
            let Some(path) = table.good(spot.slot) else { continue };
            let data = part(&self.data, piece.skip, piece.len);
            let at = path.offset.saturating_add(spot.at);
            let (slot, edge, op, len) = (spot.slot, path.edge, Op::Read, piece.len);
            match send_all(
                &self.core,
                vec![MemberRequest { slot, edge, op, at, len, data }],
                self.context,
            )
            .await[..]
            {
                [(_, Ok(()))] => {
                    if lost != 0 {
                        self.repair_copies(piece, lost).await;
                    }
                    return Ok(());
                }
                [(_, Err(e))] if is_members_fault(e) => {
                    error = Some(e);
                    lost |= bit(slot);
                }
                [(_, Err(e))] => return Err(e),
                _ => return Err(Errno::Io),
            }
        }
        if shape.parities() > 0 {
            return self.solve_piece(piece, lost, error).await;
        }
        for slot in (0..shape.members()).filter(|slot| lost & bit(*slot) != 0) {
            self.shared.read_failed(slot, error.unwrap_or(Errno::Io), false);
        }
        Err(error.unwrap_or(Errno::NxIo))
    }

    /// W3, for copies.
    async fn repair_copies(&self, piece: Piece, lost: u64) {
        let shape = &self.shared.shape;
        let range = piece.at..piece.at.saturating_add(piece.len);
        let held = self.shared.ranges.lock_task(range, true).await;
        let table = self.shared.table(self.core.id());
        let spots = (0..shape.copies()).map(|nth| shape.spot(piece.at, nth));
        let (bad, good): (Vec<_>, Vec<_>) = spots.partition(|spot| lost & bit(spot.slot) != 0);
        let source = good.iter().find_map(|spot| Some((spot, table.good(spot.slot)?)));
        // Not the request's own memory: a read that fails leaves anything there.
        let block = one_block(&self.core, piece.len).await;
        let mut known = false;
        if let Some((spot, path)) = source {
            let (slot, at) = (spot.slot, path.offset.saturating_add(spot.at));
            let data = part(&block, 0, piece.len);
            let one =
                MemberRequest { slot, edge: path.edge, op: Op::Read, at, len: piece.len, data };
            known =
                send_all(&self.core, vec![one], self.context).await.iter().all(|(_, s)| s.is_ok());
        }
        for spot in bad {
            let mended = match table.good(spot.slot).filter(|_| known) {
                Some(path) => {
                    let (slot, at) = (spot.slot, path.offset.saturating_add(spot.at));
                    let data = part(&block, 0, piece.len);
                    let one = MemberRequest {
                        slot,
                        edge: path.edge,
                        op: Op::Write,
                        at,
                        len: piece.len,
                        data,
                    };
                    send_all(&self.core, vec![one], RequestContext::default())
                        .await
                        .iter()
                        .all(|(_, s)| s.is_ok())
                }
                None => false,
            };
            self.shared.read_failed(spot.slot, Errno::Io, mended);
        }
        self.shared.ranges.unlock(held);
    }

    /// A piece whose member cannot be read, from the rest of its row.
    async fn solve_piece(&self, piece: Piece, lost: u64, error: Option<Errno>) -> Status {
        let (shape, rows) = (&self.shared.shape, self.rows());
        let within = piece.at % shape.strip;
        for window in rows.windows(piece.at, piece.len) {
            let from = window.range.start.max(within);
            let to = window.range.end.min(within + piece.len);
            if from >= to {
                continue;
            }
            let into = part(&self.data, piece.skip + (from - within), to - from);
            let window = Window { range: from..to, ..window };
            let slot = shape.spot(piece.at, 0).slot;
            self.solve_window(&rows, &window, slot, lost, error, &into).await?;
        }
        Ok(())
    }

    async fn solve_window(
        &self,
        rows: &Rows,
        window: &Window,
        slot: usize,
        mut lost: u64,
        error: Option<Errno>,
        into: &Segs,
    ) -> Status {
        let shape = &self.shared.shape;
        let row = shape.row(window.number);
        let range = self.shared.rows(window.number, window.range.clone());
        let held = self.shared.ranges.lock_task(range.clone(), lost != 0).await;
        let (rounds, error) = match rows.settle(&range).await {
            true => (shape.parities() + 1, error),
            false => (0, Some(Errno::Io)),
        };
        let mut status = Err(error.unwrap_or(Errno::NxIo));
        for _ in 0..rounds {
            let table = self.shared.table(self.core.id());
            let readable = |s: &usize| table.good(*s).is_some() && lost & bit(*s) == 0;
            let all: Vec<usize> =
                (0..shape.members()).filter(|s| *s != slot).filter(readable).collect();
            let spare = shape.parities();
            match rows.fetch(&table, window, &all, spare).await {
                Ok(mut contents) => {
                    if !rows.solve(&row, &mut contents) {
                        break;
                    }
                    let Some(Some(block)) = contents.by_slot.get(slot) else { break };
                    copy(into, block);
                    status = Ok(());
                    if lost & bit(slot) != 0 {
                        let mended = self.rewrite_block(&table, window, slot, block).await;
                        self.shared.read_failed(slot, error.unwrap_or(Errno::Io), mended);
                    }
                    break;
                }
                Err(bits) => lost |= bits,
            }
        }
        self.shared.ranges.unlock(held);
        if status.is_err() && lost & bit(slot) != 0 {
            self.shared.read_failed(slot, error.unwrap_or(Errno::Io), false);
        }
        status
    }

    /// W3, for rows.
    async fn rewrite_block(
        &self,
        table: &Table,
        window: &Window,
        slot: usize,
        block: &Segs,
    ) -> bool {
        let Some(path) = table.good(slot) else { return false };
        let first = window.number.saturating_mul(self.shared.shape.strip);
        let at = path.offset.saturating_add(first).saturating_add(window.range.start);
        let len = block.len() as u64;
        let one = MemberRequest {
            slot,
            edge: path.edge,
            op: Op::Write,
            at,
            len,
            data: part(block, 0, len),
        };
        send_all(&self.core, vec![one], RequestContext::default())
            .await
            .iter()
            .all(|(_, s)| s.is_ok())
    }
}

/// What members are owed is tried once more.
pub(crate) fn settle(shared: &Arc<VolumeShared>) {
    if shared.missed_parity.is_empty() {
        return;
    }
    let shared = shared.clone();
    let notifier = shared.notifier.clone();
    notifier.call(
        0,
        Box::new(move |core| {
            let (on, core) = (core, core.clone());
            let name = shared.name.clone();
            on.spawn_for("raid debts", &name, async move {
                Rows { core, shared, context: RequestContext::default() }.settle_all().await;
            });
        }),
    );
}

/// Memory for copying `len` bytes.
pub(super) async fn one_block(core: &Rc<Core>, len: u64) -> Segs {
    blocks(core, 1, len as usize).await.pop().unwrap_or_default()
}
