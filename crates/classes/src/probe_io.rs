//! Driver on a core for the disk I/O of classes: probes that read, plans that write.

use std::rc::Rc;

use bio::Errno;
use geom::{Core, Edge};

use crate::probe::{ProbeError, Sectors, Step};
use crate::write_plan::{WritePlan, WriteStep};

/// Runs a probe until it has found or given up; every range it requests is read with `read`.
/// A short read counts as unreadable.
pub(crate) async fn drive<T>(
    sectors: &mut Sectors,
    read: impl AsyncFn(u64, usize) -> Result<Vec<u8>, Errno>,
    probe: impl Fn(&Sectors) -> Step<T>,
) -> Result<T, ProbeError> {
    loop {
        match probe(sectors) {
            Step::Read { offset, len } => match read(offset, len).await {
                Ok(bytes) if bytes.len() == len => sectors.insert(offset, bytes),
                _ => sectors.fail(offset),
            },
            Step::Done(found) => return Ok(found),
            Step::No(why) => return Err(why),
        }
    }
}

pub(crate) async fn carry_out(core: &Rc<Core>, edge: Edge, plan: &WritePlan) -> Result<(), Errno> {
    for step in plan.steps() {
        match step {
            WriteStep::Write { offset, bytes } => {
                core.wait_for_size(edge, offset.saturating_add(bytes.len() as u64)).await;
                core.write(edge, *offset, bytes).await?;
            }
            WriteStep::Flush => flush(core, edge).await?,
        }
    }
    Ok(())
}

/// Makes all written data durable. A device without a cache may report that it has no FLUSH.
pub(crate) async fn flush(core: &Rc<Core>, edge: Edge) -> Result<(), Errno> {
    match core.flush(edge).await {
        Ok(()) | Err(Errno::NotSup) => Ok(()),
        Err(e) => Err(e),
    }
}
