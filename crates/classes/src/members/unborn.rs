//! A geom that offers nothing: one that has its number and nothing else yet, or the hand of a verb.

use bio::Errno;
use geom::{Access, Geom, GeomId, ProviderId, Topology};

/// See the module.
pub(crate) struct Unborn;

impl Geom for Unborn {
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
