//! What the tests of all crates share.
//!
//! * [`seeds`]: which seeds a simulation plays, and what a failing one says.
//! * [`corpus`]: the folders of `fuzz/corpus`, replayed with seeded mutations.
//! * [`disk`]: disks in memory, and providers of layers of a test's own.
//! * [`iscsi`]: an initiator's connection in a simulated world.
#![forbid(unsafe_code)]

pub mod corpus;
pub mod disk;
pub mod iscsi;
pub mod seeds;

pub use seeds::Seeds;
