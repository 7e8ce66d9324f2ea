//! Requests to a server that may go away: deadlines, retries and replay, whatever the protocol.
//!
//! A kind of disk that is reached over a network keeps one [`RequestTable`] for each connection.
//! The names and meanings of the bounds are those of CAM's disks (`[[bus]]`).

#[cfg(test)]
mod ledger_tests;
mod request_table;

use bio::{Errno, Status};
use reactor::clock::S;

pub(crate) use request_table::{Link, RequestTable};

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
