//! Block requests as SCSI commands, for the drivers whose peers send no CDBs.
//!
//! | file | holds |
//! | --- | --- |
//! | `requests` | the table of requests under way |
//! | `patch` | read-modify-write of a part of a block |
//! | `session` | the engine's transport: a request becomes commands, and their answers its reply |
//!
//! A driver provides a [`Frontend`]: how it answers, and what wakes its task. Requests and errors
//! have the words of NBD, whose errors are those of Linux.

pub(crate) mod patch;
mod requests;
mod session;

pub(crate) use requests::Work;
pub(crate) use session::{BlockSession, Frontend, SessionEnd};

/// How often a command that was ended by others (unit attention, reset) is sent once more; then
/// the request ends with an error.
pub const TRIES_MAX: u8 = 32;

/// How long a request waits for a unit that is not ready; then it ends with an error. Its data
/// keeps buffers of the pool meanwhile.
pub const READY_WAIT_NS: u64 = 30_000_000_000;

/// Pause before its command is sent once more.
pub const READY_PAUSE_NS: u64 = 250_000_000;
