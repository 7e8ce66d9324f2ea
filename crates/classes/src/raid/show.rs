//! The geom's interface to the graph: counts, orphans, lists.

use std::sync::Arc;

use bio::{Attr, Errno};
use geom::{
    Access, ConsumerId, Deletes, Error, Geom, GeomId, Measure, Notice, Progress, ProviderId,
    Topology, Transient, Trouble, message_of,
};

use super::assemble::SetId;
use super::class::Tunables;
use super::geom::{NAME, RaidGeom};
use super::model::{DiskState, Layout, Level, SubdiskState, VolumeState};
use super::name;
use super::volume::Role;
use super::volume::log::Log;
use super::volume::map::Shape;
use crate::members::{MismatchKind, PlaceholderGeom, Throttle, Waiting, verb_util};

/// Levels as they are typed and shown.
pub(super) fn level_str(level: Level) -> String {
    let order = |layout| match layout {
        Layout::LeftAsymmetric => "LA",
        Layout::LeftSymmetric => "LS",
        Layout::RightAsymmetric => "RA",
        Layout::RightSymmetric => "RS",
    };
    match level {
        Level::Raid0 => "RAID0".into(),
        Level::Raid1 => "RAID1".into(),
        Level::Raid1e => "RAID1E".into(),
        Level::Raid10 => "RAID10".into(),
        Level::Concat => "CONCAT".into(),
        Level::Single => "SINGLE".into(),
        Level::Raid4 => "RAID4".into(),
        Level::Raid5(layout) => format!("RAID5-{}", order(layout)),
        Level::Raid6(layout) => format!("RAID6-{}", order(layout)),
    }
}

/// So many of them, for people.
pub(super) fn volumes(count: usize) -> String {
    if count == 1 { "1 volume".into() } else { format!("{count} volumes") }
}

pub(super) fn state_str(state: VolumeState) -> &'static str {
    match state {
        VolumeState::Broken => "BROKEN",
        VolumeState::Degraded => "DEGRADED",
        VolumeState::Suboptimal => "SUBOPTIMAL",
        VolumeState::Optimal => "OPTIMAL",
    }
}

pub(super) fn member_state_str(state: SubdiskState) -> &'static str {
    match state {
        SubdiskState::None => "NONE",
        SubdiskState::Failed => "FAILED",
        SubdiskState::New => "NEW",
        SubdiskState::Rebuild => "REBUILD",
        SubdiskState::Uninitialized => "UNINITIALIZED",
        SubdiskState::Stale => "STALE",
        SubdiskState::Resync => "RESYNC",
        SubdiskState::Active => "ACTIVE",
    }
}

impl RaidGeom {
    /// A geom for an array that has not started.
    pub(super) fn place(
        t: &mut Topology,
        id: SetId,
        sector: u32,
        why: &str,
        settings: (Tunables, Arc<Waiting>, Arc<Throttle>),
    ) -> Result<GeomId, Error> {
        let geom = t.new_geom(NAME, &id.name(), why, Box::new(PlaceholderGeom))?;
        t.set_ops(geom, Box::new(RaidGeom::new(geom, id, sector, settings)));
        Ok(geom)
    }

    /// The name of the disk in a slot of a volume.
    pub(super) fn member_name(&self, at: usize, slot: usize) -> String {
        let tag = self.set.as_ref().and_then(|set| Some(set.role(at, slot)?.0));
        let disk = tag.and_then(|tag| self.disks.get(&tag));
        disk.map_or_else(|| "a removed member".to_owned(), |disk| disk.name.clone())
    }

    fn worst(&self) -> Option<VolumeState> {
        let set = self.set.as_ref()?;
        (0..set.volume_status.len()).map(|at| set.state(at)).min()
    }

    /// Bytes of a volume that its rebuild or resync has done; `None`: all is in order.
    pub(super) fn done_bytes(&self, at: usize) -> Option<u64> {
        let set = self.set.as_ref()?;
        let (vol, volume) = (set.volume_status.get(at)?, set.array.volumes.get(at)?);
        let size = Shape::of(volume).bytes;
        let recorded = match set.is_filling(at) {
            true => vol.filled.min(size),
            false => Some(vol.consistent_to).filter(|done| *done < size)?,
        };
        let copied = self.running_volumes.get(&vol.key).map(|up| up.shared.meter().done());
        Some(recorded.max(copied.unwrap_or(0)))
    }

    /// The rebuild or resync of a running volume.
    fn rebuild_of(&self, at: usize) -> Option<Measure> {
        let set = self.set.as_ref()?;
        let (vol, volume) = (set.volume_status.get(at)?, set.array.volumes.get(at)?);
        let done_bytes = self.done_bytes(at)?;
        let up = self.running_volumes.get(&vol.key)?;
        let good = (0..volume.members.len())
            .filter_map(|slot| set.role(at, slot).filter(|(_, role)| *role == Role::Good))
            .filter_map(|(tag, _)| Some(self.disks.get(&tag)?.name.clone()));
        Some(Measure::Rebuild(Progress {
            part: up.name.clone(),
            sources: good.collect(),
            done_bytes,
            size_bytes: Shape::of(volume).bytes,
            is_paused: self.throttle.is_paused(),
            limit: self.throttle.rate(),
            switch: None,
            span: up.shared.meter().span(),
        }))
    }

    fn show_volume(&self, at: usize, out: &mut Vec<(&'static str, String)>) {
        let Some(set) = &self.set else { return };
        let (Some(vol), Some(volume)) = (set.volume_status.get(at), set.array.volumes.get(at))
        else {
            return;
        };
        let up = self.running_volumes.get(&vol.key);
        let name = up.map_or("-", |up| up.name.as_str());
        let shape = Shape::of(volume);
        let mut line = format!(
            "{name} {} {} {} bytes, strip {}, {} members",
            volume.name,
            level_str(volume.level),
            volume.bytes,
            volume.strip,
            volume.members.len(),
        );
        line += &format!(", {}", state_str(set.state(at)));
        if volume.dirty {
            line += ", dirty";
        }
        let done = |at: u64| u128::from(at) * 100 / u128::from(shape.bytes.max(1));
        if let Some(bytes) = self.done_bytes(at) {
            let what = if set.is_filling(at) { "rebuild" } else { "synchronised" };
            line += &format!(", {what} {}%", done(bytes));
        } else if let Some(what) = up.and_then(|up| up.ending) {
            line += &format!(", {what} 100%");
        }
        if volume.log.is_some() {
            line += ", partial parity log (PPL)";
            if let Some(why) = &vol.unread {
                line += &format!(" (not used at the start: {why})");
            }
        } else if let Some(guard) =
            self.metadata.as_ref().and_then(|metadata| metadata.write_hole_policy(volume.id))
        {
            let now = if volume.dirty { "off while it is dirty" } else { "not used here" };
            line += &format!(", {guard} of Linux ({now})");
        }
        let log = self.running_volumes.get(&vol.key).and_then(|up| up.shared.log());
        if set.may_be_wrong(at) {
            line += ", parity may be wrong for the missing data";
        } else if log.is_some_and(Log::is_in_doubt) {
            line += ", a crash causes a resync";
        }
        if let Some(halt) = vol.halt {
            line += &format!(", stopped ({halt:?})");
        }
        out.push(("Volume", line));
        let members: Vec<String> = volume
            .members
            .iter()
            .enumerate()
            .map(|(slot, member)| {
                let tag = set.attached.get(member.disk).copied().flatten();
                let disk = tag.and_then(|tag| self.disks.get(&tag));
                let name = disk.map_or("-", |disk| disk.name.as_str());
                let filling = matches!(set.role(at, slot), Some((_, Role::Filling)));
                let state = if filling { "REBUILD" } else { member_state_str(member.state) };
                format!("{name} ({state})")
            })
            .collect();
        out.push(("Subdisks", members.join(", ")));
        let Some(report) = up.map(|up| up.shared.verified()).filter(|r| r.round > 0) else {
            return;
        };
        out.push(("Verify", report.line()));
        for place in &report.mismatches {
            let (from, to) = (place.range.start, place.range.end);
            let what = match (place.kind, shape.parities()) {
                (MismatchKind::Unreadable, _) => "cannot be read",
                (MismatchKind::Located, _) => "data does not match both parities of its row",
                (MismatchKind::Ambiguous, _) => {
                    "parity does not match its row; the wrong strips are unknown"
                }
                (MismatchKind::Differs, 0) => "differs from the first copy",
                (MismatchKind::Differs, _) => "parity does not match its row",
            };
            let name = self.member_name(at, place.slot);
            out.push(("Difference", format!("{name}, bytes {from} to {to}: {what}")));
        }
    }
}

impl Geom for RaidGeom {
    fn access(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        provider: ProviderId,
        delta: Access,
    ) -> Result<(), Errno> {
        let after = t.counts(provider).plus(delta);
        if delta.w < 0 && after.w == 0 {
            self.last_writer_closed(t, me, provider);
        }
        Ok(())
    }

    fn keeps_records(&self) -> bool {
        true
    }

    fn clean_records(&mut self, t: &mut Topology, me: GeomId) -> bool {
        self.clean_up(t, me)
    }

    fn deletes(&self, t: &Topology, _: GeomId, provider: ProviderId) -> Deletes {
        self.granules(t, provider)
    }

    fn orphan(&mut self, t: &mut Topology, me: GeomId, consumer: ConsumerId, _: Errno) {
        self.orphaned(t, me, consumer);
    }

    fn resized(&mut self, t: &mut Topology, me: GeomId, consumer: ConsumerId) {
        if !self.over {
            self.disk_resized(t, me, consumer);
        }
    }

    fn on_notice(&mut self, t: &mut Topology, me: GeomId, notice: Notice) {
        match message_of(notice) {
            Ok(message) if !self.over => self.on_message(t, me, message),
            _ => {}
        }
    }

    fn attr(&self, _: &Topology, _: GeomId, _: ProviderId, _: &str) -> Option<Attr> {
        // The attributes of a volume are in its provider's own list.
        None
    }

    fn release_command(&self, t: &Topology, me: GeomId, consumer: ConsumerId) -> Option<String> {
        let (tag, _) = self.disks.iter().find(|(_, disk)| disk.consumer == consumer)?;
        let set = self.set.as_ref();
        let needed = set.is_none_or(|s| s.disk(*tag).is_some_and(|at| !s.breaks(at).is_empty()));
        match needed {
            true => verb_util::stop_command(NAME, t, me),
            false => verb_util::remove_command(NAME, t, me, consumer),
        }
    }

    fn show(&self, _: &Topology, _: GeomId) -> Vec<(&'static str, String)> {
        let state = match (&self.fault, self.worst()) {
            (None, None) => "STARTING".to_owned(),
            (None, Some(state)) => state_str(state).to_owned(),
            (Some(fault), None) => format!("STARTING ({fault})"),
            (Some(fault), Some(state)) => format!("{} ({fault})", state_str(state)),
        };
        let mut out = vec![("State", state), ("Metadata", self.id.format().to_owned())];
        let generation =
            self.set.as_ref().map_or(self.highest_generation, |set| set.array.generation);
        out.push(("Generation", generation.to_string()));
        let count = self.set.as_ref().map_or(0, |set| set.volume_status.len());
        (0..count).for_each(|at| self.show_volume(at, &mut out));
        out.extend(self.refused.lines());
        out
    }

    fn transients(&self, t: &Topology, me: GeomId) -> Vec<Transient> {
        let name = t.geom_name(me);
        let rate = verb_util::rate_change(NAME, name, &self.throttle);
        rate.into_iter().chain(verb_util::pause_change(NAME, name, &self.throttle)).collect()
    }

    fn measures(&self, _: &Topology, _: GeomId) -> Vec<Measure> {
        let count = self.set.as_ref().map_or(0, |set| set.volume_status.len());
        (0..count).filter_map(|at| self.rebuild_of(at)).collect()
    }

    fn troubles(&self, t: &Topology, _: GeomId) -> Vec<Trouble> {
        self.health_findings(t)
    }

    fn show_consumer(
        &self,
        _: &Topology,
        _: GeomId,
        consumer: ConsumerId,
    ) -> Vec<(&'static str, String)> {
        let found = self.disks.iter().find(|(_, disk)| disk.consumer == consumer);
        let Some((tag, disk)) = found else { return Vec::new() };
        let set = self.set.as_ref();
        let state = set.and_then(|set| Some(set.array.disks.get(set.disk(*tag)?)?.state));
        let state = match state {
            None => "NONE",
            Some(DiskState::Active) => "ACTIVE",
            Some(DiskState::Spare) => "SPARE",
            Some(DiskState::Failed) => "FAILED",
            Some(DiskState::Disabled) => "DISABLED",
            Some(DiskState::Missing) => "OFFLINE",
        };
        let members = self.states(*tag);
        let words: Vec<&str> = members.iter().map(|(.., state)| member_state_str(*state)).collect();
        let words =
            if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) };
        let place = |(key, slot, _): &(u32, usize, SubdiskState)| {
            let name = self.running_volumes.get(key).map_or("-", |up| name::short(&up.name));
            format!("{name}:{slot}")
        };
        let places: Vec<String> = members.iter().map(place).collect();
        let mut out = vec![
            ("State", format!("{state}{words}")),
            ("ReadErrors", disk.errors.to_string()),
            ("Subdisks", if places.is_empty() { "-".into() } else { places.join(", ") }),
            ("Disk", disk.key.clone()),
        ];
        // A running array writes the records: that of the start is not the one on the disk.
        if set.is_none() {
            out.push(("Record", disk.found.age()));
        }
        out
    }
}
