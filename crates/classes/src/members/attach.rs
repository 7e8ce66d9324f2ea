//! Exclusive attachment of a geom to a member.

use geom::{Access, ConsumerId, Error, GeomId, ProviderId, Topology};

use super::provider_access::busy;

/// Attaches to a member and opens it, alone. On an error nothing is left.
pub(crate) fn attach_alone(
    t: &mut Topology,
    me: GeomId,
    on: ProviderId,
) -> Result<ConsumerId, Error> {
    let name = t.provider_name(on).to_owned();
    let consumer = t.attach_new(me, on).map_err(|e| Error::of(e, &format!("attach to {name}")))?;
    match t.access(consumer, Access::EXCLUSIVE) {
        Ok(()) => Ok(consumer),
        Err(e) => {
            t.leave(consumer);
            Err(busy(&name, e))
        }
    }
}
