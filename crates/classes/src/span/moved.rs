//! Label move of a member that grew: its label is written at its new end.
//!
//! ```text
//!   resized --> new label, durable --> old label cleared --> Moved --> the new space is used
//! ```
//!
//! A power cut leaves the old label, where no class reads it, the new one, or both. Both are the
//! same except for the size, and only a label in the last sector is ever read.

use std::rc::Rc;

use bio::Errno;
use geom::{ConsumerId, Core, Edge, GeomId, Topology};

use super::Span;
use crate::members::frame;
use crate::probe_io::flush;

/// A message to the geom.
pub(super) struct LabelMoved {
    pub(super) consumer: ConsumerId,
    /// Bytes that the member gives now, or why its label stays where it was.
    pub(super) done: Result<u64, String>,
}

struct LabelMove {
    edge: Edge,
    /// Where the label is, and where it is to be, bytes.
    from: u64,
    to: u64,
    sector_bytes: u32,
    media_bytes: u64,
}

/// Rewrites the label of a member, stored at `from` until now. False when the end has not moved.
pub(super) fn move_label<S: Span>(
    t: &Topology,
    me: GeomId,
    consumer: ConsumerId,
    from: u64,
) -> bool {
    let below = t.below(consumer);
    let Some((below, limits)) = below.and_then(|p| Some((p, t.limits(p)?))) else { return false };
    let (sector_bytes, media_bytes) = (limits.sector_bytes, limits.media_bytes);
    let to = frame::last_sector(sector_bytes, media_bytes).filter(|to| *to > from);
    let Some(to) = to else { return false };
    let name = t.provider_name(below).to_owned();
    let (job, notifier) =
        (LabelMove { edge: t.edge(consumer), from, to, sector_bytes, media_bytes }, t.notifier());
    let answers = notifier.clone();
    notifier.call(
        0,
        Box::new(move |core| {
            let core = core.clone();
            core.reactor().clone().spawn("label", async move {
                let done = carry::<S>(&core, &job).await.map(|()| job.to).map_err(|e| {
                    format!("that of {name} cannot be written at its new end: {}", e.text())
                });
                answers.post(me, Box::new(LabelMoved { consumer, done }));
            });
        }),
    );
    true
}

async fn carry<S: Span>(core: &Rc<Core>, job: &LabelMove) -> Result<(), Errno> {
    let len = job.sector_bytes as usize;
    core.wait_for_size(job.edge, job.media_bytes).await;
    let old = core.read(job.edge, job.from, len).await?;
    let mut label = S::decode(&old).map_err(|_| Errno::Inval)?;
    label.provider_bytes = job.media_bytes;
    let mut sector = S::encode(&label);
    sector.resize(len, 0);
    put(core, job.edge, job.to, &sector).await?;
    put(core, job.edge, job.from, &vec![0; len]).await
}

/// Writes, and has it durable.
async fn put(core: &Rc<Core>, edge: Edge, at: u64, bytes: &[u8]) -> Result<(), Errno> {
    core.write(edge, at, bytes).await?;
    flush(core, edge).await
}
