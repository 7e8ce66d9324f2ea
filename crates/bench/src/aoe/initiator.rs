//! Our initiator beside the line: requests of whole jumbo frames from disk `ada0` of the bus, and
//! the same frames sent and heard by a bare client, to and from the bare responder, over the same
//! cable, in turns. What the line carries is what two processors can send and hear.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bio::Op;
use cam::{CAM_CLASS, CamClass};
use reactor::SeededRandom;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::json;

use super::client::{self, Load, Work};
use super::servers::{Server, Store};
use crate::bed::{Bed, failed};
use crate::classes::drive::Drive;
use crate::error::{Error, Kind};
use crate::servers::MEMORY_BYTES;

/// Sectors of a frame of 9000 bytes.
pub(super) const SECTORS: u8 = 17;
/// Bytes of a request: a frame's.
const BYTES: u64 = SECTORS as u64 * 512;
/// Requests in flight.
pub(super) const DEPTH: u32 = 24;
/// Longest wait for the disk.
const WAIT: Duration = Duration::from_secs(20);
/// Nothing is written for so long after the bus was attached: frames of a run before may be on
/// their way still.
const QUIET: Duration = Duration::from_millis(2200);
/// Load before each measurement.
const WARM_UP: Duration = Duration::from_millis(300);

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
        Load { depth: DEPTH, work, sectors: SECTORS, core, ..Load::new(server, Store::File) };
    let running = client::start(&load)?;
    std::thread::sleep(WARM_UP);
    let (requests, begun) = (running.requests(), Instant::now());
    std::thread::sleep(Duration::from_secs(u64::from(seconds)));
    let rate = (running.requests() - requests) as f64 / begun.elapsed().as_secs_f64();
    running.stop()?;
    Ok(rate)
}

/// Requests a second of our initiator, and CPU time of each, ns.
pub(super) fn ours(
    server: &Server,
    case: Case,
    seconds: u32,
    core: Option<usize>,
) -> Result<(f64, f64), Error> {
    let near = server.near().to_owned();
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            if let Some(core) = core {
                let mut set = CpuSet::new();
                set.set(core);
                sched_setaffinity(None, &set).map_err(|e| Error::system("pin", e.into()))?;
            }
            run(&near, case, seconds)
        });
        thread.join().map_err(|_| Error::new(Kind::System, "the initiator's thread panicked"))?
    })
}

/// The bus at an interface, with its disk.
fn attach(near: &str) -> Result<(Bed, Arc<CamClass>), Error> {
    let mut bed = Bed::start()?;
    let cam = Arc::new(CamClass::new(bed.inbox.clone(), cam::sims::kinds(), 1));
    bed.load(cam.clone())?;
    let params = json!({ "kind": "aoe", "params": { "interfaces": [near] } });
    bed.verb(CAM_CLASS, "attach", "aoe0", &params)?;
    let begun = Instant::now();
    while bed.control.topology.find("ada0").is_none() {
        if begun.elapsed() > WAIT {
            return Err(failed("the initiator finds no disk"));
        }
        bed.core.turn(reactor::Patience::Peek);
        bed.control.pump();
        for (bus, done) in cam.look(&mut bed.control) {
            done.map_err(|e| failed(format_args!("{bus}: {e}")))?;
        }
    }
    Ok((bed, cam))
}

fn run(near: &str, case: Case, seconds: u32) -> Result<(f64, f64), Error> {
    let (mut bed, cam) = attach(near)?;
    let edge = bed.open("ada0")?;
    let mut drive = Drive::new(&bed, DEPTH, BYTES as usize)?;
    let mut random = SeededRandom::new(7);
    let mut place = move |_| (edge, random.below(MEMORY_BYTES / BYTES) * BYTES);
    let op = if case.write { Op::Write } else { Op::Read };
    let until = |time: Duration| {
        let begun = Instant::now();
        // The clock is read now and then.
        move |_: &mut Bed, n: u64| n % 64 != 0 || begun.elapsed() < time
    };
    let warm = if case.write { QUIET + WARM_UP } else { WARM_UP };
    drive.run(&mut bed, (op, false), &mut place, until(warm))?;
    let took =
        drive.run(&mut bed, (op, false), &mut place, until(Duration::from_secs(seconds.into())))?;
    cam.shut_down();
    let core = Rc::clone(&bed.core);
    core.turn(reactor::Patience::Peek);
    Ok((1e9 / took.wall().max(1.0), took.cpu()))
}
