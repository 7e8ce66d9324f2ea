//! iSCSI (RFC 7143, with the task management functions of RFC 7144).
//!
//! | file | holds |
//! | --- | --- |
//! | `params` | the parameters of a target |
//! | `protocol` | iSCSI as a protocol of the connection framework |
//! | `session_owners` | owners of session keys and TSIHs |
//! | `pdu_reader` | reads PDUs from the receive buffer |
//! | `login` | the login phase |
//! | `session` | numbers, windows, answers: the engine's transport |
//! | `receive` | requests of the full feature phase |
//! | `tasks`, `data` | commands with write data that are not answered yet, and the data |
//! | `buffer_wait` | memory for write data when buffers are scarce |
//! | `text`, `discovery` | text requests, SendTargets |
//! | `task`, `nop`, `logout`, `reject` | the short PDUs |
//! | `close_reason` | close reasons |
//!
//! One session has one connection and the error recovery level is 0: multipath above gives what
//! several connections would, with fewer faults.

mod buffer_wait;
mod close_reason;
mod data;
mod discovery;
mod login;
mod logout;
mod nop;
mod params;
mod pdu_reader;
mod protocol;
mod receive;
mod reject;
mod session;
mod session_owners;
mod task;
mod tasks;
mod text;

use std::rc::Rc;
use std::sync::Arc;

use engine::{Engine, Registry};
use wire::pattern::Naming;

use crate::stream_target::StreamTarget;
use crate::targets::Targets;
use params::Checked;
use protocol::{CoreState, IscsiGlobal, IscsiProtocol};

pub use params::IscsiParams;
pub use transport::{BACKLOG_MAX, CONNECTIONS_MAX, HANDSHAKES_MAX as LOGINS_MAX, SEND_TIMEOUT_NS};

pub const NAME: &str = "iscsi";

/// The driver.
pub struct Iscsi {
    shared: Arc<IscsiGlobal>,
}

impl Iscsi {
    /// Without targets.
    pub fn new(registry: Arc<Registry>) -> Iscsi {
        Iscsi::with_connections_max(registry, CONNECTIONS_MAX)
    }

    /// With another limit than [`CONNECTIONS_MAX`] on the connections of a core.
    pub fn with_connections_max(registry: Arc<Registry>, connections_max: usize) -> Iscsi {
        Iscsi { shared: protocol::share(registry, connections_max, 0) }
    }

    /// As [`Iscsi::new`], with another StatSN than 0 for the first answer on each connection: the
    /// wrap of the numbers is near when it is wanted.
    pub fn with_first_stat_sn(registry: Arc<Registry>, first_stat_sn: u32) -> Iscsi {
        Iscsi { shared: protocol::share(registry, CONNECTIONS_MAX, first_stat_sn) }
    }
}

impl StreamTarget for Iscsi {
    type Protocol = IscsiProtocol;
    type Target = Checked;
    const DOC: &'static str =
        "iSCSI over TCP (RFC 7143), one connection a session, CHAP, CRC32C digests.";
    const NAMING: Naming = Naming::Iscsi;

    fn shared(&self) -> &Arc<IscsiGlobal> {
        &self.shared
    }

    fn targets(&self) -> &Targets<Checked> {
        &self.shared.own.targets
    }

    fn per_core(engine: &Rc<Engine>) -> CoreState {
        CoreState::new(engine)
    }

    fn normal_name(name: &str) -> String {
        wire::iscsi::normalise_name(name).unwrap_or_else(|_| name.to_owned())
    }
}
