//! Numbers of the standards, by their names there.

/// Types of PDUs.
pub mod pdu {
    /// ICReq: how a host begins.
    pub const INITIALIZE_REQUEST: u8 = 0x00;
    /// ICResp.
    pub const INITIALIZE_RESPONSE: u8 = 0x01;
    /// H2CTermReq: the host ends the connection.
    pub const HOST_TERMINATES: u8 = 0x02;
    /// C2HTermReq: the controller ends it.
    pub const CONTROLLER_TERMINATES: u8 = 0x03;
    /// CapsuleCmd.
    pub const COMMAND: u8 = 0x04;
    /// CapsuleResp.
    pub const RESPONSE: u8 = 0x05;
    /// H2CData.
    pub const HOST_DATA: u8 = 0x06;
    /// C2HData.
    pub const CONTROLLER_DATA: u8 = 0x07;
    /// R2T.
    pub const READY: u8 = 0x09;
}

pub mod pdu_flag {
    /// HDGSTF: the header has a digest.
    pub const HEADER_DIGEST: u8 = 1;
    /// DDGSTF: the data has one.
    pub const DATA_DIGEST: u8 = 1 << 1;
    /// LAST: no more data of this transfer follows.
    pub const LAST: u8 = 1 << 2;
    /// SUCCESS: the command has ended well, no completion follows.
    pub const SUCCESS: u8 = 1 << 3;
}

/// Fatal error status (FES) of a TermReq.
pub mod fatal {
    /// Invalid PDU header field; FEI is its offset.
    pub const HEADER_FIELD: u16 = 1;
    /// A PDU that is not allowed now.
    pub const SEQUENCE: u16 = 2;
    /// The header digest does not agree.
    pub const HEADER_DIGEST: u16 = 3;
    /// Data outside the requested range, or not at the next offset.
    pub const DATA_RANGE: u16 = 4;
    /// More R2Ts, or more data in one PDU, than was agreed on.
    pub const LIMIT: u16 = 5;
    /// Unsupported parameter; FEI is its offset.
    pub const UNSUPPORTED: u16 = 6;
}

pub mod admin {
    pub const GET_LOG_PAGE: u8 = 0x02;
    pub const IDENTIFY: u8 = 0x06;
    pub const ABORT: u8 = 0x08;
    pub const SET_FEATURES: u8 = 0x09;
    pub const GET_FEATURES: u8 = 0x0a;
    pub const ASYNC_EVENT: u8 = 0x0c;
    pub const KEEP_ALIVE: u8 = 0x18;
    /// Fabrics commands of any kind; on every queue.
    pub const FABRICS: u8 = 0x7f;
}

/// Types of Fabrics commands (FCTYPE).
pub mod fabrics {
    pub const PROPERTY_SET: u8 = 0x00;
    pub const CONNECT: u8 = 0x01;
    pub const PROPERTY_GET: u8 = 0x04;
    pub const DISCONNECT: u8 = 0x08;
}

/// Opcodes of I/O commands of the NVM command set.
pub mod io {
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const COMPARE: u8 = 0x05;
    pub const WRITE_ZEROES: u8 = 0x08;
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    pub const VERIFY: u8 = 0x0c;
}

/// Identify's CNS.
pub mod cns {
    /// Namespace, NVM command set.
    pub const NAMESPACE: u8 = 0x00;
    pub const CONTROLLER: u8 = 0x01;
    /// Active namespaces.
    pub const ACTIVE_LIST: u8 = 0x02;
    /// Namespace identification descriptors.
    pub const DESCRIPTORS: u8 = 0x03;
    /// Namespace, of a command set.
    pub const SET_NAMESPACE: u8 = 0x05;
    /// Controller, of a command set.
    pub const SET_CONTROLLER: u8 = 0x06;
    /// Active namespaces of a command set.
    pub const SET_ACTIVE_LIST: u8 = 0x07;
    /// Namespace, of any command set.
    pub const INDEPENDENT: u8 = 0x08;
    /// Combinations of command sets.
    pub const COMMAND_SETS: u8 = 0x1c;
}

pub mod log_page {
    pub const SUPPORTED: u8 = 0x00;
    /// Error information.
    pub const ERROR: u8 = 0x01;
    /// SMART and health.
    pub const HEALTH: u8 = 0x02;
    /// Firmware slots.
    pub const FIRMWARE: u8 = 0x03;
    /// Changed namespaces.
    pub const CHANGED: u8 = 0x04;
    /// Commands and their effects.
    pub const EFFECTS: u8 = 0x05;
    pub const DISCOVERY: u8 = 0x70;
}

pub mod feature {
    pub const ARBITRATION: u8 = 0x01;
    /// Power management.
    pub const POWER: u8 = 0x02;
    /// Temperature threshold.
    pub const TEMPERATURE: u8 = 0x04;
    pub const ERROR_RECOVERY: u8 = 0x05;
    pub const WRITE_CACHE: u8 = 0x06;
    pub const QUEUES: u8 = 0x07;
    /// Write atomicity normal.
    pub const ATOMICITY: u8 = 0x0a;
    /// Asynchronous event configuration.
    pub const EVENTS: u8 = 0x0b;
    pub const KEEP_ALIVE: u8 = 0x0f;
    /// Host behavior support: 512 bytes of data.
    pub const HOST_BEHAVIOR: u8 = 0x16;
    pub const HOST_ID: u8 = 0x81;
}

/// Properties of a controller, by their offsets.
pub mod property {
    /// CAP: capabilities; 8 bytes.
    pub const CAPABILITIES: u32 = 0x00;
    /// VS: the version; 4 bytes.
    pub const VERSION: u32 = 0x08;
    /// CC: its configuration; 4 bytes.
    pub const CONFIGURATION: u32 = 0x14;
    /// CSTS: its status; 4 bytes.
    pub const STATUS: u32 = 0x1c;
}

/// Asynchronous events: type, information and log page as a completion carries them.
pub mod event {
    /// Namespace attribute changed: log page 04h lists the namespaces.
    pub const NAMESPACE_CHANGED: u32 = 0x02 | 0x04 << 16;
    /// Discovery log page changed.
    pub const DISCOVERY_CHANGED: u32 = 0x02 | 0xf0 << 8 | 0x70 << 16;
    /// Bit of [`super::feature::EVENTS`] for the first, and of OAES.
    pub const NAMESPACE_BIT: u32 = 1 << 8;
    /// Bit for the second.
    pub const DISCOVERY_BIT: u32 = 1 << 31;
}

/// All namespaces.
pub const NSID_ALL: u32 = u32::MAX;

/// The version that a controller claims: 1.4.
pub const VERSION: u32 = 0x0001_0400;

/// The NQN of the discovery service, at which every host may query its subsystems.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
