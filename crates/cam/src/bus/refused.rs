//! Devices that are there and are not offered, because of what they say or do not say.

use geom::Trouble;

use super::Bus;
use crate::address::Path;
use crate::periph::Facts;
use crate::probe::Refusal;

impl Bus {
    /// What a scan found at a place that has no device of the bus; None: nothing, or a device.
    pub(super) fn refuses(&self, path: Path, why: Option<Refusal>) {
        let why = why.filter(|why| !matches!(why, Refusal::NobodyThere | Refusal::NoUnit));
        let mut refused = self.refused.lock();
        let before = match why {
            Some(why) => refused.insert(path, why),
            None => refused.remove(&path),
        };
        if before != why {
            self.inbox.nudge();
        }
    }

    /// A target has these logical units and no others.
    pub(super) fn refuses_only(&self, target: u64, has: impl Fn(u64) -> bool) {
        self.refused.lock().retain(|path, _| path.target != target || has(path.lun));
    }

    /// Where a device is, for people.
    pub(super) fn words_of(&self, path: Path) -> String {
        let (bus, place) = (self.sim.facts().name, self.sim.place(path));
        match place == path.to_string() {
            true => format!("{path} on bus {bus}"),
            false => format!("{path} on bus {bus} ({place})"),
        }
    }

    /// Why devices are not offered.
    pub(super) fn refusals(&self) -> Vec<Trouble> {
        let refused = self.refused.lock();
        let trouble = |(path, why): (&Path, &Refusal)| {
            let words = format!("the device at {} is not offered: {why}", self.words_of(*path));
            Trouble::degraded(words, self.advice(why))
        };
        refused.iter().map(trouble).collect()
    }

    /// Why a disk that is known is not offered: it has a medium that cannot be taken out, and does
    /// not tell how large that is.
    pub(super) fn is_sizeless(&self, path: Path, facts: &Facts) -> Option<Trouble> {
        let fixed = !facts.is_removable() && facts.role().is_none();
        if !fixed || !facts.is_disk() || facts.media_bytes(&self.sim.facts()).is_some() {
            return None;
        }
        let words = format!(
            "the disk {} at {} is not offered: it does not tell its capacity",
            facts.label(),
            self.words_of(path)
        );
        let number = self.number;
        let action = format!("Look at its target; `ashlar cam rescan {number}` asks it again.");
        Some(Trouble::degraded(words, action))
    }

    fn advice(&self, why: &Refusal) -> String {
        let number = self.number;
        match why {
            Refusal::Medium { .. } => format!(
                "Change its size or the size of its blocks at its target, then type `ashlar cam \
                 rescan {number}`."
            ),
            _ => format!("Look at its target; `ashlar cam rescan {number}` asks it again."),
        }
    }
}
