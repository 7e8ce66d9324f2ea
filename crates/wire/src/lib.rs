//! wire: sans-I/O codecs.
//!
//! Bytes in, typed values out, and the other way round; one module a protocol. Nothing here reads a
//! socket, a clock or a random source, and nothing a peer sends reaches a panic. A codec answers
//! with a [`WireError`] that names the field.
//!
//! * [`iscsi`]: PDUs, framing and digests, text, negotiation, login (RFC 7143, RFC 7144).
//! * [`scsi`]: CDBs, sense, INQUIRY, mode pages, LUN addressing, parameter data (SAM, SPC, SBC).
//! * [`nvme`]: PDUs of NVMe over TCP, Fabrics and NVM commands, identify data and log pages.
//! * [`nbd`]: handshake, requests and replies of NBD, and the SCSI commands they become.
//! * [`ninep`]: 9P2000, both directions.
//! * [`aoe`]: frames of ATA over Ethernet. [`ata`]: registers, IDENTIFY DEVICE, TRIM (ACS-3).
//! * [`cec`]: the console over Ethernet of the first file servers.
//! * [`fuse`]: requests of the kernel for a file system of one file.
//! * [`netlink`]: requests to the kernel for a network block device.
//! * [`pattern`]: patterns of initiator names. [`portal`]: rules for addresses to which clients
//!   connect.
//! * [`smp`]: information of SAS expanders about themselves and their phys.
//! * [`x509`]: the names in a certificate.
//! * `fuzzing`, with the feature of that name: one function per codec that takes any bytes; run by
//!   `cargo test` and by `fuzz/`.
//!
//! ```
//! use wire::iscsi::{NopIn, Pdu, BHS_LEN, TAG_NONE};
//! let mut header = [0u8; BHS_LEN];
//! NopIn { target_tag: 7, task_tag: TAG_NONE, ..NopIn::default() }.encode(&mut header);
//! assert_eq!(header[0], 0x20);
//! ```
#![forbid(unsafe_code)]

pub mod aoe;
pub mod ata;
mod bytes;
pub mod cec;
mod digest;
mod error;
pub mod fuse;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod iscsi;
pub mod nbd;
pub mod netlink;
pub mod ninep;
pub mod nvme;
pub mod pattern;
pub mod portal;
pub mod scsi;
pub mod smp;
pub mod x509;

pub use digest::crc32;
pub use error::{Kind, WireError};
