//! The verb `remove`: members leave a mirror permanently.

use bio::Errno;
use geom::{At, Deserialize, Error, GraphControl, JsonSchema, MessageAnswer, Verb};

use super::{complete, slot, with};
use crate::members::provider_access;
use crate::mirror::class::MirrorClass;
use crate::mirror::geom::Removal;
use crate::mirror::metadata::{Metadata, disk_flags};
use crate::mirror::state::{Mirror, Role};
use crate::shared_args::Members;

/// Remove members permanently and clear their metadata
#[derive(Deserialize, JsonSchema)]
pub(super) struct Remove {
    /// Name of the mirror, without the class
    name: String,
    /// Providers of the members
    members: Members,
}

impl Verb<MirrorClass> for Remove {
    const NAME: &'static str = "remove";
    const EXAMPLE: &'static str = "mirror remove data d1";
    const WRITES: bool = true;
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, MirrorClass>) -> Result<MessageAnswer, Error> {
        remove(control, &self.name, &self.members.0)?;
        Ok(MessageAnswer::new(format!("{} removed from {}", self.members.0.join(", "), self.name)))
    }
}

/// Takes members out for good.
pub(super) fn remove(
    control: &mut GraphControl,
    on: &str,
    members: &[String],
) -> Result<(), Error> {
    members.iter().try_for_each(|member| remove_member(control, on, member, Removal::Removed))
}

/// Removes a member. When the others' records have its removal, its own is cleared, or marked,
/// while the mirror still holds it open, so that it is not found in its former state. A member that
/// cannot be removed is tasted again, and returns in the state of its record.
pub(super) fn remove_member(
    control: &mut GraphControl,
    on: &str,
    member: &str,
    how: Removal,
) -> Result<(), Error> {
    let seat = with(control, on, |g, t, _| {
        let seat = slot(g, t, member)?;
        if how == Removal::Removed {
            complete(&g.mirror)?;
        }
        keep_one(&g.mirror, seat, member)?;
        Ok(seat)
    })?;
    let out = with(control, on, |g, t, me| {
        g.begin_removal(t, me, seat, how);
        Ok(())
    });
    let done = out.and_then(|()| write_final_record(control, on, member, (seat, how)));
    let over = with(control, on, |g, t, _| {
        g.finish_removal(t, seat);
        Ok(())
    });
    done.and(over)
}

fn write_final_record(
    control: &mut GraphControl,
    on: &str,
    member: &str,
    (seat, how): (usize, Removal),
) -> Result<(), Error> {
    let last = with(control, on, |g, t, _| g.final_record(t, seat, member))?;
    if last.manual {
        return Ok(());
    }
    let mut sector = match how {
        Removal::Removed => Vec::new(),
        Removal::Deactivated => {
            let disk_flags = last.record.disk_flags | disk_flags::INACTIVE;
            Metadata { disk_flags, ..last.record }.encode()
        }
    };
    sector.resize(last.sector_bytes as usize, 0);
    provider_access::write(control, member, last.edge, last.at, sector)
}

/// M4, for verbs.
pub(super) fn keep_one(mirror: &Mirror, slot: usize, member: &str) -> Result<(), Error> {
    let active = mirror.in_role(Role::Active);
    if active.iter().any(|s| *s != slot) {
        return Ok(());
    }
    let what = format!(
        "{member} is the last complete member and cannot be removed: `ashlar mirror stop {}` stops \
         the mirror",
        mirror.name
    );
    Err(Error::new(Errno::Busy, what))
}
