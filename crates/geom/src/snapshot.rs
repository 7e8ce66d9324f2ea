//! The graph as the data path sees it. A change lists only the slots that it touched.
//!
//! Every core receives every change, in order, so each core knows the graph between two events. A
//! change of a graph of many thousand disks costs no more than one of a small graph.
//!
//! Slots are stable. A provider keeps its node slot and a consumer its edge slot from creation to
//! the moment when no core has a request in it. So a request that was sent down under one snapshot
//! may return up under the next; frames never dangle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};

use bio::{Attr, Errno, Op, ResolvedArc};

use crate::layer::{Edge, Layer};
use crate::stats::{Meter, Queue};

/// The part of a provider's state that may change at any time, seen by every core at once. Every
/// request reads it, so nothing that a core writes is beside it (M2 of `stats.rs`).
#[derive(Default)]
#[repr(align(128))]
pub struct NodeState {
    /// Zero, or 1 + the index of the error in `Errno::ALL`.
    error: AtomicU8,
}

impl NodeState {
    /// Sticky error: new requests end with it.
    pub fn error(&self) -> Option<Errno> {
        let code = self.error.load(Ordering::Acquire);
        Errno::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    pub(crate) fn set_error(&self, error: Option<Errno>) {
        let code =
            error.and_then(|e| Errno::ALL.iter().position(|x| *x == e)).map_or(0, |i| i as u8 + 1);
        self.error.store(code, Ordering::Release);
    }
}

/// The part of a consumer's state that may change at any time, seen by every core at once; nothing
/// is beside it.
#[derive(Default)]
#[repr(align(128))]
pub struct EdgeState {
    /// Bits of the permitted operations, one an operation, and above them the flags.
    bits: AtomicU16,
}

/// Where the flags begin.
const FLAGS_SHIFT: u32 = u8::BITS;

pub(crate) const MAY_READ: u8 = 1;
pub(crate) const MAY_WRITE: u8 = 2;
pub(crate) const ORPHAN: u8 = 4;
/// The provider has a sticky error: kept here too, so that the data path looks in one place.
pub(crate) const FAILED: u8 = 8;

impl EdgeState {
    pub(crate) fn flags(&self) -> u8 {
        (self.bits.load(Ordering::Relaxed) >> FLAGS_SHIFT) as u8
    }

    /// Whether the flags let an operation pass: [`is_open`], looked up.
    #[inline(always)]
    pub(crate) fn permits(&self, op: Op) -> bool {
        u32::from(self.bits.load(Ordering::Relaxed)) >> op as u32 & 1 != 0
    }

    pub(crate) fn set(&self, flags: u8) {
        let bit = |op: Op| u16::from(is_open(flags, op)) << op as u32;
        let ops = Op::ALL.into_iter().fold(0, |ops, op| ops | bit(op));
        self.bits.store(ops | u16::from(flags) << FLAGS_SHIFT, Ordering::Release);
    }
}

/// The flag that an operation must have.
pub(crate) fn required_flag(op: Op) -> u8 {
    if op.needs_write() { MAY_WRITE } else { MAY_READ }
}

/// Whether a consumer's flags let an operation pass.
pub(crate) fn is_open(flags: u8, op: Op) -> bool {
    flags & (required_flag(op) | ORPHAN | FAILED) == required_flag(op)
}

/// Numbers of a provider that the dispatcher checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Size of the medium, bytes; zero means no medium.
    pub media_bytes: u64,
    /// Smallest unit of I/O, bytes.
    pub sector_bytes: u32,
    /// Largest READ or WRITE that the layer takes; the dispatcher splits. Zero: any.
    pub io_max_bytes: u32,
    /// Largest DELETE or WRITE ZEROES; zero: any.
    pub delete_max_bytes: u64,
}

impl Limits {
    /// With the medium cut to whole sectors.
    pub(crate) fn truncated(self) -> Limits {
        let beyond = self.media_bytes % u64::from(self.sector_bytes.max(1));
        Limits { media_bytes: self.media_bytes - beyond, ..self }
    }
}

/// A provider as published to a core.
#[derive(Clone)]
pub struct Node {
    /// Its data path.
    pub layer: ResolvedArc<dyn Layer>,
    /// Its numbers.
    pub limits: Limits,
    /// Its sticky error.
    pub state: ResolvedArc<NodeState>,
    /// The requests inside, one queue a core.
    pub queues: Arc<[ResolvedArc<Queue>]>,
    /// Attributes that the dispatcher answers by itself.
    pub attrs: Arc<Vec<(&'static str, Attr)>>,
}

/// An attached consumer as published to a core.
#[derive(Clone)]
pub struct EdgeTo {
    /// The consumer's number.
    pub edge: Edge,
    /// Node slot of its provider.
    pub node: u32,
    /// Access and orphan flags.
    pub state: ResolvedArc<EdgeState>,
    /// Statistics, one meter a core.
    pub meters: Arc<[ResolvedArc<Meter>]>,
}

/// The changes since the last publication to the cores.
#[derive(Default)]
pub struct Changes {
    /// Number of the graph that they lead to; grows by one each.
    pub generation: u64,
    /// Node slots with the providers that are there now.
    pub nodes: Vec<(u32, Option<Node>)>,
    /// Edge slots with the consumers that are attached there now.
    pub edges: Vec<(u32, Option<EdgeTo>)>,
}

pub(crate) fn one_per_core<T: Default>(cores: usize) -> Arc<[ResolvedArc<T>]> {
    (0..cores).map(|_| ResolvedArc::new(Arc::new(T::default()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edge_admits_operations_according_to_its_flags() {
        let state = EdgeState::default();
        assert!(!Op::ALL.iter().any(|op| state.permits(*op)));
        for flags in 0..16 {
            state.set(flags);
            assert_eq!(state.flags(), flags);
            for op in Op::ALL {
                let access = if op.needs_write() { MAY_WRITE } else { MAY_READ };
                let open = flags & access != 0 && flags & (ORPHAN | FAILED) == 0;
                assert_eq!(state.permits(op), open, "{flags:#x} {op:?}");
            }
        }
    }

    #[test]
    fn every_errno_survives_the_shared_byte() {
        let s = NodeState::default();
        assert_eq!(s.error(), None);
        for &e in Errno::ALL {
            s.set_error(Some(e));
            assert_eq!(s.error(), Some(e));
        }
        s.set_error(None);
        assert_eq!(s.error(), None);
    }
}
