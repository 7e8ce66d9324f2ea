//! Jobs, one after the other: the state changes, the cores get a table, records are written.

use std::sync::atomic::Ordering::Relaxed;

use bio::Attr;
use geom::{ConsumerId, GeomId, Topology};

use super::{Doing, Job, MirrorGeom, SICK_NS, bit};
use crate::members::{frame, zeroes};
use crate::mirror::shared::{Path, Table, Told};
use crate::mirror::state::{Fault, Role};
use crate::mirror::tasks::{self, Note, Rebuild};
use crate::mirror::verify::{self, Ask, Report};

impl MirrorGeom {
    /// Every core goes by the members as they are.
    pub(super) fn set_table(&self, t: &Topology) {
        let mut table = Table {
            unrecorded: self.unrecorded,
            zeroes: self.zeroes,
            syncing: self.shared.verified().running,
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
            table.syncing |= !active;
            if let Some(path) = table.paths.get_mut(slot) {
                let priority = member.record.priority;
                *path = Some(Path { edge: t.edge(*consumer), active, priority, deletes, zeroes });
            }
        }
        self.shared.set(table);
    }

    pub(super) fn start_rebuild(&mut self, t: &Topology, slot: usize) {
        let Some(consumer) = self.consumers.get(&slot) else { return };
        let from = self.mirror.member(slot).map_or(0, |m| m.record.sync_offset);
        self.rounds += 1;
        self.shared.want(slot, Some(self.rounds));
        let job = Rebuild {
            slot,
            round: self.rounds,
            target: t.edge(*consumer),
            from: from.min(self.mirror.media_bytes),
            media_bytes: self.mirror.media_bytes,
        };
        tasks::rebuild(&self.shared, job);
    }

    /// Members are compared from here on: no write is inside the gate.
    fn verify(&mut self, t: &Topology, ask: Ask) {
        {
            let mut report = self.shared.verified();
            *report = Report {
                round: report.round + 1,
                running: true,
                repair: ask.repair,
                media_bytes: self.mirror.media_bytes,
                ..Report::default()
            };
        }
        self.set_table(t);
        verify::begin(&self.shared, ask, u64::from(self.mirror.sector_bytes));
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

    /// Queues a job and goes on.
    pub(in crate::mirror) fn push(&mut self, t: &mut Topology, me: GeomId, job: Job) {
        if !self.queue.contains(&job) {
            self.queue.push_back(job);
        }
        self.go_on(t, me);
    }

    /// A job that comes before all others: the one that waits for the gate waits on behind it.
    pub(super) fn urgent(&mut self, t: &mut Topology, me: GeomId, job: Job) {
        if let Some(Doing::Draining(waits)) = self.doing {
            self.doing = None;
            self.queue.push_front(waits);
        }
        self.queue.push_front(job);
        self.go_on(t, me);
    }

    pub(super) fn go_on(&mut self, t: &mut Topology, me: GeomId) {
        while self.doing.is_none() && !self.over {
            let Some(job) = self.next() else { break };
            let drains = match job {
                Job::Clean | Job::In(_) | Job::Synced(_) | Job::Verify(_) => true,
                Job::Dirty | Job::Out { .. } | Job::Progress { .. } | Job::Rewrite => false,
            };
            if drains && !self.drained {
                self.doing = Some(Doing::Draining(job));
                self.shared.gate.shut();
            } else {
                self.carry_out(t, me, job);
            }
        }
        let busy = self.doing.is_some() || !self.queue.is_empty();
        self.shared.busy.store(busy && !self.over, Relaxed);
    }

    fn next(&mut self) -> Option<Job> {
        let job = self.queue.pop_front();
        if job.is_none() && self.knocked {
            // Somebody came while the gate was shut for something else.
            self.knocked = false;
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
                self.mirror.dirty = false;
                settle = true;
            }
            Job::Out { slot, fault, gone } => {
                let there = self.mirror.member(slot).is_some();
                if !self.lose(t, me, slot, fault, gone) {
                    if there {
                        // It stays: what it failed is on nobody that stays.
                        self.shared.refuse(bit(slot));
                        self.copy_anew();
                        self.parting.remove(&slot);
                    }
                    self.suspects &= !bit(slot);
                    self.shared.verdict(self.suspects);
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
            }
            Job::Progress { slot, offset, round } => {
                if !self.shared.is_wanted(slot, round) {
                    return;
                }
                self.mirror.synced_to(slot, offset);
            }
            Job::Synced(slot) => {
                let role = self.mirror.member(slot).map(|m| m.role);
                // One that was begun anew meanwhile is not over.
                if role != Some(Role::Synchronizing) || self.shared.is_rebuilt(slot) {
                    return self.reopen(true);
                }
                self.mirror.synced(slot);
                self.set_table(t);
                settle = true;
            }
            Job::Verify(ask) => {
                self.verify(t, ask);
                return self.reopen(true);
            }
            Job::Rewrite => self.set_table(t),
        }
        self.doing = Some(Doing::Writing(job));
        let notes = self.notes(t);
        tasks::write_records(&self.shared, notes, settle);
    }

    /// What the members' records shall say.
    fn notes(&mut self, t: &Topology) -> Vec<Note> {
        if self.mirror.manual {
            return Vec::new();
        }
        let note = |slot: usize, consumer: &ConsumerId| {
            let member = self.mirror.member(slot)?;
            let at = frame::last_sector(member.sector_bytes, member.provider_bytes)?;
            let mut sector = self.mirror.record(slot)?.encode();
            sector.resize(member.sector_bytes as usize, 0);
            let before = self.moved.get(&slot).copied();
            let active = member.role == Role::Active;
            Some(Note { slot, edge: t.edge(*consumer), at, sector, before, active })
        };
        let mut notes: Vec<Note> =
            self.consumers.iter().filter_map(|(slot, c)| note(*slot, c)).collect();
        // Otherwise after a power cut one that is rebuilt could be the only one that is new.
        notes.sort_by_key(|n| !n.active);
        self.moved.clear();
        notes
    }

    /// The last member that has everything failed a write that members which are rebuilt may have
    /// done: what they have is no longer what it has, wherever the write was.
    fn copy_anew(&mut self) {
        for slot in self.mirror.in_role(Role::Synchronizing) {
            self.shared.want(slot, None);
            self.mirror.synced_to(slot, 0);
            self.queue.retain(
                |j| !matches!(j, Job::Synced(s) | Job::Progress { slot: s, .. } if *s == slot),
            );
            if !self.queue.contains(&Job::In(slot)) {
                self.queue.push_back(Job::In(slot));
            }
        }
    }

    /// A member goes. False when it stays: the last ACTIVE one.
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
            if fault == Fault::Broken {
                let why =
                    "it failed a request: `ashlar mirror forget` and `insert` take it in anew";
                self.refuse(&name.unwrap_or_default(), why);
            }
            self.dismiss(t, slot, consumer, last.filter(|_| !gone));
        }
        std::mem::take(&mut self.twins).into_iter().for_each(|p| t.retaste(p));
        if self.mirror.running && self.mirror.in_role(Role::Active).is_empty() {
            Self::take_apart(t, me, self);
        }
        true
    }

    /// Records are written, but those of `failed`.
    pub(super) fn written(&mut self, t: &mut Topology, me: GeomId, failed: Vec<usize>) {
        let Some(Doing::Writing(job)) = self.doing.take() else { return };
        let active = self.mirror.in_role(Role::Active);
        let on_record = self.mirror.manual || active.iter().any(|s| !failed.contains(s));
        for slot in &failed {
            // The last one stays in any case: to ask again at once would be to ask for ever.
            if active != [*slot] {
                self.suspect(*slot, Fault::Broken);
            }
        }
        let matters = match job {
            Job::Dirty => true,
            Job::In(_) | Job::Synced(_) => self.mirror.dirty,
            Job::Clean | Job::Out { .. } | Job::Progress { .. } => false,
            Job::Rewrite | Job::Verify(_) => false,
        };
        if let Job::In(slot) = job
            && self.mirror.member(slot).map(|m| m.role) == Some(Role::Synchronizing)
        {
            self.start_rebuild(t, slot);
        }
        if !on_record && (matters || self.unrecorded != 0) {
            self.sicken();
        } else {
            if on_record {
                self.recorded(t);
            }
            self.finish(job, failed.is_empty());
        }
        self.go_on(t, me);
    }

    /// Whoever was lost is out on record (J3).
    fn recorded(&mut self, t: &Topology) {
        self.shared.sick.store(false, Relaxed);
        if std::mem::take(&mut self.unrecorded) != 0 {
            self.set_table(t);
        }
        let held = self.queue.iter().fold(0, |bits, job| match job {
            Job::Out { slot, .. } => bits | bit(*slot),
            _ => bits,
        });
        self.suspects &= held;
        self.shared.verdict(self.suspects);
    }

    /// No record could be written: nothing is acknowledged until one can.
    fn sicken(&mut self) {
        self.shared.sick.store(true, Relaxed);
        if !self.shared.gate.is_open() {
            self.mirror.dirty = false;
        }
        self.knocked = false;
        self.shared.refuse(self.unrecorded);
        self.shared.gate.turn_away();
        tasks::after(&self.shared, SICK_NS, Told::Well);
    }

    /// Records are written: what waited goes on. With `whole` those of all.
    fn finish(&mut self, job: Job, whole: bool) {
        match job {
            Job::Dirty if whole => self.open(),
            // First those go whose record could not be written.
            Job::Dirty => self.queue.push_back(Job::Dirty),
            Job::In(_) | Job::Synced(_) => self.reopen(whole),
            Job::Clean | Job::Out { .. } | Job::Progress { .. } => {}
            Job::Rewrite | Job::Verify(_) => {}
        }
    }

    /// J1: it was open before the job, and the records say so.
    fn reopen(&mut self, whole: bool) {
        match (self.mirror.dirty, whole) {
            (false, _) => {}
            (true, true) => self.open(),
            (true, false) => self.queue.push_back(Job::Dirty),
        }
    }

    pub(super) fn open(&mut self) {
        self.knocked = false;
        self.drained = false;
        self.shared.gate.open();
        if !std::mem::replace(&mut self.watching, true) {
            self.written = self.shared.writes();
            tasks::after(&self.shared, self.shared.tunables.idle_ns, Told::Idle);
        }
    }
}
