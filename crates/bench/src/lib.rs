#![forbid(unsafe_code)]
//! Repeatable measurements, and the demo: `ashlar-bench` and `make bench`.
//!
//! * [`run`] measures what [`Options`] name and returns a [`Report`]: rows with our figure, the
//!   peer's, the ratio of both, the goal, and the command that repeats the row alone.
//! * [`layers`]: the cost of a layer of the graph for a Bio.
//! * [`load`]: an iSCSI initiator that makes load and, on request, verifies data.
//! * [`man`]: the manual page, `ashlar-bench(1)`.
//! * Servers are children of this process, pinned to one core; the load runs on another. They are
//!   measured from outside ([`process_costs`]): Ashlar and its peers alike, with the same
//!   instruments.

mod aoe;
mod bare;
mod bed;
mod busy_core;
mod classes;
mod cores;
mod cpu_affinity;
pub mod demo;
mod error;
mod files;
mod idle;
mod initiator;
mod inproc;
mod iscsi;
mod iscsi_initiator;
mod kernel;
mod layers;
pub mod load;
mod luns;
pub mod man;
mod nbd;
mod operate;
mod options;
pub mod process_costs;
mod progress;
mod report;
mod run;
mod seeds;
pub mod servers;
mod settings;
mod turns;

pub use error::{Error, Kind};
pub use iscsi::{CASES, Case, Goals, Store};
pub use layers::{LayerRow, layers};
pub use options::{Measurement, Options, Peer, Seed};
pub use progress::{Progress, stop, stopped};
pub use report::{Goal, Of, Report, Row};
pub use run::run;
