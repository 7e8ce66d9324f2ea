//! NBD as a protocol of the connection framework.

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use bio::Pool;
use engine::{Engine, Registry};
use reactor::Address;
use transport::{LogFn, PEER_CONNECTIONS_MAX, Protocol, ReceiveBuffer, TaskNames};

use super::close_reason::CloseReason;
use super::params::{Checked, NbdParams};
use super::session::NbdSession;
use super::{handshake, receive};
use crate::log_fn::log_fn;
use crate::targets::Targets;

/// See the module.
pub(crate) struct NbdProtocol;

pub(crate) type Connection = transport::Connection<NbdProtocol>;

pub(crate) type PerCore = transport::PerCore<NbdProtocol>;

/// State that all cores share.
pub(crate) type NbdGlobal = transport::GlobalState<NbdProtocol>;

/// NBD's part of [`Shared`].
pub(crate) struct Exporter {
    pub registry: Arc<Registry>,
    pub targets: Targets<Checked>,
}

/// NBD's part of a connection.
#[derive(Default)]
pub(crate) struct NbdConnState {
    /// For write data, where that is not the engine's: of a client on which other memory depends.
    pub data: Option<Pool>,
    /// Reads no further request; ends when all requests are answered.
    retiring: Cell<bool>,
    /// Bytes of memory for write data that has not arrived completely.
    pub gathering: Cell<usize>,
}

impl NbdConnState {
    /// For a connection with memory of its own.
    pub fn with_pool(data: Pool) -> NbdConnState {
        NbdConnState { data: Some(data), ..NbdConnState::default() }
    }

    /// See [`retire`].
    pub fn is_retiring(&self) -> bool {
        self.retiring.get()
    }
}

/// The state of a driver without targets.
pub(crate) fn share(registry: Arc<Registry>, connections_max: usize) -> Arc<NbdGlobal> {
    NbdGlobal::new(Exporter { registry, targets: Targets::default() }, connections_max)
}

/// Makes a connection read no further request, answer those that were read, and end.
pub(crate) fn retire(conn: &Connection) {
    conn.own.retiring.set(true);
    conn.io.wake();
}

impl Protocol for NbdProtocol {
    const TASKS: TaskNames = TaskNames {
        portal: "nbd portal",
        connection: "nbd connection",
        watch: "nbd watch",
        messages: None,
    };
    const WARN: LogFn = log_fn!(warn, "nbd");
    const INFO: LogFn = log_fn!(info, "nbd");
    const LISTENS_AT: &'static str = "NBD listens at ADDRESS:PORT or unix:/PATH";
    const UNIX: bool = true;
    /// NBD has no ping.
    const KEEPALIVE_S: Option<u64> = Some(30);
    const HANDSHAKE_S: u32 = NbdParams::HANDSHAKE_S;

    type Global = Exporter;
    type PerCore = Rc<Engine>;
    type ConnState = NbdConnState;
    type PeerSession = NbdSession;
    type Reason = CloseReason;
    type CoreMessage = ();

    async fn serve(conn: &Rc<Connection>, mut rx: ReceiveBuffer) -> CloseReason {
        let session = match conn.session() {
            Some(session) => session,
            None => match handshake::run(conn, &mut rx).await {
                Ok(session) => session,
                Err(reason) => return reason,
            },
        };
        receive::run(&session, &mut rx).await
    }

    fn label(session: &NbdSession) -> String {
        session.frontend.initiator.clone()
    }

    #[inline]
    fn run_pending(conn: &Connection) {
        conn.with_session(|session| session.issue_ready());
    }

    async fn finish(_: &Connection, session: Rc<NbdSession>) {
        session.finish().await;
    }

    fn is_memory_short(core: &PerCore) -> bool {
        core.own.has_memory_waiters()
    }

    fn is_paused(core: &PerCore) -> bool {
        core.shared.own.registry.login_gate().holds_connections()
    }

    fn connections_per_peer(shared: &NbdGlobal, at: &Address) -> u32 {
        let most = shared.own.targets.largest_at(at, |t| t.params.connections_per_peer);
        most.unwrap_or(PEER_CONNECTIONS_MAX)
    }

    fn portal_opened(shared: &NbdGlobal, at: &Address, local: &Address) {
        shared.own.targets.portal_opened(at.clone(), local.clone());
    }

    fn prepare_socket(shared: &NbdGlobal, at: &Address, path: &Path) -> io::Result<()> {
        let file = shared.own.targets.at(at).first().map(|t| t.file).unwrap_or_default();
        file.apply(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::TargetSpec;
    use crate::targets::Target;

    #[test]
    fn connections_per_peer_of_port_0_is_the_same_on_every_core() {
        let [listen_at, real] =
            ["127.0.0.1:0", "127.0.0.1:10809"].map(|at| at.parse::<Address>().unwrap());
        let shared = share(Registry::new(), 1);
        let spec = TargetSpec {
            name: "n".into(),
            listen: vec![listen_at.clone()],
            params: serde_json::json!({ "connections_per_peer": 3 }),
            ..TargetSpec::default()
        };
        shared.own.targets.set(Checked::check(spec).unwrap()).unwrap();
        NbdProtocol::portal_opened(&shared, &listen_at, &real);
        for at in [listen_at, real] {
            assert_eq!(NbdProtocol::connections_per_peer(&shared, &at), 3, "{at}");
        }
    }
}
