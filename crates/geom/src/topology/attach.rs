//! Creation of providers and consumers, and attachment with ranks and without cycles (T3).

use std::sync::Arc;

use bio::{Attr, DEPTH_MAX, Errno, ResolvedArc};

use super::{
    Access, CONSUMERS_MAX, ConsumerId, ConsumerObj, Event, GeomId, NAME_MAX, NewProvider,
    PROVIDERS_MAX, ProviderId, ProviderObj, Topology,
};
use crate::error::Error;
use crate::layer::{Edge, Layer};
use crate::snapshot::{Changes, EdgeState, EdgeTo, Limits, Node, NodeState, one_per_core};
use crate::stats::Reading;

/// Largest rank of a geom. A Bio needs a frame for each layer, for a split at each and for the
/// originator; a deeper attach is refused with EDEADLK.
pub const RANK_MAX: u32 = DEPTH_MAX as u32 / 2;

fn free_slot<T>(slots: &mut Vec<Option<T>>) -> usize {
    match slots.iter().position(Option::is_none) {
        Some(i) => i,
        None => {
            slots.push(None);
            slots.len() - 1
        }
    }
}

impl Topology {
    /// A provider on `geom`. Every class that tastes will look at it.
    pub fn new_provider(&mut self, geom: GeomId, new: NewProvider) -> Result<ProviderId, Error> {
        let withering = self.geoms.get(geom).is_none_or(|g| g.wither);
        if withering {
            return Err(Error::new(
                Errno::NxIo,
                format!("{}: its geom is being removed", new.name),
            ));
        }
        if new.name.is_empty() || new.name.len() > NAME_MAX {
            return Err(Error::inval("a provider's name is empty or too long"));
        }
        if self.find(&new.name).is_some() {
            let what = format!("a provider {} exists already", new.name);
            return Err(Error::new(Errno::Exist, what));
        }
        if self.providers.len() >= PROVIDERS_MAX {
            return Err(Error::new(Errno::NoSpc, "too many providers"));
        }
        if new.limits.sector_bytes == 0 {
            return Err(Error::inval(format!("{}: sector size is zero", new.name)));
        }
        let slot = free_slot(&mut self.nodes);
        let name = new.name.clone();
        let id = self.providers.insert(ProviderObj {
            geom,
            name: new.name,
            consumers: Vec::new(),
            counts: Access::NONE,
            limits: new.limits.truncated(),
            stripe_bytes: new.stripe_bytes,
            stripe_offset: new.stripe_offset,
            wither: false,
            orphan: false,
            node: slot as u32,
            layer: ResolvedArc::new(new.layer),
            state: ResolvedArc::new(Arc::new(NodeState::default())),
            queues: one_per_core(self.cores),
            past: Reading::default(),
            attrs: Arc::new(new.attrs),
            taste_outcomes: Vec::new(),
            taste_serial: 0,
            requested_tastings: Vec::new(),
            content: 0,
            hidden_by: None,
            attempts: Vec::new(),
        });
        self.nodes[slot] = Some(id);
        self.geoms[geom].providers.insert(0, id);
        self.names.insert(name, id);
        self.dirty_nodes.insert(slot as u32);
        self.post(Event::NewProvider(id));
        Ok(id)
    }

    /// A consumer on `geom`, attached to nothing.
    pub fn new_consumer(&mut self, geom: GeomId) -> Result<ConsumerId, Errno> {
        if self.geoms.get(geom).is_none_or(|g| g.wither) {
            return Err(Errno::NxIo);
        }
        if self.consumers.len() >= CONSUMERS_MAX {
            return Err(Errno::NoSpc);
        }
        let slot = free_slot(&mut self.edges);
        if slot == self.next_edges.len() {
            self.next_edges.push(Edge::new(slot, 0));
        }
        let id = self.consumers.insert(ConsumerObj {
            geom,
            provider: None,
            counts: Access::NONE,
            spoiled: false,
            orphan: false,
            opened: false,
            detaching: false,
            draining: None,
            late: false,
            edge: self.next_edges[slot],
            state: ResolvedArc::new(Arc::new(EdgeState::default())),
            meters: one_per_core(self.cores),
            before: Reading::default(),
        });
        self.edges[slot] = Some(id);
        self.geoms[geom].consumers.insert(0, id);
        Ok(id)
    }

    /// Attaches; refuses a cycle with ELOOP and a graph too deep with EDEADLK, changing nothing.
    pub fn attach(&mut self, consumer: ConsumerId, provider: ProviderId) -> Result<(), Errno> {
        let cp = self.consumers.get(consumer).ok_or(Errno::NxIo)?;
        if cp.provider.is_some() {
            return Err(Errno::Busy);
        }
        let upper = cp.geom;
        let pp = self.providers.get(provider).ok_or(Errno::NxIo)?;
        if pp.wither || pp.orphan {
            return Err(Errno::NxIo);
        }
        let lower = pp.geom;
        if self.reaches_down(lower, upper) {
            return Err(Errno::Loop);
        }
        if self.ranks_with(upper, lower).iter().any(|&(_, rank)| rank > RANK_MAX) {
            return Err(Errno::DeadLk);
        }
        self.consumers[consumer].provider = Some(provider);
        self.providers[provider].consumers.insert(0, consumer);
        for (g, rank) in self.ranks_with(upper, lower) {
            self.geoms[g].rank = rank;
        }
        self.touch_edge(consumer);
        self.consumers_changed(upper);
        Ok(())
    }

    /// A consumer on `geom`, attached to `provider`.
    pub fn attach_new(&mut self, geom: GeomId, to: ProviderId) -> Result<ConsumerId, Errno> {
        let c = self.new_consumer(geom)?;
        match self.attach(c, to) {
            Ok(()) => Ok(c),
            Err(e) => {
                self.drop_consumer(c);
                Err(e)
            }
        }
    }

    /// True when `target` is `from` or is below it. Iterative.
    fn reaches_down(&self, from: GeomId, target: GeomId) -> bool {
        let (mut todo, mut seen) = (vec![from], vec![]);
        while let Some(g) = todo.pop() {
            if g == target {
                return true;
            }
            if seen.contains(&g) {
                continue;
            }
            seen.push(g);
            let Some(geom) = self.geoms.get(g) else {
                continue;
            };
            let below = geom.consumers.iter().filter_map(|c| self.consumers.get(*c)?.provider);
            todo.extend(below.filter_map(|p| Some(self.providers.get(p)?.geom)));
        }
        false
    }

    /// The ranks that would change if `upper` sat on `lower`. Iterative; no cycle may exist.
    pub(super) fn ranks_with(&self, upper: GeomId, lower: GeomId) -> Vec<(GeomId, u32)> {
        let mut changed: Vec<(GeomId, u32)> = Vec::new();
        let base = self.geoms.get(lower).map_or(0, |g| g.rank) + 1;
        let mut todo = vec![(upper, base)];
        while let Some((g, at_least)) = todo.pop() {
            let Some(geom) = self.geoms.get(g) else {
                continue;
            };
            let place = changed.iter().position(|(x, _)| *x == g);
            let now = place.map_or(geom.rank, |i| changed[i].1);
            if now >= at_least {
                continue;
            }
            match place {
                Some(i) => changed[i].1 = at_least,
                None => changed.push((g, at_least)),
            }
            if at_least > RANK_MAX {
                return changed;
            }
            for p in &geom.providers {
                let Some(pp) = self.providers.get(*p) else {
                    continue;
                };
                let above = pp.consumers.iter().filter_map(|c| Some(self.consumers.get(*c)?.geom));
                todo.extend(above.map(|a| (a, at_least + 1)));
            }
        }
        changed
    }

    /// Ranks after `geom` lost a consumer. A geom with nothing above is a matter of its own: so
    /// tasting a thousand disks does not rank a thousand geoms each time.
    pub(super) fn rank_after_loss(&mut self, geom: GeomId) {
        let Some(g) = self.geoms.get(geom) else {
            return;
        };
        if !g.providers.is_empty() {
            return self.rerank();
        }
        let rank = self.rank_from_below(geom);
        self.geoms[geom].rank = rank;
    }

    fn rank_from_below(&self, geom: GeomId) -> u32 {
        let consumers = self.geoms.get(geom).map_or(&[][..], |g| &g.consumers);
        let below = consumers
            .iter()
            .filter_map(|c| self.consumers.get(*c)?.provider)
            .filter_map(|p| self.geoms.get(self.providers.get(p)?.geom))
            .map(|x| x.rank)
            .max();
        below.map_or(1, |r| r + 1)
    }

    /// Recomputes every rank from the bottom: after a detach or a splice.
    pub(super) fn rerank(&mut self) {
        let all: Vec<GeomId> = self.geoms.keys().collect();
        for &g in &all {
            self.geoms[g].rank = 1;
        }
        for _ in 0..=RANK_MAX {
            let mut moved = false;
            for &g in &all {
                let rank = self.rank_from_below(g);
                moved |= rank != self.geoms[g].rank;
                self.geoms[g].rank = rank;
            }
            if !moved {
                return;
            }
        }
    }

    /// The edge that a layer uses to reach what `consumer` is attached to.
    pub fn edge(&self, consumer: ConsumerId) -> Edge {
        self.consumers.get(consumer).map_or(Edge::NO_EDGE, |c| c.edge)
    }

    /// Replaces a provider's data path and limits; its place, name and consumers stay. Requests
    /// inside return through the new layer: it knows the words of the old one, or the gate was
    /// closed. Consumers are not notified of a new size: that is [`Event::Resize`].
    pub fn replace_layer(&mut self, provider: ProviderId, layer: Arc<dyn Layer>, limits: Limits) {
        if let Some(pp) = self.providers.get_mut(provider) {
            pp.layer = ResolvedArc::new(layer);
            pp.limits = limits.truncated();
            self.dirty_nodes.insert(pp.node);
        }
    }

    /// Replaces the attributes that a provider answers by itself.
    pub fn set_attrs(&mut self, provider: ProviderId, attrs: Vec<(&'static str, Attr)>) {
        if let Some(pp) = self.providers.get_mut(provider) {
            pp.attrs = Arc::new(attrs);
            self.dirty_nodes.insert(pp.node);
        }
    }

    /// Marks a consumer's edge, so that the cores receive it anew.
    pub(super) fn touch_edge(&mut self, consumer: ConsumerId) {
        if let Some(cp) = self.consumers.get(consumer) {
            self.dirty_edges.insert(cp.edge.slot() as u32);
        }
    }

    /// Takes the changes that the cores do not know yet; the driver then publishes them.
    pub(super) fn changes(&mut self) -> Changes {
        let nodes = std::mem::take(&mut self.dirty_nodes);
        let edges = std::mem::take(&mut self.dirty_edges);
        Changes {
            generation: self.generation,
            nodes: nodes.into_iter().map(|slot| (slot, self.node_in(slot))).collect(),
            edges: edges.into_iter().map(|slot| (slot, self.edge_in(slot))).collect(),
        }
    }

    fn node_in(&self, slot: u32) -> Option<Node> {
        let p = self.providers.get((*self.nodes.get(slot as usize)?)?)?;
        Some(Node {
            layer: p.layer.clone(),
            limits: p.limits,
            state: p.state.clone(),
            queues: p.queues.clone(),
            attrs: p.attrs.clone(),
        })
    }

    fn edge_in(&self, slot: u32) -> Option<EdgeTo> {
        let c = self.consumers.get((*self.edges.get(slot as usize)?)?)?;
        let p = self.providers.get(c.provider?)?;
        Some(EdgeTo {
            edge: c.edge,
            node: p.node,
            state: c.state.clone(),
            meters: c.meters.clone(),
        })
    }
}
