//! An array's volumes while they are offered: their providers, tables and passes.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use bio::{Attr, Errno};
use geom::{CopyMeter, Deletes, Error, GeomId, Limits, NewProvider, ProviderId, Topology};

use super::geom::{Job, JobPhase, RaidGeom};
use super::members::{ALL, MemberSet, Replay};
use super::model::{Identity, Level, SubdiskState, VolumeState};
use super::name;
use super::records::LogStart;
use super::volume::log::{Log, LogLocation};
use super::volume::map::Shape;
use super::volume::{Path, Role, Table, VolumeShared, VolumeSpec, layer, replay, sweep};
use crate::members::{attributes, largest_stripe, sparse, zeroes};

/// Largest request that a volume takes at once, bytes; the dispatcher cuts longer ones.
const IO_BYTES_MAX: u32 = 1 << 20;

/// Strips of a DELETE or WRITE ZEROES that a volume takes at once; the dispatcher cuts longer ones.
const STRIPS_MAX: u64 = 1024;

/// The same of rows, with parity.
const ROWS_MAX: u64 = 64;

/// A volume that is up.
pub(super) struct RunningVolume {
    pub(super) shared: Arc<VolumeShared>,
    pub(super) provider: ProviderId,
    /// What its provider is called.
    pub(super) name: String,
    pub(super) write_waiting: bool,
    /// The gate is shut, and no request is inside.
    pub(super) drained: bool,
    pub(super) written: u64,
    pub(super) watching: bool,
    /// Slots of members that were lost and are not out on record (a bit a slot).
    pub(super) unrecorded: u64,
    /// Slots of members that were filled and are not in order on record (a bit a slot).
    pub(super) fresh: u64,
    /// Slots of members that failed something after which copies or parity may differ (a bit a
    /// slot): it counts if they stay.
    pub(super) in_doubt: u64,
    pub(super) passing: bool,
    /// The pass is complete, but its result is not in the records yet: the text for lists.
    pub(super) ending: Option<&'static str>,
}

impl RaidGeom {
    /// Volumes that can be offered are; those that cannot any more are not.
    pub(super) fn start_volumes(&mut self, t: &mut Topology, me: GeomId) {
        let Some(set) = &self.set else { return };
        let mut faults = Vec::new();
        for at in 0..set.volume_status.len() {
            let Some(set) = &self.set else { return };
            let (Some(vol), Some(volume)) = (set.volume_status.get(at), set.array.volumes.get(at))
            else {
                continue;
            };
            let (key, up, replay) = (vol.key, vol.up, vol.replay);
            if !up && matches!(replay, Replay::Wanted | Replay::Runs | Replay::Again) {
                // A5
                if replay == Replay::Wanted && set.state(at) > VolumeState::Broken {
                    self.start_replay(t, me, at);
                    continue;
                }
                if replay != Replay::Wanted {
                    continue;
                }
            }
            let can = match up {
                // One that runs continues while it can.
                true if set.state(at) > VolumeState::Broken => Ok(()),
                _ => set.can_start(at, &self.id.name()),
            };
            match can {
                Ok(()) if up => self.set_table(t, at),
                Ok(()) => {
                    if let Err(e) = self.start_volume(t, me, at) {
                        faults.push(e.message);
                    }
                }
                Err(why) if !up => {
                    let kept = volume.log.is_some();
                    let metadata = self.metadata.as_ref().filter(|_| set.is_doubtful(at) && !kept);
                    let guard = metadata
                        .and_then(|metadata| metadata.write_hole_policy(volume.id))
                        .map_or_else(String::new, |guard| {
                            format!("; Linux may know: assembled there it reads its {guard}")
                        });
                    faults.push(format!("volume {}: {why}{guard}", volume.name));
                }
                Err(why) => {
                    faults.push(format!("volume {}: {why}", volume.name));
                    self.stop_volume(t, key);
                }
            }
        }
        self.set_fault(t, (!faults.is_empty()).then(|| faults.join("; ")));
    }

    /// Where a volume's logs are, if they are kept.
    fn log_place(&self, at: usize) -> Option<LogLocation> {
        let set = self.set.as_ref()?;
        let area = set.array.volumes.get(at)?.log?;
        let Identity::Intel { original, .. } = set.array.identity else { return None };
        Some(LogLocation { at: area.at, bytes: area.bytes, signature: original })
    }

    /// The logs of a volume, with its disks by slot.
    pub(super) fn logs(&self, key: u32) -> Vec<LogStart> {
        let up = self.running_volumes.get(&key).filter(|up| up.shared.log().is_some());
        let (Some(up), Some(set)) = (up, &self.set) else { return Vec::new() };
        let Some(at) = set.volume(key) else { return Vec::new() };
        let slots = set.array.volumes.get(at).map_or(0, |v| v.members.len());
        let tags = (0..slots).map(|slot| set.role(at, slot).map(|(tag, _)| tag)).collect();
        vec![LogStart { shared: up.shared.clone(), tags }]
    }

    /// Volumes with a log of which the next record lists other members (L6 of
    /// `volume::log`).
    pub(super) fn volumes_to_quiesce(&self, job: Job) -> Vec<Arc<VolumeShared>> {
        let changes = |key: u32, up: &RunningVolume| up.unrecorded != 0 || job == Job::Passed(key);
        let ups = self.running_volumes.iter().filter(|(key, up)| changes(**key, up));
        ups.map(|(_, up)| up.shared.clone()).filter(|shared| shared.log().is_some()).collect()
    }

    fn start_replay(&mut self, t: &Topology, me: GeomId, at: usize) {
        let place = self.log_place(at);
        let Some(set) = &mut self.set else { return };
        let slots = set.array.volumes.get(at).map_or(0, |v| v.members.len());
        let member = |slot: usize| {
            let (tag, role) = set.role(at, slot)?;
            let disk = self.disks.get(&tag).filter(|_| role == Role::Good)?;
            let offset = set.array.volumes.get(at)?.members.get(slot)?.offset;
            Some((t.edge(disk.consumer), offset))
        };
        let members = (0..slots).map(member).collect();
        let (Some(vol), Some(volume)) = (set.volume_status.get_mut(at), set.array.volumes.get(at))
        else {
            return;
        };
        let Some(place) = place else {
            vol.replay = Replay::None;
            return;
        };
        vol.replay = Replay::Runs;
        let (key, shape, sector) = (vol.key, Shape::of(volume), u64::from(self.sector));
        let name = name::provider(self.id, &set.array.volumes, at);
        let job = replay::Replay { key, name, shape, sector, place, members };
        replay::start(&t.notifier(), me, job);
    }

    fn start_volume(&mut self, t: &mut Topology, me: GeomId, at: usize) -> Result<(), Error> {
        let place = self.log_place(at).or_else(|| self.free_log_location(at));
        let Some(set) = &mut self.set else { return Ok(()) };
        set.accept_parity(at);
        let (Some(volume), Some(vol)) = (set.array.volumes.get(at), set.volume_status.get_mut(at))
        else {
            return Ok(());
        };
        let shape = Shape::of(volume);
        let (kept, replayed) = (volume.log.is_some(), vol.replay == Replay::Done);
        let log = place.map(|place| Log::new(place, shape.members(), kept, replayed));
        let (notifier, sector) = (t.notifier(), u64::from(self.sector));
        let key = vol.key;
        let name = name::provider(self.id, &set.array.volumes, at);
        let of = VolumeSpec { key, name: name.clone(), shape: shape.clone(), sector, log };
        let shared = VolumeShared::new(notifier, me, of, self.tunables, self.throttle.clone());
        let strips = !matches!(volume.level, Level::Raid1 | Level::Single | Level::Concat);
        // Where there are no strips blocks begin where the disk's do.
        let first = volume.members.first().map_or(0, |m| m.offset);
        let own_strip = strips.then_some((volume.strip, 0));
        let limits = Limits {
            media_bytes: volume.bytes,
            sector_bytes: self.sector,
            io_max_bytes: IO_BYTES_MAX,
            delete_max_bytes: match (strips, shape.parities()) {
                (false, _) => 0,
                (true, 0) => volume.strip.saturating_mul(STRIPS_MAX),
                (true, _) => shape.row_bytes().saturating_mul(ROWS_MAX),
            },
        };
        let ident = format!("{}-{}", self.id.name(), name::short(&name));
        vol.up = true;
        let redundant = volume.level.redundant();
        let members: Vec<ProviderId> = self.providers(t, at);
        let (stripe_bytes, stripe_offset) = own_strip.unwrap_or_else(|| {
            let (bytes, offset) = largest_stripe(t, &members);
            (bytes, offset.saturating_add(first).checked_rem(bytes).unwrap_or(0))
        });
        let mut attrs = attributes(t, &members);
        // Copies must be deleted by all; a row's parity must follow, as it does for zeroes.
        let deletes = |p: &ProviderId| match shape.parities() {
            0 => t.attr(*p, "GEOM::candelete") == Some(Attr::Int(1)),
            _ => zeroes(t, *p),
        };
        let deletes = !redundant || members.iter().all(deletes);
        shared.deletes.store(deletes, SeqCst);
        if !deletes {
            attrs.retain(|(name, _)| !matches!(*name, "GEOM::candelete" | "GEOM::deletereadszero"));
            attrs.push(("GEOM::candelete", Attr::Int(0)));
        }
        attrs.push(("GEOM::ident", Attr::Text(ident)));
        let result = t.new_provider(
            me,
            NewProvider {
                name: name.clone(),
                layer: layer(shared.clone()),
                limits,
                stripe_bytes,
                stripe_offset,
                attrs,
            },
        );
        let provider = match result {
            Ok(provider) => provider,
            Err(e) => {
                if let Some(vol) = self.set.as_mut().and_then(|set| set.volume_status.get_mut(at)) {
                    vol.up = false;
                }
                return Err(e);
            }
        };
        let up = RunningVolume {
            shared,
            provider,
            name,
            write_waiting: false,
            drained: true,
            written: 0,
            watching: false,
            unrecorded: 0,
            fresh: 0,
            in_doubt: 0,
            passing: false,
            ending: None,
        };
        self.running_volumes.insert(key, up);
        self.set_table(t, at);
        Ok(())
    }

    /// A volume that is up, and its state, if it has something to compare: copies or parity. One
    /// that was `named` must have it.
    pub(super) fn comparable(
        &self,
        at: usize,
        named: bool,
    ) -> Result<Option<(usize, &RunningVolume, VolumeState)>, Error> {
        let Some(set) = &self.set else { return Ok(None) };
        let (Some(vol), Some(volume)) = (set.volume_status.get(at), set.array.volumes.get(at))
        else {
            return Ok(None);
        };
        let up = self.running_volumes.get(&vol.key);
        if named && !volume.level.redundant() {
            let what = format!("volume {} has neither copies nor parity", volume.name);
            return Err(Error::inval(what));
        }
        let up = up.filter(|_| volume.level.redundant());
        Ok(up.map(|up| (at, up, set.state(at))))
    }

    pub(super) fn providers(&self, t: &Topology, at: usize) -> Vec<ProviderId> {
        let Some(set) = &self.set else { return Vec::new() };
        let slots = set.array.volumes.get(at).map_or(0, |v| v.members.len());
        let disks = (0..slots).filter_map(|slot| self.disks.get(&set.role(at, slot)?.0));
        disks.filter_map(|disk| t.below(disk.consumer)).collect()
    }

    /// What DELETE is like over a volume: of levels with parity whole rows are given up.
    pub(super) fn granules(&self, t: &Topology, provider: ProviderId) -> Deletes {
        let known = |set: &super::members::MemberSet| {
            let key = self
                .running_volumes
                .iter()
                .find(|(_, up)| up.provider == provider)
                .map(|(key, _)| *key)?;
            let at = set.volume_status.iter().position(|vol| vol.key == key)?;
            let volume = set.array.volumes.get(at)?;
            let (shape, mut base) = (Shape::of(volume), 0u64);
            let members = volume.members.iter().enumerate().filter_map(|(slot, member)| {
                let begins = base;
                base = base.saturating_add(member.bytes);
                let disk = self.disks.get(&set.role(at, slot)?.0)?;
                let below = t.deletes(t.below(disk.consumer)?).moved(member.offset);
                Some(match volume.level {
                    Level::Raid1 | Level::Single => below,
                    Level::Concat => below.placed(begins),
                    _ => below.striped(volume.strip, shape.width() as u64),
                })
            });
            let all = members.reduce(Deletes::with)?;
            let copies = matches!(volume.level, Level::Raid10 | Level::Raid1e);
            Some(match shape.parities() {
                // Strips of copies are not in rows.
                0 if copies && all.granule > volume.strip => Deletes { offset: None, ..all },
                0 => all,
                _ => all.with(Deletes::of(shape.row_bytes())),
            })
        };
        self.set.as_ref().and_then(known).unwrap_or(Deletes::of(1))
    }

    /// A volume is not offered any more.
    pub(super) fn stop_volume(&mut self, t: &mut Topology, key: u32) {
        if let Some(up) = self.running_volumes.remove(&key) {
            up.shared.close();
            t.wither_provider(up.provider, Errno::NxIo);
        }
        if let Some(set) = &mut self.set
            && let Some(at) = set.volume(key)
        {
            if set.array.volumes.get(at).is_some_and(|volume| volume.dirty) {
                // Writes in progress are on some members and not on others.
                set.mark_inconsistent(at);
            }
            if let Some(vol) = set.volume_status.get_mut(at) {
                vol.up = false;
            }
        }
        let of = |job: &Job| match job {
            Job::Dirty(k) | Job::Clean(k) | Job::Passed(k) | Job::Policy(k, _) => *k == key,
            _ => false,
        };
        self.queue.retain(|job| !of(job));
        if matches!(self.job_phase, Some(JobPhase::Draining(_, of)) if of == key)
            && let Some(JobPhase::Draining(job, _)) = self.job_phase.take()
            && !of(&job)
        {
            self.queue.push_front(job);
        }
    }

    /// Every core uses the current members of a volume.
    pub(super) fn set_table(&self, t: &Topology, at: usize) {
        let Some(set) = &self.set else { return };
        let (Some(volume), Some(vol)) = (set.array.volumes.get(at), set.volume_status.get(at))
        else {
            return;
        };
        let Some(up) = self.running_volumes.get(&vol.key) else { return };
        let (unrecorded, fresh) = (up.unrecorded, up.fresh);
        let mut table = Table { unrecorded, fresh, ..Table::default() };
        for (slot, member) in volume.members.iter().enumerate() {
            let path = set.role(at, slot).and_then(|(tag, role)| {
                let disk = self.disks.get(&tag)?;
                let below = t.below(disk.consumer);
                let deletes = below.and_then(|p| t.attr(p, "GEOM::candelete"));
                Some(Path {
                    edge: t.edge(disk.consumer),
                    offset: member.offset,
                    role,
                    deletes: deletes == Some(Attr::Int(1)),
                    keeps_zeroes: below.is_some_and(|p| sparse::keeps_zeroes(t, p)),
                })
            });
            table.paths.push(path);
        }
        up.shared.consistent_to.store(vol.consistent_to, SeqCst);
        if let Some(log) = up.shared.log().filter(|_| vol.consistent_to != ALL) {
            log.set_doubt();
        }
        up.shared.set(&table);
    }

    pub(super) fn set_tables(&self, t: &Topology) {
        let count = self.set.as_ref().map_or(0, |set| set.volume_status.len());
        (0..count).for_each(|at| self.set_table(t, at));
    }

    /// Whether all records list the members of a volume that are being filled (J6).
    fn is_on_record(&self, set: &MemberSet, at: usize) -> bool {
        let filled = set.filled(at);
        let is_recorded = |slot: &usize| {
            let now = set.array.volumes.get(at).and_then(|v| v.members.get(*slot));
            let recorded = set.recorded.volumes.get(at).and_then(|v| v.members.get(*slot));
            let filling = [SubdiskState::New, SubdiskState::Rebuild];
            recorded.is_some_and(|s| {
                now.is_some_and(|n| n.disk == s.disk) && filling.contains(&s.state)
            })
        };
        let held = Some(set.array.generation);
        let attached = set.attached.iter().flatten().filter_map(|tag| self.disks.get(tag));
        filled.is_empty()
            || filled.iter().all(is_recorded) && attached.into_iter().all(|d| d.holds == held)
    }

    /// Passes that are needed and do not run begin.
    pub(super) fn start_passes(&mut self) {
        let Some(set) = &self.set else { return };
        for at in 0..set.volume_status.len() {
            let Some(key) = set.volume_status.get(at).map(|vol| vol.key) else { continue };
            let from = set.pass_from(at).filter(|_| self.is_on_record(set, at));
            let Some(up) = self.running_volumes.get_mut(&key).filter(|up| !up.passing) else {
                continue;
            };
            if let Some(from) = from {
                self.rounds += 1;
                up.passing = true;
                sweep::start(&up.shared, self.rounds, from);
            }
        }
    }

    /// A volume's pass ends, to begin anew if it is still needed.
    pub(super) fn halt_pass(&mut self, key: u32) {
        self.queue.retain(|job| *job != Job::Passed(key));
        if let Some(set) = &mut self.set
            && let Some(at) = set.volume(key)
            && let Some(vol) = set.volume_status.get_mut(at)
        {
            vol.halt = None;
        }
        if let Some(up) = self.running_volumes.get_mut(&key) {
            up.passing = false;
            up.shared.round.store(0, SeqCst);
            *up.shared.meter() = CopyMeter::default();
        }
    }

    pub(super) fn halt_passes(&mut self) {
        let keys: Vec<u32> = self.running_volumes.keys().copied().collect();
        keys.into_iter().for_each(|key| self.halt_pass(key));
    }
}
