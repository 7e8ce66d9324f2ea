#![forbid(unsafe_code)]
//! The daemon: the combination of all crates below that `ashlar serve` runs.
//!
//! One control thread owns the graph ([`geom::GraphControl`]), the exports and the drivers; one
//! thread a core does the work. [`Daemon`] is the handle that the control path holds: it
//! implements [`mgmt::Plant`] by asking the control thread.
//!
//! ```text
//!   HTTP handlers --ask--> mailbox --> control thread --messages--> cores
//!        ^                              |
//!        +-------- answers -------------+   state() is answered while a change is under way, too
//! ```

mod attach;
mod buses;
mod catalog;
mod control_loop;
mod cycle_check;
mod errors;
mod exports;
pub mod fail_stop;
mod file_service;
mod geom_layouts;
mod identities;
mod identity;
mod images;
mod initiator;
mod insert_layer;
mod journal;
mod last_sizes;
mod listing;
mod mailbox;
mod media;
mod medium_index;
mod metrics_listener;
mod openings;
mod overrides;
mod own_work;
mod path_checks;
mod path_watch;
mod persistent_names;
mod plant;
mod reattach;
pub mod sandbox;
mod served_volumes;
mod startup_wait;
mod state;
mod state_store;
mod traces;
mod verbs;
mod within;

pub use catalog::{catalog, class_verbs, class_verbs_of};
pub use plant::Daemon;
