//! `activate`: members that were deactivated are used again.

use geom::{At, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::{with, write_record};
use crate::members::verb_util;
use crate::mirror::NAME;
use crate::mirror::class::MirrorClass;
use crate::mirror::metadata::{Metadata, disk_flags};
use crate::shared_args::Members;

/// Use deactivated members again
#[derive(Deserialize, JsonSchema)]
pub(super) struct Activate {
    /// Name of the mirror, without the class
    name: String,
    /// Providers of the members
    members: Members,
}

impl Verb<MirrorClass> for Activate {
    const NAME: &'static str = "activate";
    const EXAMPLE: &'static str = "mirror activate data d1";
    const WRITES: bool = true;
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, MirrorClass>) -> Result<MessageAnswer, Error> {
        let on = self.name.as_str();
        for member in &self.members.0 {
            let record = verb_util::read(control, NAME, member, Metadata::decode)?;
            if record.name != geom::bare_name(NAME, on) || !record.has(disk_flags::INACTIVE) {
                let what = format!("{member} is not a deactivated member of {on}");
                return Err(Error::inval(what));
            }
            let flags = record.disk_flags & !disk_flags::INACTIVE;
            write_record(control, member, Some(&Metadata { disk_flags: flags, ..record }))?;
            with(control, on, |_, _, _| Ok(()))?;
        }
        Ok(MessageAnswer::new(format!("{} activated", self.members.0.join(", "))))
    }
}
