//! One core's resolved copy of the graph.
//!
//! A request in flight through an edge keeps that edge at its node: consumers are moved only when
//! the node's gate is closed and empty. So the way up finds the node through the edge.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use bio::{Attr, Op, ResolvedArc};

use crate::layer::{Edge, Layer};
use crate::snapshot::{Changes, EdgeState, Limits, Node, NodeState};
use crate::stats::{Meter, Queue};

pub(super) struct NodeSlot {
    pub layer: ResolvedArc<dyn Layer>,
    pub queue: ResolvedArc<Queue>,
    /// `sector_bytes - 1` when that is a mask, else 0 and `odd_sector` is set.
    pub mask: u64,
    /// End of the range that requests may access without closer checks, bytes: zero while the gate
    /// is closed, and where sectors are odd.
    pub plain_end: Cell<u64>,
    /// The longest request that enters uncut, bytes, by operation: zero for those without a range.
    pub longest: [u64; Op::COUNT],
    pub limits: Limits,
    pub odd_sector: bool,
    gate_closed: Cell<bool>,
    pub index: u32,
    pub state: ResolvedArc<NodeState>,
    pub attrs: Arc<Vec<(&'static str, Attr)>>,
}

pub(super) struct EdgeSlot {
    pub edge: Edge,
    pub node: Rc<NodeSlot>,
    pub state: ResolvedArc<EdgeState>,
    pub meter: ResolvedArc<Meter>,
}

impl NodeSlot {
    /// Whether requests wait in front of it.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.gate_closed.get()
    }

    /// Closes the gate, or opens it.
    pub fn close(&self, closed: bool) {
        self.gate_closed.set(closed);
        let plain = !closed && !self.odd_sector;
        self.plain_end.set(if plain { self.limits.media_bytes } else { 0 });
    }
}

#[derive(Default)]
pub(super) struct Table {
    nodes: Vec<Option<Rc<NodeSlot>>>,
    edges: Vec<Option<EdgeSlot>>,
}

impl Table {
    #[inline(always)]
    pub fn node(&self, slot: u32) -> Option<&NodeSlot> {
        self.nodes.get(slot as usize)?.as_deref()
    }

    /// By a consumer's number; `None` when the consumer has been removed, even if its slot is in
    /// use again.
    #[inline(always)]
    pub fn edge(&self, number: u32) -> Option<&EdgeSlot> {
        let slot = self.edges.get(Edge(number).slot())?.as_ref()?;
        if slot.edge.0 == number { Some(slot) } else { None }
    }

    /// By the number in a frame: a request in flight keeps its slot (T4). So its owner need not be
    /// looked up again on the way up.
    #[inline(always)]
    pub fn inside(&self, number: u32) -> Option<&EdgeSlot> {
        let slot = self.edges.get(Edge(number).slot())?.as_ref();
        debug_assert!(slot.is_none_or(|e| e.edge.0 == number), "T4");
        slot
    }

    /// Takes over changes. Gates stay as they are: each core has its own.
    pub fn refresh(&mut self, changes: &Changes, core: usize) {
        for (slot, node) in &changes.nodes {
            let place = place(&mut self.nodes, *slot);
            let was = place.take();
            let closed = was.as_ref().is_some_and(|n| n.is_closed());
            let is = node.as_ref().and_then(|n| resolve(n, *slot, closed, core)).map(Rc::new);
            place.clone_from(&is);
            // Consumers that are attached to the old node are attached to the new one.
            let Some(was) = was.filter(|was| Rc::strong_count(was) > 1) else { continue };
            for edge in &mut self.edges {
                if edge.as_ref().is_some_and(|e| Rc::ptr_eq(&e.node, &was)) {
                    *edge = edge.take().zip(is.clone()).map(|(e, node)| EdgeSlot { node, ..e });
                }
            }
        }
        for (slot, edge) in &changes.edges {
            let resolved = edge.as_ref().and_then(|e| {
                Some(EdgeSlot {
                    edge: e.edge,
                    node: self.nodes.get(e.node as usize)?.clone()?,
                    state: e.state.clone(),
                    meter: e.meters.get(core)?.clone(),
                })
            });
            *place(&mut self.edges, *slot) = resolved;
        }
    }
}

/// The place of a slot, made when it is not there yet.
fn place<T>(slots: &mut Vec<Option<T>>, slot: u32) -> &mut Option<T> {
    let slot = slot as usize;
    if slots.len() <= slot {
        slots.resize_with(slot + 1, || None);
    }
    &mut slots[slot]
}

fn resolve(n: &Node, index: u32, closed: bool, core: usize) -> Option<NodeSlot> {
    let sector = u64::from(n.limits.sector_bytes);
    let odd_sector = !sector.is_power_of_two();
    let slot = NodeSlot {
        layer: n.layer.clone(),
        queue: n.queues.get(core)?.clone(),
        mask: if odd_sector { 0 } else { sector - 1 },
        plain_end: Cell::new(0),
        longest: longest(&n.limits),
        limits: n.limits,
        odd_sector,
        gate_closed: Cell::new(closed),
        index,
        state: n.state.clone(),
        attrs: n.attrs.clone(),
    };
    slot.close(closed);
    Some(slot)
}

/// Largest pieces that a layer takes, multiples of its sector; all ones when it takes any.
fn longest(limits: &Limits) -> [u64; Op::COUNT] {
    let sector = u64::from(limits.sector_bytes).max(1);
    let limit = |max: u64| match max {
        0 => u64::MAX,
        max => (max / sector * sector).max(sector),
    };
    Op::ALL.map(|op| match op {
        Op::Read | Op::Write => limit(limits.io_max_bytes.into()),
        Op::Delete | Op::WriteZeroes => limit(limits.delete_max_bytes),
        // Pieces of a question would have several answers.
        Op::Map => u64::MAX,
        Op::Flush | Op::GetAttr => 0,
    })
}
