//! The geom of a mirror: one thread decides about its members.
//!
//! Each change of the members or their records is a job, and jobs are done one after the other:
//!
//! ```text
//!   queue --> (gate shut and drained, if the job needs that) --> the state changes
//!         --> cores get the new table --> records are written --> what waited continues
//! ```
//!
//! The loss of a member precedes all other jobs, also a job that waits for the gate to
//! be empty. A write inside may be waiting for the decision on that member.
//!
//! Invariants
//!  J1  The gate is open only while the records of all ACTIVE members are DIRTY (or NOFAILSYNC).
//!  J2  A member becomes ACTIVE or SYNCHRONIZING, and ceases to be SYNCHRONIZING, while no write is
//!      inside the gate.
//!  J3  A write that failed on a member is acknowledged when the record of an ACTIVE member marks
//!      the failed one as out. It is not acknowledged while no record can be written.
//!  J4  From the loss of a member until that loss is on record, nothing is acknowledged that the
//!      member does not have.
//!  J5  A member that ceases to be ACTIVE is not the only one whose record has the state of the
//!      others. A member becomes ACTIVE only when the record of another one has the growth of the
//!      syncid (M10).

mod assemble;
mod growth;
mod health;
mod jobs;
mod messages;
mod removal;
mod show;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use bio::{Attr, Errno, Ticket};
use geom::{
    Access, ConsumerId, Deletes, Error, Geom, GeomId, Measure, Notice, ProviderId, Topology,
    Transient, Trouble, message_of,
};

use super::NAME;
use super::bitmap::{Bits, Shape};
use super::class::Tunables;
use super::idents::Idents;
use super::level::Growth;
use super::settings::Settings;
use super::shared::MirrorShared;
use super::state::{Fault, Mirror, Role};
use super::verify::VerifyOptions;
use crate::members::{EventLog, PlaceholderGeom, Refusals, Throttle, Waiting, frame, verb_util};
pub(in crate::mirror) use removal::Removal;
use removal::RemovedMember;

/// How long a mirror whose records cannot be written waits before it tries again, ns.
const RECORD_RETRY_NS: u64 = 1_000_000_000;

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
    /// A member is to be rebuilt from its start.
    RebuildFromStart(usize),
    /// Progress of a member's rebuild, bytes.
    Progress { slot: usize, offset: u64, round: u64 },
    /// A member is rebuilt.
    Synced(usize),
    /// Writes wait for bits: the bitmaps are written.
    Mark,
    /// Too many bits are set: they are cleared when no write is in flight.
    Sweep,
    /// Bitmaps are kept from now on, or no longer.
    Bitmap(Option<Shape>),
    /// Members are to be compared.
    Verify(VerifyOptions),
    /// Parameters have changed: all records are written.
    Rewrite,
    /// The space by which it grows is to be made the same on all members, by the growth's number.
    Level(u64),
    /// Levelling is done, or the mirror shrinks: the new size is written to the records. The job of
    /// a growth that was restarted does nothing (G5 of `level`).
    Grow(u64),
}

enum JobPhase {
    Draining(Job),
    Writing(Job),
}

pub struct MirrorGeom {
    pub(super) mirror: Mirror,
    pub(super) shared: Arc<MirrorShared>,
    /// By slot.
    consumers: BTreeMap<usize, ConsumerId>,
    queue: VecDeque<Job>,
    job_phase: Option<JobPhase>,
    write_waiting: bool,
    /// The gate is shut, and no write is inside.
    drained: bool,
    /// Members that were lost, and are not yet out on record (a bit a slot; J4).
    unrecorded: u32,
    /// How often the syncid had grown (M10) in the records that are being written, and in those
    /// that were written last.
    bumps_writing: u64,
    bumps_recorded: u64,
    /// It could not start with the present members: it tries again with each that arrives.
    start_failed: bool,
    /// The mirror was taken apart: later messages are ignored.
    over: bool,
    /// Refused because their number was taken: looked at again when that member was removed.
    duplicates: Vec<ProviderId>,
    /// The serial numbers of the disks that were here last, by the members' numbers.
    idents: Idents,
    /// Numbers of members whose rebuild failed because no source was readable: not added again.
    unrebuildable: BTreeSet<u32>,
    /// Slots whose loss has not been dealt with (a bit a slot).
    suspects: u32,
    /// Slots of members that a verb removes, with the kind of removal.
    removing: BTreeMap<usize, Removal>,
    /// Those that are out already, by slot: they stay open until the verb has had its last word.
    removed: BTreeMap<usize, RemovedMember>,
    /// Where records were before their providers grew, bytes, by slot.
    moved: BTreeMap<usize, u64>,
    /// The same, of records that are being written to their new ends.
    moving: BTreeMap<usize, u64>,
    /// Numbers of rebuilds.
    rounds: u64,
    written: u64,
    watching: bool,
    refused: Refusals,
    fault: Option<String>,
    event_log: EventLog,
    /// With bitmaps: the bits that are durable, as the cores see them.
    bits: Option<Arc<Bits>>,
    /// Writes that wait for the bits that are being written.
    granted: Vec<(usize, Ticket)>,
    /// When it started, the mirror reported that deleted blocks read as zeroes.
    zeroes: bool,
    /// Settings of the configuration that it takes when it starts (S2 of `settings`).
    pub(in crate::mirror) declared: Option<Settings>,
    /// Mirrors and arrays that wait for members, this one among them until it has started.
    waiting: Arc<Waiting>,
}

impl MirrorGeom {
    /// A geom for a mirror that has not started; the state shared with the cores needs its number.
    pub(super) fn place(
        t: &mut Topology,
        mirror: Mirror,
        why: &str,
        (tunables, waiting, throttle): (Tunables, Arc<Waiting>, Arc<Throttle>),
    ) -> Result<GeomId, Error> {
        let name = mirror.name.clone();
        let notifier = t.notifier();
        let geom = t.new_geom(NAME, &name, why, Box::new(PlaceholderGeom))?;
        let shared = MirrorShared::new(&name, notifier, geom, tunables, throttle);
        let born = MirrorGeom {
            mirror,
            shared,
            consumers: BTreeMap::new(),
            queue: VecDeque::new(),
            job_phase: None,
            write_waiting: false,
            drained: true,
            unrecorded: 0,
            bumps_writing: 0,
            bumps_recorded: 0,
            start_failed: false,
            over: false,
            duplicates: Vec::new(),
            idents: Idents::default(),
            unrebuildable: BTreeSet::new(),
            suspects: 0,
            removing: BTreeMap::new(),
            removed: BTreeMap::new(),
            moved: BTreeMap::new(),
            moving: BTreeMap::new(),
            rounds: 0,
            written: 0,
            watching: false,
            refused: Refusals::default(),
            fault: None,
            event_log: EventLog::default(),
            zeroes: false,
            bits: None,
            granted: Vec::new(),
            declared: None,
            waiting,
        };
        t.set_ops(geom, Box::new(born));
        Ok(geom)
    }

    /// Releases the members, withers the provider, ends all waiting requests.
    pub(super) fn take_apart(t: &mut Topology, me: GeomId, mirror: &mut MirrorGeom) {
        mirror.shared.records_failed.store(true, SeqCst);
        mirror.over = true;
        mirror.waiting.remove(me);
        mirror.shared.verified().running = false;
        *mirror.shared.growth() = Growth::default();
        mirror.shared.busy.store(false, Relaxed);
        mirror.queue.clear();
        for (slot, consumer) in std::mem::take(&mut mirror.consumers) {
            mirror.shared.want(slot, None);
            t.leave(consumer);
        }
        std::mem::take(&mut mirror.removed).into_values().for_each(|p| t.leave(p.consumer));
        for provider in t.providers_of(me).to_vec() {
            t.wither_provider(provider, Errno::NxIo);
        }
        mirror.shared.restart(std::mem::take(&mut mirror.granted), false);
        mirror.shared.end_all_waiting();
        for (core, ticket) in mirror.shared.gate.close() {
            mirror.shared.notifier.restart(core, ticket);
        }
        t.wither_geom(me, Errno::NxIo);
    }

    pub(super) fn slot_of(&self, consumer: ConsumerId) -> Option<usize> {
        self.consumers.iter().find(|(_, c)| **c == consumer).map(|(slot, _)| *slot)
    }

    /// The slot of a member by its provider's name.
    pub(super) fn slot_called(&self, t: &Topology, name: &str) -> Option<usize> {
        let called = |c: &ConsumerId| t.below(*c).is_some_and(|p| t.provider_name(p) == name);
        self.consumers.iter().find(|(_, c)| called(c)).map(|(slot, _)| *slot)
    }

    pub(in crate::mirror) fn names(&self, t: &Topology) -> Vec<String> {
        let below = self.consumers.values().filter_map(|c| t.below(*c));
        below.map(|p| t.provider_name(p).to_owned()).collect()
    }

    /// Records name the providers that they are on from now on, or no longer.
    pub(super) fn tie(&mut self, t: &Topology, hardcode: bool) {
        for (slot, consumer) in &self.consumers {
            let name = t.below(*consumer).filter(|_| hardcode).map(|p| t.provider_name(p));
            if let Some(Some(member)) = self.mirror.slots.get_mut(*slot) {
                member.record.home = name.unwrap_or_default().to_owned();
            }
        }
    }
}

fn bit(slot: usize) -> u32 {
    1u32.checked_shl(slot as u32).unwrap_or(0)
}

impl Geom for MirrorGeom {
    fn access(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        provider: ProviderId,
        delta: Access,
    ) -> Result<(), Errno> {
        if delta.w > 0 && self.shared.growth().shrinks() {
            return Err(Errno::Busy);
        }
        let after = t.counts(provider).plus(delta);
        if delta.w < 0 && after.w == 0 && self.mirror.dirty {
            self.push(t, me, Job::Clean);
        }
        Ok(())
    }

    fn keeps_records(&self) -> bool {
        true
    }

    fn clean_records(&mut self, t: &mut Topology, me: GeomId) -> bool {
        if self.over || self.mirror.in_role(Role::Active).is_empty() {
            return true;
        }
        let cleans = |job: &Job| matches!(job, Job::Clean);
        let cleaning = match &self.job_phase {
            Some(JobPhase::Draining(job) | JobPhase::Writing(job)) => cleans(job),
            None => false,
        };
        if cleaning || self.queue.iter().any(cleans) {
            return false;
        }
        if self.mirror.dirty {
            self.push(t, me, Job::Clean);
        }
        !self.mirror.dirty
    }

    fn deletes(&self, t: &Topology, _: GeomId, _: ProviderId) -> Deletes {
        let members = self.consumers.values().filter_map(|c| Some(t.deletes(t.below(*c)?)));
        members.reduce(Deletes::with).unwrap_or(Deletes::of(1))
    }

    fn orphan(&mut self, t: &mut Topology, me: GeomId, consumer: ConsumerId, _: Errno) {
        let Some(slot) = self.slot_of(consumer) else {
            self.removed.retain(|_, p| p.consumer != consumer);
            return t.leave(consumer);
        };
        if !self.mirror.running {
            self.consumers.remove(&slot);
            self.mirror.vacate(slot);
            t.leave(consumer);
            std::mem::take(&mut self.duplicates).into_iter().for_each(|p| t.retaste(p));
            if self.consumers.is_empty() {
                Self::take_apart(t, me, self);
            }
            return;
        }
        self.suspects |= bit(slot);
        // An earlier failure of the member still counts.
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
        // The record is stored in the last sector, wherever that is.
        if let Some(old) = old.filter(|old| *old >= self.mirror.media_bytes) {
            self.moved.entry(slot).or_insert(old);
        }
        if self.mirror.running {
            self.push(t, me, Job::Rewrite);
        }
    }

    fn on_notice(&mut self, t: &mut Topology, me: GeomId, notice: Notice) {
        match message_of(notice) {
            Ok(message) if !self.over => self.on_message(t, me, message),
            _ => {}
        }
    }

    fn attr(&self, _: &Topology, _: GeomId, _: ProviderId, _: &str) -> Option<Attr> {
        // Attributes of the whole are in the provider's own list.
        None
    }

    fn release_command(&self, t: &Topology, me: GeomId, consumer: ConsumerId) -> Option<String> {
        let slot = self.slot_of(consumer)?;
        match self.mirror.in_role(Role::Active).iter().any(|other| *other != slot) {
            true => verb_util::remove_command(NAME, t, me, consumer),
            false => verb_util::stop_command(NAME, t, me),
        }
    }

    fn show(&self, t: &Topology, _: GeomId) -> Vec<(&'static str, String)> {
        self.lines(t)
    }

    fn settings(&self, _: &Topology, _: GeomId) -> geom::Settings {
        match self.mirror.running {
            true => self.mirror.settings().keys(self.shared.throttle.rate()),
            false => geom::Settings::new(),
        }
    }

    fn transients(&self, t: &Topology, me: GeomId) -> Vec<Transient> {
        let (name, throttle) = (t.geom_name(me), &self.shared.throttle);
        // The rate of a declared mirror is a setting of its section.
        let rate = verb_util::rate_change(NAME, name, throttle).filter(|_| !throttle.is_declared());
        rate.into_iter().chain(verb_util::pause_change(NAME, name, throttle)).collect()
    }

    fn measures(&self, t: &Topology, _: GeomId) -> Vec<Measure> {
        self.rebuilds(t)
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
        self.member_lines(consumer)
    }
}
