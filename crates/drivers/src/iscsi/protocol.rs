//! iSCSI as a protocol of the connection framework.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use engine::{Engine, Registry};
use reactor::Address;
use reactor::clock::S;
use transport::{
    CommonReason, LogFn, PEER_CONNECTIONS_MAX, Protocol, ReceiveBuffer, TaskNames, Tick,
};

use super::buffer_wait::IncomingRecords;
use super::close_reason::CloseReason;
use super::params::{Checked, IscsiParams};
use super::pdu_reader::PduReader;
use super::session::IscsiSession;
use super::session_owners::Owners;
use super::{login, receive};
use crate::log_fn::log_fn;
use crate::targets::Targets;

/// See the module.
pub(crate) struct IscsiProtocol;

pub(crate) type Connection = transport::Connection<IscsiProtocol>;

pub(crate) type PerCore = transport::PerCore<IscsiProtocol>;

/// State that all cores share.
pub(crate) type IscsiGlobal = transport::GlobalState<IscsiProtocol>;

/// iSCSI's part of [`Shared`].
pub(crate) struct Portals {
    pub registry: Arc<Registry>,
    /// StatSN of the first answer on a connection.
    pub first_stat_sn: u32,
    pub targets: Targets<Checked>,
    pub owners: Arc<Owners>,
}

/// iSCSI's part of a core.
pub(crate) struct CoreState {
    pub engine: Rc<Engine>,
    pub incoming: RefCell<IncomingRecords>,
}

impl CoreState {
    pub fn new(engine: &Rc<Engine>) -> CoreState {
        CoreState { engine: engine.clone(), incoming: RefCell::default() }
    }
}

/// iSCSI's part of a connection.
#[derive(Default)]
pub(crate) struct IscsiConnState {
    /// When something was received last, ns, as far as ticks saw it.
    received: Cell<u64>,
    pinged: Cell<Option<u64>>,
}

/// Messages between cores.
pub(crate) enum IscsiMessage {
    /// Ends the session of a connection: a newer one replaces it.
    Reinstated { connection: u64 },
}

/// The state of a driver without targets.
pub(crate) fn share(
    registry: Arc<Registry>,
    connections_max: usize,
    first_stat_sn: u32,
) -> Arc<IscsiGlobal> {
    let (targets, owners) = Default::default();
    let own = Portals { registry, first_stat_sn, targets, owners };
    IscsiGlobal::new(own, connections_max)
}

pub(crate) fn note_ping(conn: &Connection) {
    conn.own.pinged.set(Some(conn.core.reactor.now()));
    conn.io.signals.idle.set(true);
}

impl Protocol for IscsiProtocol {
    const TASKS: TaskNames = TaskNames {
        portal: "iscsi portal",
        connection: "iscsi connection",
        watch: "iscsi watch",
        messages: Some("iscsi orders"),
    };
    const WARN: LogFn = log_fn!(warn, "iscsi");
    const INFO: LogFn = log_fn!(info, "iscsi");
    const LISTENS_AT: &'static str = "iSCSI listens at ADDRESS:PORT";
    const HANDSHAKE_S: u32 = IscsiParams::LOGIN_S;

    type Global = Portals;
    type PerCore = CoreState;
    type ConnState = IscsiConnState;
    type PeerSession = IscsiSession;
    type Reason = CloseReason;
    type CoreMessage = IscsiMessage;

    async fn serve(conn: &Rc<Connection>, rx: ReceiveBuffer) -> CloseReason {
        let mut reader = PduReader::new(rx);
        match login::run(conn, &mut reader).await {
            Ok(session) => receive::run(&session, &mut reader).await,
            Err(reason) => reason,
        }
    }

    fn label(session: &IscsiSession) -> String {
        session.initiator.clone()
    }

    /// Deadlines of requested data, and pings.
    fn tick(conn: &Rc<Connection>, tick: Tick) {
        let after = |since: u64, s: u32| tick.now.saturating_sub(since) > u64::from(s) * S;
        let IscsiConnState { received, pinged } = &conn.own;
        if tick.received {
            received.set(tick.now);
            pinged.set(None);
        }
        let Some(session) = conn.session() else { return };
        if session.is_overdue(tick.now, tick.memory_short) {
            return conn.io.close(CommonReason::DataOverdue.into());
        }
        let (interval_s, timeout_s) = session.ping_seconds();
        match pinged.get() {
            Some(since) if after(since, timeout_s) => conn.io.close(CloseReason::Silent),
            None if interval_s > 0 && after(received.get(), interval_s) => session.ping(),
            _ => {}
        }
    }

    async fn finish(_: &Connection, session: Rc<IscsiSession>) {
        session.finish().await;
    }

    fn is_memory_short(core: &PerCore) -> bool {
        core.own.engine.has_memory_waiters()
    }

    fn is_paused(core: &PerCore) -> bool {
        core.shared.own.registry.login_gate().holds_connections()
    }

    fn connections_per_peer(shared: &IscsiGlobal, at: &Address) -> u32 {
        let most = shared.own.targets.largest_at(at, |t| t.params.connections_per_peer);
        most.unwrap_or(PEER_CONNECTIONS_MAX)
    }

    fn portal_opened(shared: &IscsiGlobal, at: &Address, local: &Address) {
        shared.own.targets.portal_opened(at.clone(), local.clone());
    }

    fn handle_message(core: &Rc<PerCore>, IscsiMessage::Reinstated { connection }: IscsiMessage) {
        if let Some(conn) = core.get(connection) {
            conn.io.close(CloseReason::Reinstated);
        }
    }
}
