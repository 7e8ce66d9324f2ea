//! The geom of a mirror: one thread decides about its members.
//!
//! Whatever changes the members or their records is a job, and jobs are done one after the other:
//!
//! ```text
//!   queue --> (gate shut and drained, if the job needs that) --> the state changes
//!         --> cores get the new table --> records are written --> what waited goes on
//! ```
//!
//! A member that is lost comes before everything else, also before a job that waits for the gate to
//! be empty: a write inside may be waiting for the verdict on that member.
//!
//! Invariants
//!  J1  The gate is open only while the records of all ACTIVE members say DIRTY (or NOFAILSYNC).
//!  J2  A member becomes ACTIVE or SYNCHRONIZING, and ceases to be SYNCHRONIZING, while no write
//!      is inside the gate.
//!  J3  A write that a member failed is acknowledged when the record of a member that is ACTIVE
//!      says that the other is out, and not at all while no record can be written.
//!  J4  From the moment in which a member is lost to that in which it is on record nothing is
//!      acknowledged that it does not have.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use bio::{Attr, Errno};
use geom::{
    Access, ConsumerId, Edge, Error, Event, Geom, GeomId, Limits, NewProvider, ProviderId,
    Topology, Unanswered, Word,
};

use super::NAME;
use super::class::Tunables;
use super::layer::MirrorLayer;
use super::metadata::{Metadata, disk_flags};
use super::shared::{Failed, Halt, Path, Shared, Table, Told};
use super::state::{Arrival, Fault, Mirror, Role};
use super::tasks::{self, Note, Rebuild};
use crate::members::{GateWord, frame};

/// How long a mirror whose records cannot be written waits before it tries again, ns.
const SICK_NS: u64 = 1_000_000_000;
/// Lines about members that were refused, kept for lists; older ones go.
const REFUSALS_MAX: usize = 16;

/// Something to be done to the members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Job {
    /// A write waits: mark the members.
    Dirty,
    /// Nothing is written any more: take the marks away.
    Clean,
    /// A member was lost.
    Out { slot: usize, fault: Fault, gone: bool },
    /// A member that arrived is to be used.
    In(usize),
    /// A member's rebuild has come so far, bytes.
    Progress { slot: usize, offset: u64, round: u64 },
    /// A member is rebuilt.
    Synced(usize),
    /// Parameters have changed: all records are written.
    Rewrite,
}

enum Doing {
    Draining(Job),
    Writing(Job),
}

/// The geom.
pub(super) struct MirrorGeom {
    pub(super) mirror: Mirror,
    pub(super) shared: Arc<Shared>,
    /// By slot.
    consumers: BTreeMap<usize, ConsumerId>,
    queue: VecDeque<Job>,
    doing: Option<Doing>,
    knocked: bool,
    /// The gate is shut, and nobody is inside.
    drained: bool,
    /// Members that were lost, and are not yet out on record (a bit a slot; J4).
    unrecorded: u32,
    /// It could not start with the members there were: it tries again with each that comes.
    stuck: bool,
    /// It was taken apart: what is still said to it means nothing.
    over: bool,
    /// Refused because their number was taken: looked at again when that member has gone.
    twins: Vec<ProviderId>,
    /// Numbers of members that could not be rebuilt, for nobody could be read: not taken in again.
    shunned: BTreeSet<u32>,
    /// Slots whose loss has not been dealt with (a bit a slot).
    suspects: u32,
    /// Slots of members that are about to be let go: their records are not written any more.
    parting: BTreeSet<usize>,
    /// Where records were before their providers grew, bytes, by slot.
    moved: BTreeMap<usize, u64>,
    /// Numbers of rebuilds.
    rounds: u64,
    written: u64,
    watching: bool,
    refused: VecDeque<(String, String)>,
    fault: Option<String>,
}

impl MirrorGeom {
    /// A geom for a mirror that has not started; its number is needed by what the cores share.
    pub(super) fn place(
        t: &mut Topology,
        mirror: Mirror,
        why: &str,
        tunables: Tunables,
    ) -> Result<GeomId, Error> {
        let name = mirror.name.clone();
        let board = t.switchboard();
        let geom = t.new_geom(NAME, &name, why, Box::new(Unborn))?;
        let shared = Shared::new(board, geom, tunables);
        let born = MirrorGeom {
            mirror,
            shared,
            consumers: BTreeMap::new(),
            queue: VecDeque::new(),
            doing: None,
            knocked: false,
            drained: true,
            unrecorded: 0,
            stuck: false,
            over: false,
            twins: Vec::new(),
            shunned: BTreeSet::new(),
            suspects: 0,
            parting: BTreeSet::new(),
            moved: BTreeMap::new(),
            rounds: 0,
            written: 0,
            watching: false,
            refused: VecDeque::new(),
            fault: None,
        };
        t.set_ops(geom, Box::new(born));
        Ok(geom)
    }

    /// Takes a provider in whose record was read. It is opened alone, so that nobody else claims
    /// what is on it.
    pub(super) fn take_in(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        on: ProviderId,
        record: Metadata,
    ) -> Result<(), Error> {
        let name = t.provider_name(on).to_owned();
        let gone = || Error::new(Errno::NxIo, format!("{name} is gone"));
        let limits = t.limits(on).ok_or_else(gone)?;
        if self.shunned.contains(&record.disk) {
            let why = "its rebuild found no member that could be read: `ashlar mirror forget` and \
                       `insert` take it in anew";
            self.refuse(&name, why);
            return Err(Error::new(Errno::Inval, why));
        }
        match self.mirror.arrive(record, limits.media_bytes, limits.sector_bytes) {
            Arrival::In(slot) => match attach(t, me, on, &name) {
                Ok(consumer) => {
                    self.consumers.insert(slot, consumer);
                    self.refused.retain(|(who, _)| *who != name);
                    self.arrived(t, me, slot);
                    Ok(())
                }
                Err(e) => {
                    self.mirror.vacate(slot);
                    Err(e)
                }
            },
            Arrival::Twin => {
                if self.twins.len() < REFUSALS_MAX && !self.twins.contains(&on) {
                    self.twins.push(on);
                }
                let why = "this member is there already: the same disk by another name, or a copy";
                self.refuse(&name, why);
                Err(Error::new(Errno::Exist, why))
            }
            Arrival::Refused(why) => {
                self.refuse(&name, &why);
                Err(Error::new(Errno::Inval, why))
            }
        }
    }

    fn refuse(&mut self, name: &str, why: &str) {
        self.refused.retain(|(who, _)| who != name);
        if self.refused.len() == REFUSALS_MAX {
            self.refused.pop_front();
        }
        self.refused.push_back((name.to_owned(), why.to_owned()));
    }

    fn arrived(&mut self, t: &mut Topology, me: GeomId, slot: usize) {
        if self.mirror.running {
            // The cores must know its edge before they are told to use it.
            t.barrier(me, Box::new(Told::Known(slot)));
        } else if self.mirror.is_complete() || self.stuck {
            t.barrier(me, Box::new(Told::Launch));
        } else {
            let (there, start_ns) = (self.mirror.members().count(), self.shared.tunables.start_ns);
            if there == 1 {
                tasks::after(&self.shared, start_ns, Told::Due);
            }
            if there >= usize::from(self.mirror.all) {
                // All by number, but some are old: one that is newer than all may be on its way.
                tasks::after(&self.shared, start_ns / 4, Told::Due);
            }
        }
    }

    /// Starts with what there is, if it has not started.
    fn launch(&mut self, t: &mut Topology, me: GeomId) {
        if self.mirror.running || self.mirror.members().next().is_none() {
            return;
        }
        match self.mirror.start() {
            Err(why) => {
                self.fault = Some(why);
                self.stuck = true;
            }
            Ok(broken) => {
                for (slot, why) in broken {
                    if let Some(consumer) = self.consumers.remove(&slot) {
                        let name = t.below(consumer).map(|p| t.provider_name(p).to_owned());
                        self.refuse(&name.unwrap_or_default(), &why);
                        t.leave(consumer);
                    }
                }
                self.fault = None;
                self.set_table(t);
                match self.provide(t, me) {
                    Ok(()) => self.begin(t, me),
                    Err(e) => self.fault = Some(e.what),
                }
            }
        }
    }

    fn begin(&mut self, t: &mut Topology, me: GeomId) {
        // Records say what was decided: who is clean, who is rebuilt from where.
        self.push(t, me, Job::Rewrite);
        for slot in self.mirror.in_role(Role::Synchronizing) {
            self.start_rebuild(t, slot);
        }
    }

    fn provide(&mut self, t: &mut Topology, me: GeomId) -> Result<(), Error> {
        let members: Vec<ProviderId> =
            self.consumers.values().filter_map(|c| t.below(*c)).collect();
        let mut attrs = crate::members::joined(t, &members);
        let ident = format!("mirror-{:08x}", self.mirror.id);
        attrs.push(("GEOM::ident", Attr::Text(ident)));
        let (stripe_bytes, stripe_offset) = members.first().map_or((0, 0), |p| t.stripe(*p));
        let limits = Limits {
            media_bytes: self.mirror.media_bytes,
            sector_bytes: self.mirror.sector_bytes,
            io_max_bytes: 0,
            delete_max_bytes: 0,
        };
        t.new_provider(
            me,
            NewProvider {
                name: format!("{NAME}/{}", self.mirror.name),
                layer: Arc::new(MirrorLayer(self.shared.clone())),
                limits,
                stripe_bytes,
                stripe_offset,
                attrs,
            },
        )?;
        Ok(())
    }

    /// Every core goes by the members as they are.
    fn set_table(&self, t: &Topology) {
        let mut table = Table {
            unrecorded: self.unrecorded,
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
            table.syncing |= !active;
            if let Some(path) = table.paths.get_mut(slot) {
                let priority = member.record.priority;
                *path = Some(Path { edge: t.edge(*consumer), active, priority, deletes });
            }
        }
        self.shared.set(table);
    }

    fn start_rebuild(&mut self, t: &Topology, slot: usize) {
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

    /// Queues a job and goes on.
    pub(super) fn push(&mut self, t: &mut Topology, me: GeomId, job: Job) {
        if !self.queue.contains(&job) {
            self.queue.push_back(job);
        }
        self.go_on(t, me);
    }

    /// A job that comes before all others: the one that waits for the gate waits on behind it.
    fn urgent(&mut self, t: &mut Topology, me: GeomId, job: Job) {
        if let Some(Doing::Draining(waits)) = self.doing {
            self.doing = None;
            self.queue.push_front(waits);
        }
        self.queue.push_front(job);
        self.go_on(t, me);
    }

    fn go_on(&mut self, t: &mut Topology, me: GeomId) {
        while self.doing.is_none() && !self.over {
            let Some(job) = self.next() else { break };
            let drains = match job {
                Job::Clean | Job::In(_) | Job::Synced(_) => true,
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
    fn carry_out(&mut self, t: &mut Topology, me: GeomId, job: Job) {
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
                        // Its record may have been taken from it already, or marked.
                        self.parting.remove(&slot);
                        self.mirror.count_in();
                        self.queue.push_back(Job::Rewrite);
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
        // The last one that has everything does not go, whatever was asked.
        let active = self.mirror.in_role(Role::Active);
        if active.iter().all(|slot| self.parting.contains(slot)) {
            self.parting.retain(|slot| !active.contains(slot));
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
        let staying = self.consumers.iter().filter(|(slot, _)| !self.parting.contains(slot));
        let mut notes: Vec<Note> = staying.filter_map(|(slot, c)| note(*slot, c)).collect();
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
        if self.mirror.lose(slot, fault, gone).is_none() {
            return false;
        }
        self.suspects |= bit(slot);
        self.unrecorded |= bit(slot);
        self.shared.want(slot, None);
        self.parting.remove(&slot);
        self.moved.remove(&slot);
        self.set_table(t);
        if let Some(consumer) = self.consumers.remove(&slot) {
            let name = t.below(consumer).map(|p| t.provider_name(p).to_owned());
            if fault == Fault::Broken {
                let why =
                    "it failed a request: `ashlar mirror forget` and `insert` take it in anew";
                self.refuse(&name.unwrap_or_default(), why);
            }
            t.leave(consumer);
        }
        std::mem::take(&mut self.twins).into_iter().for_each(|p| t.retaste(p));
        if self.mirror.running && self.mirror.in_role(Role::Active).is_empty() {
            Self::take_apart(t, me, self);
        }
        true
    }

    /// Records are written, but those of `failed`.
    fn written(&mut self, t: &mut Topology, me: GeomId, failed: Vec<usize>) {
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
            Job::Clean | Job::Out { .. } | Job::Progress { .. } | Job::Rewrite => false,
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
            Job::Clean | Job::Out { .. } | Job::Progress { .. } | Job::Rewrite => {}
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

    fn open(&mut self) {
        self.knocked = false;
        self.drained = false;
        self.shared.gate.open();
        if !std::mem::replace(&mut self.watching, true) {
            self.written = self.shared.writes();
            tasks::after(&self.shared, self.shared.tunables.idle_ns, Told::Idle);
        }
    }

    fn idle(&mut self, t: &mut Topology, me: GeomId) {
        self.watching = false;
        if !self.mirror.dirty {
            return;
        }
        let writes = self.shared.writes();
        if std::mem::replace(&mut self.written, writes) == writes {
            return self.push(t, me, Job::Clean);
        }
        self.watching = true;
        tasks::after(&self.shared, self.shared.tunables.idle_ns, Told::Idle);
    }

    fn failed(&mut self, t: &mut Topology, me: GeomId, failed: Failed) {
        let fault = if failed.gone { Fault::Absent } else { Fault::Broken };
        if self.suspect(failed.slot, fault)
            && let Some(job) = self.queue.pop_front()
        {
            self.urgent(t, me, job);
        }
    }

    /// A member is to go: its job stands first in the queue. False when it does already.
    fn suspect(&mut self, slot: usize, fault: Fault) -> bool {
        if self.mirror.member(slot).is_none() || self.suspects & bit(slot) != 0 {
            return false;
        }
        self.suspects |= bit(slot);
        self.queue.push_front(Job::Out { slot, fault, gone: false });
        true
    }

    fn told_word(&mut self, t: &mut Topology, me: GeomId, told: Told) {
        match told {
            Told::Gate(GateWord::Knock) => {
                self.knocked = true;
                self.go_on(t, me);
            }
            Told::Gate(GateWord::Drained) => {
                self.drained = true;
                if let Some(Doing::Draining(job)) = self.doing {
                    self.doing = None;
                    self.carry_out(t, me, job);
                }
                self.go_on(t, me);
            }
            Told::Failed(failed) => self.failed(t, me, failed),
            Told::Judge => self.shared.verdict(self.suspects),
            Told::Idle => self.idle(t, me),
            Told::Due => t.barrier(me, Box::new(Told::Launch)),
            Told::Launch => self.launch(t, me),
            Told::Well => {
                self.shared.sick.store(false, Relaxed);
                if self.unrecorded != 0 {
                    self.urgent(t, me, Job::Rewrite);
                }
            }
            Told::Known(slot) => self.push(t, me, Job::In(slot)),
            Told::Written(failed) => self.written(t, me, failed),
            Told::Progress { slot, offset, round } => {
                if self.shared.is_wanted(slot, round) {
                    self.push(t, me, Job::Progress { slot, offset, round });
                }
            }
            Told::Rebuilt { slot, round, result } => {
                if !self.shared.is_wanted(slot, round) {
                    return;
                }
                self.shared.want(slot, None);
                match result {
                    Ok(()) => self.push(t, me, Job::Synced(slot)),
                    Err(Halt::Target(failed)) => self.failed(t, me, failed),
                    Err(Halt::Source) => {
                        self.shunned.extend(self.mirror.member(slot).map(|m| m.record.disk));
                        self.failed(t, me, Failed { slot, gone: true });
                    }
                }
            }
        }
    }

    /// Members are let go, the provider withers, whatever waits ends.
    pub(super) fn take_apart(t: &mut Topology, me: GeomId, mirror: &mut MirrorGeom) {
        mirror.shared.sick.store(true, SeqCst);
        mirror.over = true;
        mirror.shared.busy.store(false, Relaxed);
        mirror.queue.clear();
        for (slot, consumer) in std::mem::take(&mut mirror.consumers) {
            mirror.shared.want(slot, None);
            t.leave(consumer);
        }
        for provider in t.providers_of(me).to_vec() {
            t.wither_provider(provider, Errno::NxIo);
        }
        mirror.shared.adjourn();
        for (core, ticket) in mirror.shared.gate.evict() {
            mirror.shared.board.restart(core, ticket);
        }
        t.wither_geom(me, Errno::NxIo);
    }

    /// The slot of a consumer.
    pub(super) fn slot_of(&self, consumer: ConsumerId) -> Option<usize> {
        self.consumers.iter().find(|(_, c)| **c == consumer).map(|(slot, _)| *slot)
    }

    /// The slot of a member by its provider's name.
    pub(super) fn slot_called(&self, t: &Topology, name: &str) -> Option<usize> {
        let called = |c: &ConsumerId| t.below(*c).is_some_and(|p| t.provider_name(p) == name);
        self.consumers.iter().find(|(_, c)| called(c)).map(|(slot, _)| *slot)
    }

    /// A member is about to go: the way to its record, and where that is.
    pub(super) fn part_with(&mut self, t: &Topology, slot: usize) -> Option<(Edge, u64, usize)> {
        let member = self.mirror.member(slot)?;
        let at = frame::last_sector(member.sector_bytes, member.provider_bytes)?;
        let edge = t.edge(*self.consumers.get(&slot)?);
        let len = member.sector_bytes as usize;
        self.parting.insert(slot);
        Some((edge, at, len))
    }

    /// A member that was about to go stays.
    pub(super) fn keep(&mut self, t: &mut Topology, me: GeomId, slot: usize) {
        self.parting.remove(&slot);
        self.mirror.count_in();
        self.push(t, me, Job::Rewrite);
    }

    /// The mirror grew: those above are told.
    pub(super) fn grown(&mut self, t: &mut Topology, me: GeomId) {
        if let Some(provider) = t.providers_of(me).first() {
            t.post(Event::Resize(*provider, self.mirror.media_bytes));
        }
        self.push(t, me, Job::Rewrite);
    }
}

/// A slot's bit.
fn bit(slot: usize) -> u32 {
    1u32.checked_shl(slot as u32).unwrap_or(0)
}

/// Attaches and opens, alone.
fn attach(t: &mut Topology, me: GeomId, on: ProviderId, name: &str) -> Result<ConsumerId, Error> {
    let consumer = t.attach_new(me, on).map_err(|e| Error::of(e, &format!("attach to {name}")))?;
    match t.access(consumer, Access::EXCLUSIVE) {
        Ok(()) => Ok(consumer),
        Err(e) => {
            t.leave(consumer);
            Err(Error::new(e, format!("{name} cannot be opened alone: {}", e.text())))
        }
    }
}

/// A geom that has its number and nothing else yet.
struct Unborn;

impl Geom for Unborn {
    fn access(
        &mut self,
        _: &mut Topology,
        _: GeomId,
        _: ProviderId,
        _: Access,
    ) -> Result<(), Errno> {
        Err(Errno::NxIo)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl Geom for MirrorGeom {
    fn access(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        provider: ProviderId,
        delta: Access,
    ) -> Result<(), Errno> {
        let after = t.counts(provider).plus(delta);
        if delta.w < 0 && after.w == 0 && self.mirror.dirty {
            self.push(t, me, Job::Clean);
        }
        Ok(())
    }

    fn orphan(&mut self, t: &mut Topology, me: GeomId, consumer: ConsumerId, _: Errno) {
        let Some(slot) = self.slot_of(consumer) else { return t.leave(consumer) };
        if !self.mirror.running {
            self.consumers.remove(&slot);
            self.mirror.vacate(slot);
            t.leave(consumer);
            std::mem::take(&mut self.twins).into_iter().for_each(|p| t.retaste(p));
            if self.consumers.is_empty() {
                Self::take_apart(t, me, self);
            }
            return;
        }
        self.suspects |= bit(slot);
        // What it had failed before still counts.
        let broken = Job::Out { slot, fault: Fault::Broken, gone: false };
        let fault = if self.queue.contains(&broken) { Fault::Broken } else { Fault::Absent };
        self.queue.retain(|j| !matches!(j, Job::Out { slot: s, .. } if *s == slot));
        self.urgent(t, me, Job::Out { slot, fault, gone: true });
    }

    fn resized(&mut self, t: &mut Topology, me: GeomId, consumer: ConsumerId) {
        let Some(slot) = self.slot_of(consumer) else { return };
        let Some(bytes) = t.below(consumer).and_then(|p| t.limits(p)).map(|l| l.media_bytes) else {
            return;
        };
        let Some(Some(member)) = self.mirror.slots.get_mut(slot) else { return };
        let old = frame::last_sector(member.sector_bytes, member.provider_bytes);
        if bytes <= member.provider_bytes {
            return;
        }
        member.provider_bytes = bytes;
        // The record stands in the last sector, wherever that is.
        if let Some(old) = old.filter(|old| *old >= self.mirror.media_bytes) {
            self.moved.entry(slot).or_insert(old);
        }
        if self.mirror.running {
            self.push(t, me, Job::Rewrite);
        }
    }

    fn told(&mut self, t: &mut Topology, me: GeomId, word: Word) {
        match word.downcast::<Told>() {
            Ok(_) if self.over => {}
            Ok(told) => self.told_word(t, me, *told),
            Err(word) => debug_assert!(word.is::<Unanswered>(), "a word that nobody says"),
        }
    }

    fn attr(&self, _: &Topology, _: GeomId, _: ProviderId, _: &str) -> Option<Attr> {
        // What is known of the whole stands in the provider's own list.
        None
    }

    fn show(&self, _: &Topology, _: GeomId) -> Vec<(&'static str, String)> {
        let m = &self.mirror;
        let state = match &self.fault {
            Some(fault) => format!("BROKEN ({fault})"),
            None => m.state().to_owned(),
        };
        let mut out = vec![
            ("State", state),
            ("Components", m.all.to_string()),
            ("Balance", m.balance.word().to_owned()),
            ("Slice", m.slice.to_string()),
            ("Flags", super::flag_words(m.flags)),
            ("GenID", m.genid.to_string()),
            ("SyncID", m.syncid.to_string()),
            ("ID", m.id.to_string()),
            ("Type", if m.manual { "MANUAL" } else { "AUTOMATIC" }.to_owned()),
        ];
        for (name, why) in &self.refused {
            out.push(("Refused", format!("{name}: {why}")));
        }
        out
    }

    fn show_consumer(
        &self,
        _: &Topology,
        _: GeomId,
        consumer: ConsumerId,
    ) -> Vec<(&'static str, String)> {
        let member = self.slot_of(consumer).and_then(|slot| self.mirror.member(slot));
        let Some(member) = member else { return Vec::new() };
        let record = &member.record;
        let mut flags = Vec::new();
        if self.mirror.dirty {
            flags.push("DIRTY");
        }
        let mut out = vec![
            ("State", member.role.word().to_owned()),
            ("Priority", record.priority.to_string()),
        ];
        if member.role == Role::Synchronizing {
            flags.push("SYNCHRONIZING");
            let whole = self.mirror.media_bytes.max(1);
            let percent = u128::from(record.sync_offset) * 100 / u128::from(whole);
            out.push(("BytesSynced", record.sync_offset.to_string()));
            out.push(("Synchronized", format!("{percent}%")));
        }
        if record.has(disk_flags::FORCE_SYNC) {
            flags.push("FORCE_SYNC");
        }
        let words = if flags.is_empty() { "NONE".to_owned() } else { flags.join(", ") };
        out.push(("Flags", words));
        out.push(("GenID", self.mirror.genid.to_string()));
        out.push(("SyncID", self.mirror.syncid.to_string()));
        out.push(("ID", record.disk.to_string()));
        out
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
