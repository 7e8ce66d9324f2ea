//! Insertion of a layer under all users of a provider, and its removal, while they work.
//!
//! The caller has closed the gate of the provider concerned and waited until it was empty. Parked
//! requests pass through their edges again when it reopens, and so through the new graph.
//!
//! Counts move with the consumers: the layer opens the access that it needs below before they
//! arrive and closes it before they leave. Its own `access` is called, so a class that takes more
//! than was requested of it (an extra e) does so here too. The geom below receives only the
//! difference (`Credit`): it never sees its provider closed in between.
//!
//! The name moves too, so that later users are above the layer as well: see `names.rs`.

use bio::Errno;

use super::{Access, ConsumerId, Credit, GeomId, ProviderId, Topology};
use crate::error::Error;

impl Topology {
    /// Moves all consumers of `below` but the new geom's own onto the new geom's only provider.
    /// `geom` has one consumer, attached to `below`, and one provider of the same size.
    pub(crate) fn splice_in(&mut self, geom: GeomId, below: ProviderId) -> Result<(), Error> {
        let (own, above) = self.sole_consumer_provider(geom)?;
        if self.below(own) != Some(below) {
            return Err(Error::inval("the new layer is over another provider"));
        }
        self.spliceable(geom, above, below)?;
        let (low, high) = (&self.providers[below].limits, &self.providers[above].limits);
        if low.media_bytes != high.media_bytes || low.sector_bytes != high.sector_bytes {
            let what = "the layer changes the size or sector size; it cannot be inserted";
            return Err(Error::inval(what));
        }
        if self.consumers[own].counts != Access::NONE {
            return Err(Error::new(Errno::Busy, "the new layer is open already"));
        }
        let movers: Vec<_> =
            self.providers[below].consumers.iter().copied().filter(|c| *c != own).collect();
        let upper = movers.iter().filter_map(|c| self.consumers.get(*c)).map(|c| c.geom);
        if upper.into_iter().any(|u| {
            self.ranks_with(u, geom).iter().any(|(_, rank)| *rank > super::attach::RANK_MAX)
        }) {
            return Err(Error::new(Errno::DeadLk, "the graph would become too deep"));
        }
        let total = self.providers[below].counts;
        self.shift_access(above, below, total, |_| true)
            .map_err(|e| Error::of(e, "opening the disk through the new layer"))?;
        self.move_consumers(&movers, below, above);
        self.cover(geom, above, below);
        self.rerank();
        self.below_changed(above);
        Ok(())
    }

    /// Moves all consumers of a shim's provider back onto the provider below it. The shim is left
    /// for the caller to wither.
    pub(crate) fn splice_out(&mut self, geom: GeomId) -> Result<(), Error> {
        let (own, above) = self.sole_consumer_provider(geom)?;
        let Some(below) = self.below(own) else {
            return Err(Error::new(Errno::NxIo, "the layer is attached to nothing"));
        };
        self.spliceable(geom, above, below)?;
        let total = self.providers[above].counts;
        let shut = |t: &Topology| t.consumer_counts(own) == Access::NONE;
        self.shift_access(above, below, total.inverse(), shut).map_err(|e| {
            let what = "the layer keeps its disk open for itself; destroy it instead";
            Error::new(e, what)
        })?;
        let movers = self.providers[above].consumers.clone();
        self.move_consumers(&movers, above, below);
        self.uncover(geom);
        self.rerank();
        self.below_changed(below);
        Ok(())
    }

    /// Lets the shim that offers `above` change its access on `below` by `delta`. The geom of
    /// `below`, for which the movers' counts stay where they are, receives the difference. Nothing
    /// changes when the shim or that geom refuses, or the result does not fit (`Busy`).
    fn shift_access(
        &mut self,
        above: ProviderId,
        below: ProviderId,
        delta: Access,
        fits: impl Fn(&Topology) -> bool,
    ) -> Result<(), Errno> {
        if delta == Access::NONE {
            return Ok(());
        }
        self.credit = Some(Credit { provider: below, counts: delta });
        let changed = self.pass_access_down(above, delta);
        let left = self.credit.as_mut().map(|c| std::mem::take(&mut c.counts));
        let left = left.unwrap_or_default();
        let result = match changed {
            Ok(()) if !fits(self) => Err(Errno::Busy),
            // A shim that passed nothing down has not used the credit.
            Ok(()) => self.pass_access_down(below, left.inverse()),
            Err(e) => Err(e),
        };
        if result.is_err() {
            if changed.is_ok() {
                let undone = self.pass_access_down(above, delta.inverse());
                debug_assert!(undone.is_ok(), "as it was a moment ago");
            }
            let undone = self.pass_access_down(below, delta.plus(left.inverse()));
            debug_assert!(undone.is_ok(), "as it was a moment ago");
        }
        self.credit = None;
        result
    }

    /// Moves consumers with their counts, after their counters so far have been settled.
    fn move_consumers(&mut self, movers: &[ConsumerId], from: ProviderId, to: ProviderId) {
        let mut moved = Access::NONE;
        for c in movers {
            self.settle_counters(*c);
            self.consumers[*c].provider = Some(to);
            moved = moved.plus(self.consumers[*c].counts);
        }
        let old = &mut self.providers[from];
        old.consumers.retain(|c| !movers.contains(c));
        old.counts = old.counts.plus(moved.inverse());
        let new = &mut self.providers[to];
        new.consumers.splice(0..0, movers.iter().copied());
        new.counts = new.counts.plus(moved);
        movers.iter().for_each(|c| self.set_edge_flags(*c));
        movers.iter().for_each(|c| self.touch_edge(*c));
    }

    fn spliceable(&self, geom: GeomId, above: ProviderId, below: ProviderId) -> Result<(), Error> {
        let live = [above, below].iter().all(|p| self.provider_is_live(*p));
        match live && self.geom_is_live(geom) {
            true => Ok(()),
            false => Err(Error::new(Errno::NxIo, "the layer or its disk is being removed")),
        }
    }

    /// The only consumer and the only provider of a transparent layer.
    pub(crate) fn sole_consumer_provider(
        &self,
        geom: GeomId,
    ) -> Result<(ConsumerId, ProviderId), Error> {
        match self.geoms.get(geom).map(|g| (g.consumers.as_slice(), g.providers.as_slice())) {
            Some(([c], [p])) if self.geom_is_live(geom) => Ok((*c, *p)),
            _ if self.geoms.contains_key(geom) && !self.geom_is_live(geom) => {
                Err(Error::new(Errno::NxIo, "the layer is being removed"))
            }
            Some(_) => Err(Error::new(
                Errno::NotSup,
                "only a layer with one disk below and one above can be inserted or removed",
            )),
            None => Err(Error::new(Errno::NoEnt, "no such geom")),
        }
    }
}
