//! Records are written by a task on core 0, one disk after the other: no more than one is ever
//! torn.

use std::rc::Rc;

use bio::Errno;
use geom::{Core, Edge, GeomId, Switchboard};

use super::geom::Told;
use super::set::Tag;
use crate::part::{WritePlan, WriteStep};

/// What one disk shall say.
pub(super) struct Note {
    pub(super) tag: Tag,
    pub(super) edge: Edge,
    pub(super) plan: WritePlan,
}

async fn flush(core: &Rc<Core>, edge: Edge) -> Result<(), Errno> {
    match core.flush(edge).await {
        Ok(()) | Err(Errno::NotSup) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Carries out a plan on a disk.
pub(super) async fn carry_out(core: &Rc<Core>, edge: Edge, plan: &WritePlan) -> Result<(), Errno> {
    for step in plan.steps() {
        match step {
            WriteStep::Write { offset, bytes } => core.write(edge, *offset, bytes).await?,
            WriteStep::Flush => flush(core, edge).await?,
        }
    }
    Ok(())
}

/// Writes records, each durable; tells who could not be written, and why. With `settle` everything
/// written to the disks before is made durable first, and nothing is written if it cannot be: what
/// is marked clean is all there.
pub(super) fn write(board: Switchboard, geom: GeomId, notes: Vec<Note>, settle: bool) {
    let back = board.clone();
    board.call(
        0,
        Box::new(move |core| {
            let core = core.clone();
            core.reactor().clone().spawn("raid records", async move {
                let mut failed = Vec::new();
                for note in notes.iter().filter(|_| settle) {
                    if let Err(e) = flush(&core, note.edge).await {
                        failed.push((note.tag, e));
                    }
                }
                if !failed.is_empty() {
                    return back.tell(geom, Box::new(Told::Unsettled(failed)));
                }
                for note in &notes {
                    if let Err(e) = carry_out(&core, note.edge, &note.plan).await {
                        failed.push((note.tag, e));
                    }
                }
                back.tell(geom, Box::new(Told::Written(failed)));
            });
        }),
    );
}

/// Says something to the geom after a while.
pub(super) fn after(board: Switchboard, geom: GeomId, ns: u64, told: Told) {
    let back = board.clone();
    board.call(
        0,
        Box::new(move |core| {
            let core = core.clone();
            core.reactor().clone().spawn("raid timer", async move {
                core.reactor().sleep(ns).await;
                back.tell(geom, Box::new(told));
            });
        }),
    );
}
