//! The verb `rotate`: another active path.

use bio::Errno;
use geom::{At, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;

use super::with;
use crate::multipath::class::MultipathClass;
use crate::multipath::geom::MultipathGeom;

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

fn active(g: &MultipathGeom, on: &str) -> Result<String, Error> {
    let one = g.paths.active().and_then(|slot| g.paths.of(slot));
    let none = || {
        let what = format!("{on} has no good path; `ashlar multipath list` shows why");
        Error::new(Errno::NxIo, what)
    };
    one.map(|p| p.name.clone()).ok_or_else(none)
}
