//! Consistency check of an array, and the states of its volumes.

use super::fault::Fault;
use super::model::{Array, Level, SubdiskState, Volume, VolumeState};
use crate::probe::Reason;

/// Disks of an array; more are refused.
pub const DISKS_MAX: usize = 4095;

impl Array {
    /// Whether the description is free of contradictions: invariants A1 to A3 of the model.
    ///
    /// # Errors
    /// The first field that contradicts another.
    pub fn check(&self) -> Result<(), Fault> {
        if self.disks.len() > DISKS_MAX {
            let what = format!("is {}; at most {DISKS_MAX} are possible", self.disks.len());
            return Err(Fault::value("number of disks", what));
        }
        for volume in &self.volumes {
            self.check_volume(volume)?;
        }
        self.check_overlap()
    }

    fn check_volume(&self, volume: &Volume) -> Result<(), Fault> {
        let of = |what: String| format!("of volume \"{}\" {what}", volume.name);
        if !volume.strip.is_power_of_two() {
            let what = of(format!("is {}, no power of two", volume.strip));
            return Err(Fault::value("strip size", what));
        }
        let lens: Vec<u64> = volume.members.iter().map(|member| member.bytes).collect();
        let Some(capacity) = volume.level.capacity(volume.strip, &lens) else {
            let what = of(format!("is {}: wrong for {:?}", lens.len(), volume.level));
            return Err(Fault::value("number of members", what));
        };
        if volume.bytes == 0 || volume.bytes > capacity {
            let what = of(format!("is {}; its members hold {capacity}", volume.bytes));
            return Err(Fault::value("volume size", what));
        }
        let mut met = Vec::with_capacity(volume.members.len());
        for (slot, member) in volume.members.iter().enumerate() {
            let Some(disk) = self.disks.get(member.disk) else {
                let what = of(format!("is {} in slot {slot}: no such disk", member.disk));
                return Err(Fault::value("disk index", what));
            };
            if met.contains(&member.disk) {
                let what = of(format!("is {} in two slots", member.disk));
                return Err(Fault::value("disk index", what));
            }
            met.push(member.disk);
            let end = member.offset.checked_add(member.bytes);
            let capacity = if disk.bytes == 0 { u64::MAX } else { disk.bytes };
            if end.is_none_or(|end| end > capacity) {
                let what = of(format!(
                    "is {} at {} in slot {slot}; disk \"{}\" has {capacity}",
                    member.bytes, member.offset, disk.serial
                ));
                return Err(Fault::value("member size", what));
            }
        }
        Ok(())
    }

    fn check_overlap(&self) -> Result<(), Fault> {
        let mut spans: Vec<(usize, u64, u64, &str)> = Vec::new();
        for volume in &self.volumes {
            for member in &volume.members {
                let end = member.offset.saturating_add(member.bytes);
                spans.push((member.disk, member.offset, end, &volume.name));
            }
        }
        spans.sort_unstable();
        for pair in spans.windows(2) {
            if let [(disk, _, end, one), (next, start, _, two)] = pair
                && disk == next
                && start < end
            {
                let what = format!("of volumes \"{one}\" and \"{two}\" overlaps on disk {disk}");
                return Err(Fault::new(Reason::Integrity, "member offset", what));
            }
        }
        Ok(())
    }
}

impl Volume {
    /// The state that the members' states add up to (docs/reference/geom.md 2.14, first table;
    /// parity levels survive the loss of as many members as they have parities).
    pub fn state(&self) -> VolumeState {
        let states: Vec<SubdiskState> = self.members.iter().map(|member| member.state).collect();
        let count = |wanted: fn(SubdiskState) -> bool| {
            states.iter().filter(|state| wanted(**state)).count()
        };
        let all = states.len();
        let active = count(|state| state == SubdiskState::Active);
        let usable = count(|state| state >= SubdiskState::New);
        // Members whose content counts: a member being filled does not.
        let good = |state: &SubdiskState| *state >= SubdiskState::Uninitialized;
        let lost = all - states.iter().filter(|state| good(state)).count();
        let broken = match self.level {
            Level::Raid0 | Level::Concat | Level::Single => lost > 0,
            Level::Raid1 => lost == all,
            Level::Raid1e if !all.is_multiple_of(2) => (0..all).any(|at| {
                let next = if at + 1 == all { 0 } else { at + 1 };
                [at, next].iter().all(|at| states.get(*at).is_none_or(|state| !good(state)))
            }),
            Level::Raid1e | Level::Raid10 => states.chunks(2).any(|pair| !pair.iter().any(good)),
            Level::Raid4 | Level::Raid5(_) => lost > 1,
            Level::Raid6(_) => lost > 2,
        };
        match (broken || all == 0, active == all, usable == all) {
            (true, ..) => VolumeState::Broken,
            (_, true, _) => VolumeState::Optimal,
            (_, _, true) => VolumeState::Suboptimal,
            _ => VolumeState::Degraded,
        }
    }

    /// True when no member was ever synchronised with the others.
    pub fn uninitialized(&self) -> bool {
        self.members.iter().any(|member| member.state == SubdiskState::Uninitialized)
    }
}
