#![forbid(unsafe_code)]
//! Target drivers: what carries commands between initiators and the target engine.
//!
//! * [`Driver`] is a protocol; [`all`] is the list of those there are. A new one is a folder and a
//!   line there.
//! * [`TargetSpec`] is a target port as the configuration gives it.
//! * [`aoe`]: ATA over Ethernet.
//! * [`bus`]: LUNs as disks of our own graph, through CAM.
//! * [`iscsi`]: iSCSI (RFC 7143) over TCP.
//! * [`nbd`]: NBD over TCP and Unix sockets, with TLS.
//! * [`nvme_tcp`]: NVMe over TCP.
//! * [`local`]: LUNs for this machine itself.
//!
//! A driver lives on every core: it listens there, and a connection stays on the core that
//! accepted it. Nothing here parses a CDB; nothing in the engine knows a PDU.

pub mod aoe;
mod blocks;
mod buffer_wait;
pub mod bus;
mod driver;
pub mod iscsi;
pub mod local;
pub mod nbd;
pub mod nvme_tcp;
mod stream_target;
mod targets;

pub use driver::{Account, DigestPolicy, Driver, TargetSpec, all};
