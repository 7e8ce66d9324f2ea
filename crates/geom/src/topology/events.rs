//! The ordered event queue (docs/reference/geom.md 1.3).

use bio::{Attr, Errno};

use super::{ConsumerId, GeomId, ProviderId, Tasted, Topology};
use crate::core::CoreNotice;
use crate::notify::Notice;
use crate::snapshot::Limits;

/// Something that happens to the topology. References are generational: an event about an object
/// that has been removed does nothing, which is what cancelling means here.
pub enum Event {
    /// A provider appeared, or its last writer left: classes taste it.
    NewProvider(ProviderId),
    /// One class tastes one provider (a class was loaded, or a retaste was requested).
    TasteOne {
        /// What to taste.
        provider: ProviderId,
        /// Index of the class.
        class: usize,
    },
    /// A tasting ended.
    Tasted(Box<Tasted>),
    /// Notify the marked consumers of a provider that another consumer writes it.
    Spoil(ProviderId),
    /// A provider has a new size, bytes.
    Resize(ProviderId, u64),
    /// An attribute of a provider changed.
    Attr(ProviderId, &'static str),
    /// The medium was exchanged.
    MediaChanged(ProviderId),
    /// The medium was taken out.
    MediaGone(ProviderId),
    /// A core answered.
    CoreNotice(CoreNotice),
    /// A disk or class reports that its provider was removed.
    Lost(ProviderId, Errno),
    /// A message to a geom from one of its layers or tasks.
    Notice(GeomId, Notice),
    /// A conversation that a geom started has ended.
    Conversed {
        /// The geom.
        geom: GeomId,
        /// The number of the conversation.
        number: u64,
        /// Its answer; [`crate::Unanswered`] when there is none.
        notice: Notice,
    },
}

/// Attributes that a layer on one provider has from it, and that may change while it is used. The
/// topology notifies all geoms above of a change of DELETE.
const INHERITED_ATTRS: [&str; 3] = ["GEOM::physpath", "GEOM::rotation_rate", "CAM::access"];

impl Topology {
    /// An attribute of the one provider below `geom` changed: the geoms above, which inherit it,
    /// are notified.
    pub fn pass_up_attr(&mut self, geom: GeomId, name: &str) {
        let Some(name) = INHERITED_ATTRS.iter().find(|known| **known == name) else { return };
        for provider in self.providers_of(geom).to_vec() {
            self.post(Event::Attr(provider, name));
        }
    }

    /// Queues an event.
    pub fn post(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Runs one event; false when there is none. The doorstep is first; the washer runs when
    /// nothing else is left.
    pub fn step(&mut self) -> bool {
        if let Some(p) = self.doorstep.pop_front() {
            self.orphan_event(p);
            return true;
        }
        if let Some(event) = self.events.pop_front() {
            self.run_event(event);
            return true;
        }
        if self.last_sizes.is_unsaved() {
            self.last_sizes.save();
        }
        if std::mem::take(&mut self.wash) {
            self.run_washer();
            return true;
        }
        false
    }

    /// Runs events until none is left.
    pub fn run(&mut self) {
        while self.step() {}
    }

    fn run_event(&mut self, event: Event) {
        let quiet = self.shutting_down;
        match event {
            Event::NewProvider(_)
            | Event::TasteOne { .. }
            | Event::Resize(..)
            | Event::Attr(..)
            | Event::MediaChanged(_)
            | Event::MediaGone(_)
                if quiet => {}
            Event::NewProvider(p) => self.new_provider_event(p),
            Event::TasteOne { provider, class } => self.start_taste(provider, Some(class)),
            Event::Tasted(t) => self.tasted(*t),
            Event::Spoil(p) => self.spoil_event(p),
            Event::Resize(p, size) => self.resize_event(p, size),
            Event::Attr(p, name) => self.notify_attr(p, name),
            Event::MediaChanged(p) => self.media_event(p, true),
            Event::MediaGone(p) => self.media_event(p, false),
            Event::CoreNotice(CoreNotice::Drained { core, ticket }) => self.drained(core, ticket),
            Event::CoreNotice(_) => {}
            Event::Notice(geom, notice) => self.notify_geom(geom, notice),
            Event::Conversed { geom, number, notice } => {
                self.conversing.remove(&number);
                self.notify_geom(geom, notice);
            }
            Event::Lost(p, error) => {
                if self.providers.contains_key(p) {
                    self.losses += 1;
                    self.wither_provider(p, error);
                }
            }
        }
    }

    fn notify_geom(&mut self, geom: GeomId, notice: Notice) {
        self.with_geom(geom, |ops, t| ops.on_notice(t, geom, notice));
    }

    fn new_provider_event(&mut self, p: ProviderId) {
        if self.providers.get(p).is_none_or(|x| x.wither || x.orphan) {
            return;
        }
        self.notify_attr(p, "GEOM::media");
        if !self.no_taste {
            self.start_taste(p, None);
        }
    }

    fn notify_attr(&mut self, p: ProviderId, name: &str) {
        for (c, g) in self.consumers_above(p) {
            self.with_geom(g, |ops, t| ops.attr_changed(t, g, c, name));
        }
    }

    fn spoil_event(&mut self, p: ProviderId) {
        for (c, g) in self.consumers_above(p) {
            let Some(cp) = self.consumers.get_mut(c) else {
                continue;
            };
            // Marks are taken one at a time: a hook may make another consumer leave.
            let marked = std::mem::take(&mut cp.spoiled) && !cp.orphan && !cp.detaching;
            if marked && self.geom_spoils(g) {
                self.with_geom(g, |ops, t| ops.spoiled(t, g, c));
            }
        }
    }

    fn resize_event(&mut self, p: ProviderId, size: u64) {
        let Some(pp) = self.providers.get(p) else {
            return;
        };
        let was = pp.limits.media_bytes;
        let size = Limits { media_bytes: size, ..pp.limits }.truncated().media_bytes;
        if pp.wither || was == size {
            return;
        }
        if size < was {
            for (c, g) in self.consumers_above(p) {
                let copes =
                    self.geoms.get(g).and_then(|g| g.ops.as_ref()).is_some_and(|o| o.resizes());
                if !copes {
                    self.orphan_consumer(c, g, Errno::NxIo);
                }
            }
        }
        self.add_new_size(p, size);
        if let Some(pp) = self.providers.get_mut(p) {
            pp.limits.media_bytes = size;
            self.dirty_nodes.insert(pp.node);
        }
        for (c, g) in self.consumers_above(p) {
            if self.consumers.get(c).is_some_and(|x| !x.orphan && !x.detaching) {
                self.with_geom(g, |ops, t| ops.resized(t, g, c));
            }
        }
        if !self.no_taste {
            self.start_taste(p, None);
        }
    }

    fn media_event(&mut self, p: ProviderId, present: bool) {
        let Some(pp) = self.providers.get_mut(p) else {
            return;
        };
        pp.content += 1;
        let retaste = present && pp.counts.w == 0 && pp.state.error().is_none();
        self.mark_spoiled(p, None);
        if retaste {
            self.post(Event::NewProvider(p));
        }
    }

    fn orphan_event(&mut self, p: ProviderId) {
        let Some(pp) = self.providers.get(p) else {
            return;
        };
        let error = pp.state.error().unwrap_or(Errno::NxIo);
        // Those that leave already count as orphans for the idle barrier.
        for c in pp.consumers.clone() {
            if let Some(cp) = self.consumers.get_mut(c) {
                cp.orphan |= cp.detaching;
            }
        }
        self.events.retain(|e| !about(e, p));
        for (c, g) in self.consumers_above(p) {
            self.orphan_consumer(c, g, error);
        }
        self.wash = true;
    }

    fn orphan_consumer(&mut self, c: ConsumerId, g: GeomId, error: Errno) {
        match self.consumers.get_mut(c) {
            Some(cp) if !cp.orphan && !cp.detaching => cp.orphan = true,
            _ => return,
        }
        self.set_edge_flags(c);
        self.with_geom(g, |ops, t| ops.orphan(t, g, c, error));
        self.wash = true;
    }

    /// The consumers of a provider that can receive events: not those that leave already.
    pub(super) fn consumers_above(&self, p: ProviderId) -> Vec<(ConsumerId, GeomId)> {
        let Some(pp) = self.providers.get(p) else {
            return Vec::new();
        };
        let attached = |c: &ConsumerId| {
            let cp = self.consumers.get(*c)?;
            (!cp.detaching).then_some((*c, cp.geom))
        };
        pp.consumers.iter().filter_map(attached).collect()
    }

    pub(super) fn geom_spoils(&self, g: GeomId) -> bool {
        self.geoms.get(g).is_some_and(|g| g.ops.as_ref().map_or(g.spoils, |o| o.spoils()))
    }

    /// An attribute of a provider: its own table first, then its geom.
    pub fn attr(&self, p: ProviderId, name: &str) -> Option<Attr> {
        let pp = self.providers.get(p)?;
        if let Some((_, v)) = pp.attrs.iter().find(|(n, _)| *n == name) {
            return Some(v.clone());
        }
        let ops = self.geoms.get(pp.geom)?.ops.as_ref()?;
        ops.attr(self, pp.geom, p, name)
    }

    /// The attribute as the first provider below `geom` answers it.
    pub fn attr_below(&self, geom: GeomId, name: &str) -> Option<Attr> {
        let c = self.geoms.get(geom)?.consumers.first()?;
        self.attr(self.consumers.get(*c)?.provider?, name)
    }
}

/// True for events that an orphaned provider cancels.
fn about(event: &Event, p: ProviderId) -> bool {
    match event {
        Event::NewProvider(x)
        | Event::TasteOne { provider: x, .. }
        | Event::Spoil(x)
        | Event::Resize(x, _)
        | Event::Attr(x, _)
        | Event::MediaChanged(x)
        | Event::MediaGone(x)
        | Event::Lost(x, _) => *x == p,
        Event::Tasted(_) | Event::CoreNotice(_) | Event::Notice(..) | Event::Conversed { .. } => {
            false
        }
    }
}
