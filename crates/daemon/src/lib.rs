#![forbid(unsafe_code)]
//! The rooms below, put together: what `ashlar serve` runs.
//!
//! One control thread owns the graph ([`geom::Control`]), the exports and the drivers; one thread
//! a core does the work. [`Daemon`] is the handle that the control path holds: it implements
//! [`control::Plant`] by asking the control thread.
//!
//! ```text
//!   HTTP handlers --ask--> desk --> control thread (room) --messages--> cores
//!        ^                              |
//!        +-------- answers -------------+   state() is answered also while a change is going on
//! ```

mod arrival;
mod attach;
mod buses;
mod by_hand;
mod catalog;
mod desk;
mod ends;
mod errors;
mod exports;
pub mod fail_stop;
mod identities;
mod identity;
mod initiator;
mod journal;
mod lists;
mod loops;
mod made;
mod names;
mod places;
mod plant;
mod returns;
mod room;
mod shim;
mod state;
mod vault;
mod wholes;

pub use catalog::{catalog, class_verbs};
pub use plant::Daemon;
