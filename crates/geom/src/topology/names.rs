//! Names of providers while layers are inserted over them.
//!
//! As with GEOM's `sched insert`, an inserted layer takes the name of the provider below it. That
//! provider gets the name that the layer would have had (docs/reference/geom.md 2.15). So a later
//! look-up of the name finds the layer, above which the existing users are too. That holds for a
//! unit that is opened again, a class that tastes and an operator; no recorded name has to change.
//!
//! ```text
//!            d0                    d0          the layer's
//!            |      cover          |
//!          (disk)  ------>  d0.sched.          the disk's
//!                  <------         |
//!                  uncover       (disk)
//! ```
//!
//! The content of a covered provider is seen through the layer: it is not tasted below.

use super::{Event, GeomId, ProviderId, Topology};

impl Topology {
    /// The layer that was slipped in over a provider and has its name.
    pub fn covering(&self, p: ProviderId) -> Option<GeomId> {
        let consumers = &self.providers.get(p)?.consumers;
        let mut geoms = consumers.iter().filter_map(|c| Some(self.consumers.get(*c)?.geom));
        geoms.find(|g| self.geoms.get(*g).is_some_and(|g| g.covers == Some(p)))
    }

    /// The name by which the content of a provider is found: that of the topmost layer that was
    /// inserted over it, or its own.
    pub fn known_as(&self, p: ProviderId) -> &str {
        let mut at = p;
        while let Some(over) = self.covering(at).and_then(|g| self.providers_of(g).first()) {
            at = *over;
        }
        self.provider_name(at)
    }

    /// `geom`, which offers `above`, was inserted over `below`; the existing users are above it.
    pub(super) fn cover(&mut self, geom: GeomId, above: ProviderId, below: ProviderId) {
        self.covered_instead(below, above);
        if let Some(g) = self.geoms.get_mut(geom) {
            g.covers = Some(below);
            self.exchange_names(above, below);
        }
    }

    /// An inserted geom is removed: the provider below it gets its name back, and is tasted again
    /// by all classes.
    pub(super) fn uncover(&mut self, geom: GeomId) {
        let Some(g) = self.geoms.get_mut(geom) else { return };
        let (above, below) = (g.providers.first().copied(), g.covers.take());
        if let (Some(above), Some(below)) = (above, below) {
            self.covered_instead(above, below);
            self.exchange_names(above, below);
            self.post(Event::NewProvider(below));
        }
    }

    /// A provider is removed. Layers that were inserted over it give their names back first, the
    /// topmost before those below, and so does the layer whose provider it is. The name is free, or
    /// back at its origin.
    pub(super) fn uncover_all(&mut self, p: ProviderId) {
        let (mut layers, mut at) = (Vec::from_iter(self.geom_of(p)), Some(p));
        while let Some(layer) = at.and_then(|p| self.covering(p)) {
            layers.push(layer);
            at = self.providers_of(layer).first().copied();
        }
        layers.into_iter().rev().for_each(|layer| self.uncover(layer));
    }

    /// Layers over `from` that have moved are over `to`.
    fn covered_instead(&mut self, from: ProviderId, to: ProviderId) {
        let Some(pp) = self.providers.get(to) else { return };
        for c in &pp.consumers {
            let geom = self.consumers.get(*c).and_then(|c| self.geoms.get_mut(c.geom));
            if let Some(g) = geom.filter(|g| g.covers == Some(from)) {
                g.covers = Some(to);
            }
        }
    }

    fn exchange_names(&mut self, a: ProviderId, b: ProviderId) {
        let Some([pa, pb]) = self.providers.get_disjoint_mut([a, b]) else { return };
        // One that withers gave its name back before.
        if [(&pa.name, a), (&pb.name, b)].iter().any(|(n, id)| self.names.get(*n) != Some(id)) {
            return;
        }
        std::mem::swap(&mut pa.name, &mut pb.name);
        self.names.insert(pa.name.clone(), a);
        self.names.insert(pb.name.clone(), b);
    }
}
