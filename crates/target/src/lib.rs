//! The target engine: what stands between a transport and the graph.
//!
//! * [`Registry`]: targets, access groups, logical units, sessions of the daemon. [`access`] says
//!   who may see what: nobody, unless a group says so.
//! * [`Engine`]: one a core. [`Session`]: one initiator port at one target port; commands go in by
//!   [`Session::command`] and come back by [`Transport::respond`].
//! * [`handlers`]: what executes the commands of a kind of unit; [`handlers::disk`] is a disk.
//! * [`lun`]: the plug in the graph that holds a provider open for a unit.
//!
//! ```text
//!   transport --command(LUN, CDB)--> path (I_T_L nexus) --> unit attention? --> handler.plan()
//!             <---- Next::Data ------                                              |
//!             ----- data() --------> order (attributes) --> memory --> blocks | now | task
//!             <---- respond() -------------------------------------------------- answer
//! ```
//! A transport never interprets a CDB, and a handler never sees a session.
#![forbid(unsafe_code)]

pub mod access;
pub mod alua;
mod attention;
mod command;
mod commands;
mod condition;
mod contingent;
mod copy;
mod device;
mod engine;
mod execute;
mod finish;
mod flow;
pub mod freeing;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod gate;
pub mod handlers;
pub mod ids;
mod knee;
mod load;
pub mod lun;
mod memory;
mod order;
mod origin;
mod paths;
mod price;
mod protection;
pub mod registry;
pub mod reserve;
mod seat;
mod session;
pub mod space;
mod spec;
mod status;
mod strict;
mod tally;
mod tm;
mod transport;
mod turns;
pub mod vault;

pub use attention::{ATTENTIONS_MAX, Nexus, Port, flags};
pub use command::{Command, CommandState, Next, TaskAttribute};
pub use condition::{Condition, MediumState, TrayError};
pub use device::{Device, ModeBits};
pub use engine::{Engine, Message};
pub use handlers::disk::{naa, unmap_limits};
pub use load::FlowView;
pub use memory::{Eater, PATIENCE_NS, Part};
pub use order::Span;
pub use protection::{MAGIC as PROTECTION_MAGIC, ProtectionSpec};
pub use registry::{
    Account, GroupSpec, LunChange, LunSpec, Proof, Proofs, Registry, TargetPort, Teller,
};
pub use session::{Path, Session};
pub use spec::{DeviceSpec, Label, SERIAL_MAX};
pub use status::{Ending, ending_of};
pub use strict::Guard;
pub use tm::AbortOrder;
pub use transport::{
    CloseReason, DataError, Login, Refused, RefusedWhy, Residual, Response, TmFunction, TmOutcome,
    Transport,
};
pub use turns::WINDOW_MIN;
