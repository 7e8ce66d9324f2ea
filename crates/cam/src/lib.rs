//! CAM: disks that are reached by commands, whatever carries the commands.
//!
//! * [`Ccb`], [`Outcome`]: what is asked of a device and what came of it, in CAM's numbers.
//! * [`Device`]: one device's queue, without I/O: openings, freezes, priorities, order, deadlines.
//! * [`recovery`]: the tables that say what is done about everything that goes wrong.
//! * [`probe`]: what a device says of itself, asked step by step, and why one cannot be used.
//!
//! A device is reached through its own state alone: nothing is shared by the devices of a bus.

#![forbid(unsafe_code)]

mod address;
mod ccb;
mod device;
mod events;
mod freeze;
pub mod probe;
pub mod recovery;

pub use address::{ANY, Path};
pub use ccb::{
    CDB_LEN_MAX, CamStatus, Ccb, CcbId, Command, Ended, Flags, Function, Outcome, Owner, Priority,
    Registers, SenseData, Tag,
};
pub use device::{
    ABORT_GRACE_NS, Counts, Device, Effect, RAISE_AFTER, READY_POLL_NS, READY_POLLS_MAX,
    REQUEUES_MAX, RESET_GRACE_NS, STARTS_MAX, Shape,
};
pub use events::Event;
pub use freeze::{Freeze, Freezes};
