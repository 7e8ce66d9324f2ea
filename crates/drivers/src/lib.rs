#![forbid(unsafe_code)]
//! Target drivers: protocols that carry commands between initiators and the target engine.
//!
//! * [`Driver`] is a protocol; [`all`] is the list of them. A new driver is a folder, its `mod`
//!   line and a line in that list.
//! * `stream_target`: drivers over the connection framework (the crate transport).
//! * [`TargetSpec`] is a target port as the configuration gives it.
//! * [`aoe`]: ATA over Ethernet.
//! * [`bus`]: LUNs as disks of our own graph, through CAM.
//! * [`iscsi`]: iSCSI (RFC 7143) over TCP.
//! * [`nbd`]: NBD over TCP and Unix sockets, with TLS.
//! * [`nvme_tcp`]: NVMe over TCP.
//! * [`local`]: LUNs for this machine itself.
//!
//! A driver runs on every core: it listens there, and a connection stays on the core that accepted
//! it. Nothing here parses a CDB; nothing in the engine knows a PDU.

pub mod aoe;
mod block_requests;
mod buffer_wait;
pub mod bus;
mod connection_claim;
mod driver;
pub mod iscsi;
pub mod local;
mod log_fn;
pub mod nbd;
pub mod nvme_tcp;
mod seg_cursor;
mod stream_target;
mod targets;

pub use driver::{Account, ConnectionCounts, DigestPolicy, Driver, TargetSpec, all};
