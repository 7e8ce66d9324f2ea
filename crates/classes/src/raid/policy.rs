//! Consistency policy of an array's volumes: the cost of a crash, shown and changed while they are
//! in use. The invariant is J9 of [`super::geom`].
//!
//! ```text
//!   verb --> Clean --> (gate shut and drained, records are clean) --> Policy --> records --> Dirty
//! ```

use bio::Errno;
use geom::Error;

use super::geom::{Job, RaidGeom};
use super::imsm::ppl;
use super::members::MemberSet;
use super::model::{Identity, Layout, Level, LogArea, Volume, VolumeState};
use super::show::state_str;
use super::volume::log::LogLocation;
use super::volume::map::Shape;

/// Bytes at the end of a disk that a log leaves for Intel's record; of small disks a sixteenth.
const RECORD_BYTES: u64 = 1 << 20;

pub(super) fn policy_name(volume: &Volume) -> &'static str {
    match (volume.log, volume.level.redundant()) {
        (Some(_), _) => "ppl",
        (None, true) => "resync",
        (None, false) => "none",
    }
}

/// Where the rows of a volume end on its members.
fn end_of_rows(volume: &Volume) -> u64 {
    let row = Shape::of(volume).row_bytes().max(1);
    (volume.bytes / row).saturating_mul(volume.strip)
}

/// How much space a log of partial parity has behind the rows of a volume; why none can be kept.
fn log_space(set: &MemberSet, at: usize) -> Result<u64, String> {
    let Some(volume) = set.array.volumes.get(at) else { return Err("there is no volume".into()) };
    let intel = matches!(set.array.identity, Identity::Intel { .. });
    if !intel || volume.level != Level::Raid5(Layout::LeftAsymmetric) {
        return Err("a log of partial parity (ppl) is kept for Intel's RAID5 alone".into());
    }
    let rows = end_of_rows(volume);
    let of_member = |member: &super::model::Member| {
        let own = member.offset.saturating_add(member.bytes);
        let others = set.array.volumes.iter().flat_map(|v| &v.members);
        let behind = others.filter(|m| m.disk == member.disk && m.offset >= own).map(|m| m.offset);
        let media = set.array.disks.get(member.disk).map_or(0, |disk| disk.bytes);
        let end = behind.min().unwrap_or(media - RECORD_BYTES.min(media / 16));
        end.max(own).saturating_sub(member.offset.saturating_add(rows))
    };
    Ok(volume.members.iter().map(of_member).min().unwrap_or(0))
}

impl RaidGeom {
    /// Where the logs of a volume would be that keeps none.
    pub(super) fn free_log_location(&self, at: usize) -> Option<LogLocation> {
        let set = self.set.as_ref()?;
        let volume = set.array.volumes.get(at)?;
        let Identity::Intel { original, .. } = set.array.identity else { return None };
        // How much space there is can change while the volume is in use: it is looked at then.
        log_space(set, at).ok()?;
        Some(LogLocation { at: end_of_rows(volume), bytes: ppl::AREA, signature: original })
    }

    /// Whether a volume's policy is to be changed; why it cannot be.
    pub(super) fn may_change(&self, at: usize, keep: bool) -> Result<bool, Error> {
        let Some(set) = &self.set else { return Ok(false) };
        let (Some(vol), Some(volume)) = (set.volume_status.get(at), set.array.volumes.get(at))
        else {
            return Ok(false);
        };
        let metadata = self.metadata.as_ref();
        let guarded = metadata.is_some_and(|state| state.write_hole_policy(volume.id).is_some());
        if keep == volume.log.is_some() && (keep || !guarded) {
            return Ok(false);
        }
        let name = &volume.name;
        let up = self.running_volumes.get(&vol.key);
        let state = set.state(at);
        let Some(up) = up.filter(|_| state == VolumeState::Optimal) else {
            let what = format!(
                "volume {name} is {}: its policy can be changed only while it is in order; `ashlar \
                 raid list {}` shows why",
                state_str(state),
                self.id.name()
            );
            return Err(Error::new(Errno::Busy, what));
        };
        let (has, place) = (log_space(set, at), up.shared.log_place());
        match (keep, has, place) {
            (false, ..) => Ok(true),
            (true, Ok(has), Some(place)) if has >= place.bytes => Ok(true),
            (true, Err(why), _) => Err(Error::inval(format!("volume {name}: {why}"))),
            (true, has, place) => Err(Error::inval(format!(
                "volume {name}: a log takes {} bytes behind the data on each disk, and {} are free \
                 there: `label` it with --consistency ppl, or with --size smaller",
                place.map_or(ppl::AREA, |place| place.bytes),
                has.unwrap_or(0)
            ))),
        }
    }

    /// J9. False when it cannot be now: the volume is as it was.
    pub(super) fn change_policy(&mut self, key: u32, keep: bool) -> bool {
        let (Some(set), Some(up)) = (&self.set, self.running_volumes.get(&key)) else {
            return false;
        };
        let Some(at) = set.volume(key) else { return false };
        let dirty = set.array.volumes.get(at).is_none_or(|volume| volume.dirty);
        if dirty || !up.drained || !self.may_change(at, keep).unwrap_or(false) {
            return false;
        }
        self.set_policy(key, keep);
        true
    }

    /// It is in no record: the previous policy is restored.
    pub(super) fn undo_policy(&mut self, job: Job) {
        if let Job::Policy(key, keep) = job {
            self.set_policy(key, !keep);
        }
    }

    fn set_policy(&mut self, key: u32, keep: bool) {
        let (Some(set), Some(metadata), Some(up)) =
            (&mut self.set, &mut self.metadata, self.running_volumes.get(&key))
        else {
            return;
        };
        let at = set.volume(key);
        let (Some(volume), Some(place)) =
            (at.and_then(|at| set.array.volumes.get_mut(at)), up.shared.log_place())
        else {
            return;
        };
        volume.log = keep.then_some(LogArea { at: place.at, bytes: place.bytes });
        match keep {
            true => {
                let end = place.at.saturating_add(place.bytes);
                volume.members.iter_mut().for_each(|m| m.bytes = m.bytes.max(end));
            }
            false => metadata.clear_write_hole_policy(volume.id),
        }
        up.shared.keep_log(keep);
    }
}
