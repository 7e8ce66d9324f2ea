//! References to geoms, consumers and providers, for readers of many objects.
//!
//! A [`GeomView`] copies everything that lists show. A reference reads single values, and copies
//! none of the others.

use std::collections::{BTreeMap, BTreeSet};

use bio::Errno;

use super::{
    Access, ConsumerId, ConsumerObj, ConsumerView, GeomId, GeomObj, GeomView, ProviderId,
    ProviderObj, ProviderView, Topology,
};
use crate::class::{Geom, Settings, Transient};
use crate::health::Trouble;
use crate::measure::Measure;
use crate::served_client::ServedClient;
use crate::snapshot::Limits;
use crate::stats::Reading;

/// A geom of the graph.
#[derive(Clone, Copy)]
pub struct GeomRef<'a> {
    topology: &'a Topology,
    id: GeomId,
    geom: &'a GeomObj,
}

/// A provider of the graph.
#[derive(Clone, Copy)]
pub struct ProviderRef<'a> {
    topology: &'a Topology,
    id: ProviderId,
    provider: &'a ProviderObj,
}

/// A consumer of the graph.
#[derive(Clone, Copy)]
pub struct ConsumerRef<'a> {
    topology: &'a Topology,
    id: ConsumerId,
    consumer: &'a ConsumerObj,
}

impl ConsumerObj {
    /// Reads its counters; `now_ns` closes a busy interval that is still open.
    pub(super) fn read(&self, now_ns: u64, into: &mut Reading) {
        *into = Reading::default();
        self.meters.iter().for_each(|m| into.add(m, now_ns));
    }
}

impl<'a> GeomRef<'a> {
    pub fn id(&self) -> GeomId {
        self.id
    }

    /// Name of its class.
    pub fn class(&self) -> &'static str {
        self.topology.class_of(self.geom.class)
    }

    pub fn name(&self) -> &'a str {
        &self.geom.name
    }

    /// Why it exists.
    pub fn why(&self) -> &'a str {
        &self.geom.why
    }

    /// Height above the disks, from 1.
    pub fn rank(&self) -> u32 {
        self.geom.rank
    }

    /// On its way out.
    pub fn is_withering(&self) -> bool {
        self.geom.wither
    }

    /// Its place among the geoms of its rank.
    fn place(&self) -> (&'static str, &'a str) {
        (self.class(), self.name())
    }

    /// An answer of the class; the default if the geom has no state of the class yet.
    fn query<T: Default>(&self, question: impl FnOnce(&dyn Geom, &Topology, GeomId) -> T) -> T {
        match &self.geom.ops {
            Some(ops) => question(&**ops, self.topology, self.id),
            None => T::default(),
        }
    }

    /// See [`Geom::show`].
    pub fn show(&self) -> Vec<(&'static str, String)> {
        self.query(|ops, topology, id| ops.show(topology, id))
    }

    /// See [`Geom::settings`].
    pub fn settings(&self) -> Settings {
        self.query(|ops, topology, id| ops.settings(topology, id))
    }

    /// See [`Geom::transients`].
    pub fn transients(&self) -> Vec<Transient> {
        self.query(|ops, topology, id| ops.transients(topology, id))
    }

    /// See [`Geom::measures`]; `now_ns` is the time to which rates refer.
    pub fn measures(&self, now_ns: u64) -> Vec<Measure> {
        let all = self.query(|ops, topology, id| ops.measures(topology, id));
        all.into_iter().map(|measure| measure.at(now_ns)).collect()
    }

    /// See [`Geom::clients`].
    pub fn clients(&self) -> Vec<ServedClient> {
        self.query(|ops, topology, id| ops.clients(topology, id))
    }

    /// See [`Geom::troubles`].
    pub fn troubles(&self) -> Vec<Trouble> {
        self.query(|ops, topology, id| ops.troubles(topology, id))
    }

    /// Its consumers, newest first.
    pub fn consumers(&self) -> Vec<ConsumerRef<'a>> {
        let topology = self.topology;
        let find = |id: &ConsumerId| {
            let consumer = topology.consumers.get(*id)?;
            Some(ConsumerRef { topology, id: *id, consumer })
        };
        self.geom.consumers.iter().filter_map(find).collect()
    }

    /// Its providers, by name.
    pub fn providers(&self) -> Vec<ProviderRef<'a>> {
        let topology = self.topology;
        let find = |id: &ProviderId| {
            let provider = topology.providers.get(*id)?;
            Some(ProviderRef { topology, id: *id, provider })
        };
        let mut all: Vec<ProviderRef<'a>> = self.geom.providers.iter().filter_map(find).collect();
        all.sort_by_key(|provider| provider.name());
        all
    }

    /// A copy for lists.
    fn view(&self, now_ns: u64) -> GeomView {
        GeomView {
            id: self.id,
            class: self.class(),
            name: self.name().to_owned(),
            why: self.why().to_owned(),
            rank: self.rank(),
            withering: self.is_withering(),
            show: self.show(),
            settings: self.settings(),
            transients: self.transients(),
            measures: self.measures(now_ns),
            clients: self.clients(),
            troubles: self.troubles(),
            consumers: self.consumers().iter().map(|c| c.view(now_ns)).collect(),
            providers: self.providers().iter().map(|p| p.view(now_ns)).collect(),
        }
    }
}

impl<'a> ConsumerRef<'a> {
    /// Name of the provider that it is attached to, if any.
    pub fn provider(&self) -> Option<&'a str> {
        self.consumer.provider.map(|p| self.topology.provider_name(p))
    }

    pub fn counts(&self) -> Access {
        self.consumer.counts
    }

    /// See [`Geom::show_consumer`].
    pub fn show(&self) -> Vec<(&'static str, String)> {
        let geom = self.topology.geom_ref(self.consumer.geom);
        let show = |g: GeomRef<'_>| g.query(|ops, t, geom| ops.show_consumer(t, geom, self.id));
        geom.map(show).unwrap_or_default()
    }

    /// Reads its counters; `now_ns` closes a busy interval that is still open.
    pub fn read(&self, now_ns: u64, into: &mut Reading) {
        self.consumer.read(now_ns, into);
    }

    fn view(&self, now_ns: u64) -> ConsumerView {
        let mut stats = Reading::default();
        self.read(now_ns, &mut stats);
        ConsumerView {
            id: self.id,
            provider: self.provider().map(str::to_owned),
            counts: self.counts(),
            stats,
            show: self.show(),
        }
    }
}

impl<'a> ProviderRef<'a> {
    pub fn name(&self) -> &'a str {
        &self.provider.name
    }

    /// Sizes.
    pub fn limits(&self) -> Limits {
        self.provider.limits
    }

    /// Stripe size and offset, bytes.
    pub fn stripe(&self) -> (u64, u64) {
        (self.provider.stripe_bytes, self.provider.stripe_offset)
    }

    /// Sums of its consumers' counts.
    pub fn counts(&self) -> Access {
        self.provider.counts
    }

    /// Sticky error.
    pub fn error(&self) -> Option<Errno> {
        self.provider.state.error()
    }

    /// The answer of each class that tasted it.
    pub fn taste_outcomes(&self) -> &'a [(&'static str, String)] {
        &self.provider.taste_outcomes
    }

    /// Reads its counters: those of its consumers, and of those that were attached once. `now_ns`
    /// closes a busy interval that is still open.
    pub fn read(&self, now_ns: u64, into: &mut Reading) {
        let provider = self.provider;
        *into = Reading::default();
        into.add_counts(&provider.past);
        let consumers = provider.consumers.iter();
        for consumer in consumers.filter_map(|c| self.topology.consumers.get(*c)) {
            consumer.meters.iter().for_each(|m| into.add(m, now_ns));
            into.sub_counts(&consumer.before);
        }
        into.busy_ns = provider.queues.iter().map(|q| q.busy_ns(now_ns)).max().unwrap_or(0);
    }

    fn view(&self, now_ns: u64) -> ProviderView {
        let mut stats = Reading::default();
        self.read(now_ns, &mut stats);
        let (stripe_bytes, stripe_offset) = self.stripe();
        ProviderView {
            id: self.id,
            name: self.name().to_owned(),
            limits: self.limits(),
            stripe_bytes,
            stripe_offset,
            counts: self.counts(),
            error: self.error(),
            stats,
            taste_outcomes: self.taste_outcomes().to_vec(),
        }
    }
}

impl Topology {
    fn geom_ref(&self, id: GeomId) -> Option<GeomRef<'_>> {
        self.geoms.get(id).map(|geom| GeomRef { topology: self, id, geom })
    }

    /// All geoms by rank, class and name: disks first. Temporary geoms of tasting are left out.
    /// `pause` is called after each geom.
    pub fn in_order(&self, pause: &mut dyn FnMut()) -> Vec<GeomRef<'_>> {
        let mut classes: Vec<usize> = (0..self.classes.len()).collect();
        classes.sort_by_key(|class| self.class_of(*class));
        self.in_order_of(&classes, pause)
    }

    /// The same of these classes, which are sorted by name.
    fn in_order_of(&self, classes: &[usize], pause: &mut dyn FnMut()) -> Vec<GeomRef<'_>> {
        let mut ranks: BTreeMap<u32, Vec<GeomRef<'_>>> = BTreeMap::new();
        // T8: the names of a class are sorted, so geoms need not be compared.
        let names = classes.iter().filter_map(|class| self.geom_names.get(*class));
        for geom in names.flat_map(BTreeMap::values).filter_map(|id| self.geom_ref(*id)) {
            ranks.entry(geom.rank()).or_default().push(geom);
            pause();
        }
        let mut unsorted = BTreeSet::new();
        let withering = self.withering_geoms.iter().filter_map(|id| self.geom_ref(*id));
        for geom in withering.filter(|geom| classes.contains(&geom.geom.class)) {
            ranks.entry(geom.rank()).or_default().push(geom);
            unsorted.insert(geom.rank());
        }
        for rank in unsorted {
            if let Some(geoms) = ranks.get_mut(&rank) {
                geoms.sort_by_key(|geom| geom.place());
            }
        }
        ranks.into_values().flatten().collect()
    }

    /// The whole graph, disks first. Temporary geoms of tasting are left out. `now_ns` closes
    /// busy intervals.
    pub fn view(&self, now_ns: u64) -> Vec<GeomView> {
        self.in_order(&mut || ()).iter().map(|geom| geom.view(now_ns)).collect()
    }

    /// The geoms of a class that are not about to be removed, in the order of [`Topology::view`].
    pub fn class_view(&self, class: &str, now_ns: u64) -> Vec<GeomView> {
        let Some(index) = self.classes.iter().position(|c| c.name() == class) else {
            return Vec::new();
        };
        let geoms = self.in_order_of(&[index], &mut || ());
        let stays = geoms.iter().filter(|geom| !geom.is_withering());
        stays.map(|geom| geom.view(now_ns)).collect()
    }
}
