//! NVMe over TCP (NVMe base 2.0, NVMe/TCP transport 1.0, NVM command set 1.0).
//!
//! | file | holds |
//! | --- | --- |
//! | `params` | the parameters of a target |
//! | `protocol` | NVMe/TCP as a protocol of the connection framework |
//! | `controllers` | targets and controllers, over all cores |
//! | `controller` | an association: a host's admin queue and its I/O queues, on any cores |
//! | `pdu_reader` | reads PDUs from the receive buffer |
//! | `connect` | how a connection begins: digests, Connect |
//! | `receive` | PDUs of a queue |
//! | `queue` | a queue: its commands at the engine, and their results |
//! | `tasks` | the commands of a queue |
//! | `io` | I/O commands as SCSI commands |
//! | `data` | write data: requested, received |
//! | `answer` | completions and data for the host |
//! | `admin` | admin commands: `identify`, `logs`, `features`, `events` |
//! | `discovery` | which subsystems a host may connect to |
//! | `close_reason` | close reasons |
//!
//! A translator. A target is a subsystem, a queue is a session of the engine, an I/O command
//! becomes SCSI commands, and their ends its completion. Namespace n + 1 is LUN n of the host's
//! group. So groups, reservations of others, write protection, statistics and lists are those of
//! the engine. The initiator's name is the host's NQN.
//!
//! Not supported, and not claimed: TLS, authentication (DH-HMAC-CHAP), ANA, reservations of NVMe's
//! own, fused commands, metadata, zones, copies, management of namespaces.

mod admin;
mod answer;
mod close_reason;
mod connect;
mod controller;
mod controllers;
mod data;
mod discovery;
mod events;
mod features;
mod identify;
mod io;
mod logs;
mod params;
mod pdu_reader;
mod protocol;
mod queue;
mod receive;
mod tasks;

use std::rc::Rc;
use std::sync::Arc;

use engine::{Engine, Registry};
use wire::pattern::Naming;

use crate::stream_target::StreamTarget;
use crate::targets::Targets;
use params::Checked;
use protocol::{NvmeTcpGlobal, NvmeTcpProtocol};

/// Firmware revision. Its field has eight characters, so that a version before a release has the
/// revision of the release.
const FIRMWARE: &str = concat!(
    env!("CARGO_PKG_VERSION_MAJOR"),
    ".",
    env!("CARGO_PKG_VERSION_MINOR"),
    ".",
    env!("CARGO_PKG_VERSION_PATCH")
);
const _: () = assert!(FIRMWARE.len() <= 8);

pub use crate::block_requests::TRIES_MAX;
pub use data::HOST_DATA_MAX;
pub use io::TRANSFER_MAX;
pub use params::NvmeTcpParams;
pub use tasks::DEPTH;
pub use transport::CONNECTIONS_MAX;

pub const NAME: &str = "nvme_tcp";

/// The driver.
pub struct NvmeTcp {
    shared: Arc<NvmeTcpGlobal>,
}

impl NvmeTcp {
    /// Without targets.
    pub fn new(registry: Arc<Registry>) -> NvmeTcp {
        NvmeTcp { shared: protocol::share(registry) }
    }
}

impl StreamTarget for NvmeTcp {
    type Protocol = NvmeTcpProtocol;
    type Target = Checked;
    const DOC: &'static str = "NVMe over TCP: a target is a subsystem, its LUNs are namespaces.";
    const NAMING: Naming = Naming::Plain;

    fn shared(&self) -> &Arc<NvmeTcpGlobal> {
        &self.shared
    }

    fn targets(&self) -> &Targets<Checked> {
        &self.shared.own.targets
    }

    fn per_core(engine: &Rc<Engine>) -> Rc<Engine> {
        engine.clone()
    }
}
