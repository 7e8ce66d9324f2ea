//! What the tests of all crates share.
//!
//! * [`seeds`]: which seeds a simulation plays, and what a failing one says.
//! * [`corpus`]: the folders of `fuzz/corpus`, replayed with seeded mutations.
//! * [`disk`]: disks in memory, and providers of layers of a test's own.
//! * [`iscsi`]: an initiator's connection in a simulated world, and an initiator over a socket.
//! * [`nbd`]: a client over a socket.
#![forbid(unsafe_code)]

pub mod corpus;
pub mod disk;
pub mod iscsi;
pub mod nbd;
pub mod seeds;

pub use seeds::Seeds;
