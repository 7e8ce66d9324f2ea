//! NVMe over TCP (NVMe base 2.0, NVMe/TCP transport 1.0, NVM command set 1.0).
//!
//! | file | holds |
//! | --- | --- |
//! | `params` | the parameters of a target |
//! | `shared`, `here` | what all cores share; the driver on one core |
//! | `controller` | an association: a host's admin queue and its I/O queues, on any cores |
//! | `portal` | listening and accepting |
//! | `connection` | one connection, which is one queue: its task, its end |
//! | `inlet` | PDUs out of what has arrived |
//! | `connect` | how a connection begins: digests, Connect |
//! | `receive` | PDUs of a queue |
//! | `queue` | a queue: its commands at the engine, and what comes back |
//! | `tasks` | the commands of a queue |
//! | `io` | I/O commands as SCSI commands |
//! | `data` | write data: asked for, received |
//! | `answer` | completions and data for the host |
//! | `admin` | admin commands: `identify`, `logs`, `features`, `events` |
//! | `discovery` | which subsystems a host may connect to |
//! | `ending` | why a connection ends |
//!
//! A translator: a target is a subsystem, a queue is a session of the engine, an I/O command
//! becomes SCSI commands, and their ends its completion. LUN n of the host's group is namespace
//! n + 1. So groups, reservations of others, write protection, statistics and lists are those of
//! the engine. The initiator's name is the host's NQN.
//!
//! What is not there, and is not claimed: TLS, authentication (DH-HMAC-CHAP), ANA, reservations of
//! NVMe's own, fused commands, metadata, zones, copies, management of namespaces.

mod admin;
mod answer;
mod connect;
mod connection;
mod controller;
mod data;
mod discovery;
mod ending;
mod events;
mod features;
mod here;
mod identify;
mod inlet;
mod io;
mod logs;
mod params;
mod portal;
mod queue;
mod receive;
mod shared;
mod tasks;

use std::io as system;
use std::rc::Rc;
use std::sync::Arc;

use engine::{Engine, Registry};
use geom::{Error, Local};
use reactor::Address;

use crate::driver::{Driver, TargetSpec};
use here::Here;
use params::Checked;
use shared::Shared;

pub use crate::blocks::TRIES_MAX;
pub use crate::common::hall::CONNECTIONS_MAX;
pub use data::HOST_DATA_MAX;
pub use io::TRANSFER_MAX;
pub use params::NvmeTcpParams;
pub use tasks::DEPTH;

/// Name of the driver.
pub const NAME: &str = "nvme_tcp";

/// The driver.
pub struct NvmeTcp {
    shared: Arc<Shared>,
}

impl NvmeTcp {
    /// Without targets.
    pub fn new(registry: Arc<Registry>) -> NvmeTcp {
        NvmeTcp { shared: Shared::new(registry) }
    }
}

impl Driver for NvmeTcp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn doc(&self) -> &'static str {
        "NVMe over TCP: a target is a subsystem, its LUNs are namespaces."
    }

    fn schema(&self) -> serde_json::Value {
        params::schema()
    }

    fn check_target(&self, spec: TargetSpec) -> Result<(), Error> {
        Checked::new(spec).map(drop)
    }

    fn set_target(&self, spec: TargetSpec) -> Result<(), Error> {
        self.shared.targets.set(Checked::new(spec)?).map(drop)
    }

    fn remove_target(&self, name: &str) {
        self.shared.targets.remove(name);
    }

    fn install(self: Arc<Self>, engine: &Rc<Engine>) {
        Here::install(&self.shared, engine);
    }

    fn open_portal(
        self: Arc<Self>,
        engine: Rc<Engine>,
        at: Address,
    ) -> Local<'static, system::Result<Address>> {
        Box::pin(async move {
            let not_here = "nvme_tcp was not installed on this core";
            let here = Here::find(&self.shared, &engine).ok_or(system::Error::other(not_here))?;
            portal::open(&here, at)
        })
    }

    fn close_portal(&self, engine: &Rc<Engine>, at: Address) {
        if let Some(here) = Here::find(&self.shared, engine) {
            here.hall.close_portal(&at);
        }
    }
}
