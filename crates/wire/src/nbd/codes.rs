//! Numbers of the protocol.

/// First word of a server: "NBDMAGIC".
pub const MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Second word of a newstyle server, and first of each option: "IHAVEOPT".
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// First word of the reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First word of a request with an extended header.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First word of a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// First word of a chunk of a reply with an extended header.
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Handshake flags of the server, and of the client with the same values.
pub mod handshake_flag {
    /// Options may be answered with errors.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// The 124 zeroes after EXPORT_NAME are left out when the client agrees.
    pub const NO_ZEROES: u16 = 2;
}

/// Options of the handshake.
pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Types of replies to options.
pub mod rep {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    const ERROR: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = ERROR + 1;
    pub const ERR_POLICY: u32 = ERROR + 2;
    pub const ERR_INVALID: u32 = ERROR + 3;
    pub const ERR_PLATFORM: u32 = ERROR + 4;
    pub const ERR_TLS_REQD: u32 = ERROR + 5;
    pub const ERR_UNKNOWN: u32 = ERROR + 6;
    pub const ERR_SHUTDOWN: u32 = ERROR + 7;
    pub const ERR_BLOCK_SIZE_REQD: u32 = ERROR + 8;
    pub const ERR_TOO_BIG: u32 = ERROR + 9;
    pub const ERR_EXT_HEADER_REQD: u32 = ERROR + 10;
}

/// Kinds of information about an export.
pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

pub mod export_flag {
    pub const HAS_FLAGS: u16 = 1;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const ROTATIONAL: u16 = 1 << 4;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_CACHE: u16 = 1 << 10;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Types of requests.
pub mod kind {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of requests.
pub mod command_flag {
    pub const FUA: u16 = 1;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
    /// With an extended header: the length is that of a payload behind it.
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Types of chunks of a structured reply.
pub mod chunk_kind {
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const BLOCK_STATUS: u16 = 5;
    pub const BLOCK_STATUS_EXT: u16 = 6;
    pub const ERROR: u16 = 0x8001;
    pub const ERROR_OFFSET: u16 = 0x8002;
}

/// Flag of a chunk: the last one of its reply.
pub const DONE: u16 = 1;

/// Flags of an extent of the context `base:allocation`.
pub mod allocation {
    /// Nothing is allocated.
    pub const HOLE: u32 = 1;
    /// It reads as zeroes.
    pub const ZERO: u32 = 2;
}

/// The one metadata context that is served.
pub const ALLOCATION_CONTEXT: &str = "base:allocation";

/// Its number once it was negotiated.
pub const ALLOCATION_ID: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Error {
    /// Not allowed: read only, write protected, reserved by another initiator.
    Perm = 1,
    /// The medium.
    Io = 5,
    /// No buffers.
    NoMem = 12,
    /// A request that makes no sense here.
    Inval = 22,
    /// Beyond the end, or no space left.
    NoSpc = 28,
    /// Too long for one piece.
    Overflow = 75,
    /// Not offered, or not fast.
    NotSup = 95,
    /// The server is ending.
    Shutdown = 108,
}

impl Error {
    pub const ALL: [Error; 8] = [
        Error::Perm,
        Error::Io,
        Error::NoMem,
        Error::Inval,
        Error::NoSpc,
        Error::Overflow,
        Error::NotSup,
        Error::Shutdown,
    ];

    /// The number on the wire.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// From the number on the wire; unknown ones mean [`Error::Inval`], as the protocol specifies.
    pub fn from_code(code: u32) -> Error {
        Error::ALL.into_iter().find(|e| e.code() == code).unwrap_or(Error::Inval)
    }
}
