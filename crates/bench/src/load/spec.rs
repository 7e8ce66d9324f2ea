//! Specification of a load and its results.

use std::net::SocketAddr;

use crate::error::{Error, Kind};
use crate::load::histogram::Histogram;

/// Most requests in flight of one session; more are refused.
pub const DEPTH_MAX: u32 = 1024;
/// Most sessions of one load; more are refused.
pub const SESSIONS_MAX: u32 = 8192;
/// Longest request, bytes; a longer one is refused.
pub const REQUEST_BYTES_MAX: u32 = 8 << 20;

/// Operation of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Read,
    /// WRITE of the same bytes again and again.
    Write,
    /// WRITE of the pattern that belongs to the place and to `Spec::seed`.
    Fill,
    /// READ of the data that [`Work::Fill`] wrote with the same seed; other data is an error.
    Check,
    /// WRITE of a pattern, then READ of the same place; other data is an error. Each request in
    /// flight has a part of the medium to itself, and a new pattern for each write.
    Verify,
}

/// Places of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// To any place, a multiple of the request's length.
    Random,
    /// One behind the other; sessions begin at equal distances.
    Sequential,
}

/// A load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Where the target listens.
    pub portal: SocketAddr,
    /// Its iSCSI name.
    pub target: String,
    /// Its logical units: session n uses the one at n modulo their number.
    pub luns: Vec<u32>,
    /// Sessions of one connection each.
    pub sessions: u32,
    /// Number of the first session. Two loads at once need different ones, for the number is in the
    /// initiator's name, and a login of the same name takes the place of the session before.
    pub first: u32,
    /// Requests in flight in each session.
    pub depth: u32,
    /// Bytes of a request, a multiple of the unit's block.
    pub request_bytes: u32,
    /// Operation of the requests.
    pub work: Work,
    /// Where.
    pub order: Order,
    /// The first byte of the unit that is used, a multiple of its block.
    pub start_bytes: u64,
    /// Only so many bytes from there; None: all of them.
    pub span_bytes: Option<u64>,
    /// Header and data digests.
    pub digests: bool,
    /// Requests of each session; None: until stopped.
    pub requests: Option<u64>,
    /// Sessions stay logged in after their requests, until stopped.
    pub linger: bool,
    /// The core it runs on; None: any.
    pub core: Option<usize>,
    /// Never sleep while waiting for answers, so that no wake-up is charged to the server.
    pub spin: bool,
    /// Chooses places and patterns.
    pub seed: u64,
}

impl Spec {
    /// 4 KiB random reads, one at a time in one session, until stopped.
    pub fn new(portal: SocketAddr, target: impl Into<String>, lun: u32) -> Spec {
        Spec {
            portal,
            target: target.into(),
            luns: vec![lun],
            sessions: 1,
            first: 0,
            depth: 1,
            request_bytes: 4096,
            work: Work::Read,
            order: Order::Random,
            start_bytes: 0,
            span_bytes: None,
            digests: false,
            requests: None,
            linger: false,
            core: None,
            spin: false,
            seed: 1,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |what: String| Err(Error::new(Kind::Options, what));
        if self.luns.is_empty() {
            return refuse("no logical unit is named".into());
        }
        for (name, value, max) in [
            ("sessions", self.sessions, SESSIONS_MAX),
            ("depth", self.depth, DEPTH_MAX),
            ("request_bytes", self.request_bytes, REQUEST_BYTES_MAX),
        ] {
            if !(1..=max).contains(&value) {
                return refuse(format!("{name}: 1 to {max}, not {value}"));
            }
        }
        Ok(())
    }
}

/// Results of a load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Requests that ended well.
    pub requests: u64,
    /// Requests among them whose data was compared.
    pub compared: u64,
    /// Requests that were answered BUSY or TASK SET FULL and were sent again.
    pub busy: u64,
    /// Latencies of those that ended while recording.
    pub latency: Histogram,
}

impl Outcome {
    /// Adds the results of another session.
    pub fn add(&mut self, other: &Outcome) {
        self.requests += other.requests;
        self.compared += other.compared;
        self.busy += other.busy;
        self.latency.add(&other.latency);
    }
}
