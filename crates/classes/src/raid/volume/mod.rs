//! Data path of a volume of an array: the places of its bytes, and how they are read, written and
//! repaired.
//!
//! * `map` is the geometry; `stripes` writes rows with parity, `reconstruct` reads and solves them,
//!   `send` sends requests to their members; `zero` zeroes them.
//! * `log` writes the log of partial parity before rows, where it is kept. `ppl_accounting` makes
//!   its entries, and `replay` replays it at the start.
//! * `layer` is the data path; `tasks` does operations on more than one member.
//! * `shared` is the state used by the cores; `sweep` fills members and makes copies and parity
//!   right; `verify` compares them, and `locate` finds the wrong strip where there are two
//!   parities.

mod layer;
mod lists;
mod locate;
pub(crate) mod log;
pub(crate) mod map;
mod missed_parity;
mod ppl_accounting;
mod reconstruct;
pub(crate) mod replay;
mod send;
mod shared;
mod stripes;
pub(crate) mod sweep;
mod task_util;
mod tasks;
pub(crate) mod verify;
mod zero;

#[cfg(test)]
mod map_tests;

pub(crate) use layer::layer;
pub(crate) use shared::{FailureEffect, Path, Role, Table, VolumeShared, VolumeSpec};
pub(crate) use task_util::bit;
pub(crate) use tasks::settle;
