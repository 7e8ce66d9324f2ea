//! raid: arrays as firmware and controllers keep them on disks (geom.md 2.14).
//!
//! The metadata is read and written as values, without I/O: [`model`] is what the formats have in
//! common; [`imsm`] (Intel) and [`ddf`] (SNIA) read and write their records and translate them.
//!
//! ```text
//! sectors --step()--> one disk's records --assemble()--> Array --check()--> fit to be started
//! Array --create()/update()--> every disk's records --plan()--> writes, safe against power cuts
//! ```
//!
//! The class: `class` tastes; `found` says whose record is in force, `book` what each disk shall
//! say; `set` who has what; `geom` decides, one thread an array, by what it is `told`, in `jobs`
//! that end with `notes`, and offers what is `ups`; `volume` is the data path; `records` writes;
//! `verbs` is what users ask for, with `policy` and `follow`; `show` what they see; `name` what
//! volumes are called.

mod arrive;
mod book;
pub mod check;
mod class;
pub mod ddf;
mod fault;
mod follow;
mod found;
mod geom;
pub mod imsm;
mod jobs;
mod losses;
pub mod model;
mod name;
mod notes;
mod policy;
mod records;
mod set;
#[cfg(test)]
mod set_tests;
mod show;
mod told;
mod troubles;
mod ups;
mod verbs;
mod volume;

pub use class::{RaidClass, Tunables};
pub use fault::Fault;
pub use model::{Array, Disk, DiskState, Layout, Level, Member, Migration, MigrationKind};
pub use model::{Identity, LogArea, SubdiskState, Volume, VolumeState};
