//! Messages to an array's geom from its tasks and layers, and their handling.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use geom::{ConsumerId, CopyMeter, Edge, GeomId, ProviderId, Topology};

use super::geom::{Job, JobPhase, Loss, Message, RaidGeom};
use super::members::Tag;
use super::metadata::MetadataState;
use super::model::SubdiskState;
use super::volume::replay::Replayed;
use super::volume::{FailureEffect, bit, settle, sweep};
use crate::members::{GateNotice, post_after};

/// Read errors of a disk that are repaired before it is taken for broken.
const READ_ERRORS_MAX: u32 = 10;

impl RaidGeom {
    fn idle(&mut self, t: &mut Topology, me: GeomId, key: u32) {
        let Some(up) = self.running_volumes.get_mut(&key) else { return };
        up.watching = false;
        if !up.shared.gate.is_open() {
            return;
        }
        let writes = up.shared.writes();
        let idle = std::mem::replace(&mut up.written, writes) == writes;
        up.watching = true;
        let (notifier, geom) = (up.shared.notifier.clone(), up.shared.geom);
        if idle {
            up.watching = false;
            return self.push(t, me, Job::Clean(key));
        }
        post_after(&notifier, geom, self.tunables.idle_ns, Message::Idle(key));
    }

    /// A member failed: its job is first in the queue.
    fn failed(&mut self, t: &mut Topology, me: GeomId, volume: u32, slot: usize, gone: bool) {
        let set = self.set.as_ref();
        let tag = set.and_then(|set| Some(set.role(set.volume(volume)?, slot)?.0));
        let Some(tag) = tag else { return };
        let queued = |job: &Job| matches!(job, Job::Out(other, _) if *other == tag);
        if self.queue.iter().any(queued) {
            return;
        }
        let loss = if gone { Loss::Absent } else { Loss::Broken };
        self.urgent(t, me, Job::Out(tag, loss));
    }

    /// R8 of `volume::stripes`
    fn row_inconsistent(&mut self, t: &mut Topology, key: u32) {
        let Some(up) = self.running_volumes.get(&key) else { return };
        up.shared.row_inconsistent.store(false, SeqCst);
        self.mark_inconsistent(t, key);
        self.start_passes();
    }

    fn member_unread(&mut self, t: &mut Topology, me: GeomId, message: (u32, usize, bool, bool)) {
        let (volume, slot, gone, mended) = message;
        let set = self.set.as_ref();
        let tag = set.and_then(|set| Some(set.role(set.volume(volume)?, slot)?.0));
        let Some(disk) = tag.and_then(|tag| self.disks.get_mut(&tag)) else { return };
        disk.errors += 1;
        if gone || !mended || disk.errors > READ_ERRORS_MAX {
            self.failed(t, me, volume, slot, gone);
        }
    }

    pub(super) fn on_message(&mut self, t: &mut Topology, me: GeomId, message: Message) {
        match message {
            Message::Gate(key, GateNotice::WriteWaiting) => {
                if let Some(up) = self.running_volumes.get_mut(&key) {
                    up.write_waiting = true;
                }
                self.go_on(t, me);
            }
            Message::Gate(key, GateNotice::Drained) => {
                if let Some(up) = self.running_volumes.get_mut(&key) {
                    up.drained = true;
                }
                if let Some(JobPhase::Draining(job, of)) = self.job_phase
                    && of == key
                {
                    self.job_phase = None;
                    self.carry_out(t, me, job);
                }
                self.go_on(t, me);
            }
            Message::Failed { volume, slot, gone, leaves } => {
                if let Some(up) =
                    self.running_volumes.get_mut(&volume).filter(|_| leaves == FailureEffect::Doubt)
                {
                    up.in_doubt |= bit(slot);
                }
                self.failed(t, me, volume, slot, gone);
            }
            Message::RowInconsistent(volume) => self.row_inconsistent(t, volume),
            Message::Unread { volume, slot, gone, mended } => {
                self.member_unread(t, me, (volume, slot, gone, mended));
            }
            Message::AllReported { volume, number } => {
                if let Some(up) = self.running_volumes.get(&volume) {
                    up.shared.set_reported(number);
                }
                self.release_decided(t);
            }
            Message::Idle(key) => self.idle(t, me, key),
            Message::Due => self.due(t, me),
            Message::Launch(due) => self.launch(t, me, due, false),
            Message::CoresUpdated(tag) => self.push(t, me, Job::In(tag)),
            Message::RetryRecords => {
                for up in self.running_volumes.values() {
                    up.shared.records_failed.store(false, Relaxed);
                    settle(&up.shared);
                }
                self.start_passes();
                // Before a job that waits for a gate: the writes inside may wait for the records.
                self.urgent(t, me, Job::Rewrite);
            }
            Message::Written { failed, left } => self.written(t, me, failed, left),
            Message::Unsettled(failed) => self.flush_failed(t, me, failed),
            Message::Progress { volume, round, done } => self.progress(t, me, volume, round, done),
            Message::Passed { volume, round, result } => self.passed(t, me, volume, round, result),
            Message::Replayed { volume, result } => self.replayed(t, me, volume, result),
        }
    }

    fn is_round(&self, volume: u32, round: u64) -> bool {
        self.running_volumes.get(&volume).is_some_and(|up| up.shared.round.load(SeqCst) == round)
    }

    fn progress(&mut self, t: &mut Topology, me: GeomId, volume: u32, round: u64, done: u64) {
        if !self.is_round(volume, round) {
            return;
        }
        let Some(set) = &mut self.set else { return };
        let Some(at) = set.volume(volume) else { return };
        set.passed_to(at, done);
        if self.metadata.as_ref().is_some_and(MetadataState::keeps_progress) {
            self.push(t, me, Job::Rewrite);
        }
    }

    fn passed(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        volume: u32,
        round: u64,
        result: Result<(), sweep::PassHalt>,
    ) {
        if !self.is_round(volume, round) {
            return;
        }
        self.halt_pass(volume);
        match result {
            Ok(()) => {
                if let Some(up) = self.running_volumes.get(&volume) {
                    let bytes = up.shared.shape.bytes;
                    *up.shared.meter() = CopyMeter::new(bytes, bytes);
                }
                self.push(t, me, Job::Passed(volume));
            }
            // The failed member is handled first; then the pass restarts.
            Err(halt) => {
                if let Some(set) = &mut self.set
                    && let Some(at) = set.volume(volume)
                    && let Some(vol) = set.volume_status.get_mut(at)
                {
                    vol.halt = Some(halt);
                }
            }
        }
    }

    /// A volume's logs have been replayed: it can be offered, and is clean if they were believed.
    fn replayed(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        volume: u32,
        result: Result<Replayed, String>,
    ) {
        let Some(set) = &mut self.set else { return };
        let Some(at) = set.volume(volume) else { return };
        let is_even = set.replayed(at, result.err());
        self.start_volumes(t, me);
        if is_even && self.running_volumes.contains_key(&volume) {
            self.push(t, me, Job::Clean(volume));
        }
        self.start_passes();
        self.go_on(t, me);
    }

    /// A disk was removed.
    pub(super) fn orphaned(&mut self, t: &mut Topology, me: GeomId, consumer: ConsumerId) {
        let tag = self.disks.iter().find(|(_, d)| d.consumer == consumer).map(|(tag, _)| *tag);
        let Some(tag) = tag else { return t.leave(consumer) };
        if self.set.is_none() {
            self.detach_disk(t, tag, None);
            match self.disks.is_empty() {
                true => Self::take_apart(t, me, self),
                // The obstacle to a start may have been removed.
                false => t.barrier(me, Box::new(Message::Launch(false))),
            }
            return;
        }
        self.queue
            .retain(|job| !matches!(job, Job::Out(other, _) | Job::In(other) if *other == tag));
        self.urgent(t, me, Job::Out(tag, Loss::Gone));
    }

    /// A disk may have grown: records are sought at its end.
    pub(super) fn disk_resized(&mut self, t: &mut Topology, me: GeomId, consumer: ConsumerId) {
        let bytes = t.below(consumer).and_then(|p| t.limits(p)).map(|l| l.media_bytes);
        let disk = self.disks.iter_mut().find(|(_, disk)| disk.consumer == consumer);
        let (Some(bytes), Some((tag, disk))) = (bytes, disk) else { return };
        if bytes <= disk.media_bytes {
            return;
        }
        (disk.media_bytes, disk.grown) = (bytes, true);
        let tag = *tag;
        self.note_size(tag);
        if self.set.is_some() {
            self.push(t, me, Job::Rewrite);
        }
    }

    /// The array's record contains the size of a disk (Intel), or the usable part of it (DDF, which
    /// does not change).
    pub(super) fn note_size(&mut self, tag: Tag) {
        let (Some(set), Some(metadata)) = (&mut self.set, &self.metadata) else { return };
        let Some(bytes) = self.disks.get(&tag).map(|disk| disk.media_bytes) else { return };
        let index = set.disk(tag).filter(|_| metadata.counts_full_disks());
        if let Some(disk) = index.and_then(|index| set.array.disks.get_mut(index)) {
            disk.bytes = bytes;
        }
    }

    /// The last writer of a provider has closed it.
    pub(super) fn last_writer_closed(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        provider: ProviderId,
    ) {
        let key = self
            .running_volumes
            .iter()
            .find(|(_, up)| up.provider == provider)
            .map(|(key, _)| *key);
        if let Some(key) = key {
            self.push(t, me, Job::Clean(key));
        }
    }

    /// The way to a disk, by its provider's name, and its number.
    pub(super) fn called(&self, name: &str) -> Option<(Tag, ConsumerId)> {
        let found = self.disks.iter().find(|(_, disk)| disk.name == name);
        found.map(|(tag, disk)| (*tag, disk.consumer))
    }

    /// The way to a disk.
    pub(super) fn edge(&self, t: &Topology, tag: Tag) -> Option<Edge> {
        self.disks.get(&tag).map(|disk| t.edge(disk.consumer))
    }

    /// A disk that was to be inserted did not arrive.
    pub(super) fn cancel_insert(&mut self, key: &str) {
        let (Some(set), Some(metadata)) = (&mut self.set, &self.metadata) else { return };
        let Some(index) = metadata.find(&set.array, key) else { return };
        if set.attached.get(index).copied().flatten().is_none() {
            set.drop_disk(index);
        }
    }

    /// A volume is no more.
    pub(super) fn forget(&mut self, key: u32) {
        let (Some(set), Some(metadata)) = (&mut self.set, &mut self.metadata) else { return };
        if let Some(at) = set.volume(key) {
            let volume = set.array.volumes.remove(at);
            set.volume_status.remove(at);
            if at < set.recorded.volumes.len() {
                set.recorded.volumes.remove(at);
            }
            metadata.delete_volume(volume.id);
        }
    }

    /// A disk's members, as lists show them.
    pub(super) fn states(&self, tag: Tag) -> Vec<(u32, usize, SubdiskState)> {
        let Some(set) = &self.set else { return Vec::new() };
        let Some(index) = set.disk(tag) else { return Vec::new() };
        let mut out = Vec::new();
        for (vol, volume) in set.volume_status.iter().zip(&set.array.volumes) {
            for (slot, member) in volume.members.iter().enumerate() {
                if member.disk == index {
                    out.push((vol.key, slot, member.state));
                }
            }
        }
        out
    }
}
