//! The engine without a network: initiators that are tasks of the server's own cores.
//!
//! Commands pass through access groups, order, the disk handler and the graph as an initiator's do;
//! only transport and wire are missing. [`Rig`] runs a load for a while and reports how many
//! commands each core ended and the processor time of them.

mod initiator;
mod leaf;
mod rig;

pub(crate) use initiator::Caller;
pub(crate) use leaf::Way;
pub(crate) use rig::{Outcome, Rig, Shape};
