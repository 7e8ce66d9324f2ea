//! `rebuild`: a new copy to members.

use geom::{At, Deserialize, Error, JsonSchema, Verb};

use super::remove::keep_one;
use super::{slot, with};
use crate::mirror::class::MirrorClass;
use crate::mirror::geom::Job;
use crate::shared_args::{Members, RebuildAnswer, Wait};

/// Copy the whole contents to members again
#[derive(Deserialize, JsonSchema)]
pub(super) struct Rebuild {
    /// Name of the mirror, without the class
    name: String,
    /// Providers of the members
    members: Members,
    wait: Wait,
}

impl Verb<MirrorClass> for Rebuild {
    const NAME: &'static str = "rebuild";
    const EXAMPLE: &'static str = "mirror rebuild data d1";
    const WRITES: bool = true;
    type Answer = RebuildAnswer;

    fn run(self, (_, control): At<'_, MirrorClass>) -> Result<RebuildAnswer, Error> {
        let on = self.name.as_str();
        for member in &self.members.0 {
            with(control, on, |g, t, me| {
                let slot = slot(g, t, member)?;
                keep_one(&g.mirror, slot, member)?;
                g.push(t, me, Job::RebuildFromStart(slot));
                Ok(())
            })?;
            // It may have become the last meanwhile, and stays as it is.
            with(control, on, |g, t, _| match slot(g, t, member) {
                Ok(slot) => keep_one(&g.mirror, slot, member),
                Err(e) => Err(e),
            })?;
        }
        let message = format!("{} of {on} is rebuilt", self.members.0.join(", "));
        Ok(RebuildAnswer::new(message, on, self.wait))
    }
}
