//! Disks: the providers at the bottom of the graph.
//!
//! * [`KINDS`]: every kind of disk there is, one file each: `file`, `blockdev`, `memory`, `null`,
//!   `model`, `nbd`. A new kind is a new file and a line in `registry.rs`.
//! * [`Kind`]: the interface of a kind; [`Opened`] is a disk that it opened.
//! * [`Opener`]: opens a disk on a thread that may block; [`OpenedDisk`] is its result.
//! * [`DiskClass`]: the class `disk`, which puts an opened disk into the graph, with one provider
//!   named after the disk.
//!
//! A disk does no I/O by itself: the core that carries a request uses its reactor. A lost disk
//! reports that once, by an event, and other disks are not disturbed.

#![forbid(unsafe_code)]

// The world of the integration tests, for tests of private modules.
#[cfg(test)]
extern crate self as disks;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../tests/suite/world/mod.rs"]
mod world;

mod arrivals;
mod backing;
mod blockdev;
mod causes;
mod class;
mod creation;
mod deletes;
mod failures;
mod file;
mod kind;
mod lasting;
mod locks;
mod medium;
mod memory;
mod model;
mod nbd;
mod null;
mod opening;
mod ordered;
mod pages;
mod params;
mod path_state;
mod place;
mod registry;
mod remote;
mod sysfs;
mod verbs;
mod watch;

pub use arrivals::Arrivals;
pub use blockdev::BlockDevParams;
pub use class::{
    DISK_CLASS, DISK_DOC, DiskClass, check_name, open_medium, path_state, set_serial, troubles,
};
pub use deletes::DeleteHow;
pub use failures::LastError;
pub use file::{Direct, FileParams};
pub use kind::{
    Growth, IDENT_MAX, Identity, Kind, Open, Opened, PathKind, ResizeCall, ResizeResult, Site,
    SpaceUsage, Unit,
};
pub use lasting::{
    ATTRIBUTE, Identities, IdentityRequest, PersistentIdentity, SIDECAR, expected_identity,
    stored_at,
};
pub use locks::still_refused;
pub use medium::{Medium, canonical_path};
pub use memory::{MEMORY_BYTES_MAX, MemoryParams};
pub use model::{Latency, MODEL_BYTES_MAX, ModelParams};
pub use nbd::NbdParams;
pub use null::{Fill, NullParams};
pub use opening::{OpenedDisk, Opener};
pub use path_state::PathState;
pub use registry::{KINDS, kind, path_kind};
pub use verbs::check_resize;
pub use watch::Watch;
