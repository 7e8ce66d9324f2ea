//! NBD: the network block device protocol over TCP and Unix sockets, with TLS.
//!
//! | file | holds |
//! | --- | --- |
//! | `params` | the parameters of a target |
//! | `file` | owner, group and mode of the file of a Unix socket |
//! | `protocol` | NBD as a protocol of the connection framework |
//! | `kernel` | connections of this machine's kernel, without handshake |
//! | `handshake` | the client's name, the exports, and TLS |
//! | `exports` | names of units, and their description for clients |
//! | `session` | the front of `block_requests`: requests as commands |
//! | `receive` | requests of the transmission phase |
//! | `unaligned` | requests that do not begin and end with blocks |
//! | `answer` | replies |
//! | `close_reason` | close reasons |
//!
//! A translator: a connection is a session of the engine like any initiator's, a request becomes
//! SCSI commands, and their answers become its reply. So groups, reservations, unit attentions,
//! statistics and lists are those of the engine. The initiator is called `tls:NAME` after its
//! certificate, else `ip:ADDRESS`, or `unix:uid=N`.

mod answer;
mod close_reason;
mod exports;
mod file;
mod handshake;
pub(crate) mod kernel;
mod params;
pub(crate) mod protocol;
mod receive;
mod session;
mod unaligned;

use std::rc::Rc;
use std::sync::Arc;

use engine::{Engine, Registry};
use geom::Error;
use wire::pattern::Naming;

use crate::stream_target::StreamTarget;
use crate::targets::Targets;
use params::Checked;
use protocol::{NbdGlobal, NbdProtocol};

pub use crate::block_requests::TRIES_MAX;
pub use exports::PAYLOAD_MAX;
pub use params::{NbdParams, TlsPolicy};
pub use transport::{BACKLOG_MAX, CONNECTIONS_MAX, HANDSHAKES_MAX, SEND_TIMEOUT_NS};

pub const NAME: &str = "nbd";

/// The driver.
pub struct Nbd {
    shared: Arc<NbdGlobal>,
}

impl Nbd {
    /// Without targets.
    pub fn new(registry: Arc<Registry>) -> Nbd {
        Nbd::with_connections_max(registry, CONNECTIONS_MAX)
    }

    /// With another limit than [`CONNECTIONS_MAX`] on the connections of a core.
    pub fn with_connections_max(registry: Arc<Registry>, connections_max: usize) -> Nbd {
        Nbd { shared: protocol::share(registry, connections_max) }
    }
}

impl StreamTarget for Nbd {
    type Protocol = NbdProtocol;
    type Target = Checked;
    const DOC: &'static str =
        "NBD over TCP and Unix sockets: structured replies, extended headers, TLS.";
    const NAMING: Naming = Naming::Address;
    const HAS_UNIT_NAMES: bool = true;
    const EDITS: &'static [(&'static str, &'static str)] =
        &[("socket_owner", "live"), ("socket_group", "live"), ("socket_mode", "live")];

    fn shared(&self) -> &Arc<NbdGlobal> {
        &self.shared
    }

    fn targets(&self) -> &Targets<Checked> {
        &self.shared.own.targets
    }

    fn per_core(engine: &Rc<Engine>) -> Rc<Engine> {
        engine.clone()
    }

    fn target_set(&self, target: &Checked) -> Result<(), Error> {
        let changed = |path: &_| target.file.apply(path);
        let changed = self.shared.unix_sockets.change_files(&target.spec.listen, changed);
        changed.map_err(|e| Error::inval(format!("nbd target {}: {e}", target.spec.name)))
    }
}
