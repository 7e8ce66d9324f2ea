//! Commit and undo of edits.
//!
//! Invariants
//!  C1  The steps of a plan are written to the disk one by one in their order, each waited for. The
//!      state after a power cut is therefore the one that the plan promises (plan.rs, W1 to W5).
//!  C2  A commit that fails keeps the edits and the disk. It can be tried again, since a plan
//!      carried out twice ends as carried out once.

use std::collections::BTreeSet;

use bio::Errno;
use geom::{Access, Error, Event, GeomId, GraphControl};

use super::class::refusal;
use super::geom::{Edits, PartGeom, TableLocation};
use super::verbs::with;
use super::{PartError, Scheme, Table, committed, destroy_plan, plan};
use crate::slice;
use crate::write_plan::{WritePlan, WriteStep};

/// The writes that turn the table on the media into the edited one. `written` holds the indexes
/// that are open for writing.
fn full_plan(
    media: Option<&Table>,
    table: Option<&Table>,
    edits: &Edits,
    written: &BTreeSet<u32>,
) -> Result<WritePlan, PartError> {
    let all = table_plan(media, table, edits)?;
    // Behind the table: bootcode.rs, O2.
    let Some(table) = table else { return Ok(all) };
    edits.code.iter().try_fold(all, |all, code| Ok(all.then(code.plan(table, written)?)))
}

fn table_plan(
    media: Option<&Table>,
    table: Option<&Table>,
    edits: &Edits,
) -> Result<WritePlan, PartError> {
    let gone = || media.map(destroy_plan).unwrap_or_default();
    let Some(table) = table else {
        return Ok(gone());
    };
    let mut all = WritePlan::default();
    let mut before = media.cloned();
    if edits.fresh {
        all = gone().then(edits.wipe.clone());
        before = None;
    }
    if table.scheme() != Scheme::Ebr {
        return Ok(all.then(plan(before.as_ref(), table)?));
    }
    // A chain changes by one edit at a time.
    for step in &edits.steps {
        all = all.then(plan(before.as_ref(), step)?);
        before = Some(committed(step)?);
    }
    Ok(all)
}

/// Writes the edits and closes the disk.
pub(super) fn commit(control: &mut GraphControl, geom: GeomId) -> Result<(), Error> {
    let name = control.topology.geom_name(geom).to_owned();
    let nothing = || {
        let what = format!(
            "{name} has no pending changes; verbs of `ashlar part` make some with --no-commit"
        );
        Error::new(Errno::Perm, what)
    };
    let (steps, after) = with(&mut control.topology, geom, |part, topology| {
        let edits = part.edits.as_ref().ok_or_else(nothing)?;
        let table = part.table.as_ref();
        let written = part.written(topology);
        let steps = full_plan(part.media.as_ref(), table, edits, &written).map_err(refusal)?;
        Ok::<_, Error>((steps, table.map(committed).transpose().map_err(refusal)?))
    })??;
    if let Err(error) = write(control, geom, steps) {
        with(&mut control.topology, geom, |part, _| {
            if let Some(edits) = &mut part.edits {
                edits.torn = true;
            }
        })?;
        let what = format!(
            "{name}: {}; it holds the old table or the new one: `part commit {name}` tries again, \
             `part undo {name}` reads the table again",
            error.message
        );
        return Err(Error::new(error.kind, what));
    }
    control.call(|topology| {
        let (gone, synced) = with(topology, geom, |part, topology| {
            let edits = part.edits.take().unwrap_or_default();
            part.media = after.clone();
            part.table = after;
            let synced = part.sync(topology, geom, TableLocation::OnMedia);
            let open = part.open(topology);
            let to_notify = edits.touched.difference(&open).copied().collect();
            for provider in part.providers(&to_notify) {
                topology.post(Event::MediaChanged(provider));
            }
            (part.table.is_none(), synced)
        })?;
        close(topology, geom);
        if gone {
            PartGeom::abandon(topology, geom, Errno::NxIo);
        }
        synced
    })
}

/// Forgets the edits and closes the disk.
pub(super) fn undo(control: &mut GraphControl, geom: GeomId) -> Result<(), Error> {
    let name = control.topology.geom_name(geom).to_owned();
    control.call(|topology| {
        let again = with(topology, geom, |part, topology| {
            let Some(edits) = &part.edits else {
                let what = format!("{name} has no pending changes; see `ashlar part show {name}`");
                return Err(Error::new(Errno::Perm, what));
            };
            if edits.torn || edits.resized {
                // What counts is on the media.
                part.refuses(topology, geom, None)?;
                return Ok(true);
            }
            part.refuses(topology, geom, part.media.as_ref())?;
            let edited = std::mem::replace(&mut part.table, part.media.clone());
            if let Err(error) = part.sync(topology, geom, TableLocation::OnMedia) {
                part.table = edited;
                return Err(error);
            }
            part.edits = None;
            Ok(part.table.is_none())
        })??;
        match again {
            // Closing makes every class look again, this one too.
            true => PartGeom::abandon(topology, geom, Errno::NxIo),
            false => close(topology, geom),
        }
        Ok(())
    })
}

fn close(topology: &mut geom::Topology, geom: GeomId) {
    let closed = slice::pass(topology, geom, Access::EXCLUSIVE.inverse());
    debug_assert!(closed.is_ok(), "a pure close never fails");
}

/// C1.
fn write(control: &mut GraphControl, geom: GeomId, plan: WritePlan) -> Result<(), Error> {
    let gone = || Error::new(Errno::NxIo, "the disk was removed");
    let consumer = *control.topology.consumers_of(geom).first().ok_or_else(gone)?;
    let edge = control.topology.edge(consumer);
    // The core must walk the graph that has this edge before it is used.
    control.settle()?;
    let written = control.run_on_core("part: writing the table", move |core| {
        Box::pin(async move {
            for step in plan.steps() {
                match step {
                    WriteStep::Write { offset, bytes } => {
                        let done = core.write(edge, *offset, bytes).await;
                        done.map_err(|e| (e, format!("writing at byte {offset}")))?;
                    }
                    WriteStep::Flush => {
                        core.flush(edge).await.map_err(|e| (e, "flushing".to_owned()))?;
                    }
                }
            }
            Ok::<(), (Errno, String)>(())
        })
    })?;
    written.map_err(|(errno, what)| Error::new(errno, format!("{what} failed: {}", errno.text())))
}
