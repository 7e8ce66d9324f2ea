//! NVMe/TCP as a protocol of the connection framework. A connection is one queue.
//!
//! A last PDU of ours (C2HTermReq) is sent before a connection is closed; nothing but the end of
//! the stream is expected after it.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use engine::{Engine, Registry};
use reactor::Address;
use transport::{CONNECTIONS_MAX, CommonReason, LogFn, Protocol, ReceiveBuffer, TaskNames, Tick};
use wire::nvme::{Fault, Framer, Terminate};

use super::close_reason::CloseReason;
use super::controllers::{Leaving, Subsystems};
use super::params::NvmeTcpParams;
use super::queue::Queue;
use super::{connect, receive};
use crate::log_fn::log_fn;

/// See the module.
pub(crate) struct NvmeTcpProtocol;

pub(crate) type PerCore = transport::PerCore<NvmeTcpProtocol>;

/// State that all cores share.
pub(crate) type NvmeTcpGlobal = transport::GlobalState<NvmeTcpProtocol>;

#[derive(Clone)]
pub(crate) struct Connection(Rc<transport::Connection<NvmeTcpProtocol>>);

impl Deref for Connection {
    type Target = transport::Connection<NvmeTcpProtocol>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// NVMe's part of a connection.
#[derive(Default)]
pub(crate) struct NvmeTcpConnState {
    /// The digests that were agreed on.
    pub framer: Cell<Framer>,
    /// HPDA: data for the host begins at multiples of so many dwords, less one.
    pub alignment: Cell<u8>,
    /// Requests of a closed connection may still reach the medium.
    leaving: RefCell<Option<Leaving>>,
}

/// Messages between cores.
pub(crate) enum NvmeTcpMessage {
    /// Closes the connection of a queue: its association has ended.
    End { connection: u64 },
    /// Aborts a command of a queue.
    Abort {
        connection: u64,
        /// CID of the command.
        command: u16,
        /// The sender: core, connection, CID of the Abort.
        asker: (u32, u64, u16),
    },
    /// The result of an Abort.
    Aborted {
        connection: u64,
        /// CID of the Abort.
        id: u16,
        /// The command was aborted.
        done: bool,
    },
}

/// The state of a driver without targets.
pub(crate) fn share(registry: Arc<Registry>) -> Arc<NvmeTcpGlobal> {
    NvmeTcpGlobal::new(Subsystems::new(registry), CONNECTIONS_MAX)
}

impl Connection {
    /// Queues C2HTermReq, which reports the fault of a PDU of which `header` has arrived.
    pub fn terminate(&self, fault: Fault, header: &[u8]) -> CloseReason {
        let (reason, at) = (fault.reason, fault.at);
        let pdu = Terminate { controller: true, reason, at, header: header.to_vec() };
        self.io.tx.borrow_mut().put(&pdu.encode());
        fault.into()
    }
}

impl Protocol for NvmeTcpProtocol {
    const TASKS: TaskNames = TaskNames {
        portal: "nvme portal",
        connection: "nvme connection",
        watch: "nvme watch",
        messages: Some("nvme orders"),
    };
    const WARN: LogFn = log_fn!(warn, "nvme_tcp");
    const INFO: LogFn = log_fn!(info, "nvme_tcp");
    const LISTENS_AT: &'static str = "NVMe/TCP listens at ADDRESS:PORT";
    /// Keep alive may be off, and I/O queues have none.
    const KEEPALIVE_S: Option<u64> = Some(30);
    const HANDSHAKE_S: u32 = NvmeTcpParams::HANDSHAKE_S;

    type Global = Subsystems;
    type PerCore = Rc<Engine>;
    type ConnState = NvmeTcpConnState;
    type PeerSession = Queue;
    type Reason = CloseReason;
    type CoreMessage = NvmeTcpMessage;

    async fn serve(
        conn: &Rc<transport::Connection<NvmeTcpProtocol>>,
        mut rx: ReceiveBuffer,
    ) -> CloseReason {
        let conn = Connection(conn.clone());
        match connect::run(&conn, &mut rx).await {
            Ok(queue) => receive::run(&queue, &mut rx).await,
            Err(reason) => reason,
        }
    }

    fn label(queue: &Queue) -> String {
        format!("{}, queue {}", queue.controller.host.name, queue.number)
    }

    #[inline]
    fn run_pending(conn: &transport::Connection<NvmeTcpProtocol>) {
        conn.with_session(|queue| queue.issue_ready());
    }

    /// Deadlines of requested data, and keep alive.
    fn tick(conn: &Rc<transport::Connection<NvmeTcpProtocol>>, tick: Tick) {
        let Some(queue) = conn.session() else { return };
        if queue.is_data_overdue(tick.now, tick.memory_short) {
            conn.io.close(CommonReason::DataOverdue.into());
        }
        queue.check_keep_alive(tick.now, tick.received);
    }

    fn closing(conn: &transport::Connection<NvmeTcpProtocol>, queue: &Rc<Queue>) {
        let leaving = Leaving::new(&conn.core.shared, &queue.controller.host);
        *conn.own.leaving.borrow_mut() = Some(leaving);
    }

    async fn finish(conn: &transport::Connection<NvmeTcpProtocol>, queue: Rc<Queue>) {
        queue.finish().await;
        drop(queue);
        drop(conn.own.leaving.take());
    }

    fn is_memory_short(core: &PerCore) -> bool {
        core.own.has_memory_waiters()
    }

    fn is_paused(core: &PerCore) -> bool {
        core.shared.own.registry.login_gate().holds_connections()
    }

    fn connections_per_peer(shared: &NvmeTcpGlobal, at: &Address) -> u32 {
        let most = shared.own.targets.largest_at(at, |t| t.params.connections_per_peer);
        most.unwrap_or(NvmeTcpParams::PEER_CONNECTIONS_MAX)
    }

    fn portal_opened(shared: &NvmeTcpGlobal, at: &Address, local: &Address) {
        shared.own.targets.portal_opened(at.clone(), local.clone());
    }

    fn handle_message(core: &Rc<PerCore>, order: NvmeTcpMessage) {
        let queue = |connection| core.get(connection).and_then(|conn| conn.session());
        match order {
            NvmeTcpMessage::End { connection } => {
                if let Some(conn) = core.get(connection) {
                    conn.io.close(CloseReason::AssociationOver);
                }
            }
            NvmeTcpMessage::Abort { connection, command, asker: (from, asker, id) } => {
                let done = queue(connection).is_some_and(|q| q.abort(command));
                let answer = NvmeTcpMessage::Aborted { connection: asker, id, done };
                core.shared.mailboxes.send(from, answer);
            }
            NvmeTcpMessage::Aborted { connection, id, done } => {
                if let Some(queue) = queue(connection) {
                    queue.aborted(id, done);
                }
            }
        }
    }
}
