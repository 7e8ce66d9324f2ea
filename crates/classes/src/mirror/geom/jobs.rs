//! Job queue of a mirror, one job after the other: the state changes, the cores get a table,
//! records are written.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bio::Attr;
use geom::{ConsumerId, CopyMeter, GeomId, Severity, Topology};

use super::{Job, JobPhase, MirrorGeom, RECORD_RETRY_NS, bit};
use crate::members::{VerifyReport, frame, sparse, zeroes};
use crate::mirror::bitmap::{Bits, Image, Shape};
use crate::mirror::metadata::Metadata;
use crate::mirror::shared::{Message, Path, RebuildRound, Table};
use crate::mirror::state::{Fault, Role};
use crate::mirror::tasks::{self, Rebuild, RecordMove, RecordWrite};
use crate::mirror::verify::{self, VerifyOptions};

impl MirrorGeom {
    /// Gives every core a table of the present members.
    pub(super) fn set_table(&self, t: &Topology) {
        let mut table = Table {
            unrecorded: self.unrecorded,
            zeroes: self.zeroes,
            bits: self.bits.clone(),
            balance: self.mirror.balance,
            slice: u64::from(self.mirror.slice),
            sector: u64::from(self.mirror.sector_bytes),
            ..Table::default()
        };
        table.paths.resize(self.mirror.slots.len(), None);
        for (slot, member) in self.mirror.members() {
            let active = match member.role {
                Role::Active => true,
                Role::Synchronizing => false,
                Role::Arrived | Role::Stale => continue,
            };
            let Some(consumer) = self.consumers.get(&slot) else { continue };
            let below = t.below(*consumer);
            let deletes = below.and_then(|p| t.attr(p, "GEOM::candelete")) == Some(Attr::Int(1));
            let zeroes = below.is_some_and(|p| zeroes(t, p));
            if let Some(path) = table.paths.get_mut(slot) {
                let priority = member.record.priority;
                *path = Some(Path { edge: t.edge(*consumer), active, priority, deletes, zeroes });
            }
        }
        self.shared.set(&table);
    }

    pub(super) fn start_rebuild(&mut self, t: &Topology, slot: usize) {
        let Some(consumer) = self.consumers.get(&slot) else { return };
        let (bytes, image) = (self.mirror.held_bytes(), &self.mirror.bitmap);
        let member = self.mirror.member(slot);
        let image = image.as_ref().filter(|_| member.is_some_and(|m| m.partial));
        let (saves, runs) = match image {
            Some(image) => (false, image.runs(bytes)),
            None => {
                let from = member.map_or(0, |m| m.record.sync_offset).min(bytes);
                (true, std::iter::once(from..bytes).collect())
            }
        };
        self.rounds += 1;
        let length: u64 = runs.iter().map(|run| run.end.saturating_sub(run.start)).sum();
        let meter = match saves {
            true => CopyMeter::new(bytes.saturating_sub(length), bytes),
            false => CopyMeter::new(0, length),
        };
        self.shared.want(slot, Some(RebuildRound::new(self.rounds, saves, meter)));
        let keeps_zeroes = t.below(*consumer).is_some_and(|p| sparse::keeps_zeroes(t, p));
        let (round, target) = (self.rounds, t.edge(*consumer));
        let job = Rebuild { slot, round, target, runs, keeps_zeroes, saves };
        tasks::rebuild(&self.shared, job);
    }

    /// Members are compared from here on: no write is inside the gate.
    fn verify(&mut self, t: &Topology, options: VerifyOptions) {
        {
            let mut report = self.shared.verified();
            *report = VerifyReport {
                round: report.round + 1,
                running: true,
                repair: options.repair,
                media_bytes: self.mirror.media_bytes,
                ..VerifyReport::default()
            };
        }
        self.set_table(t);
        verify::begin(&self.shared, options, u64::from(self.mirror.sector_bytes));
    }

    /// A comparison has ended.
    pub(super) fn verified(&mut self, t: &Topology, round: u64) {
        let ended = {
            let mut report = self.shared.verified();
            report.running &= report.round != round;
            report.round == round
        };
        if ended {
            self.set_table(t);
        }
    }

    /// Queues a job and continues.
    pub(in crate::mirror) fn push(&mut self, t: &mut Topology, me: GeomId, job: Job) {
        if !self.queue.contains(&job) {
            self.queue.push_back(job);
        }
        self.go_on(t, me);
    }

    /// Queues a job before all others: a job that waits for the gate waits on behind it.
    pub(super) fn urgent(&mut self, t: &mut Topology, me: GeomId, job: Job) {
        if let Some(JobPhase::Draining(waits)) = self.job_phase {
            self.job_phase = None;
            self.queue.push_front(waits);
        }
        self.queue.push_front(job);
        self.go_on(t, me);
    }

    pub(super) fn go_on(&mut self, t: &mut Topology, me: GeomId) {
        while self.job_phase.is_none() && !self.over {
            let Some(job) = self.next() else { break };
            let drains = match job {
                Job::Clean | Job::In(_) | Job::Synced(_) | Job::Verify(_) => true,
                Job::RebuildFromStart(_) => true,
                Job::Sweep | Job::Bitmap(_) => true,
                Job::Mark | Job::Level(_) | Job::Grow(_) => false,
                Job::Dirty | Job::Out { .. } | Job::Progress { .. } | Job::Rewrite => false,
            };
            if drains && !self.drained {
                self.job_phase = Some(JobPhase::Draining(job));
                self.shared.gate.shut();
            } else {
                self.carry_out(t, me, job);
            }
        }
        let busy = self.job_phase.is_some() || !self.queue.is_empty();
        self.shared.busy.store(busy && !self.over, Relaxed);
        self.report(t, me);
    }

    fn next(&mut self) -> Option<Job> {
        let job = self.queue.pop_front();
        if job.is_none() && self.write_waiting {
            // A write arrived while the gate was shut for another job.
            self.write_waiting = false;
            return (!self.shared.gate.is_open()).then_some(Job::Dirty);
        }
        job
    }

    /// The state changes; then records are written, or nothing is left to do.
    pub(super) fn carry_out(&mut self, t: &mut Topology, me: GeomId, job: Job) {
        let mut settle = false;
        match job {
            Job::Dirty if self.shared.gate.is_open() => return,
            Job::Dirty => self.mirror.begin_writes(),
            Job::Clean => {
                if !self.mirror.dirty {
                    return;
                }
                self.mirror.end_writes();
                self.clear_bits();
                settle = true;
            }
            Job::Out { slot, fault, gone } => {
                let is_member = self.mirror.member(slot).is_some();
                if !self.lose(t, me, slot, fault, gone) {
                    if is_member {
                        self.report_kept_member(t, me, slot);
                        // It stays: the data of the failed write is on no member that stays.
                        self.shared.fail_waiting(bit(slot));
                        self.restart_rebuilds();
                        self.removing.remove(&slot);
                    }
                    self.suspects &= !bit(slot);
                    self.shared.release_decided(self.suspects);
                    return;
                }
                if self.over {
                    return;
                }
            }
            Job::In(slot) => {
                match self.mirror.member(slot).map(|m| m.role) {
                    None => return self.reopen(true),
                    Some(Role::Arrived) => self.mirror.place_late(slot),
                    Some(_) => {}
                }
                self.set_table(t);
                self.restart_levelling();
            }
            Job::RebuildFromStart(slot) => return self.rebuild_from_start(t, me, slot),
            Job::Progress { slot, offset, round } => {
                if !self.shared.is_wanted(slot, round) {
                    return;
                }
                self.mirror.synced_to(slot, offset);
            }
            Job::Synced(slot) => {
                if !self.synced(slot) {
                    return self.reopen(true);
                }
                self.set_table(t);
                settle = true;
            }
            Job::Mark if !self.mark() => return,
            Job::Mark => {}
            Job::Sweep if !self.mirror.dirty || !self.clear_bits() => return self.reopen(true),
            Job::Sweep => settle = true,
            Job::Bitmap(shape) => {
                if !self.set_bitmap(shape) {
                    return self.reopen(true);
                }
                self.set_table(t);
                settle = true;
            }
            Job::Verify(options) => {
                self.verify(t, options);
                return self.reopen(true);
            }
            Job::Rewrite => self.set_table(t),
            Job::Level(round) => return self.level(round),
            Job::Grow(round) if !self.grow(round) => return,
            Job::Grow(_) => {}
        }
        self.job_phase = Some(JobPhase::Writing(job));
        let notes = self.record_writes(t, job);
        tasks::write_records(&self.shared, notes, settle);
    }

    /// Rewrites all records: settings have changed.
    pub(in crate::mirror) fn rewrite(&mut self, t: &mut Topology, me: GeomId) {
        self.push(t, me, Job::Rewrite);
    }

    /// Rebuilds a member from its start, unless it has become the last (M4) or was removed.
    fn rebuild_from_start(&mut self, t: &mut Topology, me: GeomId, slot: usize) {
        // J5: the state of the others was recorded before, or they are removed first.
        let others = self.mirror.in_role(Role::Active).iter().any(|s| *s != slot);
        if !others || self.mirror.member(slot).is_none() {
            return self.reopen(true);
        }
        self.mirror.rebuild(slot);
        self.carry_out(t, me, Job::In(slot));
    }

    /// A member is rebuilt. False when it is not one that has everything now.
    fn synced(&mut self, slot: usize) -> bool {
        let role = self.mirror.member(slot).map(|m| m.role);
        // A rebuild that was restarted meanwhile is not over.
        if role != Some(Role::Synchronizing) || self.shared.is_rebuilt(slot) {
            return false;
        }
        if !self.is_on_record() {
            // J5
            self.shared.post_after(RECORD_RETRY_NS, Message::Copied(slot));
            return false;
        }
        self.mirror.synced(slot);
        self.shared.want(slot, None);
        true
    }

    /// The records to be written to the members.
    fn record_writes(&mut self, t: &Topology, job: Job) -> Vec<RecordWrite> {
        if self.mirror.manual {
            self.bumps_writing = self.mirror.syncid_bumps;
            return Vec::new();
        }
        let shows_bits = match job {
            Job::Mark | Job::Sweep | Job::Clean | Job::Bitmap(_) => true,
            // Who joins, or has a new place for it.
            Job::In(_) | Job::Synced(_) | Job::Rewrite | Job::Grow(_) => true,
            Job::Dirty | Job::Out { .. } | Job::Progress { .. } => false,
            Job::Verify(_) | Job::Level(_) | Job::RebuildFromStart(_) => false,
        };
        self.bumps_writing = match job {
            Job::Mark | Job::Sweep => self.bumps_recorded,
            _ => self.mirror.syncid_bumps,
        };
        self.mirror.lineage.written_s = (self.shared.tunables.wall_s)();
        let growth = *self.shared.growth();
        let used = if growth.is_live() { growth.to } else { 0 }.max(self.mirror.media_bytes);
        let note = |slot: usize, consumer: &ConsumerId| {
            let member = self.mirror.member(slot)?;
            let at = frame::last_sector(member.sector_bytes, member.provider_bytes)?;
            // Where a provider has grown both are to be found, or neither (bitmap B1).
            let before = self.moved.get(&slot).copied();
            // The record of a stale member keeps its content, with the present provider size.
            let stale = member.role == Role::Stale && before.is_some();
            let was = Metadata { provider_bytes: member.provider_bytes, ..member.record.clone() };
            let record = self.mirror.record(slot).or_else(|| stale.then_some(was));
            let (record, bytes) = (record?, member.sector_bytes);
            let only_bits = matches!(job, Job::Mark | Job::Sweep) && before.is_none();
            let sector = if only_bits { Vec::new() } else { record.sector(bytes) };
            let alone = || record.without_bitmap().sector(bytes);
            let moves = before.map(|from| RecordMove {
                from,
                clears: from >= used,
                without_bitmap: alone(),
            });
            let bitmap = self.mirror.bitmap.as_ref().filter(|_| shows_bits || before.is_some());
            let bitmap = bitmap.map(|i| (at.saturating_sub(i.bytes.len() as u64), i.bytes.clone()));
            let active = member.role == Role::Active;
            Some(RecordWrite { slot, edge: t.edge(*consumer), at, sector, moves, bitmap, active })
        };
        let mut notes: Vec<RecordWrite> =
            self.consumers.iter().filter_map(|(slot, c)| note(*slot, c)).collect();
        // Otherwise after a power cut one that is rebuilt could be the only one that is new.
        notes.sort_by_key(|n| !n.active);
        let is_written = |slot: &usize, _: &mut u64| notes.iter().any(|n| n.slot == *slot);
        self.moving = self.moved.extract_if(.., is_written).collect();
        notes
    }

    /// The last complete member failed a write that members under rebuild may have done. Their
    /// content no longer equals its content, wherever the write was.
    fn restart_rebuilds(&mut self) {
        for slot in self.mirror.in_role(Role::Synchronizing) {
            self.shared.want(slot, None);
            self.mirror.distrust(slot);
            self.queue.retain(
                |j| !matches!(j, Job::Synced(s) | Job::Progress { slot: s, .. } if *s == slot),
            );
            if !self.queue.contains(&Job::In(slot)) {
                self.queue.push_back(Job::In(slot));
            }
        }
    }

    /// Removes a member. False when it stays: the last ACTIVE one.
    fn lose(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        slot: usize,
        fault: Fault,
        gone: bool,
    ) -> bool {
        let last = self.last_record(slot);
        if self.mirror.lose(slot, fault, gone).is_none() {
            return false;
        }
        self.suspects |= bit(slot);
        self.unrecorded |= bit(slot);
        self.shared.want(slot, None);
        self.moved.remove(&slot);
        self.set_table(t);
        if let Some(consumer) = self.consumers.remove(&slot) {
            let name = t.below(consumer).map(|p| t.provider_name(p).to_owned());
            let name = name.unwrap_or_default();
            if fault == Fault::Broken {
                let why = "this member failed a request: `ashlar mirror forget` and `insert` \
                           add it again";
                self.refuse(t, &name, why);
            }
            self.detach_member(t, slot, consumer, last.filter(|_| !gone));
        }
        std::mem::take(&mut self.duplicates).into_iter().for_each(|p| t.retaste(p));
        if self.mirror.running && self.mirror.in_role(Role::Active).is_empty() {
            t.remark(me, Severity::Failed, "no complete member is left: the mirror is removed");
            Self::take_apart(t, me, self);
        }
        true
    }

    /// Records are written, but those of `failed`.
    pub(super) fn written(&mut self, t: &mut Topology, me: GeomId, failed: Vec<usize>) {
        let Some(JobPhase::Writing(job)) = self.job_phase.take() else { return };
        let active = self.mirror.in_role(Role::Active);
        let on_record = self.mirror.manual || active.iter().any(|s| !failed.contains(s));
        // Those stay where they were that were not written, or not tried for want of one that was.
        let moving = std::mem::take(&mut self.moving);
        let stay = moving.into_iter().filter(|(slot, _)| !on_record || failed.contains(slot));
        self.moved.extend(stay);
        for slot in &failed {
            // The last one stays in any case: an immediate retry would never end.
            if active != [*slot] {
                self.suspect(*slot, Fault::Broken);
            }
        }
        let matters = match job {
            Job::Dirty | Job::Mark => true,
            Job::In(_) | Job::Synced(_) => self.mirror.dirty,
            Job::Sweep | Job::Bitmap(_) => self.mirror.dirty,
            Job::Clean | Job::Out { .. } | Job::Progress { .. } => false,
            Job::Rewrite | Job::Verify(_) | Job::Level(_) | Job::Grow(_) => false,
            Job::RebuildFromStart(_) => false,
        };
        if let Job::In(slot) = job
            && self.mirror.member(slot).map(|m| m.role) == Some(Role::Synchronizing)
        {
            self.start_rebuild(t, slot);
        }
        if !on_record && (matters || self.unrecorded != 0) {
            self.fail_writes(t, me);
        } else {
            if on_record {
                self.recorded(t);
            }
            self.finish(t, me, job, failed.is_empty());
        }
        self.go_on(t, me);
    }

    /// All lost members are recorded as out (J3).
    fn recorded(&mut self, t: &Topology) {
        self.bumps_recorded = self.bumps_writing;
        self.shared.records_failed.store(false, Relaxed);
        if std::mem::take(&mut self.unrecorded) != 0 {
            self.set_table(t);
        }
        let held = self.queue.iter().fold(0, |bits, job| match job {
            Job::Out { slot, .. } => bits | bit(*slot),
            _ => bits,
        });
        self.suspects &= held;
        self.shared.release_decided(self.suspects);
    }

    /// Whether a record has the growth of the syncid, if it had to grow (M10).
    pub(in crate::mirror) fn is_on_record(&self) -> bool {
        self.bumps_recorded == self.mirror.syncid_bumps
    }

    /// No record could be written: nothing is acknowledged until one can.
    fn fail_writes(&mut self, t: &mut Topology, me: GeomId) {
        if !self.shared.records_failed.swap(true, Relaxed) {
            let why = "no member's record could be written: writes wait until one can";
            t.remark(me, Severity::Failed, why);
        }
        if !self.shared.gate.is_open() {
            self.mirror.dirty = false;
        }
        self.write_waiting = false;
        let marks = self.shared.take_marks();
        self.granted.extend(marks.waiting);
        self.shared.restart(std::mem::take(&mut self.granted), false);
        self.shared.fail_waiting(self.unrecorded);
        self.shared.gate.restart_waiting();
        self.shared.post_after(RECORD_RETRY_NS, Message::RetryRecords);
    }

    /// Ends a job after its records are written (all of them if `complete`), and continues waiting
    /// work.
    fn finish(&mut self, t: &mut Topology, me: GeomId, job: Job, complete: bool) {
        match job {
            Job::Dirty if complete => self.open(),
            // First those are removed whose record could not be written.
            Job::Dirty => self.queue.push_back(Job::Dirty),
            Job::In(_) | Job::Synced(_) => self.reopen(complete),
            Job::Sweep | Job::Bitmap(_) => self.reopen(complete),
            Job::Mark => self.marked(complete),
            Job::Clean | Job::Out { .. } | Job::Progress { .. } => {}
            Job::Rewrite | Job::Verify(_) | Job::Level(_) | Job::RebuildFromStart(_) => {}
            Job::Grow(round) => self.grown(t, me, round, complete),
        }
    }

    /// Takes over which bits writes wait for. False when none does.
    fn mark(&mut self) -> bool {
        let marks = self.shared.take_marks();
        self.granted.extend(marks.waiting);
        let Some(image) = &mut self.mirror.bitmap else {
            self.shared.restart(std::mem::take(&mut self.granted), true);
            return false;
        };
        marks.wanted.into_iter().for_each(|(offset, length)| image.mark(offset, length));
        !self.granted.is_empty()
    }

    /// Writes wait for bits. Jobs that wait for the gate to be empty wait for the bits. Lost
    /// members are removed first, because their bitmaps cannot be written.
    pub(super) fn queue_mark(&mut self) {
        if let Some(JobPhase::Draining(waits)) = self.job_phase {
            self.job_phase = None;
            self.queue.push_front(waits);
        }
        let all = std::mem::take(&mut self.queue);
        let is_out = |job: &Job| matches!(job, Job::Out { .. });
        self.queue.extend(all.iter().copied().filter(is_out));
        self.queue.push_back(Job::Mark);
        self.queue.extend(all.into_iter().filter(|job| !is_out(job) && *job != Job::Mark));
    }

    /// The bitmaps are written, with `complete` those of all members.
    fn marked(&mut self, complete: bool) {
        if !complete {
            return self.queue_mark();
        }
        if let (Some(bits), Some(image)) = (&self.bits, &self.mirror.bitmap) {
            bits.set(image);
        }
        self.shared.restart(std::mem::take(&mut self.granted), true);
    }

    /// Clears the bits while no write is in flight, on the cores first. False when they stay.
    fn clear_bits(&mut self) -> bool {
        let cleared = self.mirror.clear_bits();
        if let (true, Some(bits), Some(image)) = (cleared, &self.bits, &self.mirror.bitmap) {
            bits.set(image);
        }
        cleared
    }

    /// Bitmaps are enabled or disabled: no write is in flight, and none begins before all records
    /// have the change. False while a member is rebuilt by them.
    fn set_bitmap(&mut self, shape: Option<Shape>) -> bool {
        // G3
        if self.mirror.members().any(|(_, m)| m.partial) || self.shared.growth().is_live() {
            return false;
        }
        self.mirror.bitmap = shape.map(Image::clear);
        self.bits = shape.map(|shape| Arc::new(Bits::new(shape)));
        true
    }

    /// J1: it was open before the job, and the records are still DIRTY.
    fn reopen(&mut self, complete: bool) {
        match (self.mirror.dirty, complete) {
            (false, _) => {}
            (true, true) => self.open(),
            (true, false) => self.queue.push_back(Job::Dirty),
        }
    }

    pub(super) fn open(&mut self) {
        self.write_waiting = false;
        self.drained = false;
        self.shared.gate.open();
        if !std::mem::replace(&mut self.watching, true) {
            self.written = self.shared.writes();
            self.shared.post_after(self.shared.tunables.idle_ns, Message::Idle);
        }
    }
}
