//! Writing of records, by a task on core 0, one disk after the other: no more than one is ever
//! torn.

use std::sync::Arc;

use geom::{Edge, GeomId, Notifier};

use super::geom::Message;
use super::members::Tag;
use super::volume::VolumeShared;
use crate::probe_io::{carry_out, flush};
use crate::write_plan::WritePlan;

/// The record to be written to one disk.
pub(super) struct RecordWrite {
    pub(super) tag: Tag,
    pub(super) edge: Edge,
    pub(super) plan: WritePlan,
}

/// Logs that are begun before a record marks their volume dirty, and the disks they are on,
/// by slot.
pub(super) struct LogStart {
    pub(super) shared: Arc<VolumeShared>,
    pub(super) tags: Vec<Option<Tag>>,
}

/// Work of one write of records.
pub(super) struct RecordBatch {
    /// The array's name.
    pub(super) of: String,
    pub(super) notes: Vec<RecordWrite>,
    /// Everything written to the disks before is made durable first, and nothing is written if this
    /// fails: data marked clean is complete.
    pub(super) settle: bool,
    pub(super) logs: Vec<LogStart>,
    /// Volumes with a log whose rows under way end first (L6 of `volume::log`).
    pub(super) quiesce: Vec<Arc<VolumeShared>>,
}

/// Writes records, each durable. Reports the disks that failed, with their errors, and the disk
/// whose record was left unchanged.
pub(super) fn write(notifier: Notifier, geom: GeomId, work: RecordBatch) {
    let RecordBatch { of, notes, settle, logs, quiesce: calm } = work;
    let back = notifier.clone();
    notifier.call(
        0,
        Box::new(move |core| {
            let (on, core) = (core, core.clone());
            on.spawn_for("raid records", &of, async move {
                let mut failed = Vec::new();
                for LogStart { shared, tags } in &logs {
                    let Some(log) = shared.log() else { continue };
                    for (slot, error) in log.ready(&core, shared).await {
                        let tag = tags.get(slot).copied().flatten();
                        failed.extend(tag.map(|tag| (tag, error)));
                    }
                }
                for log in calm.iter().filter_map(|shared| shared.log()) {
                    log.quiesce().await;
                }
                for note in notes.iter().filter(|_| settle) {
                    if let Err(e) = flush(&core, note.edge).await {
                        failed.push((note.tag, e));
                    }
                }
                if !failed.is_empty() {
                    return back.post(geom, Box::new(Message::Unsettled(failed)));
                }
                let mut left = None;
                for (nth, note) in notes.iter().enumerate() {
                    // The newest is written last. If no other disk took its record, this one is
                    // left unchanged: no other record would describe its disk if it were torn.
                    if nth > 0 && nth + 1 == notes.len() && failed.len() == nth {
                        left = Some(note.tag);
                    } else if let Err(e) = carry_out(&core, note.edge, &note.plan).await {
                        failed.push((note.tag, e));
                    }
                }
                back.post(geom, Box::new(Message::Written { failed, left }));
            });
        }),
    );
}
