//! Devices that are present but not offered, because of their answers or missing answers.

use geom::Trouble;

use super::Bus;
use crate::address::Path;
use crate::periph::Facts;
use crate::probe::Refusal;

impl Bus {
    /// Records why a scan found no usable device at a place. None: nothing is there, or a device.
    pub(super) fn set_refusal(&self, path: Path, why: Option<Refusal>) {
        let why = why.filter(|why| !matches!(why, Refusal::NoDevice | Refusal::NoUnit));
        let mut refused = self.refused.lock();
        let before = match why {
            Some(why) => refused.insert(path, why),
            None => refused.remove(&path),
        };
        if before != why {
            self.inbox.wake();
        }
    }

    /// A target has these logical units and no others.
    pub(super) fn retain_refusals(&self, target: u64, has: impl Fn(u64) -> bool) {
        self.refused.lock().retain(|path, _| path.target != target || has(path.lun));
    }

    /// Where a device is, for people.
    pub(super) fn describe_path(&self, path: Path) -> String {
        let (bus, place) = (self.sim.facts().name, self.sim.location(path));
        match place == path.to_string() {
            true => format!("{path} on bus {bus}"),
            false => format!("{path} on bus {bus} ({place})"),
        }
    }

    /// Why devices are not offered.
    pub(super) fn refusals(&self) -> Vec<Trouble> {
        let refused = self.refused.lock();
        let trouble = |(path, why): (&Path, &Refusal)| {
            let words =
                format!("the device at {} is not offered: {why}", self.describe_path(*path));
            Trouble::degraded(words, self.advice(why))
        };
        refused.iter().map(trouble).collect()
    }

    /// Why a known disk is not offered: its medium cannot be removed, and its size is not reported.
    pub(super) fn is_sizeless(&self, path: Path, facts: &Facts) -> Option<Trouble> {
        let fixed = !facts.is_removable() && facts.role().is_none();
        if !fixed || !facts.is_disk() || facts.media_bytes(&self.sim.facts()).is_some() {
            return None;
        }
        let words = format!(
            "the disk {} at {} is not offered: the capacity is not reported",
            facts.label(),
            self.describe_path(path)
        );
        let number = self.number;
        let action = format!("Check its target, then type `ashlar cam rescan {number}`.");
        Some(Trouble::degraded(words, action))
    }

    fn advice(&self, why: &Refusal) -> String {
        let number = self.number;
        match why {
            Refusal::Medium { .. } => format!(
                "Change its size or the size of its blocks at its target, then type `ashlar cam \
                 rescan {number}`."
            ),
            _ => format!("Check its target, then type `ashlar cam rescan {number}`."),
        }
    }
}
