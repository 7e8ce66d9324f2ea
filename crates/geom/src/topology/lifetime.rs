//! Leaving: orphans, withering, detaching, the washer (geom.md 1.5).
//!
//! ```text
//!   provider:  live --orphan(error)--> ORPHAN --consumers leave--> (WITHER) destroyed
//!   consumer:  attached --close--> closed --detach--> draining --every core empty--> gone
//!   geom:      live --wither--> WITHER --no providers, no consumers--> destroyed
//! ```

use bio::Errno;

use super::{Access, Action, ConsumerId, GeomId, GeomObj, ProviderId, Topology};
use crate::class::Geom;

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
            ops: Some(ops),
            consumers: Vec::new(),
            providers: Vec::new(),
        })
    }

    /// New requests to the provider fail with `error` from now on; its consumers are told by an
    /// event.
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
        for (c, _) in self.consumers_above(p) {
            self.set_edge_flags(c);
        }
    }

    /// Orphans a provider and destroys it as soon as it has no consumers.
    pub fn wither_provider(&mut self, p: ProviderId, error: Errno) {
        if let Some(pp) = self.providers.get_mut(p) {
            pp.wither = true;
            self.orphan_provider(p, error);
            self.wash = true;
        }
    }

    /// Orphans all providers of a geom and destroys it as soon as nothing hangs on it.
    pub fn wither_geom(&mut self, g: GeomId, error: Errno) {
        let Some(geom) = self.geoms.get_mut(g) else {
            return;
        };
        geom.wither = true;
        for p in geom.providers.clone() {
            self.wither_provider(p, error);
        }
        self.wash = true;
    }

    /// Closes whatever a consumer has open and detaches it.
    pub fn leave(&mut self, c: ConsumerId) {
        let Some(cp) = self.consumers.get(c) else {
            return;
        };
        let open = cp.counts;
        if open != Access::NONE {
            let closed = self.access(c, open.inverse());
            debug_assert!(closed.is_ok(), "a pure close never fails");
        }
        self.detach(c);
    }

    /// Detaches a closed consumer, once no core has anything in flight through it, and destroys
    /// it.
    pub fn detach(&mut self, c: ConsumerId) {
        let Some(cp) = self.consumers.get_mut(c) else {
            return;
        };
        debug_assert!(cp.counts == Access::NONE, "only a closed consumer is detached");
        if std::mem::replace(&mut cp.doomed, true) {
            return;
        }
        if !cp.opened || cp.provider.is_none() {
            return self.drop_consumer(c);
        }
        self.tickets += 1;
        cp.draining = Some((self.tickets, (0..self.cores as u32).collect()));
        let edge = cp.edge;
        self.publish_if_dirty();
        self.actions.push(Action::Drain { edge, ticket: self.tickets });
    }

    pub(super) fn drained(&mut self, core: u32, ticket: u64) {
        let found = self.consumers.iter_mut().find_map(|(id, c)| match &mut c.draining {
            Some((t, cores)) if *t == ticket => {
                cores.retain(|x| *x != core);
                Some((id, cores.is_empty()))
            }
            _ => None,
        });
        if let Some((id, true)) = found {
            self.drop_consumer(id);
        }
    }

    /// Takes a consumer out of the graph: nothing can be in flight through it.
    pub(super) fn drop_consumer(&mut self, c: ConsumerId) {
        let Some(cp) = self.consumers.remove(c) else {
            return;
        };
        self.edges[cp.edge as usize] = None;
        if let Some(pp) = cp.provider.and_then(|p| self.providers.get_mut(p)) {
            pp.consumers.retain(|x| *x != c);
        }
        if let Some(g) = self.geoms.get_mut(cp.geom) {
            g.consumers.retain(|x| *x != c);
        }
        self.rerank();
        self.dirty = true;
        self.wash = true;
    }

    /// Destroys what has withered and is free; runs until nothing changes.
    pub(super) fn run_washer(&mut self) {
        loop {
            let mut changed = false;
            for p in self.providers.keys().collect::<Vec<_>>() {
                changed |= self.wash_provider(p);
            }
            for g in self.geoms.keys().collect::<Vec<_>>() {
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
        // The orphan event comes first: somebody may still be told.
        if !pp.wither || !pp.consumers.is_empty() || self.doorstep.contains(&p) {
            return false;
        }
        let (geom, node) = (pp.geom, pp.node);
        self.providers.remove(p);
        self.nodes[node as usize] = None;
        if let Some(g) = self.geoms.get_mut(geom) {
            g.providers.retain(|x| *x != p);
        }
        self.dirty = true;
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
            let idle = self.consumers.get(c).is_some_and(|x| x.counts == Access::NONE && !x.doomed);
            if idle {
                self.detach(c);
                changed = true;
            }
        }
        let free = |g: &GeomObj| g.consumers.is_empty() && g.providers.is_empty();
        if self.geoms.get(g).is_some_and(free) {
            self.geoms.remove(g);
            changed = true;
        }
        changed
    }
}
