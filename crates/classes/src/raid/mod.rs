//! RAID as firmware and controllers keep it on disks: the metadata, read and written as values.
//!
//! Nothing here does I/O. [`model`] is what the formats have in common; [`imsm`] (Intel) and
//! [`ddf`] (SNIA) read and write their records and translate them to and from it.
//!
//! ```text
//! sectors --step()--> one disk's records --assemble()--> Array --check()--> fit to be started
//! Array --create()/update()--> every disk's records --plan()--> writes, safe against power cuts
//! ```

pub mod check;
pub mod ddf;
mod fault;
pub mod imsm;
pub mod model;
mod volume;

pub use fault::Fault;
pub use model::{Array, Disk, DiskState, Layout, Level, Member, Migration, MigrationKind};
pub use model::{Identity, SubdiskState, Volume, VolumeState};
