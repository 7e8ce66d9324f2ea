//! The part of the engines in the task sets of units: order across cores, contingent allegiances,
//! task management. A task set itself is a pure value: `task/set.rs`.

pub(crate) mod aca;
pub(crate) mod cross_core;
pub(crate) mod management;
