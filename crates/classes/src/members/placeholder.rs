//! Placeholder geom without a provider: a geom that has only its number so far, or the access of a
//! verb.

use bio::Errno;
use geom::{Access, Geom, GeomId, ProviderId, Topology};

/// See the module.
pub struct PlaceholderGeom;

impl Geom for PlaceholderGeom {
    fn access(
        &mut self,
        _: &mut Topology,
        _: GeomId,
        _: ProviderId,
        _: Access,
    ) -> Result<(), Errno> {
        Err(Errno::NxIo)
    }
}
