//! The `add` verb: creates a further volume in the free space of an array's disks.

use bio::Errno;
use geom::{At, Deserialize, Error, JsonSchema, Verb};

use super::volume::{LevelName, NewVolume, ROUND, VolumeParams, guid, usable};
use super::{ArrayName, VolumeAnswer, wait_for_volume, with};
use crate::members::verb_util;
use crate::raid::assemble::SetId;
use crate::raid::class::RaidClass;
use crate::raid::geom::Job;
use crate::raid::metadata::PresentDisk;

/// Create another volume on an array, behind the others
#[derive(Deserialize, JsonSchema)]
pub(super) struct Add {
    name: ArrayName,
    /// Name of the new volume
    label: String,
    level: LevelName,
    #[serde(flatten)]
    how: VolumeParams,
}

impl Verb<RaidClass> for Add {
    const NAME: &'static str = "add";
    const POSITIONAL: &'static [&'static str] = &["name", "label", "level"];
    const EXAMPLE: &'static str = "raid add Intel-1234abcd more RAID0";
    const WRITES: bool = true;
    type Answer = VolumeAnswer;

    fn run(self, (_, control): At<'_, RaidClass>) -> Result<VolumeAnswer, Error> {
        let name = self.label.as_str();
        let number = verb_util::new_id(control, name);
        let set = with(control, &self.name.0, |g, t, me| {
            let intel = matches!(g.id, SetId::Intel(_));
            let level = self.level.level(intel)?;
            let not_up = || Error::new(Errno::NxIo, "the array has not started");
            let (Some(set), Some(metadata)) = (&g.set, &g.metadata) else { return Err(not_up()) };
            let used = |disk: usize| {
                let all = set.array.volumes.iter().flat_map(|v| &v.members);
                let ends = all.filter(|m| m.disk == disk).map(|m| m.offset.saturating_add(m.bytes));
                ends.max().unwrap_or(0)
            };
            let first = set.array.volumes.first().ok_or_else(not_up)?;
            if set.array.volumes.iter().any(|volume| volume.name == name) {
                return Err(Error::new(Errno::Exist, format!("a volume {name} is there already")));
            }
            let places: Vec<usize> = first.members.iter().map(|m| m.disk).collect();
            let start = places.iter().map(|disk| used(*disk)).max().unwrap_or(0);
            let round = if start >= 8 * ROUND { ROUND } else { self.how.strip.0 };
            let start = start.next_multiple_of(round.max(1));
            let spaces = |disk: &usize| {
                let bytes = set.array.disks.get(*disk).map_or(0, |d| d.bytes);
                let bytes = if intel { usable(true, bytes) } else { bytes };
                (start, bytes.saturating_sub(start))
            };
            let spaces: Vec<(u64, u64)> = places.iter().map(spaces).collect();
            let present: Vec<bool> = places
                .iter()
                .map(|disk| set.attached.get(*disk).copied().flatten().is_some())
                .collect();
            let mut id = [0; 24];
            match g.id {
                SetId::Intel(_) => {
                    let last = set.array.volumes.iter().map(|v| {
                        let (number, _) = v.id.split_first_chunk::<2>().unwrap_or((&[0; 2], &[]));
                        u16::from_le_bytes(*number)
                    });
                    let next = last.max().unwrap_or(0).wrapping_add(1);
                    crate::probe::put(&mut id, 0, &next.to_le_bytes());
                }
                SetId::Ddf(_) => id = guid(number),
            }
            let wish = NewVolume { name, id, level, params: &self.how, intel, sector: g.sector };
            let mut volume = wish.volume(&spaces, &present)?;
            for (member, disk) in volume.members.iter_mut().zip(&places) {
                member.disk = *disk;
            }
            let mut trial = set.clone();
            trial.add_volume(volume.clone());
            let mut array = trial.record();
            array.check().map_err(|fault| Error::inval(fault.to_string()))?;
            // A volume that the format cannot express is refused before anything changes.
            let disk =
                |disk: &usize| PresentDisk { index: *disk, sectors: u64::MAX >> 16, moved: false };
            let list: Vec<PresentDisk> = places.iter().map(disk).collect();
            let (above, now_s) = (g.highest_generation, (g.tunables.wall_s)());
            let written = metadata.clone().write(&mut array, &list, above, g.sector, now_s);
            written.map_err(|fault| Error::inval(fault.to_string()))?;
            if let Some(set) = &mut g.set {
                set.add_volume(volume);
            }
            g.start_volumes(t, me);
            g.start_passes();
            g.push(t, me, Job::Rewrite);
            Ok(g.id.name())
        })?;
        wait_for_volume(control, &set, name, &[])
    }
}
