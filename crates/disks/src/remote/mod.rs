//! Disks that are reached over a network, over any protocol: connections that are made anew when
//! they are lost, deadlines, retries and replay.
//!
//! ```text
//!   probe --> dial: first connection --> Remote: one disk, all cores
//!                                          |--> client: this core's connection --> request table
//!                                          \--> cross_core: cores without a connection
//! ```
//! A kind of disk adds its codec ([`protocol::Protocol`]) and its layer. The names and meanings of
//! the bounds are those of CAM's disks (`[[bus]]`).

mod client;
mod cross_core;
mod dial;
mod disk;
#[cfg(test)]
mod ledger_tests;
#[cfg(test)]
mod minimal_tests;
mod probe;
pub(crate) mod protocol;
mod request_table;
mod server_address;
#[cfg(test)]
mod tests;
mod tls_stream;

use bio::{Errno, Status};
use reactor::clock::S;

pub(crate) use dial::{
    ANSWER_TIMEOUT, DialError, DialParams, OpenConnection, START_TIMEOUT, ServerTls,
    connect_and_handshake,
};
pub(crate) use disk::{Remote, ServerPath, Shape};
pub(crate) use probe::{Probes, Subject};
use request_table::{Link, RequestTable};
pub(crate) use server_address::{ServerAddress, resolve};

pub(crate) fn deadline_default() -> u32 {
    20
}

pub(crate) fn timeout_default() -> u32 {
    30
}

pub(crate) fn retries_default() -> u8 {
    4
}

pub(crate) fn request_deadline_default() -> u32 {
    60
}

/// Bounds of requests to a server, ns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) deadline_ns: u64,
    pub(crate) timeout_ns: u64,
    pub(crate) retries: u8,
    pub(crate) request_deadline_ns: u64,
}

impl Bounds {
    /// Of the parameters `deadline_s`, `timeout_s`, `retries` and `request_deadline_s`.
    pub(crate) fn new(deadline_s: u32, timeout_s: u32, retries: u8, request_s: u32) -> Bounds {
        Bounds {
            deadline_ns: u64::from(deadline_s) * S,
            timeout_ns: u64::from(timeout_s) * S,
            retries,
            request_deadline_ns: u64::from(request_s) * S,
        }
    }
}

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) status: Status,
    /// For a map: bytes of the run, and their state.
    pub(crate) run: Option<(u64, u64)>,
}

impl Outcome {
    pub(crate) const GOOD: Outcome = Outcome { status: Ok(()), run: None };

    pub(crate) fn failed(error: Errno) -> Outcome {
        Outcome { status: Err(error), run: None }
    }
}
