#![forbid(unsafe_code)]
//! The daemon: the combination of all crates below that `ashlar serve` runs.
//!
//! One control thread owns the graph ([`geom::Control`]), the exports and the drivers; one thread
//! a core does the work. [`Daemon`] is the handle that the control path holds: it implements
//! [`control::Plant`] by asking the control thread.
//!
//! ```text
//!   HTTP handlers --ask--> mailbox --> control thread (room) --messages--> cores
//!        ^                              |
//!        +-------- answers -------------+   state() is answered also while a change is going on
//! ```

mod attach;
mod buses;
mod catalog;
mod control_loop;
mod cycle_check;
mod errors;
mod exports;
pub mod fail_stop;
mod identities;
mod identity;
mod images;
mod initiator;
mod insert_layer;
mod journal;
mod last_sizes;
mod listing;
mod made;
mod mailbox;
mod overrides;
mod persistent_names;
mod places;
mod plant;
mod reattach;
mod startup_wait;
mod state;
mod vault;
mod wholes;

pub use catalog::{catalog, class_verbs};
pub use plant::Daemon;
