//! The size of a multipath device: M3 of `geom`.

use geom::{GeomId, Topology};

use super::geom::MultipathGeom;
use super::paths::{OTHER_SIZE, rank};
use crate::members::frame;

impl MultipathGeom {
    /// Bytes of the disk, as a path reports them.
    pub(super) fn bytes_by(&self, t: &Topology, slot: usize) -> Option<u64> {
        let below = self.consumers.get(&slot).and_then(|c| t.below(*c))?;
        t.limits(below).map(|limits| limits.media_bytes)
    }

    /// The rank of a path: zero is best (M3).
    pub(super) fn path_rank(&self, t: &Topology, slot: usize) -> u8 {
        match self.bytes_by(t, slot) {
            Some(bytes) if bytes != self.identity.provider_bytes => OTHER_SIZE,
            _ => rank(&self.access_of(t, slot)),
        }
    }

    /// Updates the rank of a path. False when it is unchanged.
    pub(super) fn reranked(&mut self, t: &Topology, slot: usize) -> bool {
        let standing = self.path_rank(t, slot);
        self.paths.rerank(slot, standing)
    }

    /// M3. A capacity that only one path reports may be wrong, and a disk that shrank by mistake
    /// has lost its data.
    pub(super) fn fit(&mut self, t: &mut Topology, me: GeomId) {
        let slots: Vec<usize> = self.paths.all().iter().map(|p| p.slot).collect();
        let mut sizes = slots.iter().filter_map(|slot| self.bytes_by(t, *slot));
        if let Some(size) = sizes.next()
            && sizes.all(|other| other == size)
        {
            self.set_size(t, me, size);
        }
        let mut is_new = false;
        for slot in slots {
            is_new |= self.reranked(t, slot);
        }
        if is_new {
            self.changed(t, me);
        }
    }

    fn set_size(&mut self, t: &mut Topology, me: GeomId, size: u64) {
        let was = std::mem::replace(&mut self.identity.provider_bytes, size);
        if size == was {
            return;
        }
        let sector = self.identity.sector_bytes;
        if frame::last_sector(sector, size).is_none() {
            return Self::take_apart(t, me, self);
        }
        if self.identity.uuid.is_none() || size < was {
            self.written(t, me, Ok(()));
        }
        let old = frame::last_sector(sector, was).filter(|_| size > was);
        self.write_record(t, me, old);
    }
}
