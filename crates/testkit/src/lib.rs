//! Test helpers shared by all crates.
//!
//! * [`seeds`]: the seeds that a simulation runs, and the report of a failing one.
//! * [`aoe`]: an AoE target with faults.
//! * [`cable`]: a virtual Ethernet cable.
//! * [`contents`]: contents of disks that the guard against overwriting recognises.
//! * [`clock`]: units of the clock, which are those of the product.
//! * [`cores`]: cores of a simulated world, and their turns.
//! * [`corpus`]: the folders of `fuzz/corpus`, replayed with seeded mutations.
//! * [`disk`]: disks in memory, and providers of layers of a test's own.
//! * [`Folder`]: a folder of one test.
//! * [`formats`]: the tables of the page of on-disk formats.
//! * [`iscsi`]: an initiator's connection in a simulated world, and an initiator over a socket.
//! * [`nbd`], [`nvme`]: a client over a socket.
//! * [`noise()`]: pseudo-random bytes.
//! * [`until`]: a wait for a condition.
//! * [`user`]: a geom that holds a provider open.
#![forbid(unsafe_code)]

pub mod aoe;
pub mod cable;
pub mod contents;
pub mod cores;
pub mod corpus;
pub mod disk;
mod folder;
pub mod formats;
pub mod iscsi;
pub mod nbd;
mod noise;
pub mod nvme;
pub mod seeds;
pub mod user;
pub mod wait;

pub use folder::Folder;
pub use noise::noise;
pub use reactor::clock;
pub use seeds::Seeds;
pub use wait::until;
