//! Records to be written to an array's disks, and the consequences of success or failure. The
//! invariants are those of [`super::geom`]: J2, J5, J7.

use std::sync::atomic::Ordering::Relaxed;

use bio::Errno;
use geom::{GeomId, Severity, Topology};

use super::geom::{Job, JobPhase, Loss, Message, RaidGeom, SICK_NS};
use super::members::Tag;
use super::metadata::PresentDisk;
use super::records::RecordWrite;

impl RaidGeom {
    /// The records to be written to the disks.
    pub(super) fn record_writes(&mut self, t: &Topology) -> Result<Vec<RecordWrite>, String> {
        let (Some(set), Some(metadata)) = (&mut self.set, &mut self.metadata) else {
            return Ok(Vec::new());
        };
        let mut array = set.record();
        let mut present = Vec::new();
        for (index, tag) in set.attached.iter().enumerate() {
            if let Some(disk) = tag.and_then(|tag| self.disks.get(&tag)) {
                let sectors = disk.media_bytes / u64::from(self.sector.max(1));
                present.push(PresentDisk { index, sectors, moved: disk.grown });
            }
        }
        let now_s = (self.tunables.wall_s)();
        let above = self.highest_generation;
        let plans = metadata.write(&mut array, &present, above, self.sector, now_s);
        let plans = plans.map_err(|fault| fault.to_string())?;
        set.array.generation = array.generation;
        set.recorded = array;
        let note = |(index, plan)| {
            let tag = set.attached.get(index).copied().flatten()?;
            let disk = self.disks.get(&tag)?;
            // J5; a spare that takes a place is written last: disks that do not know it would
            // reject it.
            let order = (disk.found.is_spare() && disk.holds.is_none(), disk.holds);
            Some((order, RecordWrite { tag, edge: t.edge(disk.consumer), plan }))
        };
        let mut notes: Vec<_> = plans.into_iter().filter_map(note).collect();
        notes.sort_by_key(|(order, _)| *order);
        let notes: Vec<RecordWrite> = notes.into_iter().map(|(_, note)| note).collect();
        let size = |tag: Tag| self.disks.get(&tag).map_or(0, |disk| disk.media_bytes);
        self.noted = notes.iter().map(|note| (note.tag, size(note.tag))).collect();
        Ok(notes)
    }

    /// Records are written, but those of `failed`: which may be torn.
    pub(super) fn note_held(&mut self, failed: &[Tag]) {
        let generation = self.set.as_ref().map(|set| set.array.generation);
        for (tag, bytes) in std::mem::take(&mut self.noted) {
            if let Some(disk) = self.disks.get_mut(&tag) {
                disk.holds = generation.filter(|_| !failed.contains(&tag));
                disk.held = disk.holds.or(disk.held);
                // It may have grown meanwhile: that record is no longer at its end.
                disk.grown &= failed.contains(&tag) || disk.media_bytes > bytes;
                if let Some(metadata) = &mut self.metadata {
                    metadata.written(&disk.key, !failed.contains(&tag), self.sector);
                }
            }
        }
    }

    /// Records are written, but those of `failed`.
    pub(super) fn written(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        failed: Vec<(Tag, Errno)>,
        left: Option<Tag>,
    ) {
        let Some(JobPhase::Writing(job)) = self.job_phase.take() else { return };
        let torn: Vec<Tag> = failed.iter().map(|(tag, _)| *tag).collect();
        self.noted.retain(|(tag, _)| Some(*tag) != left);
        self.note_held(&torn);
        if left.is_some() {
            return self.requeue(t, me, job, &failed);
        }
        let some = self.disks.keys().any(|tag| !torn.contains(tag));
        if !some || self.drop_failed(&failed) {
            self.fail_writes(t, job);
        } else {
            for up in self.running_volumes.values_mut() {
                (up.unrecorded, up.fresh) = (0, 0);
                up.shared.records_failed.store(false, Relaxed);
            }
            self.set_tables(t);
            self.release_decided(t);
            self.finish(job, failed.is_empty());
            self.start_passes();
        }
        self.go_on(t, me);
    }

    /// J7: the volume is still dirty; the disks that failed are out first.
    pub(super) fn flush_failed(&mut self, t: &mut Topology, me: GeomId, failed: Vec<(Tag, Errno)>) {
        let Some(JobPhase::Writing(job)) = self.job_phase.take() else { return };
        self.noted.clear();
        if let Job::Clean(key) | Job::Passed(key) = job {
            // J8: a member that stays may have lost data that it was to keep.
            for (tag, _) in &failed {
                self.mark_doubtful_if_needed(t, *tag);
            }
            self.set_dirty(key, true);
            if let Some(set) = &mut self.set
                && let Some(at) = set.volume(key)
                && let Some(recorded) = set.recorded.volumes.get_mut(at)
            {
                recorded.dirty = true;
            }
        }
        self.requeue(t, me, job, &failed);
    }

    /// The result of a job is in no record: the job is still to be done.
    pub(super) fn requeue(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        job: Job,
        failed: &[(Tag, Errno)],
    ) {
        match self.drop_failed(failed) {
            true => self.fail_writes(t, job),
            // The lost disk has left: only the records are still to be written.
            false if matches!(job, Job::Out(..)) => self.queue.push_back(Job::Rewrite),
            // The requester is notified of the failure.
            false if matches!(job, Job::Policy(..)) => self.undo_policy(job),
            false => self.queue.push_back(job),
        }
        self.go_on(t, me);
    }

    /// Those that failed what their records needed are out next; true when one has to stay.
    pub(super) fn drop_failed(&mut self, failed: &[(Tag, Errno)]) -> bool {
        let mut stays = false;
        for (tag, error) in failed {
            let index = self.set.as_ref().and_then(|set| set.disk(*tag));
            // A disk pulled at this moment has not failed.
            let loss = if *error == Errno::NxIo { Loss::Unrecorded } else { Loss::Broken };
            match index.map(|index| self.is_needed(index)) {
                Some(false) => self.queue.push_front(Job::Out(*tag, loss)),
                Some(true) => stays = true,
                None => {}
            }
        }
        stays
    }

    /// Records could not be written: nothing is acknowledged until they can.
    pub(super) fn fail_writes(&mut self, t: &mut Topology, job: Job) {
        self.undo_policy(job);
        if self.running_volumes.values().any(|up| !up.shared.records_failed.load(Relaxed)) {
            let why = "records could not be written: writes wait until they can";
            t.remark(self.me, Severity::Failed, why);
        }
        let keys: Vec<u32> = self.running_volumes.keys().copied().collect();
        for key in keys {
            let Some(up) = self.running_volumes.get_mut(&key) else { continue };
            up.shared.records_failed.store(true, Relaxed);
            up.write_waiting = false;
            let (open, unrecorded) = (up.shared.gate.is_open(), up.unrecorded);
            up.shared.fail_waiting(unrecorded);
            up.shared.gate.restart_waiting();
            if !open && job == Job::Dirty(key) {
                self.set_dirty(key, false);
            }
        }
        self.after(t, SICK_NS, Message::RetryRecords);
    }
}
