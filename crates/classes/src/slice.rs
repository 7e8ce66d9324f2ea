//! slice: a provider that shows a range of the one provider below, and how its geom opens that.
//!
//! `part` and `label` use it as their data path. The functions for access counts, limits and
//! stripes are also used by other layers on one provider.
//!
//! Invariants
//!  S1  A Bio leaves with its original offset.
//!  S2  A pure close never fails, also when the geom has already left the provider below.

use bio::{Bio, Errno};
use geom::{Access, Back, Core, Edge, Flow, GeomId, Layer, Limits, ProviderId, Topology};

/// The data path: offsets move by a constant.
pub(crate) struct Slice {
    /// First byte, on the provider below.
    pub(crate) from: u64,
    pub(crate) below: Edge,
}

impl Layer for Slice {
    fn delete_ranges(&self) -> u32 {
        u32::MAX
    }

    fn start(&self, bio: &mut Bio, _: &Core) -> Flow {
        let was = bio.offset;
        if bio.op.has_range() {
            // The dispatcher has checked the range, and the slice is inside the media below.
            bio.offset = was.saturating_add(self.from);
        }
        Flow::Down(self.below, was)
    }

    fn done(&self, bio: &mut Bio, was: u64, _: &Core) -> Back {
        bio.offset = was;
        Back::Up
    }
}

/// Passes a change of counts to the one consumer of `me`.
pub(crate) fn pass(topology: &mut Topology, me: GeomId, delta: Access) -> Result<(), Errno> {
    let closing = delta.r <= 0 && delta.w <= 0 && delta.e <= 0;
    let Some(&below) = topology.consumers_of(me).first() else {
        return if closing { Ok(()) } else { Err(Errno::NxIo) };
    };
    let after = topology.consumer_counts(below).plus(delta);
    if closing && (after.r < 0 || after.w < 0 || after.e < 0) {
        return Ok(());
    }
    match topology.access(below, delta) {
        Err(_) if closing => Ok(()),
        result => result,
    }
}

/// The provider below the one consumer of `me`.
pub(crate) fn base(topology: &Topology, me: GeomId) -> Option<ProviderId> {
    topology.below(*topology.consumers_of(me).first()?)
}

/// Numbers of a slice of `len` bytes of a provider with these.
pub(crate) fn limits(below: Limits, len: u64) -> Limits {
    Limits { media_bytes: len, ..below }
}

/// Stripe size and offset of a slice that begins at byte `from`.
pub(crate) fn stripe((size, offset): (u64, u64), from: u64) -> (u64, u64) {
    match size {
        0 => (0, offset.saturating_add(from)),
        size => (size, (offset % size + from % size) % size),
    }
}
