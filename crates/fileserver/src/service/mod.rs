//! service: the class `fs`. A file server is a geom on the devices of its config string; its files
//! are reached by 9P.
//!
//! ```text
//!   control thread                          one core
//!   class, geom  -- orders (shared.rs) -->  host: opens the volume, listens, answers verbs
//!        ^                                    |
//!        +---- answers, how it is ------------+
//!
//!   Opening --> Serving --> Halting --> Halted
//!      |           |  (another server takes the WORM)
//!      +-------> Refused: its error has the reason and the command; `fs start` tries again
//! ```
//!
//! Invariants
//!  F1  A file server that is taken away, or whose daemon ends in order, has made everything
//!      durable before its devices are released.
//!  F2  The control thread waits for a file server only while it is taken away or its section is
//!      edited, and then with a deadline. Other work that takes longer is requested again.
//!  F3  Nothing is written to a device that holds something, but by `ream --force`.

mod cache_size;
mod cec;
mod class;
mod clock;
mod copies;
mod disks;
mod edit;
mod fault_hints;
mod file_disks;
mod geom;
mod host;
mod leaves;
mod listen;
mod measures;
mod params;
mod rates;
mod readers;
mod shared;
mod tls;
mod volume_history;

pub use class::{FS_CLASS, FsClass, Site};
pub(crate) use host::{Host, format_time, today};
pub(crate) use rates::Rate;
pub use readers::{FileServers, OpenFile};
pub(crate) use shared::Phase;
pub use volume_history::{NoHistory, VolumeHistory};
