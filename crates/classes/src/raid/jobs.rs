//! Job queue of an array: jobs run one after the other, and each resumes the requests that waited
//! for it. The invariants are those of [`super::geom`]: J1, J2, J6, J8.

use std::sync::atomic::Ordering::Relaxed;

use geom::{CopyMeter, GeomId, Topology};

use super::arrival::other_size;
use super::geom::{Job, JobPhase, Message, RaidGeom};
use super::members::{ALL, MemberSet, Replay, Tag};
use super::model::DiskState;
use super::records::{self, RecordBatch};
use super::volume::bit;
use crate::members::post_after;

impl RaidGeom {
    /// Queues a job and continues.
    pub(super) fn push(&mut self, t: &mut Topology, me: GeomId, job: Job) {
        if !self.queue.contains(&job) {
            self.queue.push_back(job);
        }
        self.go_on(t, me);
    }

    /// A job that precedes all others: the one that waits for a gate waits on behind it.
    pub(super) fn urgent(&mut self, t: &mut Topology, me: GeomId, job: Job) {
        if let Some(JobPhase::Draining(waits, _)) = self.job_phase {
            self.job_phase = None;
            self.queue.push_front(waits);
        }
        self.queue.retain(|other| *other != job);
        self.queue.push_front(job);
        self.go_on(t, me);
    }

    pub(super) fn go_on(&mut self, t: &mut Topology, me: GeomId) {
        while self.job_phase.is_none() && !self.over {
            let Some(job) = self.next() else { break };
            let gate = match job {
                Job::Clean(key) | Job::Policy(key, _) => {
                    self.running_volumes.get(&key).filter(|up| !up.drained).map(|_| key)
                }
                _ => None,
            };
            match gate.and_then(|key| self.running_volumes.get(&key)) {
                Some(up) => {
                    let (shared, key) = (up.shared.clone(), up.shared.key);
                    self.job_phase = Some(JobPhase::Draining(job, key));
                    shared.gate.shut();
                }
                None => self.carry_out(t, me, job),
            }
        }
        let replays =
            |set: &MemberSet| set.volume_status.iter().any(|vol| vol.replay == Replay::Runs);
        let busy = self.job_phase.is_some() || !self.queue.is_empty();
        let busy = busy || self.set.as_ref().is_some_and(replays);
        self.busy.store(u64::from(busy && !self.over), Relaxed);
        self.report(t, me);
    }

    pub(super) fn next(&mut self) -> Option<Job> {
        if let Some(job) = self.queue.pop_front() {
            return Some(job);
        }
        // A request arrived while the gate was shut for another reason.
        let knocked = self.running_volumes.iter_mut().find(|(_, up)| up.write_waiting);
        let (key, up) = knocked?;
        up.write_waiting = false;
        Some(Job::Dirty(*key))
    }

    pub(super) fn set_dirty(&mut self, key: u32, dirty: bool) -> bool {
        let Some(set) = &mut self.set else { return false };
        let Some(at) = set.volume(key) else { return false };
        let even = set
            .volume_status
            .get(at)
            .is_none_or(|vol| vol.consistent_to == ALL || vol.never_synced);
        // J8
        let even = even && self.running_volumes.get(&key).is_none_or(|up| up.shared.is_settled());
        // Members left out by force are unchanged until something is written.
        let even = even
            && (set.is_recorded_dirty(at)
                || set.volume_status.get(at).is_none_or(|v| !v.accepted_parity));
        let Some(volume) = set.array.volumes.get_mut(at) else { return false };
        if !dirty && !even {
            return false;
        }
        std::mem::replace(&mut volume.dirty, dirty) != dirty
    }

    /// Requests clean records of all volumes. True once they are clean, or cannot become so: a pass
    /// is not over, or a volume taken by force was not written.
    pub(super) fn clean_up(&mut self, t: &mut Topology, me: GeomId) -> bool {
        if self.over || self.set.is_none() {
            return true;
        }
        if self.job_phase.is_some() || !self.queue.is_empty() {
            return false;
        }
        let keys: Vec<u32> = self.running_volumes.keys().copied().collect();
        let dirty: Vec<u32> = keys.into_iter().filter(|key| self.may_become_clean(*key)).collect();
        let is_clean = dirty.is_empty();
        dirty.into_iter().for_each(|key| self.push(t, me, Job::Clean(key)));
        is_clean
    }

    /// Whether a volume is dirty, and [`Job::Clean`] makes it clean, now or when parity that is
    /// owed has been paid.
    fn may_become_clean(&self, key: u32) -> bool {
        let Some(set) = &self.set else { return false };
        let Some(at) = set.volume(key) else { return false };
        let (Some(vol), Some(volume)) = (set.volume_status.get(at), set.array.volumes.get(at))
        else {
            return false;
        };
        let even = vol.consistent_to == ALL || vol.never_synced;
        let marked = volume.level.redundant() && volume.dirty;
        marked && even && (set.is_recorded_dirty(at) || !vol.accepted_parity)
    }

    /// The state changes; then records are written, or nothing is left to do.
    pub(super) fn carry_out(&mut self, t: &mut Topology, me: GeomId, job: Job) {
        let mut settle = false;
        match job {
            Job::Dirty(key) => {
                let Some(up) = self.running_volumes.get(&key) else { return };
                if up.shared.gate.is_open() {
                    return;
                }
                let set = self.set.as_ref();
                let volume = set.and_then(|set| set.array.volumes.get(set.volume(key)?));
                if volume.is_some_and(|volume| !volume.level.redundant()) {
                    return self.open(key);
                }
                self.set_dirty(key, true);
            }
            Job::Clean(key) => {
                if !self.set_dirty(key, false) {
                    // Copies may differ still: writes continue under the mark that is there.
                    return self.reopen(key);
                }
                settle = true;
            }
            Job::Policy(key, keep) => {
                if !self.change_policy(key, keep) {
                    return self.reopen(key);
                }
            }
            Job::Out(tag, loss) => {
                if !self.lose(t, me, tag, loss) {
                    return;
                }
            }
            Job::In(tag) => {
                if !self.use_disk(t, me, tag) {
                    return;
                }
            }
            Job::Passed(key) => {
                let Some(set) = &mut self.set else { return };
                let Some(at) = set.volume(key) else { return };
                let partial = set.volume_status.get(at).is_some_and(|vol| vol.consistent_to != ALL);
                let filled = set.filled(at).into_iter().fold(0, |all, slot| all | bit(slot));
                set.passed(at);
                self.running_volumes.entry(key).and_modify(|up| {
                    up.fresh |= filled;
                    up.ending = Some(if filled == 0 { "synchronised" } else { "rebuild" });
                    *up.shared.meter() = CopyMeter::default();
                });
                let shut = self.running_volumes.get(&key).is_some_and(|up| up.drained);
                if shut {
                    settle = self.set_dirty(key, false);
                }
                self.drop_unused();
                self.set_tables(t);
                if let Some(up) = self.running_volumes.get(&key).filter(|_| partial) {
                    up.shared.mark_parity_valid();
                }
            }
            Job::Rewrite => {
                self.drop_unused();
                self.set_tables(t);
            }
        }
        if self.over {
            return;
        }
        match self.record_writes(t) {
            Ok(notes) => {
                self.job_phase = Some(JobPhase::Writing(job));
                let logs = if let Job::Dirty(key) = job { self.logs(key) } else { Vec::new() };
                let calm = self.volumes_to_quiesce(job);
                settle |= !calm.is_empty();
                let of = t.geom_name(me).to_owned();
                records::write(
                    t.notifier(),
                    me,
                    RecordBatch { of, notes, settle, logs, quiesce: calm },
                );
            }
            Err(why) => {
                self.set_fault(t, Some(why));
                self.fail_writes(t, job);
            }
        }
    }

    pub(super) fn drop_unused(&mut self) {
        let Some(set) = &mut self.set else { return };
        for index in (0..set.array.disks.len()).rev() {
            let is_attached = set.attached.get(index).copied().flatten().is_some();
            let gone = set.array.disks.get(index).map(|disk| disk.state);
            if !is_attached && matches!(gone, Some(DiskState::Missing | DiskState::Failed)) {
                set.drop_disk(index);
            }
        }
    }

    /// A disk that arrived is used. False when nothing is to be written for it.
    pub(super) fn use_disk(&mut self, t: &mut Topology, me: GeomId, tag: Tag) -> bool {
        let (Some(disk), Some(set), Some(metadata)) =
            (self.disks.get(&tag), &mut self.set, &mut self.metadata)
        else {
            return false;
        };
        let (found, key, media) = (disk.found.clone(), disk.key.clone(), disk.media_bytes);
        let outdated = disk.holds != Some(set.array.generation);
        // A copy that was made before: the disk that left had a newer record.
        let newer = |(left, held): &(String, u32)| *left == key && found.generation() < *held;
        let copy = !found.is_torn() && self.departed.iter().any(newer);
        // A6
        let copy = copy || found.is_older_copy(self.start_generation);
        metadata.add_record(&found);
        self.highest_generation =
            self.highest_generation.max(if found.is_spare() { 0 } else { found.generation() });
        let mut grew = false;
        let trusted = match metadata.find(&set.array, &key) {
            Some(index) => {
                grew = other_size(set, index, media).is_some();
                metadata.name(&mut set.array, index, &key);
                set.arrive(index, tag, found.is_spare() || copy)
            }
            None => {
                // It was removed from the list while it arrived: it keeps its identity.
                set.array.disks.push(metadata.same_disk(&found, media, self.sector));
                set.attached.push(Some(tag));
                false
            }
        };
        let took = set.take_spares();
        set.replay_again();
        if let Some(disk) = self.disks.get_mut(&tag).filter(|_| grew) {
            disk.grown = true;
            self.note_size(tag);
        }
        self.halt_passes();
        self.start_volumes(t, me);
        self.start_passes();
        took || !trusted || outdated || grew
    }

    /// Records are written: what waited continues. With `complete` those of all.
    pub(super) fn finish(&mut self, job: Job, complete: bool) {
        match job {
            Job::Dirty(key) if complete => self.open(key),
            // First those are removed whose record could not be written.
            Job::Dirty(key) => self.queue.push_back(Job::Dirty(key)),
            Job::Passed(key) => {
                self.running_volumes.entry(key).and_modify(|up| up.ending = None);
                self.reopen(key);
            }
            Job::Clean(key) => {
                let set = self.set.as_ref();
                let vol = set.and_then(|set| set.volume_status.get(set.volume(key)?));
                let even = vol.is_some_and(|vol| vol.consistent_to == ALL);
                if let Some(up) = self.running_volumes.get(&key).filter(|_| even) {
                    up.shared.mark_parity_valid();
                }
            }
            Job::Out(..) | Job::In(_) | Job::Rewrite | Job::Policy(..) => {}
        }
    }

    /// J1: opens the gate if the records already mark it dirty and name the absent members (J2).
    /// Otherwise the next request has them written.
    pub(super) fn reopen(&mut self, key: u32) {
        let is_dirty = self.set.as_ref().is_some_and(|set| {
            let at = set.volume(key);
            at.is_some_and(|at| set.is_recorded_dirty(at))
        });
        if is_dirty {
            self.open(key);
        }
    }

    pub(super) fn open(&mut self, key: u32) {
        let Some(up) = self.running_volumes.get_mut(&key) else { return };
        up.write_waiting = false;
        up.drained = false;
        up.shared.gate.open();
        if !std::mem::replace(&mut up.watching, true) {
            up.written = up.shared.writes();
            let (notifier, me) = (up.shared.notifier.clone(), up.shared.geom);
            post_after(&notifier, me, self.tunables.idle_ns, Message::Idle(key));
        }
    }
}
