//! Reports of an array: journal entries, and problems shown by `status`.

use geom::{GeomId, Severity, Topology, Trouble};

use super::arrival::SPLIT;
use super::geom::{NAME, RaidGeom};
use super::members::ALL;
use super::model::{DiskState, SubdiskState, VolumeState};
use super::show::{member_state_str, state_str};
use super::volume::Role;
use super::volume::map::Shape;
use super::volume::sweep::PassHalt;
use crate::members::{ComponentState, verb_util};

fn severity(state: VolumeState) -> Severity {
    match state {
        VolumeState::Optimal => Severity::Good,
        VolumeState::Suboptimal | VolumeState::Degraded => Severity::Degraded,
        VolumeState::Broken => Severity::Failed,
    }
}

impl RaidGeom {
    /// A volume as users call it.
    fn title(&self, t: &Topology, at: usize) -> String {
        let set = self.set.as_ref();
        let name = set.and_then(|set| set.array.volumes.get(at)).map_or("", |v| &v.name);
        let key = set.and_then(|set| set.volume_status.get(at)).map(|vol| vol.key);
        match key.and_then(|key| self.running_volumes.get(&key)) {
            Some(up) => t.provider_name(up.provider).to_owned(),
            None => format!("volume {name}"),
        }
    }

    fn component_states(&self) -> Vec<ComponentState> {
        let Some(set) = &self.set else { return Vec::new() };
        let mut facts = Vec::new();
        for at in 0..set.volume_status.len() {
            let state = set.state(at);
            let up = set.volume_status.get(at).is_some_and(|vol| vol.up);
            let words = match up {
                true => state_str(state).to_owned(),
                false => format!("not offered ({})", state_str(state)),
            };
            let severity = if up { severity(state) } else { Severity::Failed };
            let name = set.array.volumes.get(at).map_or("", |volume| &volume.name);
            facts.push(ComponentState {
                subject: format!("volume {name}"),
                severity,
                state: words,
            });
        }
        for (tag, disk) in &self.disks {
            let filling = |at: usize| {
                let slots = set.array.volumes.get(at).map_or(0, |v| v.members.len());
                (0..slots).any(|slot| set.role(at, slot) == Some((*tag, Role::Filling)))
            };
            let known = set.disk(*tag).and_then(|index| set.array.disks.get(index));
            let (severity, words) = match known.map(|disk| disk.state) {
                _ if (0..set.volume_status.len()).any(filling) => {
                    (Severity::Degraded, "REBUILD".to_owned())
                }
                Some(DiskState::Spare) => (Severity::Good, "SPARE".to_owned()),
                _ => match self.states(*tag).iter().map(|(.., state)| *state).min() {
                    None => (Severity::Good, "NONE".to_owned()),
                    Some(state) => {
                        let good = state >= SubdiskState::Uninitialized;
                        let severity = if good { Severity::Good } else { Severity::Degraded };
                        (severity, member_state_str(state).to_owned())
                    }
                },
            };
            facts.push(ComponentState { subject: disk.name.clone(), severity, state: words });
        }
        facts
    }

    /// Writes changes to the journal.
    pub(super) fn report(&mut self, t: &mut Topology, me: GeomId) {
        if self.set.is_some() && !self.over {
            let facts = self.component_states();
            self.event_log.report(t, me, &facts);
        }
    }

    /// What keeps it from going as it should, or nothing more.
    pub(super) fn set_fault(&mut self, t: &mut Topology, fault: Option<String>) {
        if let Some(why) = fault.as_ref().filter(|why| self.fault.as_ref() != Some(why)) {
            t.remark(self.me, Severity::Failed, why);
        }
        self.fault = fault;
    }

    /// The problems of the array.
    pub(super) fn health_findings(&self, t: &Topology) -> Vec<Trouble> {
        let name = self.id.name();
        let mut out = Vec::new();
        if let Some(fault) = &self.fault {
            // The named volumes may still start: nothing that destroys is suggested here.
            let action = match fault.starts_with(SPLIT) {
                true => format!("Choose a half: `ashlar {NAME} start {name} --keep DISK`."),
                false => format!(
                    "Reconnect missing disks, if any; `ashlar {NAME} list {name}` shows the record \
                     of each, and `ashlar {NAME} start --force {name}` starts without them."
                ),
            };
            out.push(Trouble::failed(fault.clone(), action));
        }
        let Some(set) = &self.set else {
            if out.is_empty() {
                let names: Vec<&str> = self.disks.values().map(|disk| disk.name.as_str()).collect();
                let why = format!("waiting for more disks, in addition to {}", names.join(", "));
                let action = format!(
                    "Connect the other disks, or `ashlar {NAME} start {name}` starts without them."
                );
                out.push(Trouble::degraded(why, action));
            }
            return out;
        };
        (0..set.volume_status.len()).for_each(|at| self.volume_findings(t, at, &mut out));
        out
    }

    fn volume_findings(&self, t: &Topology, at: usize, out: &mut Vec<Trouble>) {
        let Some(set) = &self.set else { return };
        let (Some(vol), Some(volume)) = (set.volume_status.get(at), set.array.volumes.get(at))
        else {
            return;
        };
        let (title, name) = (self.title(t, at), self.id.name());
        let slots = 0..volume.members.len();
        let lost = slots.clone().filter(|slot| set.role(at, *slot).is_none()).count();
        let filling: Vec<String> = slots
            .filter_map(|slot| set.role(at, slot).filter(|(_, role)| *role == Role::Filling))
            .filter_map(|(tag, _)| self.disks.get(&tag).map(|disk| disk.name.clone()))
            .collect();
        let total = Shape::of(volume).bytes.max(1);
        let percent = |done: u64| u128::from(done) * 100 / u128::from(total);
        let done = self.done_bytes(at).map_or(100, percent);
        let paused = if self.throttle.is_paused() { ", paused" } else { "" };
        let action = || verb_util::rebuild_action(NAME, &name, &self.throttle);
        if lost > 0 {
            let mut why = format!("{title} lacks {lost} of {} disks", volume.members.len());
            if set.may_be_wrong(at) {
                why += "; its parity may be wrong for the missing data";
            }
            why += &self.refused.words();
            // `insert` would overwrite a half that may be wanted: the reason has the commands.
            let action = match self.refused.because(SPLIT) {
                Some(disk) => format!("Choose which data to keep: see the commands for {disk}."),
                None => format!(
                    "Reconnect the disk, or `ashlar {NAME} insert {name} DISK` replaces it."
                ),
            };
            out.push(match vol.up {
                true => Trouble::degraded(why, action),
                false => Trouble::failed(why, action),
            });
        }
        if let Some(halt) = vol.halt {
            let why = match halt {
                PassHalt::Member => "a disk failed a write",
                PassHalt::Source => "the data to be rebuilt cannot be read from any disk",
            };
            let why = format!("the pass over {title} stopped: {why}");
            let action = format!("Find the disk with read errors: `ashlar {NAME} list {name}`.");
            out.push(Trouble::degraded(why, action));
        } else if !filling.is_empty() {
            let why = format!("{title}: {} is being rebuilt, {done}%{paused}", filling.join(", "));
            out.push(Trouble::degraded(why, action()));
        } else if vol.consistent_to != ALL && lost == 0 {
            let why = format!("{title} is being synchronised, {done}%{paused}");
            out.push(Trouble::degraded(why, action()));
        }
    }
}
