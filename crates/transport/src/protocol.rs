//! The protocol-specific part of a server: the traits that a protocol implements.

use std::future::Future;
use std::io;
use std::path::Path;
use std::rc::Rc;

use reactor::Address;

use crate::connection::Connection;
use crate::peer_limit::PEER_CONNECTIONS_MAX;
use crate::peer_log::LogFn;
use crate::per_core::PerCore;
use crate::reason::Reason;
use crate::receive_buffer::ReceiveBuffer;
use crate::shared::GlobalState;

/// Names of a protocol's tasks.
pub struct TaskNames {
    /// Accepts at a portal.
    pub portal: &'static str,
    /// Serves a connection.
    pub connection: &'static str,
    /// Watches the connections of a core.
    pub watch: &'static str,
    /// Receives orders of other cores; None if the protocol has none.
    pub messages: Option<&'static str>,
}

/// A look at a connection, once a watch period.
#[derive(Clone, Copy)]
pub struct Tick {
    /// The core's clock, ns.
    pub now: u64,
    /// See [`Protocol::is_memory_short`].
    pub memory_short: bool,
    /// Something was received since the last tick.
    pub received: bool,
}

/// A protocol over byte streams: its codec, its session and its parameters.
pub trait Protocol: Sized + 'static {
    const TASKS: TaskNames;
    /// Logs misbehaviour.
    const WARN: LogFn;
    /// Logs orderly events.
    const INFO: LogFn;
    /// How an address for it is written: `NBD listens at ADDRESS:PORT`.
    const LISTENS_AT: &'static str;
    /// It listens at Unix sockets too.
    const UNIX: bool = false;
    /// Silence after which the kernel probes whether the peer still exists, s; for protocols
    /// without a ping of their own.
    const KEEPALIVE_S: Option<u64> = None;
    /// Handshake deadline before the target's parameters are known, s.
    const HANDSHAKE_S: u32;

    /// State that all cores share.
    type Global: Send + Sync + 'static;
    /// State of one core.
    type PerCore: 'static;
    /// State of one connection.
    type ConnState: Default + 'static;
    /// A peer that completed the handshake.
    type PeerSession: 'static;
    /// Why a connection is closed.
    type Reason: Reason;
    /// Messages between cores.
    type CoreMessage: Send + 'static;

    /// Handshake and requests of one connection: reads until it is to be closed, and queues answers
    /// in `conn.io.tx`. [`Connection::enter`] ends the handshake.
    fn serve(conn: &Rc<Connection<Self>>, rx: ReceiveBuffer) -> impl Future<Output = Self::Reason>;

    /// Name of a session's peer, for the log.
    fn label(session: &Self::PeerSession) -> String;

    /// Runs between the reader and the writer, each time.
    #[inline]
    fn run_pending(_conn: &Connection<Self>) {}

    /// Runs once a watch period, for pings and deadlines of the protocol's own.
    fn tick(_conn: &Rc<Connection<Self>>, _tick: Tick) {}

    /// A session's connection is being closed; queued answers are not sent yet.
    fn closing(_conn: &Connection<Self>, _session: &Rc<Self::PeerSession>) {}

    /// The connection of a session is closed: waits until its requests have ended.
    fn finish(conn: &Connection<Self>, session: Rc<Self::PeerSession>) -> impl Future<Output = ()>;

    /// True while requests wait for memory: peers that owe data get less time.
    fn is_memory_short(_core: &PerCore<Self>) -> bool {
        false
    }

    /// True while accepted connections wait, because the targets are not ready.
    fn is_paused(_core: &PerCore<Self>) -> bool {
        false
    }

    /// Limit of the connections of one peer at the portal `at` (T6).
    fn connections_per_peer(_shared: &GlobalState<Self>, _at: &Address) -> u32 {
        PEER_CONNECTIONS_MAX
    }

    /// Prepares the file of a Unix socket before the first client can connect.
    fn prepare_socket(_shared: &GlobalState<Self>, _at: &Address, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    /// A portal is open; `local` is its address when the port was 0.
    fn portal_opened(_shared: &GlobalState<Self>, _at: &Address, _local: &Address) {}

    /// Carries out an order of another core.
    fn handle_message(_core: &Rc<PerCore<Self>>, _order: Self::CoreMessage) {}
}
