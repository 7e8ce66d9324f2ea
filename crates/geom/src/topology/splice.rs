//! Putting a layer under everybody above a provider, or taking it out again, while they work.
//!
//! The caller has closed the gate of the provider concerned and waited until it was empty; parked
//! requests go through their edges again when it reopens, and so through the new graph.

use bio::Errno;

use super::{Access, GeomId, ProviderId, Topology};
use crate::error::Error;

impl Topology {
    /// Moves all consumers of `below` but the new geom's own onto the new geom's only provider.
    /// `geom` has one consumer, attached to `below`, and one provider of the same size.
    pub(crate) fn splice_in(&mut self, geom: GeomId, below: ProviderId) -> Result<(), Error> {
        let (own, above) = self.shim_parts(geom)?;
        let (low, high) = (&self.providers[below].limits, &self.providers[above].limits);
        if low.media_bytes != high.media_bytes || low.sector_bytes != high.sector_bytes {
            let what = "the layer changes the size or sector size; it cannot be slipped in";
            return Err(Error::new(Errno::Inval, what));
        }
        if self.consumers[own].counts != Access::NONE {
            return Err(Error::new(Errno::Busy, "the new layer is open already"));
        }
        let movers: Vec<_> =
            self.providers[below].consumers.iter().copied().filter(|c| *c != own).collect();
        self.check_depth(&movers)?;
        let total = self.providers[below].counts;
        for c in &movers {
            self.settle_counters(*c);
            self.consumers[*c].provider = Some(above);
        }
        self.providers[below].consumers = vec![own];
        movers.iter().for_each(|c| self.set_edge_flags(*c));
        let earlier = std::mem::take(&mut self.providers[above].consumers);
        self.providers[above].consumers = movers.into_iter().chain(earlier).collect();
        self.providers[above].counts = self.providers[above].counts.plus(total);
        self.consumers[own].counts = total;
        self.consumers[own].opened |= total != Access::NONE;
        self.set_edge_flags(own);
        self.rerank();
        self.dirty = true;
        Ok(())
    }

    /// Moves all consumers of a shim's provider back onto the provider below it; the shim withers.
    pub(crate) fn splice_out(&mut self, geom: GeomId) -> Result<(), Error> {
        let (own, above) = self.shim_parts(geom)?;
        let Some(below) = self.consumers[own].provider else {
            return Err(Error::new(Errno::NxIo, "the layer is attached to nothing"));
        };
        let movers = std::mem::take(&mut self.providers[above].consumers);
        for c in &movers {
            self.settle_counters(*c);
            self.consumers[*c].provider = Some(below);
        }
        movers.iter().for_each(|c| self.set_edge_flags(*c));
        let moved = std::mem::replace(&mut self.providers[above].counts, Access::NONE);
        let held = std::mem::replace(&mut self.consumers[own].counts, Access::NONE);
        let lower = self.providers[below].counts;
        self.providers[below].counts = lower.plus(held.inverse()).plus(moved);
        let rest = std::mem::take(&mut self.providers[below].consumers);
        self.providers[below].consumers = movers.into_iter().chain(rest).collect();
        self.set_edge_flags(own);
        self.rerank();
        self.dirty = true;
        Ok(())
    }

    /// The only consumer and the only provider of a transparent layer.
    pub(crate) fn shim_parts(
        &self,
        geom: GeomId,
    ) -> Result<(super::ConsumerId, ProviderId), Error> {
        match self.geoms.get(geom).map(|g| (g.consumers.as_slice(), g.providers.as_slice())) {
            Some(([c], [p])) => Ok((*c, *p)),
            Some(_) => Err(Error::new(
                Errno::NotSup,
                "only a layer with one disk below and one \
                                                      above can be slipped in or out",
            )),
            None => Err(Error::new(Errno::NoEnt, "no such geom")),
        }
    }

    fn check_depth(&self, movers: &[super::ConsumerId]) -> Result<(), Error> {
        let deepest = movers
            .iter()
            .filter_map(|c| self.geoms.get(self.consumers.get(*c)?.geom))
            .map(|g| g.rank)
            .chain(self.geoms.values().map(|g| g.rank))
            .max()
            .unwrap_or(0);
        if !movers.is_empty() && deepest >= super::attach::RANK_MAX {
            return Err(Error::new(Errno::DeadLk, "the graph would become too deep"));
        }
        Ok(())
    }
}
