//! Tasks of a mirror on core 0: writing records, rebuilding and comparing members.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use bio::Errno;
use geom::{Core, Edge};

use super::shared::{MemberFailure, Message, MirrorShared, RebuildHalt};
use crate::members::{sparse, wait_for_rate, wait_while_paused};
use crate::probe_io::flush;

pub(super) struct RecordWrite {
    pub(super) slot: usize,
    pub(super) edge: Edge,
    pub(super) at: u64,
    pub(super) sector: Vec<u8>,
    /// It was elsewhere before its provider grew.
    pub(super) moves: Option<RecordMove>,
    /// Its bitmap, and where that is, bytes: written first. Without a `sector` it is all there is.
    pub(super) bitmap: Option<(u64, Vec<u8>)>,
    /// It has everything: such are written first, and the others only if one of them was.
    pub(super) active: bool,
}

/// A record that moves from an old place.
pub(super) struct RecordMove {
    /// Where it was, bytes.
    pub(super) from: u64,
    /// That place is cleared, so that the old record is not found. It is not cleared if it is
    /// inside the mirror, or inside the range that is being made equal (G6 of `level`).
    pub(super) clears: bool,
    /// The record without its bitmap.
    pub(super) without_bitmap: Vec<u8>,
}

impl RecordWrite {
    /// Whether the place of the record that moves is the new one of the bitmap.
    fn is_under_bitmap(&self, at: u64) -> bool {
        let bitmap = self.bitmap.as_ref();
        bitmap.is_some_and(|(from, bits)| {
            at.checked_sub(*from).is_some_and(|n| n < bits.len() as u64)
        })
    }
}

/// Writes records, each durable, and reports those that could not be written. With `settle`, all
/// earlier writes to the members are made durable first: a member marked clean has all data.
pub(super) fn write_records(shared: &Arc<MirrorShared>, notes: Vec<RecordWrite>, settle: bool) {
    let (shared, notifier) = (shared.clone(), shared.notifier.clone());
    notifier.call(
        0,
        Box::new(move |core| {
            let (on, core) = (core, core.clone());
            let name = shared.name.clone();
            on.spawn_for("mirror records", &name, async move {
                let mut failed = Vec::new();
                if settle {
                    for note in &notes {
                        match core.flush(note.edge).await {
                            Ok(()) | Err(Errno::NotSup) => {}
                            Err(_) => failed.push(note.slot),
                        }
                    }
                }
                let flushed: Vec<&RecordWrite> =
                    notes.iter().filter(|n| !failed.contains(&n.slot)).collect();
                let mut on_record = false;
                for note in flushed {
                    if !note.active && !on_record {
                        break;
                    }
                    match write_one(&core, note).await {
                        Ok(()) => on_record |= note.active,
                        Err(_) => failed.push(note.slot),
                    }
                }
                shared.post(Message::Written(failed));
            });
        }),
    );
}

/// B4: one record is on the disk at any time, and none beside a bitmap that is not there.
async fn write_one(core: &Rc<Core>, note: &RecordWrite) -> Result<(), Errno> {
    core.wait_for_size(note.edge, note.at + note.sector.len() as u64).await;
    let over = note.moves.as_ref().filter(|moves| note.is_under_bitmap(moves.from));
    if let Some(moves) = over
        && !note.sector.is_empty()
    {
        core.write(note.edge, note.at, &moves.without_bitmap).await?;
        flush(core, note.edge).await?;
    }
    if let Some((at, bytes)) = &note.bitmap {
        core.write(note.edge, *at, bytes).await?;
        flush(core, note.edge).await?;
    }
    if note.sector.is_empty() {
        return Ok(());
    }
    core.write(note.edge, note.at, &note.sector).await?;
    flush(core, note.edge).await?;
    match &note.moves {
        Some(moves) if over.is_none() && moves.clears => {
            core.write(note.edge, moves.from, &vec![0; note.sector.len()]).await?;
            // The place becomes visible to users once the mirror has grown: its content must not
            // change then.
            flush(core, note.edge).await
        }
        _ => Ok(()),
    }
}

pub(super) struct Rebuild {
    pub(super) slot: usize,
    pub(super) round: u64,
    pub(super) target: Edge,
    /// The byte ranges to copy, in this order.
    pub(super) runs: Vec<Range<u64>>,
    /// What reads as zeroes on the target does so for good: zeroes that it has are not written.
    pub(super) keeps_zeroes: bool,
    /// The progress is to be recorded: all data up to there is copied.
    pub(super) saves: bool,
}

/// Copies from the members that have everything to one that has not.
pub(super) fn rebuild(shared: &Arc<MirrorShared>, job: Rebuild) {
    let (shared, notifier) = (shared.clone(), shared.notifier.clone());
    notifier.call(
        0,
        Box::new(move |core| {
            let (on, core) = (core, core.clone());
            let name = shared.name.clone();
            on.spawn_for("mirror rebuild", &name, async move {
                let result = copy_all(&core, &shared, &job).await;
                let Rebuild { slot, round, .. } = job;
                if let Some(result) = result {
                    shared.post(Message::Rebuilt { slot, round, result });
                }
            });
        }),
    );
}

/// `None` when the rebuild is no longer wanted.
async fn copy_all(
    core: &Rc<Core>,
    shared: &Arc<MirrorShared>,
    job: &Rebuild,
) -> Option<Result<(), RebuildHalt>> {
    let reactor = core.reactor();
    let mut saved = reactor.fresh_now();
    let mut paid = saved;
    let failed = |e| RebuildHalt::Target(MemberFailure { slot: job.slot, gone: e == Errno::NxIo });
    let is_wanted = || shared.is_wanted(job.slot, job.round);
    let mut done = 0;
    shared.update_meter(job.slot, job.round, |meter| {
        meter.start(saved);
        done = meter.done();
    });
    for run in &job.runs {
        let mut at = run.start;
        while at < run.end {
            if wait_while_paused(core, &shared.throttle, is_wanted).await {
                let now = reactor.fresh_now();
                shared.update_meter(job.slot, job.round, |meter| meter.start(now));
            }
            if !is_wanted() {
                return None;
            }
            let len = shared.tunables.slab_bytes.min(run.end - at);
            let held = shared.ranges.lock_task(at..at + len, true).await;
            let copied = copy(core, shared, job, at, len as usize).await;
            shared.ranges.unlock(held);
            if let Err(halt) = copied {
                return Some(Err(halt));
            }
            at += len;
            done += len;
            let now = reactor.fresh_now();
            shared.update_meter(job.slot, job.round, |meter| meter.advance(now, done));
            let due = now.saturating_sub(saved) >= shared.tunables.save_every_ns;
            if job.saves && due && at < run.end {
                if let Err(e) = flush(core, job.target).await {
                    return Some(Err(failed(e)));
                }
                let Rebuild { slot, round, .. } = *job;
                shared.post(Message::Progress { slot, offset: at, round });
                saved = now;
            }
            let rate = || is_wanted().then(|| shared.throttle.rate());
            paid = wait_for_rate(core, rate, paid, len).await;
        }
    }
    Some(flush(core, job.target).await.map_err(failed))
}

async fn copy(
    core: &Rc<Core>,
    shared: &Arc<MirrorShared>,
    job: &Rebuild,
    at: u64,
    len: usize,
) -> Result<(), RebuildHalt> {
    let sources: Vec<(usize, Edge)> = {
        let core_state = shared.core_state(core.id() as usize);
        core_state.table.active().map(|(slot, path)| (slot, path.edge)).collect()
    };
    let (mut bytes, mut failed) = (None, Vec::new());
    for (slot, edge) in sources {
        match core.read(edge, at, len).await {
            Ok(read) if read.len() == len => {
                bytes = Some(read);
                break;
            }
            Ok(_) => {}
            Err(e) => failed.push(MemberFailure { slot, gone: e == Errno::NxIo }),
        }
    }
    // Without a source the target keeps its role and is released. No member is reported: the last
    // one stays regardless of its failures, and the rebuild would restart and fail for ever.
    let Some(bytes) = bytes else { return Err(RebuildHalt::Source) };
    failed.into_iter().for_each(|failed| shared.post(Message::Failed(failed)));
    let has = job.keeps_zeroes && sparse::is_zero(&bytes);
    if has && sparse::has_zeroes(core, job.target, at, len).await {
        return Ok(());
    }
    core.write(job.target, at, &bytes)
        .await
        .map_err(|e| RebuildHalt::Target(MemberFailure { slot: job.slot, gone: e == Errno::NxIo }))
}
