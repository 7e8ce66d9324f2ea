//! The geom of one name.
//!
//! Invariants
//!  L1  From its first open to its last close the geom holds one `e` more than its users. So
//!      no other user writes below an open name.
//!  L2  A geom without attached consumers is removed when its media was written, and is found
//!      again.

use std::sync::Arc;

use bio::{Attr, Errno};
use geom::{Access, ConsumerId, Error, Geom, GeomId, NewProvider, ProviderId, Topology};

use super::class::NAME;
use crate::slice::{self, Slice};

/// Attribute which marks a provider as a name for another: no name is looked for on it.
pub(super) const KIND_ATTR: &str = "LABEL::kind";

/// A name to be created.
pub(super) struct Label<'a> {
    /// Of the geom and of its provider: `ext2fs/root`.
    pub(super) name: &'a str,
    pub(super) description: &'a str,
    /// Bytes from the start of the provider below.
    pub(super) len: u64,
    /// Whether a partition table may be inside.
    pub(super) nests: bool,
}

pub struct LabelGeom;

impl LabelGeom {
    /// A name for a provider.
    pub(super) fn place(
        topology: &mut Topology,
        on: ProviderId,
        why: &str,
        label: &Label<'_>,
    ) -> Result<GeomId, Error> {
        let taken = |topology: &Topology, what: &str| {
            let base = topology.find(label.name).and_then(|p| topology.geom_of(p));
            let base = base.and_then(|g| slice::base(topology, g));
            let base = base.map_or(String::new(), |p| topology.provider_name(p).to_owned());
            Error::new(Errno::Exist, format!("{} {what}{base}", label.name))
        };
        if topology.find(label.name).is_some() {
            return Err(taken(topology, "exists already, for "));
        }
        let geom = topology.new_geom(NAME, label.name, why, Box::new(LabelGeom))?;
        let provided = Self::provide(topology, geom, on, label);
        if let Err(error) = provided {
            topology.wither_geom(geom, Errno::NxIo);
            return Err(error);
        }
        Ok(geom)
    }

    fn provide(
        topology: &mut Topology,
        geom: GeomId,
        on: ProviderId,
        label: &Label<'_>,
    ) -> Result<(), Error> {
        let below = topology.provider_name(on).to_owned();
        let gone = || Error::new(Errno::NxIo, format!("{below} was removed"));
        let numbers = topology.limits(on).ok_or_else(gone)?;
        let sector = u64::from(numbers.sector_bytes).max(1);
        let len = label.len.min(numbers.media_bytes);
        let len = len - len % sector;
        if len == 0 {
            return Err(Error::inval(format!("{}: smaller than one sector", label.name)));
        }
        let consumer = topology
            .attach_new(geom, on)
            .map_err(|e| Error::of(e, &format!("attach to {below}")))?;
        let (stripe_bytes, stripe_offset) = topology.stripe(on);
        let mut attrs = vec![(KIND_ATTR, Attr::Text(label.description.into()))];
        if !label.nests {
            attrs.push(("PART::isleaf", Attr::Int(1)));
        }
        topology.new_provider(
            geom,
            NewProvider {
                name: label.name.into(),
                layer: Arc::new(Slice { from: 0, below: topology.edge(consumer) }),
                limits: slice::limits(numbers, len),
                stripe_bytes,
                stripe_offset,
                attrs,
            },
        )?;
        Ok(())
    }

    /// The name is removed; the media stays as it is.
    pub(super) fn abandon(topology: &mut Topology, geom: GeomId) {
        for consumer in topology.consumers_of(geom).to_vec() {
            topology.leave(consumer);
        }
        topology.wither_geom(geom, Errno::NxIo);
    }
}

impl Geom for LabelGeom {
    fn access(
        &mut self,
        topology: &mut Topology,
        me: GeomId,
        provider: ProviderId,
        delta: Access,
    ) -> Result<(), Errno> {
        let before = topology.counts(provider);
        let after = before.plus(delta);
        let extra = i32::from(after != Access::NONE) - i32::from(before != Access::NONE);
        slice::pass(topology, me, Access { e: delta.e.saturating_add(extra), ..delta })
    }

    fn spoils(&self) -> bool {
        true
    }

    fn resized(&mut self, topology: &mut Topology, me: GeomId, _: ConsumerId) {
        // Grown media is tasted again; the tasting follows the event.
        if !topology.geom_is_open(me) {
            Self::abandon(topology, me);
        }
    }

    fn attr_changed(&mut self, topology: &mut Topology, me: GeomId, _: ConsumerId, name: &str) {
        let used = topology.providers_of(me).iter().any(|p| topology.is_attached(*p));
        if name == "GEOM::media" && !used {
            return Self::abandon(topology, me);
        }
        topology.pass_up_attr(me, name);
    }
}
