//! One path of a device, as the argument of verbs.

use bio::Errno;
use geom::{Deserialize, Error, GeomId, GraphControl, JsonSchema, MessageAnswer, Topology};

use super::with;
use crate::multipath::geom::MultipathGeom;

/// Arguments of the verbs about one path.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct Path {
    /// Name of the multipath geom, without the class
    pub(super) name: String,
    /// Provider of the path
    pub(super) member: String,
}

impl Path {
    /// Changes a path; `done` is the word for its new state.
    pub(super) fn change(
        &self,
        control: &mut GraphControl,
        done: &str,
        f: impl FnOnce(&mut MultipathGeom, &mut Topology, GeomId, usize) -> Result<(), Error>,
    ) -> Result<MessageAnswer, Error> {
        let Path { name: on, member } = self;
        change(control, on, member, f)?;
        Ok(MessageAnswer::new(format!("{on}: {member} {done}")))
    }
}

/// Applies `f` to a path by its slot.
pub(super) fn change(
    control: &mut GraphControl,
    on: &str,
    member: &str,
    f: impl FnOnce(&mut MultipathGeom, &mut Topology, GeomId, usize) -> Result<(), Error>,
) -> Result<(), Error> {
    with(control, on, |g, t, me| {
        let Some(slot) = g.paths.called(member).map(|p| p.slot) else {
            let what = format!("{member} is no path of {on}; `ashlar multipath list` shows them");
            return Err(Error::new(Errno::NoEnt, what));
        };
        f(g, t, me, slot)
    })
}
