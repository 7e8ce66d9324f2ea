//! The geom of one stripe or concat.

use std::marker::PhantomData;
use std::sync::Arc;

use bio::Errno;
use geom::{
    Access, ConsumerId, Deletes, Edge, Error, Event, Geom, GeomId, Limits, MADE_BY_VERB,
    NewProvider, Notice, ProviderId, Severity, Topology, Trouble, message_of,
};

use super::map::SpanLayer;
use super::moved::{self, LabelMoved};
use super::{Span, SpanLabel};
use crate::members::{
    ComponentState, Divisor, EventLog, Refusals, attach_alone, attributes, verb_util, zeroes,
};

/// One that has its place.
struct Member {
    consumer: ConsumerId,
    /// Bytes it gives: without the label's sector.
    bytes: u64,
    /// Its label is being written at its new end.
    moving: bool,
}

impl Member {
    fn new(consumer: ConsumerId, bytes: u64) -> Member {
        Member { consumer, bytes, moving: false }
    }
}

/// The edge to a member, with the member's data.
pub(super) struct MemberEdge {
    /// Its slot.
    pub(super) number: usize,
    pub(super) edge: Edge,
    pub(super) name: String,
    pub(super) sector_bytes: u32,
    /// Bytes that the member gives: behind them is its label.
    pub(super) bytes: u64,
}

pub struct SpanGeom<S> {
    /// Number of the whole; zero for one made by hand.
    id: u32,
    manual: bool,
    strip: u64,
    slots: Vec<Option<Member>>,
    /// A provider that becomes a further member when the labels have it (S5).
    appending: Option<Member>,
    /// When it started, it reported that deleted blocks read as zeroes.
    zeroes: bool,
    /// Members whose labels could not be written at their new end, and why.
    unmoved_labels: Option<String>,
    /// Why it is not up although every slot is filled.
    fault: Option<String>,
    refused: Refusals,
    event_log: EventLog,
    of: PhantomData<fn() -> S>,
}

fn gone(what: &str) -> Error {
    Error::new(Errno::NxIo, format!("{what} was removed"))
}

/// Identity of the first member of a stripe or concat that has no label and so none of its own. It
/// stays as members are appended.
pub const BEGINS_ON: &str = "SPAN::begins_on";

impl<S: Span> SpanGeom<S> {
    fn new(id: u32, manual: bool, strip: u64, count: usize) -> SpanGeom<S> {
        let slots = (0..count).map(|_| None).collect();
        SpanGeom {
            id,
            manual,
            strip,
            slots,
            appending: None,
            zeroes: false,
            unmoved_labels: None,
            fault: None,
            refused: Refusals::default(),
            event_log: EventLog::default(),
            of: PhantomData,
        }
    }

    /// Whether it was made by hand.
    pub(super) fn is_manual(&self) -> bool {
        self.manual
    }

    /// Its number and strip size, bytes.
    pub(super) fn identity(&self) -> (u32, u64) {
        (self.id, self.strip)
    }

    /// Its members' providers, in order; `None` where one is missing.
    pub(super) fn members(&self, t: &Topology) -> Vec<Option<ProviderId>> {
        self.slots.iter().map(|s| t.below(s.as_ref()?.consumer)).collect()
    }

    /// The edges to all members, and to the provider that becomes one.
    pub(super) fn member_edges(&self, t: &Topology) -> Vec<MemberEdge> {
        let way = |number: usize, m: &Member| {
            let below = t.below(m.consumer)?;
            let limits = t.limits(below)?;
            Some(MemberEdge {
                number,
                edge: t.edge(m.consumer),
                name: t.provider_name(below).to_owned(),
                sector_bytes: limits.sector_bytes,
                bytes: m.bytes,
            })
        };
        let all = self.slots.iter().map(Option::as_ref).chain([self.appending.as_ref()]);
        all.enumerate().filter_map(|(number, m)| way(number, m?)).collect()
    }

    /// A member with this label was found.
    pub(super) fn claim(
        t: &mut Topology,
        on: ProviderId,
        why: &str,
        label: SpanLabel,
    ) -> Result<(), Error> {
        let known = t.find_geom(S::NAME, &label.name);
        verb_util::check_cycle(t, on, known)?;
        let geom = match known {
            Some(geom) => geom,
            None => {
                let new = Self::new(label.id, false, label.strip, label.count.into());
                t.new_geom(S::NAME, &label.name, why, Box::new(new))?
            }
        };
        let joined = t
            .with(geom, |g: &mut Self, t| {
                let (name, joined) = (t.provider_name(on).to_owned(), g.join(t, geom, on, &label));
                match &joined {
                    Ok(()) => g.refused.forget(&name),
                    Err(e) => g.refused.note(t, geom, &name, &e.message),
                }
                joined
            })
            .unwrap_or_else(|| Err(gone(&label.name)));
        if joined.is_err() && known.is_none() {
            t.wither_geom(geom, Errno::NxIo);
        }
        joined
    }

    fn join(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        on: ProviderId,
        label: &SpanLabel,
    ) -> Result<(), Error> {
        let (class, name) = (S::NAME, &label.name);
        let exist = |what: String| Err(Error::new(Errno::Exist, what));
        if self.manual || self.id != label.id {
            return exist(format!(
                "another {class}/{name} is there (id {}, this one is {}): stop that one, or \
                 label this one anew",
                self.id, label.id
            ));
        }
        self.check_label(t, me, label)?;
        let Some(slot) = self.slots.get_mut(usize::from(label.number)) else {
            return Err(Error::inval("a slot beyond the last"));
        };
        if let Some(holder) = slot {
            let holder = t.below(holder.consumer).map(|p| t.provider_name(p).to_owned());
            let holder = holder.unwrap_or_default();
            let number = label.number;
            return exist(format!(
                "{holder} has slot {number} of {class}/{name} already: the same disk by another \
                 name, or a copy of it"
            ));
        }
        let limits = t.limits(on).ok_or_else(|| gone(name))?;
        let consumer = attach_alone(t, me, on)?;
        // It may have grown since its label was written.
        let ended = match label.provider_bytes {
            0 => limits.media_bytes,
            ended => ended.min(limits.media_bytes),
        };
        let bytes = ended.saturating_sub(u64::from(limits.sector_bytes));
        *slot = Some(Member::new(consumer, bytes));
        self.start_if_whole(t, me)?;
        if ended < limits.media_bytes {
            self.resized(t, me, consumer);
        }
        Ok(())
    }

    /// A geom made by hand.
    pub(super) fn by_hand(
        t: &mut Topology,
        name: &str,
        members: &[ProviderId],
        strip: u64,
    ) -> Result<GeomId, Error> {
        if members.len() < S::LEAST {
            let what = format!("{} {name}: it takes at least {} members", S::NAME, S::LEAST);
            return Err(Error::inval(what));
        }
        let new = Self::new(0, true, strip, members.len());
        let geom = t.new_geom(S::NAME, name, MADE_BY_VERB, Box::new(new))?;
        let result = t.with(geom, |g: &mut Self, t| {
            for (slot, on) in members.iter().enumerate() {
                let bytes = t.limits(*on).ok_or_else(|| gone(name))?.media_bytes;
                let consumer = attach_alone(t, geom, *on)?;
                if let Some(slot) = g.slots.get_mut(slot) {
                    *slot = Some(Member::new(consumer, bytes));
                }
            }
            g.start_if_whole(t, geom)
        });
        match result.unwrap_or_else(|| Err(gone(name))) {
            Ok(()) => Ok(geom),
            Err(e) => {
                Self::take_apart(t, geom);
                Err(e)
            }
        }
    }

    /// Whether a label fits those of the members that are there (S5).
    fn check_label(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        label: &SpanLabel,
    ) -> Result<(), Error> {
        let (count, slots) = (usize::from(label.count), self.slots.len());
        if count == slots && label.strip == self.strip {
            return Ok(());
        }
        let is_up = !t.providers_of(me).is_empty();
        let cut_short = S::APPENDS && label.strip == self.strip;
        if !cut_short || count < slots && is_up {
            let what = format!(
                "its label names {} members and strips of {}, those of the others of {slots} and \
                 {}: one of them was not written with the rest",
                label.count, label.strip, self.strip
            );
            return Err(Error::new(Errno::Exist, what));
        }
        if usize::from(label.number) >= slots {
            let what = format!(
                "when it was appended the others' labels were not all written: `ashlar {} append` \
                 appends it again",
                S::NAME
            );
            return Err(Error::new(Errno::Exist, what));
        }
        if count < slots {
            for member in self.slots.split_off(count).into_iter().flatten() {
                t.leave(member.consumer);
            }
        }
        Ok(())
    }

    /// Adds a further member at the end (concat append). It is held open, and not used before its
    /// label and the others' have the new count. `bytes` is its share of the size.
    pub(super) fn admit(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        on: ProviderId,
        bytes: u64,
    ) -> Result<(), Error> {
        self.may_admit(t, me, on)?;
        let consumer = attach_alone(t, me, on)?;
        self.appending = Some(Member::new(consumer, bytes));
        Ok(())
    }

    /// Why a provider cannot become a further member.
    pub(super) fn may_admit(&self, t: &Topology, me: GeomId, on: ProviderId) -> Result<(), Error> {
        let limits = t.providers_of(me).first().and_then(|p| t.limits(*p));
        let sector = t.limits(on).map_or(0, |l| l.sector_bytes);
        let Some(limits) = limits.filter(|_| self.fault.is_none()) else {
            let what = "a member is missing; `status` names it";
            return Err(Error::new(Errno::NxIo, what));
        };
        if sector == 0 || limits.sector_bytes % sector != 0 {
            let what = format!(
                "its sectors have {sector} bytes, and those of the whole have {}: they must be a \
                 multiple of its own",
                limits.sector_bytes
            );
            return Err(Error::inval(what));
        }
        if self.appending.is_some() || self.slots.iter().flatten().any(|m| m.moving) {
            return Err(Error::new(Errno::Busy, "its labels are being written; try again"));
        }
        Ok(())
    }

    /// The labels are written: the new provider becomes a member.
    pub(super) fn append(&mut self, t: &mut Topology, me: GeomId) -> Result<(), Error> {
        let member = self.appending.take().ok_or_else(|| gone("the new member"))?;
        let consumer = member.consumer;
        self.slots.push(Some(member));
        self.grow(t, me);
        // It may have grown meanwhile.
        self.resized(t, me, consumer);
        Ok(())
    }

    /// Drops the provider that was to become a member.
    pub(super) fn drop_appending(&mut self, t: &mut Topology, me: GeomId) {
        if let Some(member) = self.appending.take() {
            t.leave(member.consumer);
        }
        let last = self.slots.last().and_then(|s| s.as_ref()).map(|m| m.consumer);
        if let Some(last) = last {
            self.resized(t, me, last);
        }
    }

    /// A labelled member grew that is not the last: its label stays where it is.
    fn note_fixed_label(&mut self, t: &Topology, place: usize) {
        let Some(Some(member)) = self.slots.get(place).filter(|_| !self.manual) else { return };
        let Some(below) = t.below(member.consumer) else { return };
        let sector = t.limits(below).map_or(0, |l| u64::from(l.sector_bytes));
        self.unmoved_labels = Some(format!(
            "{} grew, but it is not the last: give it {} bytes again, otherwise no other daemon \
             finds it",
            t.provider_name(below),
            member.bytes + sector
        ));
    }

    fn sizes(&self) -> Vec<u64> {
        self.slots.iter().flatten().map(|m| m.bytes).collect()
    }

    /// The state of the data path, from the present members.
    fn shape(&self, t: &Topology) -> Result<(Arc<SpanLayer<S>>, Limits), Error> {
        let mut sector = 1u64;
        let (mut deletes, mut wipes) = (Vec::new(), Vec::new());
        for member in self.slots.iter().flatten() {
            let below = t.below(member.consumer).ok_or_else(|| gone("a member"))?;
            let limits = t.limits(below).ok_or_else(|| gone("a member"))?;
            sector = lcm(sector, u64::from(limits.sector_bytes));
            deletes.push(t.attr(below, "GEOM::candelete") == Some(bio::Attr::Int(1)));
            wipes.push(self.zeroes && !zeroes(t, below));
        }
        S::check_strip(self.strip, sector)?;
        let sizes: Vec<u64> = self.sizes().iter().map(|b| b - b % sector).collect();
        let media_bytes = S::media_bytes(self.strip, &sizes);
        let sector_bytes = u32::try_from(sector)
            .map_err(|_| Error::inval("sector sizes without a common multiple"))?;
        if media_bytes == 0 {
            return Err(Error::inval("the members are too small: no data would fit"));
        }
        let layer = SpanLayer {
            strip: self.strip,
            divisors: (Divisor::new(self.strip), Divisor::new(sizes.len() as u64)),
            sizes: sizes.into(),
            edges: self.slots.iter().flatten().map(|m| t.edge(m.consumer)).collect(),
            deletes: deletes.into(),
            wipes: wipes.into(),
            of: PhantomData,
        };
        let limits = Limits { media_bytes, sector_bytes, io_max_bytes: 0, delete_max_bytes: 0 };
        Ok((Arc::new(layer), limits))
    }

    fn start_if_whole(&mut self, t: &mut Topology, me: GeomId) -> Result<(), Error> {
        if self.slots.iter().any(Option::is_none) {
            return Ok(());
        }
        let started = self.start(t, me);
        self.fault = started.as_ref().err().map(|e| e.message.clone());
        self.report(t, me);
        started
    }

    fn start(&mut self, t: &mut Topology, me: GeomId) -> Result<(), Error> {
        let members: Vec<ProviderId> = self.members(t).into_iter().flatten().collect();
        self.zeroes = members.iter().all(|p| zeroes(t, *p));
        let (layer, limits) = self.shape(t)?;
        let mut attrs = attributes(t, &members);
        let name = t.geom_name(me).to_owned();
        if !self.manual {
            let ident = format!("{}-{:08x}", S::NAME, self.id);
            attrs.push(("GEOM::ident", bio::Attr::Text(ident)));
        } else if let Some(first) = members.first().and_then(|p| t.attr(*p, "GEOM::ident")) {
            attrs.push((BEGINS_ON, first));
        }
        let first = members.first().map_or((0, 0), |p| t.stripe(*p));
        let (stripe_bytes, stripe_offset) = if self.strip > 0 { (self.strip, 0) } else { first };
        t.new_provider(
            me,
            NewProvider {
                name: format!("{}/{name}", S::NAME),
                layer,
                limits,
                stripe_bytes,
                stripe_offset,
                attrs,
            },
        )?;
        Ok(())
    }

    /// The members are larger than before: consumers are notified of the new size.
    fn grow(&mut self, t: &mut Topology, me: GeomId) {
        let Some(&provider) = t.providers_of(me).first() else { return };
        let Some(was) = t.limits(provider) else { return };
        match self.shape(t) {
            Ok((layer, limits)) if limits.media_bytes >= was.media_bytes => {
                // The size changes with the event; until then no data is beyond the old end.
                t.replace_layer(provider, layer, was);
                if limits.media_bytes > was.media_bytes {
                    t.post(Event::Resize(provider, limits.media_bytes));
                }
            }
            Ok(_) => {}
            Err(e) => self.fault = Some(e.message),
        }
    }

    /// Releases the members and withers the provider.
    pub(super) fn take_apart(t: &mut Topology, geom: GeomId) {
        for provider in t.providers_of(geom).to_vec() {
            t.wither_provider(provider, Errno::NxIo);
        }
        for consumer in t.consumers_of(geom).to_vec() {
            t.leave(consumer);
        }
        t.wither_geom(geom, Errno::NxIo);
    }

    /// The journal gets a line when it rises, and when it falls again.
    fn report(&mut self, t: &mut Topology, me: GeomId) {
        let up = !t.providers_of(me).is_empty() && self.fault.is_none();
        if up || self.event_log.has_begun() {
            let about = format!("{}/{}", S::NAME, t.geom_name(me));
            let severity = if up { Severity::Good } else { Severity::Failed };
            let fact = ComponentState { subject: about, severity, state: self.state(t, me) };
            self.event_log.report(t, me, &[fact]);
        }
    }

    fn state(&self, t: &Topology, me: GeomId) -> String {
        let present = self.slots.iter().flatten().count();
        match (&self.fault, t.providers_of(me).is_empty()) {
            (None, false) => "UP".into(),
            (Some(fault), _) => format!("DOWN ({fault})"),
            (None, true) => format!("DOWN ({present} of {} members)", self.slots.len()),
        }
    }
}

fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a.checked_div(x).unwrap_or(0).saturating_mul(b)
}

impl<S: Span> Geom for SpanGeom<S> {
    fn access(
        &mut self,
        _: &mut Topology,
        _: GeomId,
        _: ProviderId,
        _: Access,
    ) -> Result<(), Errno> {
        // S2: the members are open already.
        Ok(())
    }

    fn deletes(&self, t: &Topology, _: GeomId, _: ProviderId) -> Deletes {
        let (mut base, count) = (0u64, self.slots.len() as u64);
        let members = self.slots.iter().flatten().filter_map(|member| {
            let below = t.deletes(t.below(member.consumer)?);
            let begins = base;
            base = base.saturating_add(member.bytes);
            Some(if self.strip > 0 {
                below.striped(self.strip, count)
            } else {
                below.placed(begins)
            })
        });
        members.reduce(Deletes::with).unwrap_or(Deletes::of(1))
    }

    fn orphan(&mut self, t: &mut Topology, me: GeomId, consumer: ConsumerId, error: Errno) {
        let lost =
            self.slots.iter_mut().find(|s| s.as_ref().is_some_and(|m| m.consumer == consumer));
        match lost {
            Some(slot) => *slot = None,
            None => {
                if self.appending.as_ref().is_some_and(|m| m.consumer == consumer) {
                    self.appending = None;
                }
                return t.leave(consumer);
            }
        }
        self.fault = None;
        // S1: the whole is removed with any of its parts; the other members wait for its return.
        for provider in t.providers_of(me).to_vec() {
            t.wither_provider(provider, error);
        }
        t.leave(consumer);
        self.report(t, me);
        if self.manual || self.slots.iter().all(Option::is_none) {
            Self::take_apart(t, me);
        }
    }

    fn release_command(&self, t: &Topology, me: GeomId, _: ConsumerId) -> Option<String> {
        verb_util::stop_command(S::NAME, t, me)
    }

    fn resizes(&self) -> bool {
        false
    }

    fn resized(&mut self, t: &mut Topology, me: GeomId, consumer: ConsumerId) {
        // Data behind a member of a concat would move with the member's end.
        let last = self.slots.len().saturating_sub(1);
        let at = |s: &Option<Member>| s.as_ref().is_some_and(|m| m.consumer == consumer);
        let Some(place) = self.slots.iter().position(at) else { return };
        if self.appending.is_some() {
            // Its label is being written; this check is repeated afterwards.
            return;
        }
        if self.strip == 0 && place != last {
            return self.note_fixed_label(t, place);
        }
        let bytes = t.below(consumer).and_then(|p| t.limits(p)).map(|l| l.media_bytes);
        let (Some(Some(member)), Some(bytes)) = (self.slots.get_mut(place), bytes) else { return };
        if self.manual {
            member.bytes = member.bytes.max(bytes);
            self.grow(t, me);
        } else if !member.moving {
            member.moving = moved::move_label::<S>(t, me, consumer, member.bytes);
        }
    }

    fn on_notice(&mut self, t: &mut Topology, me: GeomId, notice: Notice) {
        let Ok(moved) = message_of::<LabelMoved>(notice) else { return };
        let of = |m: &&mut Member| m.consumer == moved.consumer;
        let Some(member) = self.slots.iter_mut().flatten().find(of) else { return };
        member.moving = false;
        match moved.done {
            Ok(bytes) => {
                member.bytes = bytes;
                self.unmoved_labels = None;
                self.grow(t, me);
                // It may have grown again meanwhile.
                self.resized(t, me, moved.consumer);
            }
            Err(why) => self.unmoved_labels = Some(why),
        }
    }

    fn attr(&self, _: &Topology, _: GeomId, _: ProviderId, _: &str) -> Option<bio::Attr> {
        // Attributes of the whole are in the provider's own list; a member's serial number or bay
        // is not the whole's.
        None
    }

    fn show(&self, t: &Topology, me: GeomId) -> Vec<(&'static str, String)> {
        let mut out = vec![("State", self.state(t, me))];
        let present = self.slots.iter().flatten().count();
        out.push(("Status", format!("Total={}, Online={present}", self.slots.len())));
        out.push(("Type", if self.manual { "MANUAL" } else { "AUTOMATIC" }.into()));
        if self.strip > 0 {
            out.push(("Stripesize", self.strip.to_string()));
        }
        if !self.manual {
            out.push(("ID", self.id.to_string()));
        }
        if let Some(why) = &self.unmoved_labels {
            out.push(("Label", why.clone()));
        }
        out.extend(self.refused.lines());
        out
    }

    fn troubles(&self, t: &Topology, me: GeomId) -> Vec<Trouble> {
        let (class, name) = (S::NAME, t.geom_name(me));
        let mut out = Vec::new();
        if let Some(fault) = &self.fault {
            let action = format!("See `ashlar {class} list {name}`.");
            out.push(Trouble::failed(fault.clone(), action));
        } else if t.providers_of(me).is_empty() {
            let missing = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_none());
            let missing: Vec<String> = missing.map(|(number, _)| number.to_string()).collect();
            let (numbers, all) = (missing.join(", "), self.slots.len());
            let refused = self.refused.words();
            let (members, are) =
                if missing.len() == 1 { ("member", "is") } else { ("members", "are") };
            let why = format!("{members} {numbers} of {all} {are} missing{refused}");
            let action = "Reconnect the disk: the provider appears when all members are present.";
            out.push(Trouble::failed(why, action));
        }
        if let Some(why) = &self.unmoved_labels {
            let action = format!("See `ashlar {class} list {name}`, and `{class} help relocate`.");
            out.push(Trouble::degraded(why.clone(), action));
        }
        out
    }

    fn show_consumer(
        &self,
        _: &Topology,
        _: GeomId,
        consumer: ConsumerId,
    ) -> Vec<(&'static str, String)> {
        let at = |s: &Option<Member>| s.as_ref().is_some_and(|m| m.consumer == consumer);
        let number = self.slots.iter().position(at);
        number.map(|n| vec![("Number", n.to_string())]).unwrap_or_default()
    }
}
