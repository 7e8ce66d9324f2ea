//! iSCSI (RFC 7143, with the task management functions of RFC 7144).
//!
//! | file | holds |
//! | --- | --- |
//! | `params` | the parameters of a target |
//! | `shared`, `here` | what all cores share; the driver on one core |
//! | `portal` | listening and accepting |
//! | `connection` | one TCP connection: its tasks, its end |
//! | `inlet` | PDUs out of bytes that came |
//! | `login` | the login phase |
//! | `session` | numbers, windows, answers: the engine's transport |
//! | `receive` | what arrives in the full feature phase |
//! | `tasks`, `data` | commands that are not answered yet, and their write data |
//! | `scarce` | write data when buffers are few |
//! | `text`, `discovery` | text requests, SendTargets |
//! | `task`, `nop`, `logout`, `reject` | the short PDUs |
//! | `ending` | why a connection ends |
//!
//! One session has one connection and the error recovery level is 0: multipath above gives what
//! several connections would, with less to go wrong.

mod connection;
mod data;
mod discovery;
mod ending;
mod here;
mod inlet;
mod login;
mod logout;
mod nop;
mod params;
mod portal;
mod receive;
mod reject;
mod scarce;
mod session;
mod shared;
mod task;
mod tasks;
mod text;

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use engine::{Engine, Registry};
use geom::{Error, Local};
use reactor::Address;

use crate::driver::{Driver, TargetSpec};
use here::Here;
use params::Checked;
use shared::Shared;

pub use crate::common::hall::{CONNECTIONS_MAX, ENTRIES_MAX as LOGINS_MAX};
pub use crate::common::pump::{BACKLOG_MAX, SEND_PATIENCE_NS};
pub use params::IscsiParams;

/// Name of the driver.
pub const NAME: &str = "iscsi";

/// The driver.
pub struct Iscsi {
    shared: Arc<Shared>,
}

impl Iscsi {
    /// Without targets.
    pub fn new(registry: Arc<Registry>) -> Iscsi {
        Iscsi::with_connections_max(registry, CONNECTIONS_MAX)
    }

    /// With another limit than [`CONNECTIONS_MAX`] on the connections of a core.
    pub fn with_connections_max(registry: Arc<Registry>, connections_max: usize) -> Iscsi {
        Iscsi { shared: Shared::new(registry, connections_max, 0) }
    }

    /// As [`Iscsi::new`], with another StatSN than 0 for the first answer on each connection: the
    /// wrap of the numbers is near when it is wanted.
    pub fn with_first_stat_sn(registry: Arc<Registry>, first_stat_sn: u32) -> Iscsi {
        Iscsi { shared: Shared::new(registry, CONNECTIONS_MAX, first_stat_sn) }
    }
}

impl Driver for Iscsi {
    fn name(&self) -> &'static str {
        NAME
    }

    fn doc(&self) -> &'static str {
        "iSCSI over TCP (RFC 7143), one connection a session, CHAP, CRC32C digests."
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
        let normal = wire::iscsi::normalise_name(name).unwrap_or_else(|_| name.to_string());
        self.shared.targets.remove(&normal);
    }

    fn install(self: Arc<Self>, engine: &Rc<Engine>) {
        Here::install(&self.shared, engine);
    }

    fn open_portal(
        self: Arc<Self>,
        engine: Rc<Engine>,
        at: Address,
    ) -> Local<'static, io::Result<Address>> {
        Box::pin(async move {
            let not_here = "iscsi was not installed on this core";
            let here = Here::find(&self.shared, &engine).ok_or(io::Error::other(not_here))?;
            let tcp_only = "iSCSI listens at TCP addresses only";
            let at = at.inet().ok_or(io::Error::other(tcp_only))?;
            portal::open(&here, at)
        })
    }

    fn close_portal(&self, engine: &Rc<Engine>, at: Address) {
        if let Some(here) = Here::find(&self.shared, engine) {
            here.close_portal(&at);
        }
    }
}
