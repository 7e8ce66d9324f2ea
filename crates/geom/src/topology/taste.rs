//! Tasting: reading happens on a core, with a deadline; results are committed here, in order
//! (docs/reference/geom.md 1.4). A disk that hangs delays only its own tasting.

use std::collections::BTreeSet;
use std::sync::Arc;

use bio::{Attr, Errno};

use super::{Access, Action, ConsumerId, GeomId, ProviderId, Topology};
use crate::class::{Claim, Class, Geom, TasteOutcome};
use crate::layer::Edge;

/// Attributes a taster may request.
const TASTE_ATTRS: [&str; 9] = [
    "PART::isleaf",
    "PART::depth",
    "PART::scheme",
    "PART::type",
    "PART::label",
    "PART::uuid",
    "LABEL::kind",
    "GEOM::ident",
    "GEOM::rotation_rate",
];

/// Work for a core: taste one provider by some classes.
pub struct TasteJob {
    pub provider: ProviderId,
    /// Which tasting of it: an older one's result is dropped.
    pub serial: u64,
    /// The way to it, open for reading.
    pub edge: Edge,
    pub name: String,
    /// Its size, bytes.
    pub media_bytes: u64,
    /// Its sector size, bytes.
    pub sector_bytes: u32,
    /// Its attributes.
    pub attrs: Vec<(&'static str, Attr)>,
    /// The classes, in the order of asking.
    pub classes: Vec<TasteClass>,
    pub(crate) consumer: ConsumerId,
    pub(crate) content: u64,
}

/// One class that tastes.
pub struct TasteClass {
    pub index: usize,
    /// Itself.
    pub class: Arc<dyn Class>,
    /// The sizes for [`crate::Taster::former_sizes`].
    pub former_sizes: Vec<u64>,
}

/// The result of a tasting.
pub struct Tasted {
    pub provider: ProviderId,
    /// Which tasting.
    pub serial: u64,
    /// The size that the provider had, bytes.
    pub media_bytes: u64,
    /// Outcomes by index of the class, in the order of asking.
    pub outcomes: Vec<(usize, TasteOutcome)>,
    pub(crate) consumer: ConsumerId,
    pub(crate) content: u64,
    /// A class had no answer in time: its reads may stay in flight for ever.
    pub(crate) late: bool,
}

impl TasteJob {
    /// The result of a tasting without an answer: every class answers `why`.
    pub(crate) fn without_answer(&self, why: &str) -> Tasted {
        Tasted {
            provider: self.provider,
            serial: self.serial,
            media_bytes: self.media_bytes,
            outcomes: self
                .classes
                .iter()
                .map(|a| (a.index, TasteOutcome::No(why.into())))
                .collect(),
            consumer: self.consumer,
            content: self.content,
            late: true,
        }
    }
}

/// The temporary geom that holds the taster's consumer.
struct TasteGeom;

impl Geom for TasteGeom {
    fn orphan(&mut self, _: &mut Topology, _: GeomId, _: ConsumerId, _: Errno) {
        // The tasting ends by itself, with the error or at its deadline, and leaves then.
    }
}

/// The reason why providers that others write are left alone.
const EXPORTED_REASON: &str =
    "exported, or built on an exported provider: its contents belong to initiators";

impl Topology {
    /// Requests a new look at a provider by all classes that have no geom on it.
    pub fn retaste(&mut self, provider: ProviderId) {
        self.post(super::Event::NewProvider(provider));
    }

    /// Providers of these names, and those based on them, belong to other users from now on, which
    /// write them whether they are open yet or not. Only classes that show their findings
    /// ([`crate::Class::only_shows`]) look at them. A provider that no longer belongs to others is
    /// tasted.
    pub fn set_exported(&mut self, names: BTreeSet<String>) {
        let before = std::mem::replace(&mut self.exported, names);
        if before.is_subset(&self.exported) {
            return;
        }
        let all: Vec<ProviderId> = self.providers.iter().map(|(id, _)| id).collect();
        for p in all {
            if self.is_based_on_any(&before, p) && !self.is_based_on_any(&self.exported, p) {
                self.retaste(p);
            }
        }
    }

    /// True when a provider, or one that it is based on, has one of these names.
    fn is_based_on_any(&self, names: &BTreeSet<String>, p: ProviderId) -> bool {
        if names.is_empty() {
            return false;
        }
        let Some(geom) = self.providers.get(p).map(|pp| pp.geom) else { return false };
        names.contains(self.known_as(p))
            || self
                .consumers_of(geom)
                .iter()
                .filter_map(|c| self.below(*c))
                .any(|below| self.is_based_on_any(names, below))
    }

    /// Takes back the tastings that creating a geom has caused; the caller requests them later.
    pub(crate) fn hold_tasting(&mut self, geom: GeomId) -> Vec<ProviderId> {
        let own = self.providers_of(geom).to_vec();
        let taken = |e: &super::Event| matches!(e, super::Event::NewProvider(p) if own.contains(p));
        self.events.retain(|e| !taken(e));
        own
    }

    pub(super) fn start_taste(&mut self, p: ProviderId, only: Option<usize>) {
        let Some(pp) = self.providers.get(p) else {
            return;
        };
        if pp.wither || pp.orphan || pp.state.error().is_some() || self.covering(p).is_some() {
            return;
        }
        let written = pp.counts.w > 0;
        let lent = !written && self.is_based_on_any(&self.exported, p);
        let own_class = self.geoms.get(pp.geom).map(|g| g.class);
        let mut classes = Vec::new();
        for i in (0..self.classes.len()).rev() {
            let class = &self.classes[i];
            let wanted = only.is_none_or(|o| o == i) && class.tastes();
            if !wanted || self.class_has_consumer(i, p) {
                continue;
            }
            if only.is_some() && own_class == Some(i) {
                self.set_taste_outcome(p, i, "its own provider, when the class was loaded".into());
                continue;
            }
            if written && !class.tastes_written() {
                self.set_taste_outcome(p, i, "open for writing when tasted".into());
                continue;
            }
            if lent && !class.only_shows() {
                self.set_taste_outcome(p, i, EXPORTED_REASON.into());
                continue;
            }
            let (class, ended) = (self.classes[i].clone(), self.former_sizes(i, p));
            classes.push(TasteClass { index: i, class, former_sizes: ended });
        }
        if classes.is_empty() {
            return;
        }
        match self.open_taster(p) {
            Ok(consumer) => self.send_taste(p, consumer, classes),
            Err(e) => {
                for class in classes {
                    self.set_taste_outcome(
                        p,
                        class.index,
                        format!("could not be opened to taste: {e}"),
                    );
                }
            }
        }
    }

    fn open_taster(&mut self, p: ProviderId) -> Result<ConsumerId, Errno> {
        let geom = self.insert_taste_geom(Box::new(TasteGeom));
        let opened = self.attach_new(geom, p).and_then(|c| {
            self.access(c, Access::READ).map(|()| c).inspect_err(|_| {
                self.detach(c);
            })
        });
        if opened.is_err() {
            self.wither_geom(geom, Errno::NxIo);
        }
        opened
    }

    fn send_taste(&mut self, p: ProviderId, consumer: ConsumerId, classes: Vec<TasteClass>) {
        let edge = self.edge(consumer);
        let attrs = TASTE_ATTRS.iter().filter_map(|n| Some((*n, self.attr(p, n)?))).collect();
        let Some(pp) = self.providers.get_mut(p) else {
            return;
        };
        pp.taste_serial += 1;
        for TasteClass { index, .. } in &classes {
            match pp.requested_tastings.iter_mut().find(|(c, _)| c == index) {
                Some((_, serial)) => *serial = pp.taste_serial,
                None => pp.requested_tastings.push((*index, pp.taste_serial)),
            }
        }
        let job = TasteJob {
            provider: p,
            serial: pp.taste_serial,
            edge,
            name: pp.name.clone(),
            media_bytes: pp.limits.media_bytes,
            sector_bytes: pp.limits.sector_bytes,
            attrs,
            classes,
            consumer,
            content: pp.content,
        };
        self.tasting += 1;
        self.actions.push(Action::Taste(job));
    }

    /// Commits the results of a tasting, in the order of asking. Looks at the provider again before
    /// each, since the claim before may have changed anything.
    pub(super) fn tasted(&mut self, mut t: Tasted) {
        self.tasting = self.tasting.saturating_sub(1);
        let geom = self.consumers.get(t.consumer).map(|c| c.geom);
        self.leave(t.consumer);
        if t.late
            && let Some(cp) = self.consumers.get_mut(t.consumer)
        {
            cp.late = true;
        }
        if let Some(g) = geom {
            self.wither_geom(g, Errno::NxIo);
        }
        for (i, verdict) in std::mem::take(&mut t.outcomes) {
            let Some(pp) = self.providers.get(t.provider) else {
                return;
            };
            // A newer look by the same class is under way or done: this one is history.
            if pp.requested_tastings.iter().any(|&(c, serial)| c == i && serial != t.serial) {
                continue;
            }
            let text = match verdict {
                TasteOutcome::No(why) => {
                    self.set_hidden(t.provider, i, false);
                    why
                }
                _ if self.class_has_consumer(i, t.provider) => continue,
                TasteOutcome::Yes(why, claim) => self.claim(&t, i, &why, (claim, true)),
                TasteOutcome::FormerEndKept(why, claim) => self.claim(&t, i, &why, (claim, false)),
                TasteOutcome::FormerEnd(why, left) => match self.obstacle(t.provider, i, t.content)
                {
                    Some(what) => format!("{why}, but {what}"),
                    None => self.migrate_label(t.provider, i, &why, left),
                },
            };
            self.set_taste_outcome(t.provider, i, text);
        }
    }

    /// A class claims a provider that it has recognised, by its end or not, or refuses it; returns
    /// the outcome as text.
    fn claim(
        &mut self,
        t: &Tasted,
        index: usize,
        why: &str,
        (claim, by_end): (Claim, bool),
    ) -> String {
        if let Some(what) = self.obstacle(t.provider, index, t.content) {
            return format!("{why}, but {what}");
        }
        let class = self.classes[index].clone();
        let claimed = class.claim(self, t.provider, why, claim);
        let refused = claimed.as_ref().is_err_and(|e| e.kind != Errno::NoDev);
        if by_end && (refused || claimed.is_ok()) {
            self.set_only_size(index, t.provider, t.media_bytes);
        }
        self.set_hidden(t.provider, index, refused && class.hides_refused());
        match claimed {
            Ok(()) => format!("claimed: {why}"),
            Err(e) => format!("{why}, but refused: {e}"),
        }
    }

    /// A class hides a provider from those that taste after it, or does not.
    pub(super) fn set_hidden(&mut self, p: ProviderId, class: usize, hides: bool) {
        let Some(pp) = self.providers.get_mut(p) else { return };
        if hides {
            pp.hidden_by = Some(class);
        } else if pp.hidden_by == Some(class) {
            pp.hidden_by = None;
        }
    }

    /// The reason why a class must not act now on its tasting.
    fn obstacle(&self, p: ProviderId, class: usize, content: u64) -> Option<&'static str> {
        let pp = self.providers.get(p)?;
        if pp.wither || pp.orphan || pp.state.error().is_some() {
            return Some("the provider disappeared meanwhile");
        }
        if self.shutting_down {
            return Some("the daemon stops");
        }
        if pp.hidden_by.is_some_and(|by| by > class) {
            return Some(
                "the provider is a member that another class refused: `clear` it there first",
            );
        }
        if self.covering(p).is_some() {
            return Some("a layer was inserted over it meanwhile");
        }
        if pp.counts.w > 0 {
            let also = self.classes[class].tastes_written();
            return (!also).then_some("the provider was opened for writing meanwhile");
        }
        // Its last writer left or its medium changed: the event that tastes again is queued.
        (pp.content != content)
            .then_some("the provider was written meanwhile and will be tasted again")
    }

    /// True when a class has a consumer on the provider that is not an orphan. A verb's hand has
    /// claimed nothing, and the provider is not tasted again when a hand that only read leaves.
    fn class_has_consumer(&self, class: usize, p: ProviderId) -> bool {
        self.consumers_above(p).iter().any(|(c, g)| {
            self.geoms.get(*g).is_some_and(|g| g.class == class && !g.wither && !g.is_verb_access)
                && self.consumers.get(*c).is_some_and(|c| !c.orphan && !c.detaching)
        })
    }

    fn set_taste_outcome(&mut self, p: ProviderId, class: usize, why: String) {
        let name = self.classes[class].name();
        let Some(pp) = self.providers.get_mut(p) else {
            return;
        };
        match pp.taste_outcomes.iter_mut().find(|(n, _)| *n == name) {
            Some((_, text)) => *text = why,
            None => pp.taste_outcomes.push((name, why)),
        }
    }
}
