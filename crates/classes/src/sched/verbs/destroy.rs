//! The `destroy` verb: removes schedulers.

use geom::{Class, Control, Deserialize, Error, GeomId, JsonSchema, Said, Verb};

use super::{find, with};
use crate::sched::class::SchedClass;
use crate::words::Force;

/// Take a scheduler away
///
/// One that was inserted is taken out from under those who use it, while they work; waiting
/// requests go to the disk first. If that does not end in time it stays. One that was created and
/// is open goes only with --force.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Destroy {
    /// Schedulers: DISK.sched. or DISK
    #[schemars(length(min = 1))]
    names: Vec<String>,
    force: Force,
}

impl Verb<SchedClass> for Destroy {
    const NAME: &'static str = "destroy";
    const EXAMPLE: &'static str = "sched destroy d0.sched.";
    type Answer = Said;

    fn run(self, class: &SchedClass, control: &mut Control) -> Result<Said, Error> {
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
                return Err(Error::new(e.kind, format!("{name}: {}{before}", e.what)));
            }
            gone.push(name);
        }
        Ok(Said::new(format!("{} destroyed", gone.join(", "))))
    }
}

pub(super) fn take_away(
    class: &SchedClass,
    control: &mut Control,
    geom: GeomId,
    force: bool,
) -> Result<(), Error> {
    match with(control, geom, |g| g.inserted)? {
        true => control.remove(geom),
        false => control.call(|t| class.destroy(t, geom, force)),
    }
}
