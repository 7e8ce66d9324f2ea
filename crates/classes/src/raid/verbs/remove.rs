//! The `remove` verb: removes disks permanently.

use bio::Errno;
use geom::{At, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::{ArrayName, disk, spare_of, still_needed, with};
use crate::members::provider_access;
use crate::probe_io::carry_out;
use crate::raid::assemble::Found;
use crate::raid::class::RaidClass;
use crate::raid::geom::{Job, Loss};
use crate::raid::{ddf, imsm};
use crate::shared_args::Members;

/// Remove disks permanently and clear their metadata
#[derive(Deserialize, JsonSchema)]
pub(super) struct Remove {
    name: ArrayName,
    /// Providers of the disks
    members: Members,
}

impl Verb<RaidClass> for Remove {
    const NAME: &'static str = "remove";
    const EXAMPLE: &'static str = "raid remove Intel-1234abcd d1";
    const WRITES: bool = true;
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, RaidClass>) -> Result<MessageAnswer, Error> {
        let on = self.name.0.as_str();
        for name in &self.members.0 {
            let on_disk = provider_access::find(control, name)?;
            let (sector, media) = provider_access::sizes(control, on_disk);
            let sectors = media / u64::from(sector.max(1));
            let (tag, edge, plan) = with(control, on, |g, t, _| {
                let tag = disk(g, name)?;
                spare_of(g, tag, name)?;
                let gone = || Error::new(Errno::NxIo, format!("{name} was removed"));
                let edge = g.edge(t, tag).ok_or_else(gone)?;
                let plan = match g.disks.get(&tag).map(|d| &d.found) {
                    Some(Found::Ddf(meta)) => ddf::erase(meta, sectors, sector),
                    _ => imsm::erase(sectors, sector),
                };
                Ok((tag, edge, plan))
            })?;
            let done = control.run_on_core("clearing a record", move |core| {
                Box::pin(async move { carry_out(core, edge, &plan).await })
            })?;
            done.map_err(|e| Error::new(e, format!("{name}: {}", e.text())))?;
            with(control, on, |g, t, me| {
                g.push(t, me, Job::Out(tag, Loss::Removed));
                Ok(())
            })?;
            if with(control, on, |g, _, _| Ok(g.disks.contains_key(&tag)))? {
                // It was needed after all: its record is written again with the next change.
                with(control, on, |g, t, me| {
                    g.push(t, me, Job::Rewrite);
                    Ok(())
                })?;
                return Err(still_needed(name));
            }
        }
        Ok(MessageAnswer::new(format!("{} removed from {on}", self.members.0.join(", "))))
    }
}
