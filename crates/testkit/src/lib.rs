//! What the tests of all crates share.
//!
//! * [`seeds`]: which seeds a simulation plays, and what a failing one says.
//! * [`corpus`]: the folders of `fuzz/corpus`, replayed with seeded mutations.
//! * [`iscsi`]: an initiator's connection in a simulated world.
#![forbid(unsafe_code)]

pub mod corpus;
pub mod iscsi;
pub mod seeds;

pub use seeds::Seeds;
