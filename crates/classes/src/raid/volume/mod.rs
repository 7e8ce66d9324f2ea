//! What goes on inside a volume of an array: where its bytes are, and how they are read, written,
//! and made whole again.
//!
//! * `map` is the geometry; `rows` writes rows with parity, `solve` reads and solves them, `send`
//!   tells their members; `zero` empties them.
//! * `log` is what is written before rows where a log of partial parity is kept, `logged` what rows
//!   tell it; `replay` is what is done with it at the start.
//! * `layer` is the data path; what more than one member must do is done by `tasks`.
//! * `shared` is what the cores go by; `pass` fills members and makes copies and parity right;
//!   `verify` compares them, and `locate` finds who is wrong where there are two parities.

mod hands;
mod layer;
mod lists;
mod locate;
pub(crate) mod log;
mod logged;
pub(crate) mod map;
mod owed;
pub(crate) mod pass;
pub(crate) mod replay;
mod rows;
mod send;
mod shared;
mod solve;
mod tasks;
pub(crate) mod verify;
mod zero;

#[cfg(test)]
mod map_tests;

pub(crate) use layer::layer;
pub(crate) use shared::{Kind, Leaves, Path, Role, Shared, Table};
pub(crate) use tasks::settle;
