//! Verbs of the class, as in geom_sched, and `stats`: a file each.

mod configure;
mod create;
mod destroy;
mod insert;
mod reset;
mod stats;

use bio::Errno;
use geom::{ClassVerb, Error, GeomId, GraphControl};

use super::class::SchedClass;
use super::geom::SchedGeom;
use super::{NAME, queue};

pub(super) const VERBS: &[ClassVerb<SchedClass>] = &[
    ClassVerb::of::<insert::Insert>(),
    ClassVerb::of::<create::Create>(),
    ClassVerb::of::<configure::Configure>(),
    ClassVerb::of::<destroy::Destroy>(),
    ClassVerb::of::<stats::Stats>(),
    ClassVerb::of::<reset::Reset>(),
];

/// A scheduler by its own name or that of its disk.
fn find(control: &GraphControl, name: &str) -> Result<GeomId, Error> {
    let own = control.topology.find_geom(NAME, geom::bare_name(NAME, name));
    match own.or_else(|| control.topology.find_geom(NAME, &format!("{name}.{NAME}."))) {
        Some(geom) => Ok(geom),
        None => geom::named(&control.topology, NAME, name),
    }
}

fn with<R>(
    control: &mut GraphControl,
    geom: GeomId,
    f: impl FnOnce(&mut SchedGeom) -> R,
) -> Result<R, Error> {
    let going = || Error::new(Errno::NxIo, "the scheduler is being removed");
    control.topology.with(geom, |g: &mut SchedGeom, _| f(g)).ok_or_else(going)
}

/// Changes a scheduler while requests flow.
pub(super) fn work_as(
    control: &mut GraphControl,
    on: &str,
    change: impl FnOnce(&mut queue::DiskQueue, u64) -> Result<(), Error>,
) -> Result<GeomId, Error> {
    let (geom, now) = (find(control, on)?, control.now_ns());
    with(control, geom, |g| g.shared.update(|hub| change(hub, now)))??;
    // Another algorithm may share the disk out, or no longer.
    let providers = control.topology.providers_of(geom).to_vec();
    control.call(|t| {
        providers.iter().for_each(|p| t.below_changed(*p));
        Ok(())
    })?;
    Ok(geom)
}

/// Schedulers by name; all of them when none is named.
fn chosen(control: &GraphControl, names: &[String]) -> Result<Vec<GeomId>, Error> {
    if names.is_empty() {
        return Ok(control.topology.class_view(NAME, 0).iter().map(|g| g.id).collect());
    }
    names.iter().map(|name| find(control, name)).collect()
}
