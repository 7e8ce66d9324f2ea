//! The verb `insert`: a scheduler under the users of a disk.

use geom::{At, Class, Create as Request, Error, GeomId, GraphControl, JsonSchema, Verb};
use serde::{Deserialize, Serialize};

use super::destroy::take_away;
use super::with;
use crate::members::provider_access;
use crate::sched::NAME;
use crate::sched::class::SchedClass;
use crate::sched::params::SchedParams;

/// Arguments of `insert` and `create`.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct InsertParams {
    /// Providers that receive a scheduler
    #[schemars(length(min = 1))]
    disks: Vec<String>,
    #[serde(flatten)]
    params: SchedParams,
}

/// Which schedulers there are now.
#[derive(Serialize, JsonSchema)]
pub(super) struct InsertAnswer {
    /// Result in one sentence.
    message: String,
    /// Names of the schedulers.
    names: Vec<String>,
}

/// Insert a scheduler under a disk without disturbing its users
///
/// Users of the disk stay open and mounted, and their requests pass through the scheduler. The
/// scheduler's provider has the name of the disk, also for new consumers. The disk's own provider
/// is named DISK.sched. until the scheduler is destroyed. If requests in progress do not end in
/// time, nothing is changed. An inserted scheduler is not part of the configuration, in which
/// DISK.sched. cannot be named, and does not exist after the next start.
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Insert(InsertParams);

impl Verb<SchedClass> for Insert {
    const NAME: &'static str = "insert";
    const POSITIONAL: &'static [&'static str] = &["disks"];
    const EXAMPLE: &'static str = "sched insert -a rr d0";
    type Answer = InsertAnswer;

    fn run(self, (class, control): At<'_, SchedClass>) -> Result<InsertAnswer, Error> {
        place(class, control, self.0, true)
    }
}

/// Places a scheduler over each disk, or over none of them.
pub(super) fn place(
    class: &SchedClass,
    control: &mut GraphControl,
    params: InsertParams,
    inserts: bool,
) -> Result<InsertAnswer, Error> {
    let InsertParams { disks, params } = params;
    let params = serde_json::to_value(params).unwrap_or_default();
    let below: Vec<_> =
        disks.iter().map(|disk| provider_access::find(control, disk)).collect::<Result<_, _>>()?;
    let (mut created, mut geoms) = (Vec::new(), Vec::new());
    for (disk, below) in disks.iter().zip(below) {
        let name = format!("{disk}.{NAME}.");
        let placed = if inserts {
            let create = Request { name: &name, members: &[], params: &params };
            let geom = control.insert(NAME, below, &create);
            geom.and_then(|geom| with(control, geom, |g| g.inserted = true).map(|()| geom))
        } else {
            let create = Request { name: &name, members: &[below], params: &params };
            control.call(|t| class.create(t, &create))
        };
        match placed {
            Ok(geom) => geoms.push(geom),
            Err(e) => return Err(undo_created(class, control, geoms, e)),
        }
        created.push(name);
    }
    let what = if inserts { "inserted" } else { "created" };
    Ok(InsertAnswer { message: format!("{} {what}", created.join(", ")), names: created })
}

/// All or none: those that were made before the one that failed are removed again.
fn undo_created(
    class: &SchedClass,
    control: &mut GraphControl,
    geoms: Vec<GeomId>,
    why: Error,
) -> Error {
    for geom in geoms.into_iter().rev() {
        let name = control.topology.geom_name(geom).to_owned();
        if let Err(e) = take_away(class, control, geom, false) {
            let what = format!(
                "{}; {name} was created and could not be destroyed: {}",
                why.message, e.message
            );
            return Error::new(why.kind, what);
        }
    }
    why
}
