//! One core's resolved copy of the graph.

use std::cell::Cell;

use bio::{Attr, Pinned};

use crate::layer::Layer;
use crate::snapshot::{EdgeState, Limits, NodeState, Snapshot};
use crate::stats::{Meter, Queue};

pub(super) struct NodeSlot {
    pub layer: Pinned<dyn Layer>,
    pub limits: Limits,
    /// `sector_bytes - 1` when that is a mask, else 0 and `odd_sector` is set.
    pub mask: u64,
    pub odd_sector: bool,
    pub state: Pinned<NodeState>,
    pub queue: Pinned<Queue>,
    pub attrs: std::sync::Arc<Vec<(&'static str, Attr)>>,
    pub gate_closed: Cell<bool>,
}

pub(super) struct EdgeSlot {
    pub node: u32,
    pub state: Pinned<EdgeState>,
    pub meter: Pinned<Meter>,
}

#[derive(Default)]
pub(super) struct Table {
    nodes: Vec<Option<NodeSlot>>,
    edges: Vec<Option<EdgeSlot>>,
}

impl Table {
    #[inline(always)]
    pub fn node(&self, slot: u32) -> Option<&NodeSlot> {
        self.nodes.get(slot as usize)?.as_ref()
    }

    #[inline(always)]
    pub fn edge(&self, slot: u32) -> Option<&EdgeSlot> {
        self.edges.get(slot as usize)?.as_ref()
    }

    /// Takes over a snapshot. Gates stay as they are: they are per core and not in the snapshot.
    pub fn refresh(&mut self, snapshot: &Snapshot, core: usize) {
        let closed: Vec<bool> = self
            .nodes
            .iter()
            .map(|n| n.as_ref().is_some_and(|n| n.gate_closed.get()))
            .collect();
        self.nodes.clear();
        for (i, node) in snapshot.nodes.iter().enumerate() {
            self.nodes.push(node.as_ref().and_then(|n| {
                let sector = u64::from(n.limits.sector_bytes);
                let odd_sector = !sector.is_power_of_two();
                Some(NodeSlot {
                    layer: n.layer.clone(),
                    limits: n.limits,
                    mask: if odd_sector { 0 } else { sector - 1 },
                    odd_sector,
                    state: n.state.clone(),
                    queue: n.queues.get(core)?.clone(),
                    attrs: n.attrs.clone(),
                    gate_closed: Cell::new(closed.get(i).copied().unwrap_or(false)),
                })
            }));
        }
        self.edges.clear();
        for edge in &snapshot.edges {
            self.edges.push(edge.as_ref().and_then(|e| {
                Some(EdgeSlot {
                    node: e.node,
                    state: e.state.clone(),
                    meter: e.meters.get(core)?.clone(),
                })
            }));
        }
    }
}
