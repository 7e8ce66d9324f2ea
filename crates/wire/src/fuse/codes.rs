//! Numbers of the protocol.

/// Version that is spoken: 7.31. Newer kernels keep to it.
pub const MAJOR: u32 = 7;

/// See [`MAJOR`].
pub const MINOR: u32 = 31;

pub const ROOT: u64 = 1;

pub mod opcode {
    /// A name in a folder.
    pub const LOOKUP: u32 = 1;
    /// The kernel has forgotten a node; no reply.
    pub const FORGET: u32 = 2;
    /// Attributes.
    pub const GETATTR: u32 = 3;
    /// Changes attributes.
    pub const SETATTR: u32 = 4;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    /// Writes.
    pub const WRITE: u32 = 16;
    /// Facts about the file system.
    pub const STATFS: u32 = 17;
    /// The last descriptor is closed.
    pub const RELEASE: u32 = 18;
    /// Makes writes durable.
    pub const FSYNC: u32 = 20;
    /// A descriptor is closed.
    pub const FLUSH: u32 = 25;
    /// The first request.
    pub const INIT: u32 = 26;
    /// Opens a folder.
    pub const OPENDIR: u32 = 27;
    /// Reads a folder.
    pub const READDIR: u32 = 28;
    /// Closes a folder.
    pub const RELEASEDIR: u32 = 29;
    /// Makes a folder durable.
    pub const FSYNCDIR: u32 = 30;
    pub const ACCESS: u32 = 34;
    /// Interrupt a request: its caller no longer waits.
    pub const INTERRUPT: u32 = 36;
    /// The last request.
    pub const DESTROY: u32 = 38;
    /// Several FORGETs; no reply.
    pub const BATCH_FORGET: u32 = 42;
    /// Holes and zeroes.
    pub const FALLOCATE: u32 = 43;
    /// Where data or holes begin.
    pub const LSEEK: u32 = 46;
}

pub mod init_flag {
    /// Reads of one file may run together.
    pub const ASYNC_READ: u32 = 1 << 0;
    /// Writes longer than a page.
    pub const BIG_WRITES: u32 = 1 << 5;
    /// Direct requests need not be waited for one by one.
    pub const ASYNC_DIO: u32 = 1 << 15;
    /// `max_pages` counts.
    pub const MAX_PAGES: u32 = 1 << 22;
}

pub mod open_flag {
    /// Nothing of it is kept in the page cache.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Direct writes of several may run together.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

pub mod fallocate {
    /// The size stays.
    pub const KEEP_SIZE: u32 = 1 << 0;
    /// A hole, which reads as zeroes.
    pub const PUNCH_HOLE: u32 = 1 << 1;
    pub const ZERO_RANGE: u32 = 1 << 4;
}

/// The types of region that LSEEK finds.
pub mod whence {
    pub const DATA: u32 = 3;
    /// A hole; behind the end there is one.
    pub const HOLE: u32 = 4;
}

/// Errors of replies, as Linux counts them.
pub mod errno {
    /// No such file.
    pub const NOENT: u32 = 2;
    /// Interrupted.
    pub const INTR: u32 = 4;
    /// No such offset.
    pub const NXIO: u32 = 6;
    /// Not allowed.
    pub const ACCES: u32 = 13;
    /// Not a folder.
    pub const NOTDIR: u32 = 20;
    /// A folder.
    pub const ISDIR: u32 = 21;
    /// Makes no sense.
    pub const INVAL: u32 = 22;
    /// Read only.
    pub const ROFS: u32 = 30;
    /// Not known here: the kernel does not send it again.
    pub const NOSYS: u32 = 38;
    /// The protocol was broken.
    pub const PROTO: u32 = 71;
    /// Not supported.
    pub const OPNOTSUPP: u32 = 95;
}
