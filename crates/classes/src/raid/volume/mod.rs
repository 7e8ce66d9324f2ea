//! What goes on inside a volume of an array: where its bytes are, and how they are read, written,
//! and made whole again.
//!
//! * `map` is the geometry; `rows` reads, solves and writes rows with parity; `zero` empties them.
//! * `layer` is the data path; what more than one member must do is done by `tasks`.
//! * `shared` is what the cores go by; `pass` fills members and makes copies and parity right;
//!   `verify` compares them, and `locate` finds who is wrong where there are two parities.

mod hands;
mod layer;
mod locate;
pub(crate) mod map;
mod owed;
pub(crate) mod pass;
mod rows;
mod shared;
mod tasks;
pub(crate) mod verify;
mod zero;

#[cfg(test)]
mod map_tests;

pub(crate) use layer::VolumeLayer;
pub(crate) use shared::{Path, Role, Shared, Table};
pub(crate) use tasks::settle;
