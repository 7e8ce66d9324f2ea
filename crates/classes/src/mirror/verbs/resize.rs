//! `resize`: growth or shrinking of a mirror.

use std::time::Duration;

use bio::Errno;
use geom::{At, Bytes, Deserialize, Error, GeomId, JsonSchema, MessageAnswer, Topology, Verb};

use super::{complete, with};
use crate::mirror::class::MirrorClass;
use crate::mirror::geom::MirrorGeom;
use crate::mirror::level::Stage;
use crate::mirror::state::Role;

/// How long the verb waits for the added space to be equal on all members before it leaves that to
/// the background.
const GROWS: Duration = Duration::from_secs(1);

/// Grow or shrink a mirror
///
/// A mirror grows to at most the size of its smallest member. The added space is first made equal
/// on all members, at the rate of a rebuild; `ashlar mirror list` shows the progress. Until then
/// the mirror keeps its old size. After a power cut the growth must be requested again. A --size
/// equal to the current size cancels a growth. The mirror can shrink only while it is closed and
/// its members are equal. Shrink its contents first: data behind the new end is lost. Afterwards a
/// smaller provider can be inserted.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Resize {
    /// Name of the mirror, without the class
    name: String,
    /// New size in bytes [default: the largest possible size]
    #[schemars(extend("x-short" = "s"))]
    size: Option<Bytes>,
}

impl Verb<MirrorClass> for Resize {
    const NAME: &'static str = "resize";
    const EXAMPLE: &'static str = "mirror resize data";
    const WRITES: bool = true;
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, MirrorClass>) -> Result<MessageAnswer, Error> {
        let on = self.name.as_str();
        let (size, shared) = with(control, on, |g, t, me| {
            complete(&g.mirror)?;
            let most = g.mirror.most();
            let wanted = self.size.map_or(most, |bytes| bytes.0);
            let is_aligned = wanted.is_multiple_of(u64::from(g.mirror.sector_bytes));
            if wanted == 0 || wanted > most || !is_aligned {
                let what =
                    format!("{on} can have up to {most} bytes, in whole sectors, not {wanted}");
                return Err(Error::inval(what));
            }
            if wanted < g.mirror.media_bytes {
                may_shrink(g, t, me, on)?;
            }
            if g.mirror.shape().is_some_and(|s| !s.covers(wanted)) {
                let what = "its bitmap is too small for that size: `ashlar mirror configure \
                            --no-bitmap` first, and `--bitmap` afterwards";
                return Err(Error::inval(what));
            }
            g.size_to(t, me, wanted)?;
            Ok((wanted, g.shared.clone()))
        })?;
        let done = control.wait_until(GROWS, |_| !shared.growth().is_live());
        control.settle()?;
        let growth = *shared.growth();
        let message = match growth.stage {
            Stage::Failed(why) => {
                return Err(Error::new(Errno::Io, format!("{on} keeps its size: {why}")));
            }
            _ if done => format!("{on} has {size} bytes now"),
            _ if growth.to < growth.from => format!(
                "{on} becomes smaller, {size} bytes, when its records are written; `ashlar mirror \
             list {on}` shows its size"
            ),
            _ => format!(
                "{on} grows to {size} bytes when the added space is the same on all members; \
                 `ashlar mirror list {on}` shows how far it is"
            ),
        };
        Ok(MessageAnswer { message })
    }
}

/// G4 of `level`.
fn may_shrink(g: &MirrorGeom, t: &Topology, me: GeomId, on: &str) -> Result<(), Error> {
    let busy = |what: &str| Err(Error::new(Errno::Busy, format!("{on} {what}")));
    let members: Vec<Role> = g.mirror.members().map(|(_, m)| m.role).collect();
    if t.geom_is_open(me) {
        return busy("is open; close what uses it before it is made smaller");
    }
    if g.shared.growth().is_live() {
        return busy("is being resized: wait for that, or end it with the size that it has");
    }
    if members.iter().any(|role| *role != Role::Active) {
        return busy("has members that are rebuilt, or are to be; wait for that");
    }
    if g.shared.verified().running {
        return busy("is being compared: `ashlar mirror verify --end` ends it");
    }
    Ok(())
}
