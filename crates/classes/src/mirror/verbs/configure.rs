//! `configure`: how a mirror works.

use bio::Errno;
use geom::{At, Bytes, Change, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::{complete, priority, runs, shape, slot, with};
use crate::mirror::bitmap::Shape;
use crate::mirror::class::MirrorClass;
use crate::mirror::geom::Job;
use crate::mirror::settings::MirrorParams;
use crate::mirror::state::Mirror;

/// Change the settings of a mirror
///
/// Settings that are not given stay unchanged.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Configure {
    /// Name of the mirror, without the class
    name: String,
    /// Provider of the member whose --priority changes
    member: Option<String>,
    #[serde(flatten)]
    change: Change<MirrorParams>,
    /// Rebuild outdated members at once
    #[schemars(extend("x-short" = "a"))]
    autosync: bool,
    /// Rebuild dirty members after a crash
    #[schemars(extend("x-short" = "f"))]
    failsync: bool,
    /// Priority of the member, 0 to 255; with balance prefer the highest is read first
    #[schemars(extend("x-short" = "p"))]
    priority: Option<u64>,
    /// Store the present names of the members: they are recognised only under these names
    #[schemars(extend("x-short" = "h"))]
    hardcode: bool,
    /// Remove the stored names of the members
    #[schemars(extend("x-short" = "d"))]
    dynamic: bool,
    /// Keep a write-intent bitmap: after a crash only regions that were being written are copied.
    /// FreeBSD refuses such a mirror as too new
    bitmap: bool,
    /// Remove the bitmap
    no_bitmap: bool,
    /// Bytes for each bit of the bitmap, a power of two [default: 1 MiB, or larger for a large
    /// mirror]
    region: Option<Bytes>,
}

impl Verb<MirrorClass> for Configure {
    const NAME: &'static str = "configure";
    const POSITIONAL: &'static [&'static str] = &["name", "member"];
    const EXAMPLE: &'static str = "mirror configure -b prefer data";
    const WRITES: bool = true;
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, MirrorClass>) -> Result<MessageAnswer, Error> {
        let priority = self.priority.map(priority).transpose()?;
        let on = self.name.as_str();
        // Members that are away would not have it.
        let of_all = self.hardcode || self.dynamic;
        let of_all = of_all || self.bitmap || self.no_bitmap || self.region.is_some();
        with(control, on, |g, t, me| {
            runs(&g.mirror)?;
            if of_all {
                complete(&g.mirror)?;
            }
            let now = MirrorParams::of(g.mirror.settings(), g.shared.throttle.rate());
            let params = self.change.over(&format!("mirror {on}"), &now)?;
            let params = params.with_syncs(self.failsync, self.autosync);
            let settings = params.settings()?;
            if let (Some(priority), Some(member)) = (priority, &self.member) {
                let slot = slot(g, t, member)?;
                if let Some(Some(member)) = g.mirror.slots.get_mut(slot) {
                    member.record.priority = priority;
                }
            } else if priority.is_some() {
                let what = format!(
                    "--priority applies to one member: `mirror configure -p 5 {on} \
                             PROVIDER`"
                );
                return Err(Error::inval(what));
            } else if self.member.is_some() {
                return Err(Error::inval("a member is named for --priority"));
            }
            match (self.hardcode, self.dynamic) {
                (false, false) => {}
                (true, true) => return Err(Error::inval("--hardcode and --dynamic")),
                _ if g.mirror.manual => {
                    return Err(Error::inval(format!("{on} was made by hand: it has no records")));
                }
                (hardcode, _) => g.tie(t, hardcode),
            }
            let growing = g.shared.growth().is_live();
            if let Some(change) = self.bitmap_change(&g.mirror, (on, growing))? {
                g.push(t, me, Job::Bitmap(change));
            }
            g.mirror.work_as(settings);
            g.shared.throttle.set_rate(params.sync_rate());
            g.push(t, me, Job::Rewrite);
            Ok(())
        })?;
        Ok(MessageAnswer::new(format!("{on} configured")))
    }
}

impl Configure {
    /// Whether bitmaps are to be kept from now on, or no longer; `None`: neither.
    fn bitmap_change(
        &self,
        mirror: &Mirror,
        (on, growing): (&str, bool),
    ) -> Result<Option<Option<Shape>>, Error> {
        let keeps = self.bitmap || self.region.is_some();
        if keeps == self.no_bitmap {
            return match keeps {
                true => Err(Error::inval("--bitmap and --no-bitmap")),
                false => Ok(None),
            };
        }
        if growing {
            let what = format!("{on} is growing: wait for that, or end it with `mirror resize`");
            return Err(Error::new(Errno::Busy, what));
        }
        if mirror.members().any(|(_, m)| m.partial) {
            let what = format!("members of {on} are rebuilt by their bitmaps; wait for that");
            return Err(Error::new(Errno::Busy, what));
        }
        if !keeps {
            return Ok(Some(None));
        }
        let shape =
            shape(mirror.media_bytes, mirror.sector_bytes, self.region.map(|bytes| bytes.0))?;
        let least = mirror.members().map(|(_, m)| m.provider_bytes).min().unwrap_or(0);
        let sector = u64::from(mirror.sector_bytes);
        let most = mirror.media_bytes + u64::from(shape.bytes) + sector;
        if mirror.manual || least < most {
            let what = format!(
                "{on}: no space for a bitmap on its members ({most} bytes of each are needed); \
                 `ashlar mirror label --bitmap` leaves space"
            );
            return Err(Error::inval(what));
        }
        Ok(Some(Some(shape)))
    }
}
