//! The `fail` verb: takes disks out of use.

use geom::{At, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::{ArrayName, disk, readd_command, spare_of, still_needed, with};
use crate::raid::class::RaidClass;
use crate::raid::geom::{Job, Loss};
use crate::shared_args::Members;

/// Mark disks as failed; they are no longer used
#[derive(Deserialize, JsonSchema)]
pub(super) struct Fail {
    name: ArrayName,
    /// Providers of the disks
    members: Members,
}

impl Verb<RaidClass> for Fail {
    const NAME: &'static str = "fail";
    const EXAMPLE: &'static str = "raid fail Intel-1234abcd d1";
    const WRITES: bool = true;
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, RaidClass>) -> Result<MessageAnswer, Error> {
        let on = self.name.0.as_str();
        for name in &self.members.0 {
            let tag = with(control, on, |g, t, me| {
                let tag = disk(g, name)?;
                spare_of(g, tag, name)?;
                g.push(t, me, Job::Out(tag, Loss::ByHand));
                Ok(tag)
            })?;
            if with(control, on, |g, _, _| Ok(g.disks.contains_key(&tag)))? {
                return Err(still_needed(name));
            }
        }
        let set = with(control, on, |g, _, _| Ok(g.id.name()))?;
        let names = self.members.0.join(", ");
        let how = readd_command(&self.members.0.join(" "), &set);
        Ok(MessageAnswer::new(format!("{names} of {on} failed; {how}")))
    }
}
