#![forbid(unsafe_code)]
//! Connection framework of protocols over byte streams (TCP and Unix sockets, with or without TLS).
//!
//! | file | holds |
//! | --- | --- |
//! | `protocol` | [`Protocol`]: the one trait that a protocol implements |
//! | `listener` | listening sockets, and the accept loop with its limits |
//! | `unix_sockets` | listening Unix sockets that cores share |
//! | `connection` | one connection, from accept to its close reason |
//! | `io_loop` | its read and write loop, and the deadline of a peer that does not read |
//! | `receive_buffer` | received bytes, lent or copied |
//! | `transmit_queue` | bytes to be sent |
//! | `stream`, `tls` | both directions of the socket, in the clear or encrypted |
//! | `read_deadline` | deadline for data that a peer has begun to send |
//! | `reason` | close reasons that all protocols share |
//! | `per_core` | connections and portals of one core, their limits and their watch |
//! | `shared` | numbers, mailboxes and state that all cores share |
//! | `per_thread` | registry of per-core values, mailboxes between cores |
//! | `peer_limit` | connections of each peer over all cores, and their limit |
//! | `peer_log` | rate-limited log lines about peers |
//! | `repeated_lines` | those that are repeated, over all cores |
//! | `counters` | counts of connections |
//! | `segment_lists` | reused lists of segments |
//! | `advertised` | addresses as they are advertised to other machines |
//!
//! A protocol adds its codec, its session and its parameters. Dispatch is static: no request costs
//! a boxed future, an allocation or a virtual call.
//!
//! Invariants
//!  T1  The faults of a peer affect only that peer: its bytes, its silence and its refusal to read
//!      close its own connection, after a deadline that the framework keeps.
//!  T2  A connection holds at most [`RECEIVE_BYTES_MAX`] for received bytes, and nothing more is
//!      read while more than [`BACKLOG_MAX`] bytes are queued for it. Both are from a pool of their
//!      core apart from the payloads' pool, so payloads never stop answers.
//!  T3  A connection is closed for exactly one reason, the first one; it is logged once and counted
//!      once.
//!  T4  A core has at most as many connections as it was given, of which at most
//!      [`HANDSHAKES_MAX`] are in their handshake. A further connection is reset, or displaces the
//!      oldest handshake.
//!  T5  A connection stays on the core that accepted it: its types are not `Send`. Cores share
//!      nothing of it but its number, the counts of connections and the log lines about its peer.
//!  T6  A peer has at most [`Protocol::connections_per_peer`] connections over all cores of a
//!      protocol. A further one is reset at once: it takes no memory and no place in a handshake.

mod advertised;
mod connection;
mod counters;
mod io_loop;
mod listener;
mod peer_limit;
mod peer_log;
mod per_core;
mod per_thread;
mod protocol;
mod read_deadline;
mod reason;
mod receive_buffer;
mod repeated_lines;
mod segment_lists;
mod shared;
mod stream;
mod tls;
mod transmit_queue;
mod unix_sockets;

pub use advertised::advertised;
pub use connection::{Connection, Endpoints};
pub use counters::ConnectionCounts;
pub use io_loop::{BACKLOG_MAX, FLUSH_NS, IoLoop, SEND_TIMEOUT_NS};
pub use listener::{AcceptState, Listener};
pub use peer_limit::{CountedPeer, PEER_CONNECTIONS_MAX, PeerLimit, counted_as};
pub use peer_log::{LogFn, LogSubject, PeerFields, PeerLog};
pub use per_core::{CONNECTIONS_MAX, HANDSHAKES_MAX, PerCore};
pub use per_thread::{Cores, Mailboxes, key_of};
pub use protocol::{Protocol, TaskNames, Tick};
pub use read_deadline::{ReadDeadline, is_late};
pub use reason::{CLOSE_REASONS, CommonReason, Reason, Terms};
pub use receive_buffer::{RECEIVE_BYTES_MAX, ReceiveBuffer, Signals};
pub use repeated_lines::RepeatedLines;
pub use segment_lists::SegmentLists;
pub use shared::GlobalState;
pub use stream::{Incoming, Outgoing};
pub use tls::Tls;
pub use transmit_queue::TransmitQueue;
pub use unix_sockets::UnixSockets;
