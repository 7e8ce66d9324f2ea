//! FUSE, the protocol in which the kernel asks a process for a file system
//! (`include/uapi/linux/fuse.h`), as far as one file of fixed name in one folder needs it. Numbers
//! are in the byte order of the machine.
//!
//! * [`Request`]: a request of the kernel. * [`reply`]: the replies.

pub mod codes;
pub mod reply;
mod request;

pub use request::{Header, INIT_LEN, NAME_MAX, Operation, REQUEST_HEAD, Request, WRITE_HEAD};
