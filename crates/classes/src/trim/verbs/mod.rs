//! The verbs, a file each; `list` and `status` are those of every class.

mod configure;
mod create;
mod destroy;
mod insert;
mod now;
mod stats;

use std::sync::Arc;

use bio::Errno;
use geom::{ClassVerb, Error, GeomId, GraphControl};

use super::NAME;
use super::class::TrimClass;
use super::geom::TrimGeom;
use super::params::TrimParams;
use super::shared::TrimShared;

pub(super) const VERBS: &[ClassVerb<TrimClass>] = &[
    ClassVerb::of::<insert::Insert>(),
    ClassVerb::of::<create::Create>(),
    ClassVerb::of::<destroy::Destroy>(),
    ClassVerb::of::<configure::Configure>(),
    ClassVerb::of::<now::Now>(),
    ClassVerb::of::<stats::Stats>(),
];

fn queue(control: &mut GraphControl, on: &str) -> Result<(GeomId, Arc<TrimShared>), Error> {
    let geom = geom::named(&control.topology, NAME, on)?;
    let shared = control.topology.with(geom, |g: &mut TrimGeom, _| g.shared.clone());
    let going = || Error::new(Errno::NxIo, format!("{on} is being removed"));
    shared.map(|shared| (geom, shared)).ok_or_else(going)
}

/// Changes how a queue works while requests flow.
pub(super) fn work_as(
    control: &mut GraphControl,
    on: &str,
    change: impl FnOnce(&TrimParams) -> Result<TrimParams, Error>,
) -> Result<(), Error> {
    let (geom, shared) = queue(control, on)?;
    let changed = control.topology.with(geom, |g: &mut TrimGeom, _| {
        let new = change(&g.params)?;
        new.check()?;
        g.params = new.clone();
        Ok(new)
    });
    if let Some(new) = changed.transpose()? {
        shared.delete_queue.configure(new.policy(), new.pacing());
    }
    Ok(())
}
