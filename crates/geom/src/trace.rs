//! Slow requests as cores record them: the times at which layers received and ended a request.
//!
//! The times are those of the statistics, so no clock is read for them. A layer that ends a request
//! in the walk that took it down needed no time and has no part.

use bio::{Op, Origin, Status};

use crate::layer::Edge;

/// One layer's part of a request, or of a piece that a layer made of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TracePart {
    /// Number of the request or piece, unique among those of its core that are in flight.
    pub request: u64,
    /// The request of which it is a piece.
    pub parent: Option<u64>,
    /// Layers above this one that the same request is in.
    pub depth: u8,
    /// The connection by which the layer was entered.
    pub edge: Edge,
    /// The request was cut before the layer, and its pieces were sent there.
    pub is_cut: bool,
    pub op: Op,
    /// On whose behalf.
    pub origin: Origin,
    /// First byte, as this layer counts.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// When the layer received it, ns of the cores' clock.
    pub start_ns: u64,
    /// When the layer ended it.
    pub end_ns: u64,
    /// Result.
    pub status: Status,
}

impl TracePart {
    /// Time in this layer and in those below it, ns.
    pub fn took_ns(&self) -> u64 {
        self.end_ns.wrapping_sub(self.start_ns)
    }

    /// Whether this is the uppermost layer of a request that is no piece.
    pub fn is_root(&self) -> bool {
        self.depth == 0 && self.parent.is_none()
    }
}

/// A request that took at least as long as the requested time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlowRequest {
    /// Its parts, the one that ended last first: the uppermost layer.
    pub parts: Vec<TracePart>,
    /// False if parts were overwritten before it ended, or are more than a request may have.
    pub is_complete: bool,
}

/// The slow requests of a core since the last question.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SlowRequests {
    /// Requests in the order in which they ended.
    pub requests: Vec<SlowRequest>,
    /// Slow requests that are not among them, because too many ended.
    pub missed: u64,
}
