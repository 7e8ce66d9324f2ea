//! Access counts, with exactly GEOM's rules (docs/reference/geom.md 1.2).

use std::fmt;

use bio::Errno;

use super::{ConsumerId, Event, GeomId, ProviderId, Topology};
use crate::snapshot::{FAILED, MAY_READ, MAY_WRITE, ORPHAN};

/// Read, write and exclusive counts, or changes of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Access {
    /// Readers.
    pub r: i32,
    /// Writers.
    pub w: i32,
    /// Users that exclude other writers.
    pub e: i32,
}

impl Access {
    /// Nothing open.
    pub const NONE: Access = Access { r: 0, w: 0, e: 0 };
    pub const READ: Access = Access { r: 1, w: 0, e: 0 };
    /// One reader and writer.
    pub const WRITE: Access = Access { r: 1, w: 1, e: 0 };
    /// One reader and writer that excludes other writers.
    pub const EXCLUSIVE: Access = Access { r: 1, w: 1, e: 1 };

    /// The change that undoes this one.
    pub fn inverse(self) -> Access {
        Access { r: -self.r, w: -self.w, e: -self.e }
    }

    /// Both changes.
    pub fn plus(self, o: Access) -> Access {
        Access { r: self.r + o.r, w: self.w + o.w, e: self.e + o.e }
    }

    fn any_positive(self) -> bool {
        self.r > 0 || self.w > 0 || self.e > 0
    }

    fn any_negative(self) -> bool {
        self.r < 0 || self.w < 0 || self.e < 0
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}w{}e{}", self.r, self.w, self.e)
    }
}

impl Topology {
    /// Changes a consumer's counts. The order of the checks is GEOM's. A consumer that gives up its
    /// last count has no request in flight; [`Topology::leave`] is for one that may have.
    pub fn access(&mut self, consumer: ConsumerId, delta: Access) -> Result<(), Errno> {
        let cp = self.consumers.get(consumer).ok_or(Errno::NxIo)?;
        let provider = cp.provider.ok_or(Errno::NxIo)?;
        let own = cp.counts;
        if delta == Access::NONE || own.plus(delta).any_negative() {
            return Err(Errno::Inval);
        }
        let spoils = self.geom_spoils(cp.geom);
        if (cp.detaching || spoils && cp.spoiled) && delta.any_positive() {
            return Err(Errno::NxIo);
        }
        self.check_others(provider, own, delta)?;
        self.pass_access_down(provider, delta)?;
        self.after_access(consumer, provider, delta);
        Ok(())
    }

    /// Step 5: the geom that offers `provider` passes down the access that it needs.
    pub(super) fn pass_access_down(
        &mut self,
        provider: ProviderId,
        delta: Access,
    ) -> Result<(), Errno> {
        let below = self.providers.get(provider).ok_or(Errno::NxIo)?.geom;
        let credit = match &mut self.credit {
            Some(c) if c.provider == provider => std::mem::take(&mut c.counts),
            _ => Access::NONE,
        };
        let delta = delta.plus(credit.inverse());
        if delta == Access::NONE {
            return Ok(());
        }
        let done = match self.with_geom(below, |ops, t| ops.access(t, below, provider, delta)) {
            Some(result) => result,
            // A geom that is on the stack or removed cannot be opened; closing it is fine.
            None if delta.any_positive() => Err(Errno::NxIo),
            None => Ok(()),
        };
        if let (Err(_), Some(c)) = (done, &mut self.credit)
            && c.provider == provider
        {
            c.counts = credit;
        }
        done
    }

    /// Step 4 of docs/reference/geom.md 1.2: the counts of all other consumers decide.
    fn check_others(&self, p: ProviderId, own: Access, delta: Access) -> Result<(), Errno> {
        let pp = self.providers.get(p).ok_or(Errno::NxIo)?;
        if self.credit.as_ref().is_some_and(|c| c.provider == p) {
            // A splice: the others are on their way to above this consumer, or were above it.
            return Ok(());
        }
        let (others_w, others_e) = (pp.counts.w - own.w, pp.counts.e - own.e);
        let rank = self.geoms.get(pp.geom).map_or(0, |g| g.rank);
        if self.foot_shooting && rank == 1 {
            return Ok(());
        }
        if delta.e > 0 && others_w > 0 || delta.w > 0 && others_e > 0 {
            return Err(Errno::Perm);
        }
        match pp.state.error() {
            Some(e) if delta.any_positive() => Err(e),
            _ => Ok(()),
        }
    }

    /// Step 6: spoiling, retasting, counting.
    fn after_access(&mut self, consumer: ConsumerId, provider: ProviderId, delta: Access) {
        let Some(pp) = self.providers.get(provider) else {
            return;
        };
        let (was, failed, geom) = (pp.counts, pp.state.error().is_some(), pp.geom);
        let withering = self.geoms.get(geom).is_none_or(|g| g.wither);
        let spliced = self.credit.as_ref().is_some_and(|c| c.provider == provider);
        if was.w == 0 && delta.w > 0 && !spliced {
            self.mark_spoiled(provider, Some(consumer));
        }
        if was.w != 0 && was.w == -delta.w && !failed && !withering && !spliced {
            self.post(Event::NewProvider(provider));
        }
        if let Some(pp) = self.providers.get_mut(provider) {
            pp.counts = pp.counts.plus(delta);
        }
        let mut closed = false;
        if let Some(cp) = self.consumers.get_mut(consumer) {
            cp.counts = cp.counts.plus(delta);
            cp.opened |= delta.any_positive();
            closed = cp.counts == Access::NONE;
        }
        self.set_edge_flags(consumer);
        let upper = self.consumers.get(consumer).map(|c| c.geom);
        let user =
            upper.and_then(|g| self.geoms.get(g)).filter(|g| !g.is_verb_access).map(|g| g.class);
        if let Some(class) = user.filter(|_| delta.w > 0) {
            self.add_current_size(class, provider);
        }
        if closed && upper.and_then(|g| self.geoms.get(g)).is_some_and(|g| g.wither) {
            self.wash = true;
        }
    }

    /// Marks all other consumers of a provider and queues the spoil event if there is one.
    pub(super) fn mark_spoiled(&mut self, provider: ProviderId, except: Option<ConsumerId>) {
        let Some(pp) = self.providers.get_mut(provider) else {
            return;
        };
        pp.content += 1;
        let mut any = false;
        for c in pp.consumers.clone() {
            if Some(c) == except {
                continue;
            }
            if let Some(cp) = self.consumers.get_mut(c) {
                // A consumer with an e is in the way of every writer but the foot-shooter, and
                // stays.
                if cp.detaching || except.is_some() && cp.counts.e > 0 {
                    continue;
                }
                cp.spoiled = true;
                any = true;
            }
        }
        if any {
            self.post(Event::Spoil(provider));
        }
    }

    /// Updates the operations that the data path may pass through a consumer (T5).
    pub(super) fn set_edge_flags(&mut self, consumer: ConsumerId) {
        let Some(cp) = self.consumers.get(consumer) else {
            return;
        };
        let mut flags = 0;
        if cp.counts.r > 0 && !cp.detaching {
            flags |= MAY_READ;
        }
        if cp.counts.w > 0 && !cp.detaching {
            flags |= MAY_WRITE;
        }
        if cp.orphan || cp.detaching {
            flags |= ORPHAN;
        }
        if cp.provider.and_then(|p| self.error_of(p)).is_some() {
            flags |= FAILED;
        }
        cp.state.set(flags);
    }

    /// Changes the counts of all of a geom's consumers; undoes the first ones when a later one
    /// refuses.
    pub fn access_all_below(&mut self, geom: GeomId, delta: Access) -> Result<(), Errno> {
        if delta == Access::NONE {
            return Ok(());
        }
        let consumers = self.geoms.get(geom).map(|g| g.consumers.clone()).unwrap_or_default();
        for (i, &c) in consumers.iter().enumerate() {
            if let Err(e) = self.access(c, delta) {
                for &done in &consumers[..i] {
                    let undone = self.access(done, delta.inverse());
                    debug_assert!(undone.is_ok(), "undoing an open is a close");
                }
                return Err(e);
            }
        }
        Ok(())
    }
}
