//! The geom of a multipath device: one thread decides about its paths.
//!
//! Invariants
//!  M1  Every path is open exclusively (r1w1e1) by this geom, so that no other class claims its
//!      content.
//!  M2  A path is used when every core knows its edge, and is not used any more when it is about to
//!      leave. Requests in flight through it end there, with any result.
//!  M3  All paths lead to a disk of the same size and sector size. The disk has another size when
//!      all of them report it. While they differ, a path that reports another size is used last.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bio::{Attr, Errno};
use geom::{
    Access, ClassParams, ConsumerId, Edge, Error, Event, Geom, GeomId, Limits, NewProvider, Notice,
    ProviderId, Settings, Topology, Trouble, Unanswered, message_of,
};

use super::NAME;
use super::class::MultipathParams;
use super::identity::Identity;
use super::layer::MultipathLayer;
use super::options::Options;
use super::paths::{PATHS_MAX, PathState, Paths};
use super::shared::{Message, MultipathShared, Path, Table};
use super::tasks::{self, RecordWrite};
use super::timers::Timers;
use crate::members::{EventLog, PlaceholderGeom, attach_alone, attributes, frame, verb_util};

/// Attributes of the disk that are the same on each path.
const OF_THE_DISK: [&str; 3] = ["GEOM::ident", "GEOM::descr", "GEOM::attachment"];
const PHYSPATH: &str = "GEOM::physpath";
/// The access state of the disk on a path.
const ACCESS: &str = "CAM::access";
/// Names of paths removed by hand that are remembered; older ones join again when they are seen.
const REMOVED_MAX: usize = 64;

pub struct MultipathGeom {
    pub(super) identity: Identity,
    pub(super) options: Options,
    pub(super) paths: Paths,
    pub(super) shared: Arc<MultipathShared>,
    /// By slot.
    pub(super) consumers: BTreeMap<usize, ConsumerId>,
    /// Provider of the path that was preferred by hand.
    pub(super) preferred: Option<String>,
    /// Providers of paths that were removed by hand: tasting does not add them again.
    removed: VecDeque<String>,
    /// Slots that the checker looks at, a bit a slot.
    pub(super) checking: u32,
    pub(super) timers: Timers,
    /// Requests have waited long enough: no more do, until there is a path.
    pub(super) expired: bool,
    pub(super) fault: Option<String>,
    pub(super) event_log: EventLog,
}

/// Whether a serial number is the disk's own. Disks without one get sixteen hexadecimal digits
/// derived from their place (`lasting.rs` in disks), which differ from path to path.
fn is_own(serial: &str) -> bool {
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    !(serial.is_empty() || serial.len() == 16 && serial.bytes().all(is_hex))
}

/// The serial number of the disk that a provider leads to, if the disk has one of its own.
pub(super) fn own_serial(t: &Topology, on: ProviderId) -> Option<String> {
    match t.attr(on, "GEOM::ident") {
        Some(Attr::Text(serial)) if is_own(&serial) => Some(serial),
        _ => None,
    }
}

impl MultipathGeom {
    /// A geom without paths.
    pub(super) fn place(
        t: &mut Topology,
        name: &str,
        (nature, options): (Identity, Options),
        why: &str,
    ) -> Result<GeomId, Error> {
        let notifier = t.notifier();
        let geom = t.new_geom(NAME, name, why, Box::new(PlaceholderGeom))?;
        let born = MultipathGeom {
            identity: nature,
            options,
            paths: Paths::default(),
            shared: MultipathShared::new(name, notifier, geom),
            consumers: BTreeMap::new(),
            preferred: None,
            removed: VecDeque::new(),
            checking: 0,
            timers: Timers::default(),
            expired: false,
            fault: None,
            event_log: EventLog::default(),
        };
        t.set_ops(geom, Box::new(born));
        Ok(geom)
    }

    /// Adds a further path to the disk, found by tasting.
    pub(super) fn found(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        on: ProviderId,
        label: &str,
    ) -> Result<(), Error> {
        let name = t.provider_name(on);
        if let Some(what) = self.other_disk(t, on, label) {
            return Err(Error::new(Errno::Exist, what));
        }
        if self.removed.iter().any(|removed| removed == name) {
            let own = t.geom_name(me);
            let what = format!(
                "this path was removed by hand; `ashlar multipath add {own} {name}` adds it"
            );
            return Err(Error::new(Errno::Perm, what));
        }
        self.take_in(t, me, on)
    }

    /// Why a provider with the right uuid in its record leads to another disk all the same: a copy.
    fn other_disk(&self, t: &Topology, on: ProviderId, label: &str) -> Option<String> {
        if label != self.identity.label {
            return Some(format!(
                "its record has {label}, that of the other paths {}: it is not the same disk",
                self.identity.label
            ));
        }
        if let Some(why) = self.other_id(t, on) {
            return Some(why);
        }
        let own = own_serial(t, on)?;
        let others = self.consumers.values().filter_map(|c| own_serial(t, t.below(*c)?));
        let other = others.into_iter().find(|other| *other != own)?;
        Some(format!(
            "its serial number is {own}, that of the other paths {other}: a copy of the disk, not \
             a path to it. `ashlar multipath clear` removes the record"
        ))
    }

    /// Why a provider leads to another disk: its name in page 83h is another one. Names are
    /// compared only with those of the same length: others are of another format.
    fn other_id(&self, t: &Topology, on: ProviderId) -> Option<String> {
        let id = |p: ProviderId| match t.attr(p, "GEOM::lunid") {
            Some(Attr::Text(id)) if !id.is_empty() => Some(id),
            _ => None,
        };
        let own = id(on)?;
        let others = self.consumers.values().filter_map(|c| id(t.below(*c)?));
        let other = others.into_iter().find(|id| id.len() == own.len() && *id != own)?;
        Some(format!(
            "its disk is named {own}, that of the other paths {other}: it is not the same"
        ))
    }

    /// Refuses a provider that is another disk than the paths lead to, by size or name.
    pub(super) fn refuse_other(&self, t: &Topology, on: ProviderId) -> Result<(), Error> {
        let name = t.provider_name(on).to_owned();
        let refused = |what: String| Err(Error::inval(what));
        let Some(limits) = t.limits(on) else {
            return Err(Error::new(Errno::NxIo, format!("{name} was removed")));
        };
        let (sector, media) = (limits.sector_bytes, limits.media_bytes);
        if (sector, media) != (self.identity.sector_bytes, self.identity.provider_bytes) {
            return refused(format!(
                "{name} has {media} bytes in sectors of {sector}, and the other paths have {} in \
                 sectors of {}: it is not the same disk",
                self.identity.provider_bytes, self.identity.sector_bytes
            ));
        }
        if let Some(why) = self.other_id(t, on) {
            return refused(format!("{name}: {why}"));
        }
        Ok(())
    }

    /// Adds a further path to the disk; the caller has verified that it is the same disk.
    pub(super) fn take_in(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        on: ProviderId,
    ) -> Result<(), Error> {
        let name = t.provider_name(on).to_owned();
        self.refuse_other(t, on)?;
        if self.paths.called(&name).is_some() {
            return Err(Error::new(Errno::Exist, format!("{name} is a path already")));
        }
        // M1.
        let consumer = attach_alone(t, me, on)?;
        let Some(slot) = self.paths.add(&name) else {
            t.leave(consumer);
            let what = format!("too many paths (limit {PATHS_MAX})");
            return Err(Error::inval(what));
        };
        self.consumers.insert(slot, consumer);
        self.paths.rerank(slot, self.path_rank(t, slot));
        self.removed.retain(|removed| *removed != name);
        if !t.providers_of(me).is_empty() {
            let round = self.paths.of(slot).map_or(0, |p| p.round);
            // M2
            t.barrier(me, Box::new(Message::Known { slot, round }));
            return Ok(());
        }
        self.paths.restore(slot);
        self.changed(t, me);
        let provided = self.provide(t, me);
        if provided.is_err() {
            self.consumers.remove(&slot);
            self.paths.remove(slot, false);
            t.leave(consumer);
        }
        provided
    }

    fn provide(&self, t: &mut Topology, me: GeomId) -> Result<(), Error> {
        let first = self.providers(t).first().copied();
        let (stripe_bytes, stripe_offset) = first.map_or((0, 0), |p| t.stripe(p));
        let limits = Limits {
            media_bytes: self.identity.media_bytes(),
            sector_bytes: self.identity.sector_bytes,
            io_max_bytes: 0,
            delete_max_bytes: 0,
        };
        let name = format!("{NAME}/{}", t.geom_name(me));
        let attrs = self.attrs(t);
        let layer = Arc::new(MultipathLayer(self.shared.clone()));
        t.new_provider(
            me,
            NewProvider { name, layer, limits, stripe_bytes, stripe_offset, attrs },
        )?;
        Ok(())
    }

    /// The providers of the paths, the oldest first.
    fn providers(&self, t: &Topology) -> Vec<ProviderId> {
        let below = |slot: usize| t.below(*self.consumers.get(&slot)?);
        self.paths.all().iter().filter_map(|p| below(p.slot)).collect()
    }

    /// The attributes of the disk, each from the first path that has it.
    fn attrs(&self, t: &Topology) -> Vec<(&'static str, Attr)> {
        let providers = self.providers(t);
        let first = |name: &str| providers.iter().find_map(|p| t.attr(*p, name));
        let mut attrs = attributes(t, &providers);
        attrs.extend(OF_THE_DISK.into_iter().filter_map(|name| Some((name, first(name)?))));
        if let Some(Attr::Text(path)) = first(PHYSPATH) {
            attrs.push((PHYSPATH, Attr::Text(format!("{path}/mp"))));
        }
        attrs
    }

    /// A path's access state; empty when it is not known.
    pub(super) fn access_of(&self, t: &Topology, slot: usize) -> String {
        let below = self.consumers.get(&slot).and_then(|c| t.below(*c));
        match below.and_then(|p| t.attr(p, ACCESS)) {
            Some(Attr::Text(access)) => access,
            _ => String::new(),
        }
    }

    pub(super) fn queues(&self) -> bool {
        self.options.queue_ns > 0 && !self.expired
    }

    /// After every change: timers start or are called off, the cores get the new table.
    pub(super) fn changed(&mut self, t: &mut Topology, me: GeomId) {
        self.update_timers();
        let path = |one: &super::paths::PathEntry| {
            let edge = t.edge(*self.consumers.get(&one.slot)?);
            let good = one.state == PathState::Good;
            (one.state != PathState::New).then_some(Path {
                slot: one.slot,
                edge,
                good,
                in_transition: one.state == PathState::Transition,
                best: self.paths.is_best(one.slot),
                round: one.round,
            })
        };
        self.shared.set(&Table {
            paths: self.paths.all().iter().filter_map(path).collect(),
            mode: self.identity.mode,
            active: self.paths.active(),
            queues: self.queues(),
            checked: self.options.checker_ns > 0,
        });
        debug_assert_eq!(self.shared.geom, me);
        self.report(t, me);
    }

    fn on_message(&mut self, t: &mut Topology, me: GeomId, message: Message) {
        let round_of = |g: &Self, slot: usize| g.paths.of(slot).map(|p| p.round);
        match message {
            // P2
            Message::Failed { slot, round, tried } if round_of(self, slot) == Some(round) => {
                let queues = self.queues();
                self.paths.fail(slot, tried, queues);
                self.changed(t, me);
            }
            Message::Left { slot, round } if round_of(self, slot) == Some(round) => {
                self.paths.set_transition(slot);
                self.changed(t, me);
            }
            Message::Known { slot, round } if round_of(self, slot) == Some(round) => {
                self.paths.restore(slot);
                self.changed(t, me);
                self.renew(t, me);
            }
            Message::Works { slot, round } => {
                self.path_checked(slot);
                if round_of(self, slot) == Some(round) {
                    self.paths.restore(slot);
                    self.changed(t, me);
                }
            }
            Message::StillBad { slot } => self.path_checked(slot),
            Message::Failed { .. } | Message::Left { .. } | Message::Known { .. } => {}
            Message::Time(timer, number) => self.timer_expired(t, me, timer, number),
            Message::Written(done) => self.written(t, me, done),
        }
    }

    fn path_checked(&mut self, slot: usize) {
        self.checking &= !1u32.checked_shl(slot as u32).unwrap_or(0);
    }

    pub(super) fn written(&mut self, t: &mut Topology, me: GeomId, done: Result<(), Errno>) {
        self.fault =
            done.err().map(|e| format!("its record could not be written anew: {}", e.text()));
        if self.fault.is_none()
            && let Some(provider) = t.providers_of(me).first()
        {
            t.post(Event::Resize(*provider, self.identity.media_bytes()));
        }
    }

    /// Properties may have become others.
    fn renew(&self, t: &mut Topology, me: GeomId) {
        if let Some(&provider) = t.providers_of(me).first()
            && !self.paths.all().is_empty()
        {
            t.set_attrs(provider, self.attrs(t));
        }
    }

    /// Has the record written as things are; `old` is where it was, if elsewhere.
    pub(super) fn write_record(&mut self, t: &mut Topology, me: GeomId, old: Option<u64>) {
        let Some(record) = self.identity.record(self.options) else { return };
        let Some(at) = frame::last_sector(record.sector_bytes, record.provider_bytes) else {
            return;
        };
        let note = RecordWrite { edges: self.path_edges(t), at, sector: record.sector(), old };
        t.converse(me, "multipath record", tasks::write(note));
    }

    /// Ways to the disk: the active one first, failed ones last.
    pub(super) fn path_edges(&self, t: &Topology) -> Vec<Edge> {
        let mut all: Vec<_> =
            self.paths.all().iter().filter(|p| p.state != PathState::New).collect();
        all.sort_by_key(|p| (self.paths.active() != Some(p.slot), p.state != PathState::Good));
        all.iter().filter_map(|p| Some(t.edge(*self.consumers.get(&p.slot)?))).collect()
    }

    /// Removes a path, by hand or because its provider left. Requests in flight there end there.
    pub(super) fn detach_path(&mut self, t: &mut Topology, me: GeomId, slot: usize) {
        let Some(consumer) = self.consumers.remove(&slot) else { return };
        let queues = self.queues();
        self.paths.remove(slot, queues);
        self.path_checked(slot);
        self.changed(t, me);
        t.leave(consumer);
        if !self.paths.all().is_empty() {
            self.renew(t, me);
            self.fit(t, me);
        } else if !queues {
            Self::take_apart(t, me, self);
        }
    }

    /// Fails a path on request of a verb; the caller calls [`MultipathGeom::changed`].
    pub(super) fn fail(&mut self, slot: usize) {
        let queues = self.queues();
        self.paths.fail(slot, 0, queues);
    }

    /// Removes a path by a verb; it is not added again by tasting.
    pub(super) fn remove(&mut self, t: &mut Topology, me: GeomId, slot: usize) {
        if let Some(one) = self.paths.of(slot) {
            self.removed.push_back(one.name.clone());
        }
        if self.removed.len() > REMOVED_MAX {
            self.removed.pop_front();
        }
        self.detach_path(t, me, slot);
    }

    /// Makes a path active and the preferred one, on request of a verb.
    pub(super) fn prefer(&mut self, t: &mut Topology, me: GeomId, slot: usize) -> bool {
        let good = self.paths.prefer(slot);
        if good {
            self.preferred = self.paths.of(slot).map(|p| p.name.clone());
            self.changed(t, me);
        }
        good
    }

    /// Makes the next path active and the preferred one, on request of a verb.
    pub(super) fn rotate(&mut self, t: &mut Topology, me: GeomId) -> bool {
        let rotated = self.paths.rotate();
        if let Some(slot) = self.paths.active() {
            self.prefer(t, me, slot);
        }
        rotated
    }

    /// Releases the paths, withers the provider, ends waiting requests.
    pub(super) fn take_apart(t: &mut Topology, me: GeomId, g: &mut MultipathGeom) {
        g.timers = Timers::default();
        g.shared.set(&Table::default());
        for (_, consumer) in std::mem::take(&mut g.consumers) {
            t.leave(consumer);
        }
        for provider in t.providers_of(me).to_vec() {
            t.wither_provider(provider, Errno::NxIo);
        }
        t.wither_geom(me, Errno::NxIo);
    }

    fn slot_of(&self, consumer: ConsumerId) -> Option<usize> {
        self.consumers.iter().find(|(_, c)| **c == consumer).map(|(slot, _)| *slot)
    }
}

impl Geom for MultipathGeom {
    fn access(
        &mut self,
        _: &mut Topology,
        _: GeomId,
        _: ProviderId,
        _: Access,
    ) -> Result<(), Errno> {
        // M1: the paths are open already.
        Ok(())
    }

    fn orphan(&mut self, t: &mut Topology, me: GeomId, consumer: ConsumerId, _: Errno) {
        match self.slot_of(consumer) {
            Some(slot) => self.detach_path(t, me, slot),
            None => t.leave(consumer),
        }
    }

    fn resizes(&self) -> bool {
        true
    }

    fn resized(&mut self, t: &mut Topology, me: GeomId, _: ConsumerId) {
        self.fit(t, me);
    }

    fn attr_changed(&mut self, t: &mut Topology, me: GeomId, below: ConsumerId, name: &str) {
        if name == ACCESS {
            let slot = self.slot_of(below);
            let new = slot.filter(|s| self.reranked(t, *s));
            if let Some(slot) = new {
                self.paths.end_new(slot);
                self.changed(t, me);
            }
            return;
        }
        self.renew(t, me);
        if name == PHYSPATH
            && let Some(&provider) = t.providers_of(me).first()
        {
            t.post(Event::Attr(provider, PHYSPATH));
        }
    }

    fn on_notice(&mut self, t: &mut Topology, me: GeomId, notice: Notice) {
        match message_of(notice) {
            Ok(message) => self.on_message(t, me, message),
            Err(Unanswered) => self.written(t, me, Err(Errno::TimedOut)),
        }
    }

    fn attr(&self, t: &Topology, _: GeomId, _: ProviderId, name: &str) -> Option<Attr> {
        // Attributes that are not in the provider's own list are those of the disk.
        let is_the_disks = name != PHYSPATH && name != ACCESS;
        self.providers(t).iter().find_map(|p| t.attr(*p, name)).filter(|_| is_the_disks)
    }

    fn release_command(&self, t: &Topology, me: GeomId, consumer: ConsumerId) -> Option<String> {
        match t.consumers_of(me).len() {
            0 | 1 => verb_util::stop_command(NAME, t, me),
            _ => verb_util::remove_command(NAME, t, me, consumer),
        }
    }

    fn show(&self, _: &Topology, _: GeomId) -> Vec<(&'static str, String)> {
        let kind = if self.identity.uuid.is_some() { "AUTOMATIC" } else { "MANUAL" };
        let state = match &self.fault {
            Some(fault) => format!("{} ({fault})", self.paths.state()),
            None => self.paths.state().to_owned(),
        };
        let mut out =
            vec![("Type", kind.to_owned()), ("Mode", self.identity.mode.as_str().to_owned())];
        if let Some(uuid) = &self.identity.uuid {
            out.push(("UUID", uuid.clone()));
        }
        out.push(("State", state));
        out.extend(self.options.lines());
        if self.options.queue_ns > 0 {
            out.push(("Waiting", self.shared.waiting().to_string()));
        }
        out
    }

    fn settings(&self, t: &Topology, me: GeomId) -> Settings {
        match t.providers_of(me).is_empty() {
            true => Settings::new(),
            false => ClassParams::settings(&MultipathParams::of(self.identity.mode, self.options)),
        }
    }

    fn troubles(&self, t: &Topology, me: GeomId) -> Vec<Trouble> {
        self.health_findings(t, t.geom_name(me))
    }

    fn show_consumer(
        &self,
        t: &Topology,
        _: GeomId,
        consumer: ConsumerId,
    ) -> Vec<(&'static str, String)> {
        let Some(slot) = self.slot_of(consumer) else { return vec![("State", "LOST".into())] };
        let mut lines =
            vec![("State", self.paths.path_state_str(slot, self.identity.mode).to_owned())];
        let access = self.access_of(t, slot);
        if !access.is_empty() {
            lines.push(("Access", access));
        }
        if let Some(Attr::Text(place)) = t.below(consumer).and_then(|p| t.attr(p, PHYSPATH)) {
            lines.push(("PhysicalPath", place));
        }
        lines
    }
}
