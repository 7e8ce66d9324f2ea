//! The SCSI target engine: between a transport and the graph.
//!
//! ```text
//!   transport --command(LUN, CDB)--> path (I_T_L nexus) --> unit attention? --> handler.plan()
//!             <---- Next::Data ------                                              |
//!             ----- data() --------> task set (order) --> buffers --> blocks | now | task
//!             <---- respond() -------------------------------------------------- answer
//! ```
//! A transport never interprets a CDB, and a handler never sees a session. In reading order:
//!
//! * [`registry`]: targets, access groups, logical units and sessions of the daemon;
//!   [`registry::access`] decides what an initiator sees: nothing, unless a group grants it.
//! * `nexus`: one [`Engine`] a core, with its sessions and its memory; a [`ItNexus`] is one
//!   initiator port at one target port; its paths and [`Transport`].
//! * `command`: the life of a command, from [`ItNexus::command`] to [`Transport::respond`]; `spc`
//!   has the commands that every kind of unit answers alike.
//! * `task`: the states, attributes and order of tasks as values.
//! * `task_set`: order across cores, ACA, task management.
//! * `load`: the measured load of a unit, and the limit and the costs that follow from it.
//! * `qos`: which requests of which nexus a busy unit gets.
//! * `unit`: a logical unit, its state and its nexuses with their unit attentions ([`ItlNexus`]).
//! * [`handlers`]: what executes the commands of a kind of unit; [`handlers::disk`] is a disk.
//! * `job`: the conversation of a command with its medium.
//! * [`lun`] holds a provider of the graph open for a unit.
//! * `copy`: EXTENDED COPY and offloaded data transfer. [`reservations`], [`state_store`].
//!
//! `tidy` lists the imports that are allowed between these modules.
#![forbid(unsafe_code)]

mod close_reason;
mod command;
mod copy;
pub mod flags;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod gate;
pub mod handlers;
mod job;
mod load;
pub mod lun;
mod nexus;
mod plan;
mod qos;
pub mod registry;
pub mod reservations;
pub mod state_store;
mod status;
mod task;
mod task_set;
mod unit;

pub use command::admission::WINDOW_MIN;
pub use handlers::disk::unmap_limits;
pub use load::FlowView;
pub use nexus::buffers::{MEMORY_WAIT_NS, MemoryWaiter, PartialGrant};
pub use nexus::engine::Engine;
pub use nexus::transport::{
    Command, DataError, Login, Next, RefusalReason, Refused, Residual, Response, TmFunction,
    TmOutcome, Transport,
};
pub use nexus::{ItNexus, Path};
pub use registry::access;
pub use registry::{
    Account, ChapAccounts, CloseReason, GroupAuth, GroupSpec, LunChange, LunSpec, OperatorNotifier,
    Registry, TargetPort,
};
pub use status::{Ending, ending_of};
pub use task::set::Span;
pub use task::{CommandState, DEPTH_MAX, TaskAttribute};
pub use task_set::cross_core::BlockClaim;
pub use unit::kind::UnitKind;
pub use unit::medium_state::{Condition, MediumState, TrayError};
pub use unit::message::{AbortOrder, Message};
pub use unit::protection::{
    MAGIC as PROTECTION_MAGIC, ProtectionSpec, header_offset as protection_header_offset,
};
pub use unit::spec::{DeviceSpec, Label};
pub use unit::unit_attention::{ATTENTIONS_MAX, ItlNexus, Port};
pub use unit::unit_reservations::UnitReservations;
pub use unit::{Device, ModeBits, TRANSFER_MAX, alua, ids, provisioning, space};
