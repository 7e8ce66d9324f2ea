//! State that all cores of a protocol share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::counters::{ConnectionCounts, Counters};
use crate::listener::AcceptState;
use crate::peer_limit::PeerLimit;
use crate::per_thread::Mailboxes;
use crate::protocol::Protocol;
use crate::repeated_lines::RepeatedLines;
use crate::unix_sockets::UnixSockets;

/// See the module.
pub struct GlobalState<P: Protocol> {
    /// The protocol's part.
    pub own: P::Global,
    /// Mailboxes of its cores.
    pub mailboxes: Mailboxes<P::CoreMessage>,
    /// Unix sockets that its cores listen at.
    pub unix_sockets: UnixSockets,
    /// Connections of one core; a further one is reset (T4).
    pub(crate) connections_max: usize,
    /// Connections of each peer (T6).
    pub(crate) peers: Arc<PeerLimit>,
    /// Log lines about peers, of all cores.
    pub(crate) repeated_lines: Arc<RepeatedLines>,
    connections: AtomicU64,
    pub(crate) counters: Counters,
    /// Whether accepting failed last.
    pub(crate) accept_state: AcceptState,
}

impl<P: Protocol> GlobalState<P> {
    /// For `connections_max` connections on each core.
    pub fn new(own: P::Global, connections_max: usize) -> Arc<GlobalState<P>> {
        Arc::new(GlobalState {
            own,
            mailboxes: Mailboxes::default(),
            unix_sockets: UnixSockets::default(),
            connections_max,
            peers: Arc::default(),
            repeated_lines: Arc::default(),
            connections: AtomicU64::new(0),
            counters: Counters::default(),
            accept_state: AcceptState::default(),
        })
    }

    /// Counts of connections, over all cores.
    pub fn connection_counts(&self) -> ConnectionCounts {
        self.counters.read()
    }

    /// A number for a connection; never given twice.
    pub(crate) fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }
}
