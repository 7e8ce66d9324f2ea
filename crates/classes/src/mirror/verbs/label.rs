//! `label`: a mirror that is found again by itself.

use bio::Errno;
use geom::{At, Bytes, Consent, Deserialize, Error, GraphControl, JsonSchema, Verb};

use super::{is_own, shape, with, write_record};
use crate::members::verb_util::ProviderAnswer;
use crate::members::{provider_access, verb_util};
use crate::mirror::NAME;
use crate::mirror::class::MirrorClass;
use crate::mirror::lineage::Lineage;
use crate::mirror::metadata::{Metadata, disk_flags};
use crate::mirror::settings::{MirrorParams, Settings};
use crate::mirror::state::MEMBERS_MAX;
use crate::shared_args::{AssumeSynced, Force, Hardcode, Members};

/// Label providers and create a permanent mirror
///
/// The last sector of each provider is overwritten; the contents of the first provider are kept and
/// copied to the others. A provider with contents is refused unless --yes-destroy PROVIDER is
/// given. The last provider has the highest priority. The mirror is found again at the next start.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Label {
    /// Name of the mirror, without the class
    name: String,
    members: Members,
    #[serde(flatten)]
    params: MirrorParams,
    assume_same: AssumeSynced,
    /// Keep a write-intent bitmap: after a crash only regions that were being written are copied.
    /// FreeBSD refuses such a mirror as too new
    bitmap: bool,
    /// Bytes for each bit of the bitmap, a power of two [default: 1 MiB, or larger for a large
    /// mirror]
    region: Option<Bytes>,
    hardcode: Hardcode,
    // The guard has looked at it before.
    #[serde(rename = "yes_destroy")]
    _consent: Consent,
    force: Force,
}

impl Verb<MirrorClass> for Label {
    const NAME: &'static str = "label";
    const EXAMPLE: &'static str = "mirror label -b round-robin data d0 d1";
    const WRITES: bool = true;
    type Answer = ProviderAnswer;

    fn run(self, (class, control): At<'_, MirrorClass>) -> Result<ProviderAnswer, Error> {
        let new = LabelOptions {
            settings: self.params.settings()?,
            assume_same: self.assume_same.0,
            bitmap: self.bitmap,
            region: self.region.map(|bytes| bytes.0),
            hardcode: self.hardcode.0,
            force: self.force.0,
        };
        let answer = label(class, control, (&self.name, &self.members.0), &new)?;
        with(control, &self.name, |g, _, _| {
            g.shared.throttle.set_rate(self.params.sync_rate());
            Ok(())
        })?;
        Ok(answer)
    }
}

/// How a mirror is labelled.
#[derive(Default)]
pub(super) struct LabelOptions {
    pub(super) settings: Settings,
    /// Nothing is copied: the members hold the same.
    pub(super) assume_same: bool,
    pub(super) bitmap: bool,
    /// Bytes of a region of the bitmap.
    pub(super) region: Option<u64>,
    pub(super) hardcode: bool,
    /// The content of the last sectors may be overwritten.
    pub(super) force: bool,
}

/// Labels members and waits for the mirror.
pub(super) fn label(
    class: &MirrorClass,
    control: &mut GraphControl,
    (name, members): (&str, &[String]),
    new: &LabelOptions,
) -> Result<ProviderAnswer, Error> {
    verb_util::check_name(name)?;
    if control.topology.find_geom(NAME, name).is_some() {
        let what = format!("a mirror {name} is there already; `ashlar mirror stop {name}`");
        return Err(Error::new(Errno::Exist, what));
    }
    if members.is_empty() || members.len() > MEMBERS_MAX {
        return Err(Error::inval(format!("a mirror has 1 to {MEMBERS_MAX} members")));
    }
    let (mut sector_bytes, mut least) = (512, u64::MAX);
    for (i, member) in members.iter().enumerate() {
        if members.iter().take(i).any(|m| m == member) {
            return Err(Error::inval(format!("{member} is named twice")));
        }
        let on = provider_access::find(control, member)?;
        let (sector, media) = provider_access::sizes(control, on);
        sector_bytes = sector_bytes.max(sector);
        least = least.min(media.saturating_sub(u64::from(sector)));
        verb_util::check_member(control, NAME, member, new.force, is_own)?;
    }
    let media_bytes = least - least % u64::from(sector_bytes);
    if media_bytes == 0 {
        return Err(Error::inval("the members are too small: no data would fit"));
    }
    let bitmap = match new.bitmap || new.region.is_some() {
        true => Some(shape(media_bytes, sector_bytes, new.region)?),
        false => None,
    };
    let spare = bitmap.map_or(0, |s| u64::from(s.bytes));
    let media_bytes = media_bytes.saturating_sub(spare.next_multiple_of(u64::from(sector_bytes)));
    if media_bytes == 0 {
        return Err(Error::inval("the members are too small: no data would fit beside the bitmap"));
    }
    let id = verb_util::new_id(control, name);
    let first = Metadata {
        name: name.to_owned(),
        id,
        disk: 0,
        all: members.len() as u8,
        genid: 0,
        syncid: 1,
        priority: 0,
        slice: new.settings.slice,
        balance: new.settings.balance,
        media_bytes,
        sector_bytes,
        sync_offset: 0,
        flags: new.settings.flags,
        disk_flags: 0,
        home: String::new(),
        provider_bytes: 0,
        bitmap,
        lineage: Lineage {
            held_by: if new.assume_same { members.len() as u8 } else { 1 },
            ..Lineage::first(id)
        },
    };
    class.stopped.start(name);
    class.throttles.forget(name);
    for member in members {
        write_record(control, member, None)?;
    }
    for (number, member) in members.iter().enumerate() {
        let on = provider_access::find(control, member)?;
        let copied = number > 0 && !new.assume_same;
        let record = Metadata {
            disk: verb_util::new_id(control, member).wrapping_add(number as u32),
            priority: number as u8,
            // An old syncid: it is rebuilt from the first.
            syncid: if copied { 0 } else { first.syncid },
            disk_flags: if copied { disk_flags::FORCE_SYNC } else { 0 },
            home: if new.hardcode { member.clone() } else { String::new() },
            provider_bytes: provider_access::sizes(control, on).1,
            ..first.clone()
        };
        write_record(control, member, Some(&record))?;
    }
    verb_util::wait_for_provider(control, NAME, name, members)
}
