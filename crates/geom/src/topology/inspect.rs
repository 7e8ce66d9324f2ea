//! Views of the graph: for lists, for the plan, for tests.

use std::sync::Arc;

use super::{Access, ConsumerId, GeomId, GeomObj, ProviderId, Topology};
use crate::class::{Settings, Transient};
use crate::health::Trouble;
use crate::layer::{Edge, Layer};
use crate::measure::Measure;
use crate::served_client::ServedClient;
use crate::snapshot::Limits;
use crate::stats::Reading;
use bio::{Attr, Errno};

/// Attribute of a provider: bytes of a physical sector, which a disk writes without a read. Layers
/// pass it up unchanged, and several members have the largest of theirs.
pub const PHYSICAL_SECTOR: &str = "GEOM::physical_sector";

/// A geom as lists show it.
pub struct GeomView {
    pub id: GeomId,
    pub class: &'static str,
    pub name: String,
    /// Why it exists.
    pub why: String,
    /// Height above the disks, from 1.
    pub rank: u32,
    /// On its way out.
    pub withering: bool,
    /// Lines of its class.
    pub show: Vec<(&'static str, String)>,
    /// The settings that it works with.
    pub settings: Settings,
    /// The changes that verbs made until the next start, besides them.
    pub transients: Vec<Transient>,
    /// Numbers for monitors.
    pub measures: Vec<Measure>,
    /// Clients that it serves itself.
    pub clients: Vec<ServedClient>,
    /// Conditions that need attention.
    pub troubles: Vec<Trouble>,
    /// Its plugs downward.
    pub consumers: Vec<ConsumerView>,
    pub providers: Vec<ProviderView>,
}

/// A consumer as lists show it.
pub struct ConsumerView {
    pub id: ConsumerId,
    /// Name of the provider it is attached to, if any.
    pub provider: Option<String>,
    pub counts: Access,
    pub stats: Reading,
    /// Lines of the class.
    pub show: Vec<(&'static str, String)>,
}

/// Names of the objects at both ends of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EdgeNames {
    /// Class and name of the geom above.
    pub user: (&'static str, String),
    pub provider: String,
    /// Class and name of the geom that offers the provider.
    pub geom: (&'static str, String),
}

/// A provider as lists show it.
pub struct ProviderView {
    pub id: ProviderId,
    pub name: String,
    /// Sizes.
    pub limits: Limits,
    /// Stripe size, bytes.
    pub stripe_bytes: u64,
    /// Offset in the stripe, bytes.
    pub stripe_offset: u64,
    /// Sums of its consumers' counts.
    pub counts: Access,
    /// Sticky error.
    pub error: Option<Errno>,
    pub stats: Reading,
    /// The answer of each class that tasted it.
    pub taste_outcomes: Vec<(&'static str, String)>,
}

/// A geom that has a provider open for writing or exclusively.
pub struct Holder {
    pub class: &'static str,
    /// Its name.
    pub geom: String,
    /// The provider that it has open.
    pub provider: String,
    /// The command that makes it close the provider, if it keeps it open without a use.
    pub command: Option<String>,
}

impl Topology {
    pub fn find(&self, name: &str) -> Option<ProviderId> {
        self.names.get(name).copied()
    }

    pub fn find_geom(&self, class: &str, name: &str) -> Option<GeomId> {
        let index = self.classes.iter().position(|c| c.name() == class)?;
        self.geom_names.get(index)?.get(name).copied()
    }

    pub(super) fn class_of(&self, index: usize) -> &'static str {
        self.classes.get(index).map_or("taste", |c| c.name())
    }

    /// Name of a geom; empty when it was removed.
    pub fn geom_name(&self, g: GeomId) -> &str {
        self.geoms.get(g).map_or("", |g| &g.name)
    }

    /// Name of a provider; empty when it was removed.
    pub fn provider_name(&self, p: ProviderId) -> &str {
        self.providers.get(p).map_or("", |p| &p.name)
    }

    /// Numbers of a provider.
    pub fn limits(&self, p: ProviderId) -> Option<Limits> {
        self.providers.get(p).map(|p| p.limits)
    }

    /// Stripe size and offset of a provider, bytes.
    pub fn stripe(&self, p: ProviderId) -> (u64, u64) {
        self.providers.get(p).map_or((0, 0), |p| (p.stripe_bytes, p.stripe_offset))
    }

    /// Bytes of a physical sector of the disks under a provider; zero when none is known. The
    /// stripe of a disk is its physical sector too, but that of a class with strips is not.
    pub fn physical_sector(&self, p: ProviderId) -> u64 {
        match self.attr(p, PHYSICAL_SECTOR) {
            Some(Attr::Int(bytes)) => bytes,
            _ => 0,
        }
    }

    pub fn counts(&self, p: ProviderId) -> Access {
        self.providers.get(p).map_or(Access::NONE, |p| p.counts)
    }

    pub fn consumer_counts(&self, c: ConsumerId) -> Access {
        self.consumers.get(c).map_or(Access::NONE, |c| c.counts)
    }

    /// Geom that offers a provider.
    pub fn geom_of(&self, p: ProviderId) -> Option<GeomId> {
        self.providers.get(p).map(|p| p.geom)
    }

    /// Provider under a consumer.
    pub fn below(&self, c: ConsumerId) -> Option<ProviderId> {
        self.consumers.get(c)?.provider
    }

    /// Class and name of the geom above a connection, its provider, and class and name of the geom
    /// that offers the provider. `None` when the connection was removed.
    pub fn edge_names(&self, edge: Edge) -> Option<EdgeNames> {
        let id = (*self.edges.get(edge.slot())?)?;
        let consumer = self.consumers.get(id).filter(|c| c.edge == edge)?;
        let provider = consumer.provider?;
        let full = |g: GeomId| self.geoms.get(g).map(|g| (self.class_of(g.class), g.name.clone()));
        Some(EdgeNames {
            user: full(consumer.geom)?,
            provider: self.provider_name(provider).to_owned(),
            geom: full(self.geom_of(provider)?)?,
        })
    }

    /// Consumers of a geom, newest first.
    pub fn consumers_of(&self, g: GeomId) -> &[ConsumerId] {
        self.geoms.get(g).map_or(&[], |g| &g.consumers)
    }

    /// Providers of a geom, newest first.
    pub fn providers_of(&self, g: GeomId) -> &[ProviderId] {
        self.geoms.get(g).map_or(&[], |g| &g.providers)
    }

    /// True when a consumer that is not leaving is attached to the provider, open or not.
    pub fn is_attached(&self, p: ProviderId) -> bool {
        let stays = |c: &ConsumerId| self.consumers.get(*c).is_some_and(|c| !c.detaching);
        self.providers.get(p).is_some_and(|p| p.consumers.iter().any(stays))
    }

    /// The data path of a provider, for use under other numbers.
    pub fn layer(&self, p: ProviderId) -> Option<Arc<dyn Layer>> {
        self.providers.get(p).map(|p| p.layer.arc().clone())
    }

    /// Sticky error of a provider.
    pub fn error_of(&self, p: ProviderId) -> Option<Errno> {
        self.providers.get(p)?.state.error()
    }

    /// True when anything is open on one of a geom's providers.
    pub fn geom_is_open(&self, g: GeomId) -> bool {
        self.providers_of(g).iter().any(|p| self.counts(*p) != Access::NONE)
    }

    /// The geom that keeps the providers of a geom open, directly or through others above, after
    /// all users that can close them have done so and the geoms `going` were removed. Its class and
    /// name, and the command that makes it close them.
    pub fn held_open_by(
        &self,
        g: GeomId,
        going: &dyn Fn(GeomId) -> bool,
    ) -> Option<(String, String)> {
        let above = |p: &ProviderId| self.consumers_above(*p);
        self.providers_of(g).iter().flat_map(above).find_map(|(c, upper)| {
            if going(upper) || self.consumer_counts(c) == Access::NONE {
                return None;
            }
            let above = self.geoms.get(upper)?;
            let own = above.ops.as_ref().and_then(|ops| ops.release_command(self, upper, c));
            let who = |command| (format!("{} {}", self.class_of(above.class), above.name), command);
            own.map(who).or_else(|| self.held_open_by(upper, going))
        })
    }

    /// The geom that would refuse an exclusive open of a provider. It has it open for writing
    /// or exclusively, or uses a geom that passes its own opening on. Users that leave until then
    /// (`is_leaving`) are left out; tastings and verbs leave by themselves.
    pub fn holder_of(&self, p: ProviderId, is_leaving: &dyn Fn(&Holder) -> bool) -> Option<Holder> {
        self.consumers_above(p).into_iter().find_map(|(c, upper)| {
            let (counts, above) = (self.consumer_counts(c), self.user(upper)?);
            if counts.w <= 0 && counts.e <= 0 {
                return None;
            }
            let holder = Holder {
                class: self.class_of(above.class),
                geom: above.name.clone(),
                provider: self.provider_name(p).to_owned(),
                command: above.ops.as_ref().and_then(|ops| ops.release_command(self, upper, c)),
            };
            if is_leaving(&holder) {
                return None;
            }
            if holder.command.is_some() || above.providers.is_empty() {
                return Some(holder);
            }
            above.providers.iter().find_map(|own| self.holder_of(*own, is_leaving))
        })
    }

    /// True when anything but a tasting or a verb is open on one of a geom's providers.
    pub fn geom_has_user(&self, g: GeomId) -> bool {
        let above = |p: &ProviderId| self.consumers_above(*p);
        let is_open = |c| self.consumer_counts(c) != Access::NONE;
        let mut all = self.providers_of(g).iter().flat_map(above);
        all.any(|(c, upper)| is_open(c) && self.user(upper).is_some())
    }

    /// A geom that uses providers for longer than a tasting or a verb.
    fn user(&self, g: GeomId) -> Option<&GeomObj> {
        self.geoms.get(g).filter(|g| g.class < self.classes.len() && !g.is_verb_access)
    }

    /// True when a provider cannot be opened for writing.
    pub fn is_read_only(&self, p: ProviderId) -> bool {
        let Some(geom) = self.geom_of(p) else { return false };
        let ops = self.geoms.get(geom).and_then(|g| g.ops.as_ref());
        ops.is_some_and(|ops| ops.is_read_only(self, geom, p))
    }

    /// True when one of the providers below a geom cannot be opened for writing.
    pub fn is_read_only_below(&self, g: GeomId) -> bool {
        self.consumers_of(g).iter().filter_map(|c| self.below(*c)).any(|p| self.is_read_only(p))
    }

    /// True when the geom exists and is not on its way out.
    pub fn geom_is_live(&self, g: GeomId) -> bool {
        self.geoms.get(g).is_some_and(|g| !g.wither)
    }

    /// True when the provider exists and takes I/O.
    pub fn provider_is_live(&self, p: ProviderId) -> bool {
        self.providers.get(p).is_some_and(|p| !p.wither && !p.orphan)
    }

    pub(crate) fn node(&self, p: ProviderId) -> Option<u32> {
        self.providers.get(p).map(|p| p.node)
    }

    /// A geom, of this class if one is named, is about to be removed.
    pub fn is_withering(&self, class: Option<&str>) -> bool {
        let is_of = |g: &GeomObj| class.is_none_or(|class| self.class_of(g.class) == class);
        self.geoms.values().any(|g| g.wither && g.class < self.classes.len() && is_of(g))
    }

    /// A consumer is about to leave its provider: its counters so far are added to the provider's
    /// sums.
    pub(super) fn settle_counters(&mut self, c: ConsumerId) {
        let Some(cp) = self.consumers.get_mut(c) else {
            return;
        };
        let mut now = Reading::default();
        cp.read(0, &mut now);
        let before = std::mem::replace(&mut cp.before, now.clone());
        if let Some(pp) = cp.provider.and_then(|p| self.providers.get_mut(p)) {
            pp.past.add_counts(&now);
            pp.past.sub_counts(&before);
        }
    }

    /// Checks T1, T6, T7, T8 and that every attachment is known at both ends; for tests.
    pub fn check(&self) {
        for (id, p) in &self.providers {
            let mut sum = Access::NONE;
            for c in &p.consumers {
                let cp = &self.consumers[*c];
                assert_eq!(cp.provider, Some(id), "{}: both ends know it", p.name);
                sum = sum.plus(cp.counts);
            }
            assert_eq!(sum, p.counts, "T1 {}", p.name);
            assert_eq!(self.nodes[p.node as usize], Some(id));
        }
        for (id, p) in self.providers.iter().filter(|(_, p)| !p.wither) {
            assert_eq!(self.find(&p.name), Some(id), "T6 {}", p.name);
        }
        for (id, g) in &self.geoms {
            let Some(ops) = &g.ops else { continue };
            assert_eq!(self.record_keepers.contains(&id), ops.keeps_records(), "T7 {}", g.name);
        }
        for g in &self.record_keepers {
            assert!(self.geoms.contains_key(*g), "T7");
        }
        for (id, g) in self.geoms.iter().filter(|(_, g)| g.class < self.classes.len()) {
            let is_named = self.geom_names[g.class].get(&g.name) == Some(&id);
            let expected = (!g.wither, g.wither);
            assert_eq!((is_named, self.withering_geoms.contains(&id)), expected, "T8 {}", g.name);
        }
        for (id, c) in &self.consumers {
            assert_eq!(self.edges[c.edge.slot()], Some(id));
            if let Some(p) = c.provider {
                let lower = self.providers[p].geom;
                assert!(self.geoms[c.geom].rank > self.geoms[lower].rank, "T3");
            }
        }
    }
}
