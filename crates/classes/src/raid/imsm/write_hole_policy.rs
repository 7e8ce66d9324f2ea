//! Linux's guards of a volume against the write hole: a log of partial parity (PPL), a drive with a
//! journal, a write-intent bitmap.
//!
//! The log of a RAID5 volume is kept here too, where there is space for it behind the data (see
//! [`super::ppl`] and the volume's `log`). The other guards are neither written nor read here.
//! Linux trusts them for a dirty volume: parity that the guard does not mention is assumed to be
//! right. The record of a volume with such a guard therefore lists no guard while it is marked
//! dirty. An implementation that finds it so recomputes all parity, or starts no array that lacks a
//! disk. A clean volume has its guard back; its content is of no use then.

use super::ppl;
use super::record::{Record, VolumeRecord};
use crate::raid::model::{Layout, Level, LogArea, Volume};

/// Index of the policy in [`VolumeRecord::rest`]: byte 50 of the volume.
const POLICY: usize = 8;
/// There is none: as it was before there were any, and as it is switched off.
const OFF: [u8; 2] = [0, 5];

fn policy(rest: &[u8; 32]) -> u8 {
    rest.get(POLICY).copied().unwrap_or(0)
}

/// A log on each member, with space for one unit, or for several.
const LOGS: [(u8, u64); 2] = [(1, ppl::AREA_OF_ONE), (3, ppl::AREA)];

/// The bytes for the next record of a volume.
pub(super) fn next(mut rest: [u8; 32], volume: &Volume) -> [u8; 32] {
    let Some(policy) = rest.get_mut(POLICY) else { return rest };
    match volume.log {
        Some(area) => {
            let log = LOGS.iter().find(|(_, bytes)| *bytes == area.bytes);
            *policy = log.map_or(*policy, |(policy, _)| *policy);
        }
        None if volume.dirty && !OFF.contains(policy) => *policy = 0,
        None => {}
    }
    rest
}

/// Where a volume's log is: behind the rows of its data, if there is space for it.
pub(super) fn log(record: &VolumeRecord, volume: &Volume) -> Option<LogArea> {
    let policy = policy(&record.rest);
    let (_, bytes) = LOGS.into_iter().find(|(of, _)| *of == policy)?;
    let width = volume.level.data_members(volume.members.len())?;
    let rows = volume.bytes.checked_div(width.checked_mul(volume.strip)?)?;
    let at = rows.checked_mul(volume.strip)?;
    let end = at.checked_add(bytes)?;
    let fits = volume.members.iter().all(|member| end <= member.bytes);
    let known = volume.level == Level::Raid5(Layout::LeftAsymmetric) && rows == record.map.stripes;
    (fits && known && record.from.as_ref().is_none_or(|from| from.stripes == rows))
        .then_some(LogArea { at, bytes })
}

impl VolumeRecord {
    /// The guard, by name; `None` when there is none.
    pub fn write_hole_policy(&self) -> Option<&'static str> {
        match policy(&self.rest) {
            policy if OFF.contains(&policy) => None,
            1 | 3 => Some("partial parity log (PPL)"),
            2 | 4 => Some("journal"),
            6 => Some("write-intent bitmap"),
            _ => Some("write-hole policy"),
        }
    }
}

impl Record {
    /// The guard of the volume with this id.
    pub(crate) fn write_hole_policy_of(&self, id: [u8; 24]) -> Option<&'static str> {
        let is_it = |v: &&VolumeRecord| id.starts_with(&v.number.to_le_bytes());
        self.volumes.iter().find(is_it).and_then(VolumeRecord::write_hole_policy)
    }

    /// The volume with this id has no guard any more.
    pub(crate) fn clear_write_hole_policy(&mut self, id: [u8; 24]) {
        let is_it = |v: &&mut VolumeRecord| id.starts_with(&v.number.to_le_bytes());
        let policy = self.volumes.iter_mut().find(is_it).and_then(|v| v.rest.get_mut(POLICY));
        policy.into_iter().for_each(|policy| *policy = 0);
    }

    /// This record as the base of the next one: with the guards that `before` had, and that are off
    /// now.
    pub(crate) fn with_policies_of(mut self, before: &Record) -> Record {
        for volume in &mut self.volumes {
            let same =
                |v: &&VolumeRecord| v.number == volume.number && v.write_hole_policy().is_some();
            if let Some(old) =
                before.volumes.iter().find(same).filter(|_| volume.write_hole_policy().is_none())
            {
                volume.rest = old.rest;
            }
        }
        self
    }
}
