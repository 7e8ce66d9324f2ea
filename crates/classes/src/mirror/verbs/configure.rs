//! `configure`: how a mirror works.

use bio::Errno;
use geom::{Bytes, Deserialize, Error, GraphControl, JsonSchema, MessageAnswer, Verb};

use super::{complete, priority, runs, shape, slot, with};
use crate::mirror::bitmap::Shape;
use crate::mirror::class::MirrorClass;
use crate::mirror::geom::Job;
use crate::mirror::metadata::{Balance, mirror_flags};
use crate::mirror::settings::{self, Settings};
use crate::mirror::state::Mirror;
use crate::shared_args::SyncRate;

/// Change the settings of a mirror
///
/// Settings that are not given stay unchanged.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Configure {
    /// Name of the mirror, without the class
    name: String,
    /// Provider of the member whose --priority changes
    member: Option<String>,
    /// Choice of the member that serves a read
    #[schemars(extend("x-short" = "b"))]
    balance: Option<Balance>,
    /// With balance split: reads larger than this many bytes are split
    #[schemars(extend("x-short" = "s"))]
    slice: Option<Bytes>,
    /// Rebuild outdated members at once
    #[schemars(extend("x-short" = "a"))]
    autosync: bool,
    /// Rebuild outdated members only on `rebuild`
    #[schemars(extend("x-short" = "n"))]
    no_autosync: bool,
    /// Rebuild dirty members after a crash
    #[schemars(extend("x-short" = "f"))]
    failsync: bool,
    /// Use members as they are after a crash, without a rebuild
    #[schemars(extend("x-short" = "F"))]
    no_failsync: bool,
    /// Priority of the member, 0 to 255; with balance prefer the highest is read first
    #[schemars(extend("x-short" = "p"))]
    priority: Option<u64>,
    /// Store the present names of the members: they are recognised only under these names
    #[schemars(extend("x-short" = "h"))]
    hardcode: bool,
    /// Remove the stored names of the members
    #[schemars(extend("x-short" = "d"))]
    dynamic: bool,
    sync_rate: Option<SyncRate>,
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

    fn run(self, _: &MirrorClass, control: &mut GraphControl) -> Result<MessageAnswer, Error> {
        let slice = self.slice.map(|bytes| settings::slice(bytes.0)).transpose()?;
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
            let now = g.mirror.settings();
            g.mirror.work_as(Settings {
                balance: self.balance.unwrap_or(now.balance),
                slice: slice.unwrap_or(now.slice),
                flags: self.flags(now.flags),
            });
            if let Some(SyncRate(rate)) = self.sync_rate {
                g.shared.throttle.set_rate(rate);
            }
            g.push(t, me, Job::Rewrite);
            Ok(())
        })?;
        Ok(MessageAnswer::new(format!("{on} configured")))
    }
}

impl Configure {
    /// The flags of a mirror that has those of `old`.
    fn flags(&self, old: u64) -> u64 {
        let mut flags = old;
        let mut set = |on: bool, off: bool, flag: u64| {
            if on {
                flags |= flag;
            }
            if off {
                flags &= !flag;
            }
        };
        set(self.no_failsync, self.failsync, mirror_flags::NOFAILSYNC);
        set(self.no_autosync, self.autosync, mirror_flags::NOAUTOSYNC);
        flags
    }

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
                "{on}: no room for a bitmap on its members ({most} bytes of each are needed); \
                 `ashlar mirror label --bitmap` leaves room"
            );
            return Err(Error::inval(what));
        }
        Ok(Some(Some(shape)))
    }
}
