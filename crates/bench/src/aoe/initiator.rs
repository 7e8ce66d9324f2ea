//! Our initiator beside the line rate. Disk `ada0` of the bus gets requests of whole jumbo frames.
//! A bare client sends and receives the same frames to and from the bare responder, over the same
//! cable, in turns. The line rate is the rate that two processors can send and receive.

use std::time::{Duration, Instant};

use bio::Op;
use serde_json::json;

use super::client::{self, Load, Work};
use super::servers::{Server, Store};
use crate::cpu_affinity::on_core;
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

/// One case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub name: &'static str,
    pub write: bool,
}

/// Every case.
pub(crate) const CASES: [Case; 2] = [
    Case { name: "aoe-initiator-read-jumbo-d24", write: false },
    Case { name: "aoe-initiator-write-jumbo-d24", write: true },
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
