//! fileserver: files on a cached WORM, every day's dump readable for ever.
//!
//! ```text
//!   service   the class `fs`: a file server as a geom, on a core; console: its verbs
//!     |
//!   ninep     9P2000: fids, tags, two flavours of rules
//!     |  closures over Files
//!   files     inodes, directories, contents; no permissions, no protocol
//!     |  keys and blocks
//!   tree      one B+tree a file system, copied on write
//!     |  blocks by their w-address
//!   volume    cached WORM: block cache, cache device, journal, dumps, copier, fence
//!     |  ranges of bytes
//!   medium    the devices of a config string: providers joined, mirrored, cut
//! ```
//!
//! A file operation is a synchronous function over blocks in memory. A missing block ends it, the
//! volume loads that block, and the operation runs again ([`volume::Volume::run`]). So an operation
//! is atomic without a lock, and a commit or a dump may be taken between any two of them.

#![forbid(unsafe_code)]

mod ahead;
mod compare;
pub mod config;
mod console;
pub mod fault;
pub mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod image;
mod inflight_loads;
mod journal;
pub mod medium;
pub mod ninep;
mod notify;
mod orphans;
mod service;
pub mod tree;
mod turn_budget;
pub mod users;
pub mod volume;

pub use compare::{Comparison, compare};
pub use fault::{Fault, Stop};
pub use orphans::InodeRef;
pub use service::{FS_CLASS, FileServers, FsClass, NoHistory, OpenFile, Site, VolumeHistory};
