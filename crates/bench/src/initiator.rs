//! An initiator of ours in this process: a bus of CAM, its disk, and requests at random places.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bio::Op;
use cam::{CAM_CLASS, CamClass};
use reactor::{SeededRandom, WaitFor};
use serde_json::Value;

use crate::bed::{Bed, failed};
use crate::classes::drive::Drive;
use crate::error::Error;
use crate::load::WAIT;
use crate::servers::MEMORY_BYTES;

/// Requests made of the disk.
pub(crate) struct Ask {
    pub op: Op,
    /// Requests in flight, and bytes of each.
    pub depth: u32,
    pub bytes: u64,
    /// A turn without work sleeps, as a daemon's does.
    pub sleeps: bool,
    /// Load before it is measured, and while it is.
    pub warm: Duration,
    pub time: Duration,
}

/// Result of the measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// Requests a second.
    pub rate: f64,
    /// CPU time of each, ns.
    pub cpu_ns: f64,
}

/// Attaches a bus, `{kind, params}` as `attach` wants them, waits for its disk, and queries it.
pub(crate) fn measure(bus: &str, params: &Value, disk: &str, ask: &Ask) -> Result<Found, Error> {
    let mut bed = Bed::start()?;
    let cam = Arc::new(CamClass::new(bed.inbox.clone(), cam::sims::kinds(), 1));
    bed.load(cam.clone())?;
    bed.verb(CAM_CLASS, "attach", bus, params)?;
    wait_for(&mut bed, &cam, disk)?;
    let edge = bed.open(disk)?;
    let mut drive = Drive::new(&bed, ask.depth, ask.bytes as usize)?;
    if ask.sleeps {
        drive = drive.sleeping();
    }
    let mut random = SeededRandom::new(7);
    let mut place = move |_| (edge, random.below(MEMORY_BYTES / ask.bytes) * ask.bytes);
    let until = |time: Duration| {
        let begun = Instant::now();
        // The clock is read now and then.
        move |_: &mut Bed, n: u64| !n.is_multiple_of(64) || begun.elapsed() < time
    };
    drive.run(&mut bed, (ask.op, false), &mut place, until(ask.warm))?;
    let took = drive.run(&mut bed, (ask.op, false), &mut place, until(ask.time))?;
    cam.shut_down();
    bed.core.turn(WaitFor::Peek);
    Ok(Found { rate: 1e9 / took.wall().max(1.0), cpu_ns: took.cpu() })
}

fn wait_for(bed: &mut Bed, cam: &CamClass, disk: &str) -> Result<(), Error> {
    let begun = Instant::now();
    while bed.control.topology.find(disk).is_none() {
        if begun.elapsed() > WAIT {
            return Err(failed(format_args!("the initiator finds no disk {disk}")));
        }
        bed.core.turn(WaitFor::Peek);
        bed.control.pump();
        for (bus, done) in cam.take_update_results(&mut bed.control) {
            done.map_err(|e| failed(format_args!("{bus}: {e}")))?;
        }
    }
    Ok(())
}
