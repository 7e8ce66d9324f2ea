//! FUSE, the protocol with which a process serves a file system to the kernel
//! (`include/uapi/linux/fuse.h`), as far as one file of fixed name in one folder needs it. Numbers
//! are in the byte order of the machine.
//!
//! * [`Request`]: a request of the kernel. * [`reply`]: the replies.

pub mod codes;
pub mod reply;
mod request;

pub use request::{Header, INIT_LEN, NAME_MAX, Operation, REQUEST_HEAD, Request, WRITE_HEAD};
