//! `rotate`, `getactive`: the path that requests go by.

use bio::Errno;
use geom::{At, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;

use super::with;
use crate::multipath::class::MultipathClass;
use crate::multipath::geom::MultipathGeom;
use crate::multipath::paths::PathEntry;

/// Make the next good path the active one
#[derive(Deserialize, JsonSchema)]
pub(super) struct Rotate {
    /// Name of the multipath geom, without the class
    name: String,
}

/// The active path.
#[derive(Serialize, JsonSchema)]
pub(super) struct RotateAnswer {
    /// Result in one sentence.
    message: String,
    /// Name of the active path.
    active: String,
}

impl Verb<MultipathClass> for Rotate {
    const NAME: &'static str = "rotate";
    const EXAMPLE: &'static str = "multipath rotate data";
    type Answer = RotateAnswer;

    fn run(self, (_, control): At<'_, MultipathClass>) -> Result<RotateAnswer, Error> {
        let on = self.name.as_str();
        let (rotated, name) = with(control, on, |g, t, me| {
            let rotated = g.rotate(t, me);
            Ok((rotated, active(g, on)?))
        })?;
        match rotated {
            true => Ok(RotateAnswer { message: format!("{on}: {name} active"), active: name }),
            false => {
                let what = format!("{on} has no other good path than {name}");
                Err(Error::new(Errno::NxIo, what))
            }
        }
    }
}

/// Show the active path
#[derive(Deserialize, JsonSchema)]
pub(super) struct GetActive {
    /// Name of the multipath geom, without the class
    name: String,
}

/// The active paths.
#[derive(Serialize, JsonSchema)]
pub(super) struct GetActiveAnswer {
    /// Names of the active paths; `none` without one.
    message: String,
    /// Names of the active paths.
    active: Vec<String>,
}

impl Verb<MultipathClass> for GetActive {
    const NAME: &'static str = "getactive";
    const EXAMPLE: &'static str = "multipath getactive data";
    type Answer = GetActiveAnswer;

    /// All that requests go by: with Active/Active each path that is good and no worse than
    /// another; `none` where there are none, as gmultipath(8) says it.
    fn run(self, (_, control): At<'_, MultipathClass>) -> Result<GetActiveAnswer, Error> {
        let on = self.name.as_str();
        let names: Vec<String> = with(control, on, |g, _, _| {
            let is_active =
                |p: &&PathEntry| g.paths.path_state_str(p.slot, g.identity.mode) == "ACTIVE";
            Ok(g.paths.all().iter().filter(is_active).map(|p| p.name.clone()).collect())
        })?;
        let message = if names.is_empty() { "none".to_owned() } else { names.join(" ") };
        Ok(GetActiveAnswer { message, active: names })
    }
}

fn active(g: &MultipathGeom, on: &str) -> Result<String, Error> {
    let one = g.paths.active().and_then(|slot| g.paths.of(slot));
    let none = || {
        let what = format!("{on} has no good path; `ashlar multipath list` shows why");
        Error::new(Errno::NxIo, what)
    };
    one.map(|p| p.name.clone()).ok_or_else(none)
}
