//! CAM: disks that are reached by commands over any transport.
//!
//! ```text
//!   Bio --> periph (da, ada): a request becomes a CCB       probe: identification of a device
//!              |                                               |
//!            Unit: a device among cores --- Device: its queue, without I/O --- recovery: tables
//!              |                                               freeze, events
//!            Sim: the driver of a bus (sims/)
//!   Bus: which devices there are                            class: disks in the graph
//! ```
//!
//! A device is reached through its own state alone. Nothing is shared by the devices of a bus, and
//! a request's data never leave its core.

#![forbid(unsafe_code)]

mod address;
mod bus;
mod ccb;
mod class;
mod device;
mod events;
mod freeze;
mod kind;
mod periph;
pub mod probe;
pub mod recovery;
mod reset;
mod sim;
pub mod sims;
mod unit;
mod verbs;
mod wired_names;

pub use address::{ANY, Path};
pub use bus::{Bounds, Bus, Change, LastError, Names, PHYSPATH, Rescan};
pub use ccb::{
    CDB_LEN_MAX, CamStatus, Ccb, CcbId, Command, Ended, Flags, Function, Outcome, Owner, Priority,
    Refused, Registers, SenseData, Tag,
};
pub use class::{CAM_CLASS, CAM_DOC, CamClass, UpdateResult};
pub use device::{
    ABORT_GRACE_NS, Counts, Device, Effect, Failure, Queueing, RAISE_AFTER, READY_POLL_NS,
    READY_POLLS_MAX, REQUEUES_MAX, RESET_GRACE_NS, ResetId, SETTLE_NS, SILENCE_NS, STARTS_MAX,
    Shape,
};
pub use events::Event;
pub use freeze::{Freeze, Freezes};
pub use kind::{Open, SimKind, Site};
pub use periph::{Facts, RW_TIMEOUT_MS};
pub use reset::UnitReset;
pub use sim::{Begun, Signature, Sim, SimFacts};
pub use unit::{Listener, Unit};
pub use verbs::AttachAnswer;
pub use wired_names::{Holder, WiredNames};
