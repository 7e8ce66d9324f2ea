//! The verb `deactivate`: members that are not used until they are activated.

use geom::{At, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::remove::remove_member;
use crate::mirror::class::MirrorClass;
use crate::mirror::geom::Removal;
use crate::shared_args::Members;

/// Stop using members until they are activated
#[derive(Deserialize, JsonSchema)]
pub(super) struct Deactivate {
    /// Name of the mirror, without the class
    name: String,
    /// Providers of the members
    members: Members,
}

impl Verb<MirrorClass> for Deactivate {
    const NAME: &'static str = "deactivate";
    const EXAMPLE: &'static str = "mirror deactivate data d1";
    const WRITES: bool = true;
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, MirrorClass>) -> Result<MessageAnswer, Error> {
        let members = &self.members.0;
        members.iter().try_for_each(|member| {
            remove_member(control, &self.name, member, Removal::Deactivated)
        })?;
        Ok(MessageAnswer::new(format!("{} deactivated", members.join(", "))))
    }
}
