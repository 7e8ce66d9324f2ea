//! Leaving: orphans, withering, detaching, the washer (docs/reference/geom.md 1.5).
//!
//! ```text
//!   provider:  live --orphan(error)--> ORPHAN --consumers leave--> (WITHER) destroyed
//!   consumer:  attached --leave--> doomed, draining --every core empty--> closed, freed
//!   geom:      live --wither--> WITHER --no providers, no consumers--> destroyed
//! ```
//!
//! Invariant L1: a consumer that leaves keeps its counts until nothing is in flight through it. The
//! provider stays open under its requests, and no other consumer is admitted in between.

use bio::Errno;

use super::{Access, Action, ConsumerId, GeomId, GeomObj, ProviderId, Topology};
use crate::class::Geom;
use crate::layer::Edge;

/// Index of the class under which temporary geoms of tasting hang: none.
pub(super) const NO_CLASS: usize = usize::MAX;

impl Topology {
    pub(super) fn insert_taste_geom(&mut self, ops: Box<dyn Geom>) -> GeomId {
        self.geoms.insert(GeomObj {
            class: NO_CLASS,
            name: "taste".into(),
            why: "temporary".into(),
            rank: 1,
            wither: false,
            covers: None,
            spoils: false,
            is_verb_access: false,
            ops: Some(ops),
            consumers: Vec::new(),
            providers: Vec::new(),
        })
    }

    /// New requests to the provider fail with `error` from now on; an event notifies its consumers.
    pub fn orphan_provider(&mut self, p: ProviderId, error: Errno) {
        let Some(pp) = self.providers.get_mut(p) else {
            return;
        };
        if pp.state.error().is_none() {
            pp.state.set_error(Some(error));
        }
        if !std::mem::replace(&mut pp.orphan, true) {
            self.doorstep.push_back(p);
        }
        let above = self.providers.get(p).map(|x| x.consumers.clone()).unwrap_or_default();
        for c in above {
            self.set_edge_flags(c);
        }
    }

    /// Orphans a provider and destroys it as soon as it has no consumers.
    pub fn wither_provider(&mut self, p: ProviderId, error: Errno) {
        self.uncover_all(p);
        if let Some(pp) = self.providers.get_mut(p) {
            pp.wither = true;
            if self.names.get(&pp.name) == Some(&p) {
                self.names.remove(&pp.name);
            }
            self.withering_providers.insert(p);
            self.orphan_provider(p, error);
            self.wash = true;
        }
    }

    /// Orphans all providers of a geom and destroys it as soon as nothing is attached to it: its
    /// consumers are removed when they are closed. The geom itself closes those that it opened for
    /// its own use, or see [`Topology::wither_geom_close`].
    pub fn wither_geom(&mut self, g: GeomId, error: Errno) {
        let Some(geom) = self.geoms.get_mut(g) else {
            return;
        };
        geom.wither = true;
        if let Some(names) = self.geom_names.get_mut(geom.class)
            && names.get(&geom.name) == Some(&g)
        {
            names.remove(&geom.name);
        }
        self.withering_geoms.insert(g);
        for p in geom.providers.clone() {
            self.wither_provider(p, error);
        }
        self.wash = true;
    }

    /// [`Topology::wither_geom`], for a geom that has its disks open for itself: its consumers
    /// leave now, even if they hold requests.
    pub fn wither_geom_close(&mut self, g: GeomId, error: Errno) {
        self.wither_geom(g, error);
        for c in self.consumers_of(g).to_vec() {
            self.leave(c);
        }
    }

    /// Takes a consumer out of the graph: it starts no request from now on. Once no core has a
    /// request in flight through it, its access is closed and it is destroyed. A second call does
    /// nothing.
    pub fn leave(&mut self, c: ConsumerId) {
        let Some(cp) = self.consumers.get_mut(c) else {
            return;
        };
        if std::mem::replace(&mut cp.detaching, true) {
            return;
        }
        let quiet = !cp.opened || cp.provider.is_none() || self.cores == 0;
        self.set_edge_flags(c);
        if quiet {
            return self.close_and_drop(c);
        }
        self.tickets += 1;
        let (ticket, cores) = (self.tickets, (0..self.cores as u32).collect());
        if let Some(cp) = self.consumers.get_mut(c) {
            cp.draining = Some((ticket, cores));
            self.leaving.insert(ticket, c);
            self.actions.push(Action::Drain { edge: cp.edge.0, ticket });
        }
    }

    /// [`Topology::leave`] for a consumer below which a failure occurred, so that its requests in
    /// flight may never end. The idle barrier waits for it no longer than for an orphan.
    pub fn abandon(&mut self, c: ConsumerId) {
        if let Some(cp) = self.consumers.get_mut(c) {
            cp.orphan = true;
        }
        self.leave(c);
    }

    /// [`Topology::leave`] for a consumer that has been closed.
    pub fn detach(&mut self, c: ConsumerId) {
        let counts = self.consumer_counts(c);
        debug_assert!(counts == Access::NONE, "only a closed consumer is detached");
        self.leave(c);
    }

    fn close_and_drop(&mut self, c: ConsumerId) {
        let open = self.consumer_counts(c);
        if open != Access::NONE {
            let closed = self.access(c, open.inverse());
            debug_assert!(closed.is_ok(), "a pure close never fails");
        }
        self.drop_consumer(c);
    }

    pub(super) fn drained(&mut self, core: u32, ticket: u64) {
        let Some(&id) = self.leaving.get(&ticket) else { return };
        let Some(cp) = self.consumers.get_mut(id) else { return };
        let empty = cp.draining.as_mut().is_some_and(|(_, cores)| {
            cores.retain(|x| *x != core);
            cores.is_empty()
        });
        if empty {
            self.close_and_drop(id);
        }
    }

    /// Takes a consumer out of the graph: nothing can be in flight through it.
    pub(super) fn drop_consumer(&mut self, c: ConsumerId) {
        self.settle_counters(c);
        let Some(cp) = self.consumers.remove(c) else {
            return;
        };
        if let Some((ticket, _)) = &cp.draining {
            self.leaving.remove(ticket);
        }
        self.dirty_edges.insert(cp.edge.slot() as u32);
        self.edges[cp.edge.slot()] = None;
        self.next_edges[cp.edge.slot()] = Edge::new(cp.edge.slot(), cp.edge.tenant() + 1);
        if let Some(pp) = cp.provider.and_then(|p| self.providers.get_mut(p)) {
            pp.consumers.retain(|x| *x != c);
            // Nothing is left when `close_and_drop` closed it; if a geom's hook refused a close, no
            // counts without a consumer may remain (T1).
            pp.counts = pp.counts.plus(cp.counts.inverse());
        }
        if let Some(g) = self.geoms.get_mut(cp.geom) {
            g.consumers.retain(|x| *x != c);
        }
        self.rank_after_loss(cp.geom);
        self.consumers_changed(cp.geom);
        self.wash = true;
    }

    /// Destroys withered objects that are free; runs until nothing changes.
    pub(super) fn run_washer(&mut self) {
        loop {
            let mut changed = false;
            for p in self.withering_providers.iter().copied().collect::<Vec<_>>() {
                changed |= self.wash_provider(p);
            }
            for g in self.withering_geoms.iter().copied().collect::<Vec<_>>() {
                changed |= self.wash_geom(g);
            }
            if !changed {
                self.wash = false;
                return;
            }
        }
    }

    fn wash_provider(&mut self, p: ProviderId) -> bool {
        let Some(pp) = self.providers.get(p) else {
            return false;
        };
        // The orphan event is first: consumers may still have to be notified.
        if !pp.wither || !pp.consumers.is_empty() || self.doorstep.contains(&p) {
            return false;
        }
        let (geom, node) = (pp.geom, pp.node);
        self.providers.remove(p);
        self.withering_providers.remove(&p);
        self.nodes[node as usize] = None;
        if let Some(g) = self.geoms.get_mut(geom) {
            g.providers.retain(|x| *x != p);
        }
        self.dirty_nodes.insert(node);
        true
    }

    fn wash_geom(&mut self, g: GeomId) -> bool {
        let Some(geom) = self.geoms.get(g) else {
            return false;
        };
        if !geom.wither {
            return false;
        }
        let mut changed = false;
        for c in geom.consumers.clone() {
            let idle =
                self.consumers.get(c).is_some_and(|x| x.counts == Access::NONE && !x.detaching);
            if idle {
                self.detach(c);
                changed = true;
            }
        }
        let free = |g: &GeomObj| g.consumers.is_empty() && g.providers.is_empty();
        if self.geoms.get(g).is_some_and(free) {
            self.geoms.remove(g);
            self.withering_geoms.remove(&g);
            self.record_keepers.remove(&g);
            changed = true;
        }
        changed
    }
}
