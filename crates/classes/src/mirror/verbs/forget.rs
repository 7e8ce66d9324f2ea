//! `forget`: members that are not expected any more.

use bio::Errno;
use geom::{At, Deserialize, Error, GraphControl, JsonSchema, MessageAnswer, Verb};

use super::{runs, with};
use crate::mirror::class::MirrorClass;
use crate::mirror::geom::{Job, MirrorGeom};
use crate::shared_args::each;

/// Stop expecting missing members
#[derive(Deserialize, JsonSchema)]
pub(super) struct Forget {
    /// Names of the mirrors, without the class
    #[schemars(length(min = 1))]
    names: Vec<String>,
}

impl Verb<MirrorClass> for Forget {
    const NAME: &'static str = "forget";
    const EXAMPLE: &'static str = "mirror forget data";
    const WRITES: bool = true;
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, MirrorClass>) -> Result<MessageAnswer, Error> {
        each("", &self.names, |on| forget(control, on))
    }
}

/// A mirror expects the members that it has.
pub(super) fn forget(control: &mut GraphControl, on: &str) -> Result<MessageAnswer, Error> {
    let count = with(control, on, |g, t, me| {
        // Without a running mirror no record could be written.
        runs(&g.mirror)?;
        let count = g.mirror.members().count();
        g.mirror.count_only(count as u8);
        g.push(t, me, Job::Rewrite);
        Ok(count)
    })?;
    with(control, on, |g, _, _| on_record(g))?;
    let members = if count == 1 { "member" } else { "members" };
    Ok(MessageAnswer::new(format!("{on} has {count} {members} now")))
}

/// Checks that the last change is on record. Otherwise absent members do not know of it, and may
/// start without the present ones.
pub(super) fn on_record(g: &MirrorGeom) -> Result<(), Error> {
    if g.is_on_record() {
        return Ok(());
    }
    let what = format!(
        "the records of {0} cannot be written, so no other member can be taken in: `ashlar mirror \
         forget {0}` again when its disks take writes. If they never will, copy what can be read \
         to another disk and `ashlar mirror stop {0}`",
        g.mirror.name
    );
    Err(Error::new(Errno::Io, what))
}
