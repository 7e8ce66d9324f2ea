//! Tasks of a multipath device on core 0: checks of failed paths, the record.

use std::rc::Rc;
use std::sync::Arc;

use bio::Errno;
use geom::{Core, Edge, Local, Notice};

use super::shared::{Message, MultipathShared};
use crate::probe_io::flush;

/// Reads the first sector through a path and reports whether that succeeded.
pub(super) fn check_path(
    shared: &Arc<MultipathShared>,
    edge: Edge,
    sector: usize,
    slot: usize,
    round: u16,
) {
    let (shared, notifier) = (shared.clone(), shared.notifier.clone());
    notifier.call(
        0,
        Box::new(move |core| {
            let (on, core) = (core, core.clone());
            let name = shared.name.clone();
            on.spawn_for("multipath checker", &name, async move {
                let message = match core.read(edge, 0, sector).await {
                    Ok(bytes) if bytes.len() == sector => Message::Works { slot, round },
                    _ => Message::StillBad { slot },
                };
                shared.post(message);
            });
        }),
    );
}

/// A record to write and its place, before and after.
pub(super) struct RecordWrite {
    /// Ways to the disk, the best first.
    pub(super) edges: Vec<Edge>,
    pub(super) at: u64,
    pub(super) sector: Vec<u8>,
    /// The place of the old record, if another: cleared when the new one is durable.
    pub(super) old: Option<u64>,
}

/// Writes the record through the first path that accepts it, and notifies the geom.
pub(super) fn write(note: RecordWrite) -> geom::Task {
    Box::new(move |core: &Rc<Core>| -> Local<'_, Notice> {
        Box::pin(async move {
            let mut done = Err(Errno::NxIo);
            for edge in &note.edges {
                done = write_by(core, *edge, &note).await;
                if done.is_ok() {
                    break;
                }
            }
            let notice: Notice = Box::new(Message::Written(done));
            notice
        })
    })
}

async fn write_by(core: &Rc<Core>, edge: Edge, note: &RecordWrite) -> Result<(), Errno> {
    core.write(edge, note.at, &note.sector).await?;
    flush(core, edge).await?;
    if let Some(old) = note.old {
        core.write(edge, old, &vec![0; note.sector.len()]).await?;
        flush(core, edge).await?;
    }
    Ok(())
}
