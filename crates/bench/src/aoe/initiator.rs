//! Our initiator beside the line rate. Disk `ada0` of the bus gets requests of whole jumbo frames.
//! A bare client sends and receives the same frames to and from the bare responder, over the same
//! cable, in turns. The line rate is the rate that two processors can send and receive.

use std::time::{Duration, Instant};

use bio::Op;
use serde_json::json;

use super::client::{self, Load, Work};
use super::servers::{Server, Store};
use crate::busy_core::BusyCore;
use crate::cpu_affinity::{Cores, on_core};
use crate::error::Error;
use crate::initiator::{Ask, Found, measure};
use crate::turns::WARM_UP;

/// Sectors of a frame of 9000 bytes.
pub(super) const SECTORS: u8 = 17;
/// Bytes of a request: a frame's.
const BYTES: u64 = SECTORS as u64 * 512;
/// Requests in flight.
pub(super) const DEPTH: u32 = 24;
/// Nothing is written for so long after the bus was attached: frames of a run before may be on
/// their way still.
const QUIET: Duration = Duration::from_millis(2200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub name: &'static str,
    pub write: bool,
    /// The core that another thread keeps busy.
    pub busy: Option<BusySide>,
}

/// A core that is shared with a busy thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BusySide {
    Responder,
    /// That of the initiator and of the line's client.
    Initiator,
}

impl Case {
    /// Goal: part of the line's requests a second.
    pub fn line_part(&self) -> f64 {
        if self.busy.is_some() { 0.95 } else { 0.9 }
    }

    /// Keeps the case's core busy while the result is held.
    pub fn start_busy(&self, (responder, initiator): Cores) -> Result<Option<BusyCore>, Error> {
        let core = match self.busy {
            None => return Ok(None),
            Some(BusySide::Responder) => responder,
            Some(BusySide::Initiator) => initiator,
        };
        BusyCore::start(core).map(Some)
    }
}

const READ: Case = Case { name: "aoe-initiator-read-jumbo-d24", write: false, busy: None };
const WRITE: Case = Case { name: "aoe-initiator-write-jumbo-d24", write: true, busy: None };

pub(crate) const CASES: [Case; 4] = [
    READ,
    WRITE,
    Case {
        name: "aoe-initiator-write-jumbo-d24-busy-responder",
        busy: Some(BusySide::Responder),
        ..WRITE
    },
    Case {
        name: "aoe-initiator-write-jumbo-d24-busy-initiator",
        busy: Some(BusySide::Initiator),
        ..WRITE
    },
];

/// Requests a second of the line.
pub(super) fn line(
    server: &Server,
    case: Case,
    seconds: u32,
    core: Option<usize>,
) -> Result<f64, Error> {
    let work = if case.write { Work::Write } else { Work::Read };
    let load =
        Load { depth: DEPTH, work, sectors: SECTORS, core, ..Load::new(server, Store::Memory) };
    let running = client::start(&load)?;
    std::thread::sleep(WARM_UP);
    let (requests, begun) = (running.requests(), Instant::now());
    std::thread::sleep(Duration::from_secs(u64::from(seconds)));
    let rate = (running.requests() - requests) as f64 / begun.elapsed().as_secs_f64();
    running.stop()?;
    Ok(rate)
}

/// Our initiator.
pub(super) fn ours(
    server: &Server,
    case: Case,
    seconds: u32,
    core: Option<usize>,
) -> Result<Found, Error> {
    let params = json!({ "kind": "aoe", "params": { "interfaces": [server.near()] } });
    let ask = Ask {
        op: if case.write { Op::Write } else { Op::Read },
        depth: DEPTH,
        bytes: BYTES,
        sleeps: false,
        warm: if case.write { QUIET + WARM_UP } else { WARM_UP },
        time: Duration::from_secs(seconds.into()),
    };
    on_core(core, || measure("aoe0", &params, "ada0", &ask))
}
