//! A pass over a volume, concurrent with its users. Members being filled get missing data, copies
//! are made equal and parity right, slab after slab, on core 0.
//!
//! Invariants
//!  S1  A slab is held alone while it is worked on.
//!  S2  Nothing is reported as done before it is on stable storage.
//!  S3  A member's log is begun before the member is filled: its old content is outdated.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use bio::{Errno, Op, Segs};
use geom::{CopyMeter, Core};

use super::map::Piece;
use super::shared::{FailureEffect, Role, Table, VolumeShared};
use super::stripes::{Rows, Window};
use super::task_util::{MemberRequest, RequestContext, join, part, same, send_all};
use super::tasks::one_block;
use crate::members::{sparse, wait_for_rate, wait_while_paused};
use crate::raid::geom::Message;

/// The reason why a pass did not complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PassHalt {
    /// A member failed a write: the geom has been notified.
    Member,
    /// The data to be filled in cannot be read anywhere.
    Source,
}

/// Begins pass number `round` at byte `from` of the volume. Its end is reported to the geom.
pub(crate) fn start(shared: &Arc<VolumeShared>, round: u64, from: u64) {
    {
        let mut meter = shared.meter();
        shared.round.store(round, SeqCst);
        *meter = CopyMeter::new(from, shared.shape.bytes);
    }
    let shared = shared.clone();
    let notifier = shared.notifier.clone();
    notifier.call(
        0,
        Box::new(move |core| {
            let (on, core) = (core, core.clone());
            let name = shared.name.clone();
            let fills = shared.table(on.id()).all().any(|(_, path)| path.role == Role::Filling);
            let what = if fills { "raid rebuild" } else { "raid resync" };
            on.spawn_for(what, &name, async move {
                let pass = Pass { core, shared: shared.clone(), round };
                if let Some(result) = pass.run(from).await {
                    shared.post(Message::Passed { volume: shared.key, round, result });
                }
            });
        }),
    );
}

struct Pass {
    core: Rc<Core>,
    shared: Arc<VolumeShared>,
    round: u64,
}

impl Pass {
    fn is_wanted(&self) -> bool {
        self.shared.round.load(SeqCst) == self.round
    }

    /// Bytes of a slab: whole rows.
    fn slab(&self) -> u64 {
        let unit = match self.shared.shape.parities() {
            0 => self.shared.sector.max(1),
            _ => self.shared.shape.row_bytes().max(1),
        };
        (self.shared.tunables.slab_bytes / unit).max(1).saturating_mul(unit)
    }

    /// `None` when the pass is no longer wanted.
    async fn run(&self, from: u64) -> Option<Result<(), PassHalt>> {
        if let Err(halt) = self.begin_logs().await {
            return Some(Err(halt));
        }
        let reactor = self.core.reactor();
        let (mut at, mut saved) = (from, reactor.fresh_now());
        let mut paid = saved;
        self.shared.update_meter(self.round, |meter| meter.start(saved));
        while at < self.shared.shape.bytes {
            if wait_while_paused(&self.core, &self.shared.throttle, || self.is_wanted()).await {
                let now = reactor.fresh_now();
                self.shared.update_meter(self.round, |meter| meter.start(now));
            }
            if !self.is_wanted() {
                return None;
            }
            let len = self.slab().min(self.shared.shape.bytes - at);
            let done = match self.shared.shape.parities() {
                0 => self.copies(at, len).await,
                _ => self.rows(at, len).await,
            };
            if let Err(halt) = done {
                return Some(Err(halt));
            }
            at += len;
            let now = reactor.fresh_now();
            self.shared.update_meter(self.round, |meter| meter.advance(now, at));
            let every = self.shared.tunables.save_every_ns;
            if now.saturating_sub(saved) >= every && at < self.shared.shape.bytes {
                if let Err(halt) = self.settle().await {
                    return Some(Err(halt));
                }
                let (volume, round) = (self.shared.key, self.round);
                self.shared.post(Message::Progress { volume, round, done: at });
                saved = now;
            }
            let rate = || self.is_wanted().then(|| self.shared.throttle.rate());
            paid = wait_for_rate(&self.core, rate, paid, len).await;
        }
        Some(self.settle().await)
    }

    /// S3
    async fn begin_logs(&self) -> Result<(), PassHalt> {
        let Some(log) = self.shared.log() else { return Ok(()) };
        let table = self.shared.table(self.core.id());
        for (slot, path) in table.all().filter(|(_, path)| path.role == Role::Filling) {
            if let Err(e) = log.anew(&self.core, slot, path).await {
                self.shared.report_failure(slot, e, FailureEffect::Doubt);
                return Err(PassHalt::Member);
            }
        }
        Ok(())
    }

    /// S2
    async fn settle(&self) -> Result<(), PassHalt> {
        let table = self.shared.table(self.core.id());
        let all = table.all().map(|(slot, path)| {
            let (at, len, data) = (0, 0, Segs::new());
            MemberRequest { slot, edge: path.edge, op: Op::Flush, at, len, data }
        });
        let mut settled = Ok(());
        for (slot, status) in send_all(&self.core, all.collect(), RequestContext::default()).await {
            match status {
                Ok(()) | Err(Errno::NotSup) => {}
                Err(e) => {
                    self.shared.report_failure(slot, e, FailureEffect::Doubt);
                    settled = Err(PassHalt::Member);
                }
            }
        }
        settled
    }

    /// Copies of a slab are made equal.
    async fn copies(&self, at: u64, len: u64) -> Result<(), PassHalt> {
        let held = self.shared.ranges.lock_task(at..at + len, true).await;
        let pieces: Vec<Piece> = self.shared.shape.pieces(at, len).collect();
        let mut done = Ok(());
        for piece in pieces {
            done = done.and(self.copy_piece(piece).await);
        }
        if done.is_ok() && self.is_wanted() {
            self.extend_consistent(at, len);
        }
        self.shared.ranges.unlock(held);
        done
    }

    /// If everything up to this slab was even, everything up to its end is even now.
    fn extend_consistent(&self, at: u64, len: u64) {
        let even = &self.shared.consistent_to;
        if at <= even.load(SeqCst) {
            even.fetch_max(at.saturating_add(len), SeqCst);
        }
    }

    async fn copy_piece(&self, piece: Piece) -> Result<(), PassHalt> {
        let (shape, table) = (&self.shared.shape, self.shared.table(self.core.id()));
        let even = self.shared.is_consistent(piece.at.saturating_add(piece.len));
        let spots: Vec<_> = (0..shape.copies()).map(|nth| shape.spot(piece.at, nth)).collect();
        let mut sources = spots.iter().filter(|spot| table.good(spot.slot).is_some());
        let mut block = None;
        let mut source = None;
        for spot in sources.by_ref() {
            let Some(path) = table.good(spot.slot) else { continue };
            let wanted = |s: &super::map::Spot| {
                let path = table.path(s.slot);
                s.slot != spot.slot && path.is_some_and(|p| p.role == Role::Filling || !even)
            };
            if !spots.iter().any(wanted) {
                return Ok(());
            }
            let read = one_block(&self.core, piece.len).await;
            let (slot, at) = (spot.slot, path.offset.saturating_add(spot.at));
            let (edge, op, data) = (path.edge, Op::Read, part(&read, 0, piece.len));
            let request = MemberRequest { slot, edge, op, at, len: piece.len, data };
            match send_all(&self.core, vec![request], RequestContext::default()).await[..] {
                [(_, Ok(()))] => {
                    (block, source) = (Some(read), Some(slot));
                    break;
                }
                [(_, Err(e))] => self.shared.read_failed(slot, e, false),
                _ => {}
            }
        }
        let (Some(block), Some(source)) = (block, source) else { return Err(PassHalt::Source) };
        let mut all = Vec::new();
        for spot in spots.iter().filter(|spot| spot.slot != source) {
            let Some(path) = table.path(spot.slot) else { continue };
            if path.role == Role::Good && even {
                continue;
            }
            let (slot, at) = (spot.slot, path.offset.saturating_add(spot.at));
            let (edge, op, data) = (path.edge, Op::Write, part(&block, 0, piece.len));
            all.push(MemberRequest { slot, edge, op, at, len: piece.len, data });
        }
        self.written(&table, all).await
    }

    /// Writes what its member does not have: of zeroes that is looked at first.
    async fn written(&self, table: &Table, all: Vec<MemberRequest>) -> Result<(), PassHalt> {
        let mut lacking = Vec::with_capacity(all.len());
        for request in all {
            let keeps = table.path(request.slot).is_some_and(|path| path.keeps_zeroes);
            let has = keeps && sparse::are_zero(&request.data);
            let (edge, at, len) = (request.edge, request.at, request.data.len());
            if !has || !sparse::has_zeroes(&self.core, edge, at, len).await {
                lacking.push(request);
            }
        }
        let all = lacking;
        let mut done = Ok(());
        for (slot, status) in send_all(&self.core, all, RequestContext::default()).await {
            if let Err(e) = status {
                self.shared.report_failure(slot, e, FailureEffect::Doubt);
                done = Err(PassHalt::Member);
            }
        }
        done
    }

    /// Rows of a slab are made whole.
    async fn rows(&self, at: u64, len: u64) -> Result<(), PassHalt> {
        let (core, shared) = (self.core.clone(), self.shared.clone());
        let rows = Rows { core, shared, context: RequestContext::default() };
        // The last row may continue behind the end of the volume.
        let windows = rows.windows(at, len);
        for some in windows.chunks(4) {
            let work = some.iter().map(|window| self.window(&rows, window));
            join(work.collect()).await.into_iter().collect::<Result<(), PassHalt>>()?;
        }
        if self.is_wanted() {
            self.extend_consistent(at, len);
        }
        Ok(())
    }

    async fn window(&self, rows: &Rows, window: &Window) -> Result<(), PassHalt> {
        let range = self.shared.rows(window.number, window.range.clone());
        let held = self.shared.ranges.lock_task(range.clone(), true).await;
        let done = match rows.settle(&range).await {
            true => self.window_held(rows, window).await,
            false => Err(PassHalt::Member),
        };
        self.shared.ranges.unlock(held);
        done
    }

    async fn window_held(&self, rows: &Rows, window: &Window) -> Result<(), PassHalt> {
        let (shape, table) = (&self.shared.shape, self.shared.table(self.core.id()));
        let row = shape.row(window.number);
        let end = window.number.saturating_add(1).saturating_mul(shape.row_bytes());
        let even = self.shared.is_consistent(end);
        let parities: Vec<usize> = [Some(row.p), row.q].into_iter().flatten().collect();
        let is_filled = |slot: usize| table.path(slot).is_some_and(|p| p.role == Role::Filling);
        if even && !(0..shape.members()).any(is_filled) {
            return Ok(());
        }
        let lost = (0..shape.members()).any(|slot| table.good(slot).is_none());
        let all: Vec<usize> = match lost || !even {
            true => (0..shape.members()).filter(|s| table.good(*s).is_some()).collect(),
            false => rows.data(&row),
        };
        let fetched = rows.fetch(&table, window, &all, 2 * shape.parities()).await;
        let Ok(mut contents) = fetched else { return Err(PassHalt::Source) };
        if !rows.solve(&row, &mut contents) {
            return Err(PassHalt::Source);
        }
        let mut new: Vec<(usize, Segs)> = Vec::new();
        for slot in parities {
            let Some(path) = table.path(slot) else { continue };
            if path.role == Role::Good && even {
                continue;
            }
            let Some(sum) = rows.sum(&row, &mut contents, slot) else {
                return Err(PassHalt::Source);
            };
            let old = contents.by_slot.get(slot).and_then(Option::as_ref);
            if !old.is_some_and(|old| same(old, &sum)) {
                new.push((slot, sum));
            }
        }
        for slot in rows.data(&row).into_iter().filter(|slot| is_filled(*slot)) {
            let block = contents.by_slot.get_mut(slot).and_then(Option::take);
            new.extend(block.map(|block| (slot, block)));
        }
        self.put(&table, window, new).await
    }

    async fn put(
        &self,
        table: &Table,
        window: &Window,
        new: Vec<(usize, Segs)>,
    ) -> Result<(), PassHalt> {
        let first = window.number.saturating_mul(self.shared.shape.strip);
        let ways = new.into_iter().filter_map(|(slot, data)| {
            let path = table.path(slot)?;
            let at = path.offset.saturating_add(first).saturating_add(window.range.start);
            let len = data.len() as u64;
            Some(MemberRequest { slot, edge: path.edge, op: Op::Write, at, len, data })
        });
        self.written(table, ways.collect()).await
    }
}
