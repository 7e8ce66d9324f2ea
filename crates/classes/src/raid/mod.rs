//! RAID arrays in the on-disk formats of firmware and controllers (docs/reference/geom.md 2.14).
//!
//! The metadata is read and written as values, without I/O. [`model`] is the part that the formats
//! have in common; [`imsm`] (Intel) and [`ddf`] (SNIA) read and write their records and translate
//! them.
//!
//! ```text
//! sectors --step()--> one disk's records --assemble()--> Array --check()--> fit to be started
//! Array --create()/update()--> every disk's records --plan()--> writes, safe against power cuts
//! ```
//!
//! The class:
//!
//! * `class` tastes; `assemble` chooses the record in force; `metadata` makes each disk's record.
//! * `members` holds the states of the members. `geom` decides, in one thread for each array.
//! * `messages` handles its messages, and `jobs` changes the array in jobs that end with
//!   `pending_updates`.
//! * `volumes` offers the volumes that can be used; `volume` is the data path; `records` writes.
//! * `verbs` has the verbs, with `policy` and `relocate`; `show` makes lists; `name` names volumes.

mod arrival;
mod assemble;
pub mod check;
mod class;
pub mod ddf;
mod failure;
mod fault;
mod fields;
mod geom;
mod health;
pub mod imsm;
mod jobs;
mod members;
#[cfg(test)]
mod members_tests;
mod messages;
mod metadata;
pub mod model;
mod name;
mod pending_updates;
mod policy;
mod records;
mod relocate;
mod show;
mod verbs;
mod volume;
mod volumes;

pub use class::{RaidClass, Tunables};
pub use fault::Fault;
pub use model::{Array, Disk, DiskState, Layout, Level, Member, Migration, MigrationKind};
pub use model::{Identity, LogArea, SubdiskState, Volume, VolumeState};
