//! Arrival of disks at an array, and its start.

use bio::Errno;
use geom::{Error, GeomId, ProviderId, Severity, Topology};

use super::Fault;
use super::assemble::{Found, RecordChoice, choose_record};
use super::geom::{Attached, Job, Message, RaidGeom};
use super::members::{MemberSet, Replay, Tag};
use super::metadata::MetadataState;
use super::model::{Array, DiskState, Identity, Volume, VolumeState};
use super::volume::Role;
use crate::members::{REFUSALS_MAX, attach_alone, post_after, waiting};

impl RaidGeom {
    /// Takes in a provider with a record. It is opened exclusively, so that no other class claims
    /// its content.
    pub(super) fn take_in(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        on: ProviderId,
        found: Found,
    ) -> Result<Tag, Error> {
        let name = t.provider_name(on).to_owned();
        let gone = || Error::new(Errno::NxIo, format!("{name} was removed"));
        let limits = t.limits(on).ok_or_else(gone)?;
        let key = found.key();
        if self.over {
            return Err(Error::new(Errno::NxIo, "the array is being removed"));
        }
        if !found.is_spare() && found.set() != self.id {
            let what = format!("another array is called {} too", self.id.name());
            return Err(Error::new(Errno::Exist, what));
        }
        if self.forced && self.trusted_disk.is_some() && self.is_other_half(&found) {
            self.outrank(t, me, &found);
        }
        let refusal = self.refusal_reason(&name, &found, limits.sector_bytes, limits.media_bytes);
        let is_split = refusal.as_ref().is_some_and(|(_, why)| why.starts_with(SPLIT));
        let steps_back = is_split && self.can_step_back(t, me, &found);
        if let Some((kind, why)) = refusal.filter(|_| !steps_back) {
            if kind == Errno::Exist
                && self.duplicates.len() < REFUSALS_MAX
                && !self.duplicates.contains(&on)
            {
                self.duplicates.push(on);
            }
            self.refuse(t, &name, &why);
            return Err(Error::new(kind, why));
        }
        let consumer = attach_alone(t, me, on)?;
        if steps_back {
            self.step_back(t);
        }
        self.tags += 1;
        let tag = self.tags;
        self.refused.forget(&name);
        let media_bytes = limits.media_bytes;
        let holds = (!found.is_spare() && !found.is_torn()).then(|| found.generation());
        let (grown, errors) = (false, 0);
        let held = holds;
        let disk = Attached { consumer, found, key, name, media_bytes, grown, errors, holds, held };
        self.disks.insert(tag, disk);
        match self.set.is_some() {
            true => t.barrier(me, Box::new(Message::CoresUpdated(tag))),
            false => {
                self.waits(t, me);
                if self.disks.len() == 1 {
                    self.after(t, self.tunables.start_ns, Message::Due);
                }
                t.barrier(me, Box::new(Message::Launch(false)));
            }
        }
        Ok(tag)
    }

    /// Whether the start may be undone, now that the other half of a split array is there. The
    /// conditions: this half was not chosen and has no user, no record was written since the start,
    /// and the records do not report which half is right, or state that the operator chose the
    /// other.
    fn can_step_back(&self, t: &Topology, me: GeomId, found: &Found) -> bool {
        let Some(set) = &self.set else { return false };
        let is_written = set.array.generation != self.start_generation
            || (0..set.volume_status.len()).any(|at| set.is_filling(at));
        // A disk without a place has a pending job.
        let is_at_work = self.job_phase.is_some()
            || !self.queue.is_empty()
            || self.disks.keys().any(|tag| set.disk(*tag).is_none())
            || set.volume_status.iter().any(|vol| vol.replay == Replay::Runs);
        if self.forced || is_written || is_at_work || t.geom_has_user(me) {
            return false;
        }
        let mut all: Vec<&Found> = self.disks.values().map(|disk| &disk.found).collect();
        all.push(found);
        let judged = choose_record(&all, self.sector, None);
        judged.is_some_and(|judged| !judged.split.is_empty() || !judged.outranked.is_empty())
    }

    /// Whether a disk of the running array was used without all disks here that have everything:
    /// it may have data that they lack.
    fn is_other_half(&self, found: &Found) -> bool {
        let (Some(set), Some(metadata)) = (&self.set, &self.metadata) else { return false };
        let good: Vec<&Attached> = self.good().collect();
        let without = |disk: &&Attached| found.was_without(&disk.key, self.sector);
        !found.is_spare()
            && metadata.find(&set.array, &found.key()).is_some()
            && !good.is_empty()
            && good.iter().all(without)
    }

    /// The operator chose another half than that of a disk: the records keep that, so that the next
    /// start needs no choice.
    fn outrank(&mut self, t: &mut Topology, me: GeomId, found: &Found) {
        let metadata = self.metadata.as_mut().filter(|metadata| !metadata.has_dropped(found));
        let Some(metadata) = metadata else { return };
        metadata.outrank(&found.key(), found.generation());
        self.highest_generation = self.highest_generation.max(found.generation());
        self.push(t, me, Job::Rewrite);
    }

    /// Its volumes are withdrawn, and its disks stay attached as they are: the launch that follows
    /// finds both halves.
    fn step_back(&mut self, t: &mut Topology) {
        self.halt_passes();
        let keys: Vec<u32> = self.running_volumes.keys().copied().collect();
        keys.into_iter().for_each(|key| self.stop_volume(t, key));
        (self.set, self.metadata) = (None, None);
        // What this half saw is no reason against a disk of the other.
        self.departed.clear();
        self.failed.clear();
    }

    /// What may be above it waits for it: `members::waiting`.
    fn waits(&self, t: &Topology, me: GeomId) {
        let depth = waiting::depth(t, self.disks.values().map(|disk| disk.consumer));
        let volumes = |disk: &Attached| {
            let (array, _) = MetadataState::open(&[&disk.found], 0, self.sector).ok()?;
            array.volumes.iter().map(|volume| volume.bytes).max()
        };
        let bytes = self.disks.values().filter_map(volumes).max();
        self.starting.add(me, depth, bytes.unwrap_or(0));
    }

    /// The time to wait for further disks is up, unless missing disks may be about to arrive (W1 of
    /// `members::waiting`).
    pub(super) fn due(&mut self, t: &mut Topology, me: GeomId) {
        if self.set.is_none() && self.starting.must_wait(me) {
            return self.after(t, self.tunables.start_ns / 4, Message::Due);
        }
        t.barrier(me, Box::new(Message::Launch(true)));
    }

    /// Why a disk cannot be taken in, if so.
    fn refusal_reason(
        &self,
        name: &str,
        found: &Found,
        sector: u32,
        media: u64,
    ) -> Option<(Errno, String)> {
        if sector != self.sector {
            let why = format!(
                "its sectors have {sector} bytes, those of the others {}: records count in sectors \
                 of one size",
                self.sector
            );
            return Some((Errno::Inval, why));
        }
        let key = found.key();
        if let Some(twin) = self.disks.values().find(|disk| disk.key == key) {
            let why = format!(
                "{} is there already as disk {key}: the same disk by another name, or a copy of it",
                twin.name
            );
            return Some((Errno::Exist, why));
        }
        let others = || self.disks.values().map(|disk| &disk.found);
        if self.set.is_some()
            && let Some(why) = others().find_map(|other| found.contradicts(other, sector))
        {
            return Some((Errno::Inval, why));
        }
        if let Some(why) = self.encloses_member(found, media) {
            return Some((Errno::NoDev, why));
        }
        self.foreign_reason(name, found, media).map(|why| (Errno::Inval, why))
    }

    /// Why a disk is no member, but a partition at its end may be, which ends where the disk does:
    /// the array knows a smaller one by that name.
    fn encloses_member(&self, found: &Found, media: u64) -> Option<String> {
        if let (Some(set), Some(metadata)) = (&self.set, &self.metadata) {
            return self.enclosure_reason((set, metadata), found, media);
        }
        let all: Vec<&Found> = self.disks.values().map(|disk| &disk.found).collect();
        let (set, metadata) = self.probe(&all)?;
        self.enclosure_reason((&set, &metadata), found, media)
    }

    /// The array as the newest of these has it.
    fn probe(&self, found: &[&Found]) -> Option<(MemberSet, MetadataState)> {
        let judged = choose_record(found, self.sector, None)?;
        let (array, metadata) = MetadataState::open(found, judged.winner, self.sector).ok()?;
        Some((MemberSet::start(array, Vec::new()), metadata))
    }

    fn enclosure_reason(
        &self,
        (set, metadata): (&MemberSet, &MetadataState),
        found: &Found,
        media: u64,
    ) -> Option<String> {
        let index = metadata.find(&set.array, &found.key())?;
        let known = set.array.disks.get(index)?.bytes;
        other_size(set, index, media).filter(|_| known < media && !self.records_size(found, media))
    }

    /// One that is there and is no member, but around one. A torn record does not report the size
    /// of its disk; those of the others do.
    fn enclosing_disk(&self, found: &[&Found]) -> Option<(Tag, String)> {
        let (set, metadata) = self.probe(found)?;
        let mut fixed = self.disks.iter().filter(|(_, disk)| !disk.grown);
        fixed.find_map(|(tag, disk)| {
            let why = self.enclosure_reason((&set, &metadata), &disk.found, disk.media_bytes)?;
            Some((*tag, why))
        })
    }

    /// Why a disk cannot be of the running array, if so.
    fn foreign_reason(&self, name: &str, found: &Found, media: u64) -> Option<String> {
        let (Some(set), Some(metadata)) = (&self.set, &self.metadata) else { return None };
        let key = found.key();
        let Some(index) = metadata.find(&set.array, &key) else {
            return match found.is_spare() {
                true => None,
                false => Some(format!(
                    "disk {key} is not of the array any more: `ashlar raid clear` it, then \
                     `insert` adds it again"
                )),
            };
        };
        let known = set.array.disks.get(index)?;
        if matches!(known.state, DiskState::Failed | DiskState::Disabled) {
            return Some(self.why_failed(&key, name));
        }
        let other = || other_size(set, index, media).filter(|_| !self.records_size(found, media));
        if let Some(why) = too_small(set, index, media).or_else(other) {
            return Some(why);
        }
        if found.is_torn() && !self.has_seen(&key, found.generation()) {
            return Some(
                "its record is torn, and newer than the array was at its start: this disk may have \
                 been used without those of the running array. `clear` it and `insert` it"
                    .into(),
            );
        }
        if self.is_other_half(found) {
            let set = self.id.name();
            let knows = |disk: &Attached| found.lists(&disk.key, self.sector);
            if metadata.has_dropped(found) && self.good().any(knows) {
                return Some(OTHER_HALF.into());
            }
            let present: Vec<&str> = self.good().map(|disk| disk.name.as_str()).collect();
            return Some(format!(
                "{SPLIT}this disk ({}) was used without those of the running array ({}, started \
                 with {}): each side may hold data that the other lacks. To keep the data of this \
                 one: `ashlar raid stop {set}`, then `ashlar raid start {set} --keep {name}`; to \
                 keep the running array: `ashlar raid clear {name}`, then `ashlar raid insert \
                 {set} {name}`",
                found.age(),
                present.join(", "),
                self.start_age
            ));
        }
        None
    }

    /// Whether a disk's own record has this size in bytes: it has grown, and the others' records do
    /// not report it yet.
    fn records_size(&self, found: &Found, media: u64) -> bool {
        found.disk_bytes(self.sector) == Some(media)
    }

    /// Whether the array has seen everything that a disk had seen whose records were whole up to a
    /// generation.
    fn has_seen(&self, key: &str, generation: u32) -> bool {
        let left = self.departed.iter().find(|(left, _)| left == key);
        generation <= self.start_generation || left.is_some_and(|(_, held)| generation <= *held)
    }

    /// Disks that have everything of some redundant volume.
    fn good(&self) -> impl Iterator<Item = &Attached> {
        let set = self.set.as_ref();
        self.disks.iter().filter_map(move |(tag, disk)| {
            let set = set?;
            let is_good = (0..set.array.volumes.len()).any(|at| {
                let slots = set.array.volumes.get(at).map_or(0, |v| v.members.len());
                let redundant = set.array.volumes.get(at).is_some_and(|v| v.level.redundant());
                redundant && (0..slots).any(|slot| set.role(at, slot) == Some((*tag, Role::Good)))
            });
            is_good.then_some(disk)
        })
    }

    pub(super) fn after(&self, t: &Topology, ns: u64, message: Message) {
        post_after(&t.notifier(), self.me, ns, message);
    }

    /// Why disks that are there are not to be used together, unless that is forced. For halves of a
    /// split array that takes the choice of one.
    fn split_reason(
        &self,
        judged: &RecordChoice,
        tags: &[Tag],
        (force, kept): (bool, Option<usize>),
    ) -> Option<String> {
        if force && (kept == Some(judged.winner) || judged.split.is_empty()) {
            return None;
        }
        let name = |at: &usize| {
            let disk = tags.get(*at).and_then(|tag| self.disks.get(tag));
            disk.map_or(String::new(), |disk| disk.name.clone())
        };
        let set = self.id.name();
        if !judged.split.is_empty() {
            let others = judged.split.iter().copied();
            let all: Vec<usize> = [judged.winner].into_iter().chain(others).collect();
            let half = |at: &usize| {
                let disk = tags.get(*at).and_then(|tag| self.disks.get(tag));
                disk.map_or(String::new(), |disk| format!("{} ({})", disk.name, disk.found.age()))
            };
            let halves: Vec<String> = all.iter().map(half).collect();
            let keep = |at: &usize| format!("`ashlar raid start {set} --keep {}`", name(at));
            let commands: Vec<String> = all.iter().map(keep).collect();
            return Some(format!(
                "{SPLIT}halves of the array were used without each other, and each may hold data \
                 that the other lacks: {}. Choose the half to keep: {}",
                halves.join("; "),
                commands.join(" or ")
            ));
        }
        let at = judged.ahead.first()?;
        Some(format!(
            "the record of {} is torn, and newer than the others': that disk may hold data that \
             they lack. `ashlar raid start --force {set}` starts without it",
            name(at)
        ))
    }

    /// Halves of it were used without each other. No other array waits for what only an operator
    /// can start.
    fn await_choice(&mut self, t: &mut Topology, why: String) {
        self.starting.remove(self.me);
        self.set_fault(t, Some(why));
    }

    /// Starts with the present disks, if it has not started; with `due` without waiting for more.
    /// With `force` disks are left out that may hold other data. But which half of a split array is
    /// used is the operator's choice: the one of the trusted disk.
    pub(super) fn launch(&mut self, t: &mut Topology, me: GeomId, due: bool, force: bool) {
        self.due |= due;
        let due = self.due || force;
        if self.set.is_some() || self.over {
            return;
        }
        let tags: Vec<Tag> = self.disks.keys().copied().collect();
        let found: Vec<&Found> = self.disks.values().map(|disk| &disk.found).collect();
        let kept = |disk: &Attached| self.trusted_disk.as_ref() == Some(&disk.name);
        let kept = self.disks.values().position(kept).filter(|_| force);
        let Some(judged) = choose_record(&found, self.sector, kept) else {
            return self.set_fault(t, Some(SPARES.into()));
        };
        if let Some((tag, why)) = self.enclosing_disk(&found) {
            // The partition is found after the disk is released: no start happens before that.
            self.detach_disk(t, tag, Some(&why));
            return match force {
                true => self.launch(t, me, due, force),
                false => t.barrier(me, Box::new(Message::Launch(due))),
            };
        }
        if let Some(why) = self.split_reason(&judged, &tags, (force, kept)) {
            return self.await_choice(t, why);
        }
        let winner = found.get(judged.winner);
        let keys = not_waited_for(&found, winner, self.sector);
        if !due && !winner.is_some_and(|w| w.is_complete(&keys, self.sector)) {
            return;
        }
        let other = |f: &&Found| f.contradicts(winner?, self.sector);
        let contradicting: Vec<(Tag, String)> =
            tags.iter().zip(&found).filter_map(|(tag, f)| Some((*tag, other(f)?))).collect();
        if let Some((_, why)) = contradicting.first().filter(|_| !force) {
            return self.set_fault(t, Some(why.clone()));
        }
        let believed = winner.map_or(0, |winner| winner.generation());
        let above = found.iter().filter(|f| !f.is_spare()).map(|f| f.generation()).max();
        let (mut array, metadata) = match open_array(&found, judged.winner, self.sector) {
            Ok(opened) => opened,
            Err(fault) => return self.set_fault(t, Some(fault.to_string())),
        };
        (self.highest_generation, self.start_generation) = (above.unwrap_or(0), believed);
        self.start_age = winner.map_or(String::new(), |winner| winner.age());
        self.fault = None;
        let tagged = |all: &[usize]| all.iter().filter_map(|at| tags.get(*at)).copied().collect();
        let (ahead, halves): (Vec<_>, Vec<_>) = (tagged(&judged.ahead), tagged(&judged.halves()));
        let split: Vec<Found> = judged.split.iter().map(|at| found[*at].clone()).collect();
        self.forced = kept == Some(judged.winner);
        let (mut attached, mut aged) = (vec![None; array.disks.len()], Vec::new());
        let probe = MemberSet::start(array.clone(), Vec::new());
        for tag in tags {
            let Some(disk) = self.disks.get(&tag) else { continue };
            let index = metadata.find(&array, &disk.key);
            let state = index.and_then(|index| array.disks.get(index)).map(|d| d.state);
            let why = match (index, state) {
                (None, _) => Some("not in the newest record of the array".to_owned()),
                _ if ahead.contains(&tag) => Some(AHEAD.to_owned()),
                _ if halves.contains(&tag) => Some(OTHER_HALF.to_owned()),
                (_, Some(DiskState::Failed | DiskState::Disabled)) => {
                    Some(self.why_failed(&disk.key, &disk.name))
                }
                _ => None,
            };
            let media = disk.media_bytes;
            let is_other = || other_size(&probe, index?, media);
            let grown = disk.grown || self.records_size(&disk.found, media) && is_other().is_some();
            let other = || is_other().filter(|_| !grown);
            let small = || too_small(&probe, index?, media).or_else(other);
            let two = || contradicting.iter().find(|(t, _)| *t == tag).map(|(_, why)| why.clone());
            match (why.or_else(two).or_else(small), index) {
                (Some(why), _) => self.detach_disk(t, tag, Some(&why)),
                (None, Some(index)) => {
                    metadata.name(&mut array, index, &disk.key);
                    if disk.found.is_spare() {
                        mark_empty(&mut array, index);
                    }
                    if disk.found.is_older_copy(believed) {
                        aged.push((tag, index));
                    }
                    attached[index] = Some(tag);
                    if let Some(disk) = self.disks.get_mut(&tag) {
                        disk.grown = grown;
                    }
                }
                (None, None) => {}
            }
        }
        self.mark_outdated(t, &mut array, &attached, &aged);
        self.begin(t, me, MemberSet::start(array, attached), metadata);
        split.iter().for_each(|half| self.outrank(t, me, half));
    }

    /// A6: members whose records are older copies are filled anew, unless a volume cannot do
    /// without one of them.
    fn mark_outdated(
        &self,
        t: &mut Topology,
        array: &mut Array,
        attached: &[Option<Tag>],
        aged: &[(Tag, usize)],
    ) {
        let mut without = array.clone();
        aged.iter().for_each(|(_, index)| mark_empty(&mut without, *index));
        let (now, then) = (
            MemberSet::start(array.clone(), attached.to_vec()),
            MemberSet::start(without.clone(), attached.to_vec()),
        );
        let is_lost = |at: usize| {
            now.state(at) > VolumeState::Broken && then.state(at) == VolumeState::Broken
        };
        let lost = (0..now.volume_status.len()).any(is_lost);
        let mut words = Vec::new();
        for (tag, index) in aged {
            let Some(disk) = self.disks.get(tag) else { continue };
            let changed = |at: usize| now.array.volumes.get(at) != then.array.volumes.get(at);
            let of = |v: &Volume| v.members.iter().any(|m| m.disk == *index);
            let of = |at: usize| now.array.volumes.get(at).is_some_and(of);
            if !(0..now.volume_status.len()).any(|at| of(at) && changed(at)) {
                continue;
            }
            let (own, newest) = (disk.found.generation(), self.start_generation);
            words.push(format!(
                "{} is older than the array (generation {own}, newest {newest})",
                disk.name
            ));
        }
        let words = words.join("; ");
        if words.is_empty() {
            return;
        }
        if lost {
            // A disk that a volume cannot do without stays though its record cannot be written.
            return t.remark(self.me, Severity::Degraded, &format!("{words}, and is needed"));
        }
        t.remark(self.me, Severity::Degraded, &format!("{words}: it is rebuilt"));
        *array = without;
    }

    /// It runs from now on.
    fn begin(&mut self, t: &mut Topology, me: GeomId, mut set: MemberSet, metadata: MetadataState) {
        let torn = set.attached.iter().flatten().filter_map(|tag| self.disks.get(tag));
        let torn = torn.into_iter().any(|disk| disk.found.is_torn() || disk.grown);
        let spares = set.take_spares();
        let filling = (0..set.volume_status.len()).any(|at| set.is_filling(at));
        self.starting.remove(me);
        self.set = Some(set);
        self.metadata = Some(metadata);
        self.start_volumes(t, me);
        let grown = self.disks.iter().filter(|(_, disk)| disk.grown);
        let grown: Vec<Tag> = grown.map(|(tag, _)| *tag).collect();
        grown.into_iter().for_each(|tag| self.note_size(tag));
        if spares || filling || torn {
            self.push(t, me, Job::Rewrite);
        }
        self.start_passes();
        self.go_on(t, me);
    }
}

/// The array of the record in force, which does not contradict itself.
fn open_array(
    found: &[&Found],
    winner: usize,
    sector: u32,
) -> Result<(Array, MetadataState), Fault> {
    let (array, metadata) = MetadataState::open(found, winner, sector)?;
    array.check().map(|()| (array, metadata))
}

/// Keys of disks that need not be waited for any more. A spare that is recorded as complete is not
/// among them, for it was cleared after that was recorded.
fn not_waited_for(found: &[&Found], winner: Option<&&Found>, sector: u32) -> Vec<String> {
    let is_there =
        |f: &&&Found| !f.is_spare() || winner.is_some_and(|w| w.excludes(&f.key(), sector));
    found.iter().filter(is_there).map(|f| f.key()).collect()
}

/// A2: a spare is no member in order, regardless of the records of others.
fn mark_empty(array: &mut Array, index: usize) {
    let known = array.disks.get_mut(index).filter(|known| known.state == DiskState::Active);
    if let Some(known) = known {
        known.state = DiskState::Missing;
    }
}

/// Why nothing starts.
const SPARES: &str = "only spares are there, and disks whose records are torn";
/// Why a disk is refused at the start.
const AHEAD: &str = "its record is torn, and newer than the record in use: `clear` it, then \
                     `insert` adds it again";

/// The start of a reason: two halves of an array were used without each other.
pub(super) const SPLIT: &str = "split brain: ";
/// Why a disk is refused at a start that was forced: its data may be all that is left of something.
const OTHER_HALF: &str = "used without the half that was chosen: `clear` it, then `insert` fills \
                          it from that half";

/// Why a disk of so many bytes is too small for its place, if it is.
fn too_small(set: &MemberSet, index: usize, media: u64) -> Option<String> {
    let members = set.array.volumes.iter().flat_map(|v| &v.members);
    let ends = members.filter(|m| m.disk == index).map(|m| m.offset.saturating_add(m.bytes));
    let need = ends.max().unwrap_or(0);
    (need > media)
        .then(|| format!("too small ({media} bytes); its part of the array ends at {need}"))
}

/// Why a disk of another size is not the one in Intel's record. DDF records only the size of the
/// used part of a disk.
pub(super) fn other_size(set: &MemberSet, index: usize, media: u64) -> Option<String> {
    let known = set.array.disks.get(index).map_or(0, |disk| disk.bytes);
    let intel = matches!(set.array.identity, Identity::Intel { .. });
    other_bytes(known, media).filter(|_| intel && known != 0)
}

/// Why a disk of so many bytes is not the one that a record was written for, if it is not.
pub(super) fn other_bytes(known: u64, media: u64) -> Option<String> {
    (known != media).then(|| {
        format!(
            "its record was written for a disk of {known} bytes, and this one has {media}: `ashlar \
             raid clear` it, then `insert` adds it again"
        )
    })
}
