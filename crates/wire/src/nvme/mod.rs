//! NVMe over TCP: the PDUs of the transport, Fabrics, admin and NVM commands, and the data
//! structures that a controller reports (NVMe base 2.0, NVMe/TCP transport 1.0, NVM command set
//! 1.0).
//!
//! | file | holds |
//! | --- | --- |
//! | `pdu` | headers of the PDUs, both directions |
//! | `framing` | boundaries of a PDU and its data, digest coverage, header errors |
//! | `command` | submission and completion queue entries |
//! | `status` | status codes, and their mapping from SCSI status and sense data |
//! | `fabrics` | Connect, properties |
//! | `nvm` | I/O commands and ranges of Dataset Management |
//! | `identify`, `log` | identify data and log pages of controllers and namespaces |
//! | `codes` | numbers of opcodes, features, events |
//!
//! Everything is little-endian.

pub mod codes;
mod command;
mod fabrics;
mod framing;
mod identify;
mod log;
mod nvm;
mod page;
mod pdu;
mod status;

pub use command::{COMMAND_LEN, COMPLETION_LEN, Command, Completion, Sgl};
pub use fabrics::{
    CONNECT_LEN, Capabilities, Configuration, Connect, ConnectData, DYNAMIC_CONTROLLER, NQN_MAX,
    Property, is_nqn,
};
pub use framing::{Frame, Framer};
pub use identify::{
    Controller, IDENTIFY_LEN, Namespace, NvmLimits, active_list, command_sets, descriptors,
    independent_namespace, parse_active_list, parse_descriptors, uuid_of,
};
pub use log::{
    CHANGED_MAX, DISCOVERY_HEADER_LEN, DISCOVERY_RECORD_LEN, Subsystem, changed_namespaces,
    discovery, effects, error_entries, firmware, health, parse_discovery, supported_pages,
};
pub use nvm::{Extent, RANGE_LEN, RANGES_MAX, Range, unmap_lists};
pub use pdu::{
    COMMON_LEN, Common, Data, Fault, Initialize, R2T_LEN, TERM_LEN_MAX, Terminate, command_capsule,
    r2t, response_capsule,
};
pub use status::{Outcome, Status, outcome};
