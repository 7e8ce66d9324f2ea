//! Messages from the topology to a core, and notices from a core to the topology.

use std::rc::Rc;
use std::sync::Arc;

use super::Core;
use crate::snapshot::Changes;

/// From the topology to a core, in order.
pub enum Message {
    /// Walk this graph from now on.
    Publish(Arc<Changes>),
    /// Park requests that arrive at a node, and report when none is left in it.
    GateClose {
        /// Node slot.
        node: u32,
        /// Given back in the answer.
        ticket: u64,
    },
    /// Reopen a node and replay the parked requests in order. Walk a new graph from the same
    /// moment on, so that no later request passes the parked ones on a shorter way.
    GateOpen {
        /// Node slot.
        node: u32,
        /// The new graph, if there is one.
        changes: Option<Arc<Changes>>,
    },
    /// Report when no request that passed through this edge is left.
    Drain {
        /// Edge slot.
        edge: u32,
        /// Given back in the answer.
        ticket: u64,
    },
    /// Run this on the core's thread.
    Call(Call),
}

/// Work for a core.
pub type Call = Box<dyn FnOnce(&Rc<Core>) + Send>;

/// From a core to the topology.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoreNotice {
    /// The core walks this generation now.
    Published {
        /// Core.
        core: u32,
        /// Number of the graph.
        generation: u64,
    },
    /// The core has nothing in flight in a node whose gate is closed.
    GateDrained {
        /// Core.
        core: u32,
        /// The ticket of the request.
        ticket: u64,
    },
    /// The core has nothing in flight through an edge.
    Drained {
        /// Core.
        core: u32,
        /// The ticket of the request.
        ticket: u64,
    },
}

/// How a core answers; callable from any thread.
pub type Report = Arc<dyn Fn(CoreNotice) + Send + Sync>;
