//! Records to be written to an array's disks, and the consequences of success or failure. The
//! invariants are those of [`super::geom`]: J2, J5, J7.

use std::sync::atomic::Ordering::Relaxed;

use bio::Errno;
use geom::{GeomId, Severity, Topology};

use super::geom::{Doing, Job, Loss, Message, RaidGeom, SICK_NS};
use super::members::Tag;
use super::metadata::Here;
use super::records::Note;

impl RaidGeom {
    /// The records to be written to the disks.
    pub(super) fn notes(&mut self, t: &Topology) -> Result<Vec<Note>, String> {
        let (Some(set), Some(book)) = (&mut self.set, &mut self.book) else {
            return Ok(Vec::new());
        };
        let mut array = set.record();
        let mut here = Vec::new();
        for (index, tag) in set.here.iter().enumerate() {
            if let Some(disk) = tag.and_then(|tag| self.disks.get(&tag)) {
                let sectors = disk.media_bytes / u64::from(self.sector.max(1));
                here.push(Here { index, sectors, moved: disk.grown });
            }
        }
        let plans = book.write(&mut array, &here, self.above, self.sector);
        let plans = plans.map_err(|fault| fault.to_string())?;
        set.array.generation = array.generation;
        set.said = array;
        let note = |(index, plan)| {
            let tag = set.here.get(index).copied().flatten()?;
            let disk = self.disks.get(&tag)?;
            // J5; a spare that takes a place is written last: disks that do not know it would
            // reject it.
            let order = (disk.found.is_spare() && disk.holds.is_none(), disk.holds);
            Some((order, Note { tag, edge: t.edge(disk.consumer), plan }))
        };
        let mut notes: Vec<_> = plans.into_iter().filter_map(note).collect();
        notes.sort_by_key(|(order, _)| *order);
        let notes: Vec<Note> = notes.into_iter().map(|(_, note)| note).collect();
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
                if let Some(book) = &mut self.book {
                    book.written(&disk.key, !failed.contains(&tag), self.sector);
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
        let Some(Doing::Writing(job)) = self.doing.take() else { return };
        let torn: Vec<Tag> = failed.iter().map(|(tag, _)| *tag).collect();
        self.noted.retain(|(tag, _)| Some(*tag) != left);
        self.note_held(&torn);
        if left.is_some() {
            return self.put_off(t, me, job, &failed);
        }
        let some = self.disks.keys().any(|tag| !torn.contains(tag));
        if !some || self.blame(&failed) {
            self.sicken(t, job);
        } else {
            for up in self.ups.values_mut() {
                (up.unrecorded, up.fresh) = (0, 0);
                up.shared.sick.store(false, Relaxed);
            }
            self.set_tables(t);
            self.judged(t);
            self.finish(job, failed.is_empty());
            self.start_passes();
        }
        self.go_on(t, me);
    }

    /// J7: the volume is still dirty; the disks that failed are out first.
    pub(super) fn unsettled(&mut self, t: &mut Topology, me: GeomId, failed: Vec<(Tag, Errno)>) {
        let Some(Doing::Writing(job)) = self.doing.take() else { return };
        self.noted.clear();
        if let Job::Clean(key) | Job::Passed(key) = job {
            // J8: a member that stays may have lost data that it was to keep.
            for (tag, _) in &failed {
                self.doubt_if_needed(t, *tag);
            }
            self.set_dirty(key, true);
            if let Some(set) = &mut self.set
                && let Some(at) = set.volume(key)
                && let Some(said) = set.said.volumes.get_mut(at)
            {
                said.dirty = true;
            }
        }
        self.put_off(t, me, job, &failed);
    }

    /// The result of a job is in no record: the job is still to be done.
    pub(super) fn put_off(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        job: Job,
        failed: &[(Tag, Errno)],
    ) {
        match self.blame(failed) {
            true => self.sicken(t, job),
            // The lost disk has left: only the records are still to be written.
            false if matches!(job, Job::Out(..)) => self.queue.push_back(Job::Rewrite),
            // The requester is notified of the failure.
            false if matches!(job, Job::Policy(..)) => self.undo_policy(job),
            false => self.queue.push_back(job),
        }
        self.go_on(t, me);
    }

    /// Those that failed what their records needed are out next; true when one has to stay.
    pub(super) fn blame(&mut self, failed: &[(Tag, Errno)]) -> bool {
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
    pub(super) fn sicken(&mut self, t: &mut Topology, job: Job) {
        self.undo_policy(job);
        if self.ups.values().any(|up| !up.shared.sick.load(Relaxed)) {
            let why = "records could not be written: writes wait until they can";
            t.remark(self.me, Severity::Failed, why);
        }
        let keys: Vec<u32> = self.ups.keys().copied().collect();
        for key in keys {
            let Some(up) = self.ups.get_mut(&key) else { continue };
            up.shared.sick.store(true, Relaxed);
            up.knocked = false;
            let (open, unrecorded) = (up.shared.gate.is_open(), up.unrecorded);
            up.shared.refuse(unrecorded);
            up.shared.gate.turn_away();
            if !open && job == Job::Dirty(key) {
                self.set_dirty(key, false);
            }
        }
        self.after(t, SICK_NS, Message::Well);
    }
}
