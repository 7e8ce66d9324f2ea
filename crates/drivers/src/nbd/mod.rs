//! NBD: the network block device protocol over TCP and Unix sockets, with TLS.
//!
//! | file | holds |
//! | --- | --- |
//! | `params` | the parameters of a target |
//! | `shared`, `here` | what all cores share; the driver on one core |
//! | `file` | owner, group and mode of the file of a Unix socket |
//! | `portal` | listening and accepting |
//! | `connection` | one connection: its tasks, its end |
//! | `inlet` | where its bytes come from and go to, with TLS or without |
//! | `tls` | encryption, and whose certificate it is |
//! | `direct` | connections of this machine's kernel, without handshake |
//! | `door` | the handshake: who comes, which exports there are |
//! | `exports` | names of units, and what clients are told about one |
//! | `session` | the front of `blocks`: requests as commands |
//! | `receive` | what arrives in transmission |
//! | `unaligned` | requests that do not begin and end with blocks |
//! | `answer` | replies |
//! | `ending` | why a connection ends |
//!
//! A translator: a connection is a session of the engine like any initiator's, a request becomes
//! SCSI commands, and their answers become its reply. So groups, reservations, unit attentions,
//! statistics and lists are those of the engine. The initiator is called `tls:NAME` after its
//! certificate, else `ip:ADDRESS`, or `unix:uid=N`.

mod answer;
mod connection;
pub(crate) mod direct;
mod door;
mod ending;
mod exports;
mod file;
pub(crate) mod here;
mod inlet;
mod params;
mod portal;
mod receive;
mod session;
pub(crate) mod shared;
mod tls;
mod unaligned;

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

pub use crate::blocks::TRIES_MAX;
pub use crate::common::hall::{CONNECTIONS_MAX, ENTRIES_MAX as HANDSHAKES_MAX};
pub use crate::common::pump::{BACKLOG_MAX, SEND_PATIENCE_NS};
pub use exports::PAYLOAD_MAX;
pub use params::{NbdParams, TlsPolicy};

/// Name of the driver.
pub const NAME: &str = "nbd";

/// The driver.
pub struct Nbd {
    shared: Arc<Shared>,
}

impl Nbd {
    /// Without targets.
    pub fn new(registry: Arc<Registry>) -> Nbd {
        Nbd::with_connections_max(registry, CONNECTIONS_MAX)
    }

    /// With another limit than [`CONNECTIONS_MAX`] on the connections of a core.
    pub fn with_connections_max(registry: Arc<Registry>, connections_max: usize) -> Nbd {
        Nbd { shared: Shared::new(registry, connections_max) }
    }
}

impl Driver for Nbd {
    fn name(&self) -> &'static str {
        NAME
    }

    fn doc(&self) -> &'static str {
        "NBD over TCP and Unix sockets: structured replies, extended headers, TLS."
    }

    fn schema(&self) -> serde_json::Value {
        params::schema()
    }

    fn check_target(&self, spec: TargetSpec) -> Result<(), Error> {
        Checked::new(spec).map(drop)
    }

    fn set_target(&self, spec: TargetSpec) -> Result<(), Error> {
        let checked = Checked::new(spec)?;
        let (name, listen) = (checked.spec.name.clone(), checked.spec.listen.clone());
        let file = checked.file;
        self.shared.targets.set(checked)?;
        self.shared
            .change_files(&listen, &file)
            .map_err(|e| Error::inval(format!("nbd target {name}: {e}")))
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
    ) -> Local<'static, io::Result<Address>> {
        Box::pin(async move {
            let not_here = "nbd was not installed on this core";
            let here = Here::find(&self.shared, &engine).ok_or(io::Error::other(not_here))?;
            portal::open(&here, at)
        })
    }

    fn close_portal(&self, engine: &Rc<Engine>, at: Address) {
        if let Some(here) = Here::find(&self.shared, engine) {
            here.close_portal(&at);
        }
    }
}
