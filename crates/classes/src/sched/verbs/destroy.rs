//! The `destroy` verb: removes schedulers.

use geom::{At, Class, Deserialize, Error, GeomId, GraphControl, JsonSchema, MessageAnswer, Verb};

use super::{find, with};
use crate::sched::class::SchedClass;
use crate::shared_args::Force;

/// Remove a scheduler
///
/// An inserted scheduler is removed without disturbing its users; waiting requests are sent to the
/// disk first. If this does not end in time, the scheduler stays. A created scheduler that is open
/// is removed only with --force.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Destroy {
    /// Schedulers: DISK.sched. or DISK
    #[schemars(length(min = 1))]
    names: Vec<String>,
    /// Remove a created scheduler even if its provider is open
    force: Force,
}

impl Verb<SchedClass> for Destroy {
    const NAME: &'static str = "destroy";
    const EXAMPLE: &'static str = "sched destroy d0.sched.";
    type Answer = MessageAnswer;

    fn run(self, (class, control): At<'_, SchedClass>) -> Result<MessageAnswer, Error> {
        let geoms: Vec<_> =
            self.names.iter().map(|name| find(control, name)).collect::<Result<_, _>>()?;
        let mut gone: Vec<String> = Vec::new();
        for geom in geoms {
            let name = control.topology.geom_name(geom).to_owned();
            if let Err(e) = take_away(class, control, geom, self.force.0) {
                let before = match gone.is_empty() {
                    true => String::new(),
                    false => format!("; destroyed before that: {}", gone.join(", ")),
                };
                return Err(Error::new(e.kind, format!("{name}: {}{before}", e.message)));
            }
            gone.push(name);
        }
        Ok(MessageAnswer::new(format!("{} destroyed", gone.join(", "))))
    }
}

pub(super) fn take_away(
    class: &SchedClass,
    control: &mut GraphControl,
    geom: GeomId,
    force: bool,
) -> Result<(), Error> {
    match with(control, geom, |g| g.inserted)? {
        true => control.remove(geom),
        false => control.call(|t| class.destroy(t, geom, force)),
    }
}
