//! Check of a plan's step in advance, by names.

use disks::DISK_CLASS;
use geom::{GeomId, Topology};
use mgmt::api::{Error, Kind, Result};
use mgmt::plan::{Action, Step};

use crate::errors::{find_persistent, no_provider};
use crate::mailbox::PriorSteps;

/// Checks that no geom above keeps the object to be removed. A plan does not make a geom release
/// it: the removal of a member from a mirror, for example, is a verb of the mirror.
fn is_free(topology: &Topology, class: &str, name: &str, going: &[(String, String)]) -> Result<()> {
    let Some(geom) = topology.find_geom(class, name) else { return Ok(()) };
    let goes =
        |g: GeomId| going.iter().any(|(class, name)| topology.find_geom(class, name) == Some(g));
    let Some((keeper, command)) = topology.held_open_by(geom, &goes) else { return Ok(()) };
    let why = format!("{keeper} uses it; type `{command}` first");
    Err(Error::new(Kind::Busy, "remove", why).at(name))
}

/// Would `step` succeed? Looks at names only: errors of a disk or a socket show when the step is
/// carried out, and the step is taken back then. `prior`: the effects of the steps before it.
/// `may_wait`: units that may do without their provider.
pub fn check(
    topology: &Topology,
    step: &Step,
    prior: &PriorSteps,
    may_wait: &dyn Fn(&str) -> bool,
) -> Result<()> {
    let need = |name: &str, op: &str| match topology.find(name) {
        None if prior.may_provide(name) => Ok(()),
        _ => find_persistent(topology, op, name).map(drop),
    };
    match &step.action {
        Action::RemoveDisk { disk } => {
            is_free(topology, DISK_CLASS, &disk.name, &prior.removed_geoms)
        }
        Action::RemoveGeom { geom } => {
            is_free(topology, &geom.class, &geom.name, &prior.removed_geoms)
        }
        Action::CreateGeom { geom } => {
            geom.provider_names().try_for_each(|name| need(name, "create geom"))
        }
        Action::CreateAccess { .. } | Action::ModifyAccess { .. } | Action::Regroup { .. } => {
            // Nearly all are there; the missing ones are looked for in the whole graph.
            let luns = step.action.groups().flat_map(|access| access.luns.values());
            luns.map(|lun| lun.provider.as_str()).try_for_each(|name| match need(name, "export") {
                // It is there as long as the step has not been reached.
                Ok(()) if prior.takes(name) => Err(no_provider(topology, "export", name)),
                Err(_) if may_wait(name) => Ok(()),
                done => done,
            })
        }
        _ => Ok(()),
    }
}
