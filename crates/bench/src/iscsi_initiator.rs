//! Our iSCSI initiator beside libiscsi's (`iscsi-perf`), in turns, on the same target: what a read
//! costs the processor of whoever asks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use bio::Op;
use cam::{CAM_CLASS, CamClass};
use reactor::SeededRandom;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::json;

use crate::bed::{Bed, failed};
use crate::classes::drive::Drive;
use crate::error::{Error, Kind};
use crate::iscsi::two_cores;
use crate::options::Options;
use crate::report::{Goal, Of, Report, Series};
use crate::run::{Progress, with};
use crate::servers::{Backing, Child, MEMORY_BYTES, Scratch, Server, pinned, tool};
use crate::weigh;

/// The case.
pub(crate) const CASE: &str = "iscsi-initiator-read-4k-d32";
const BYTES: u64 = 4096;
const DEPTH: u32 = 32;
/// Goal: CPU time of a read over libiscsi's.
const PEER_RATIO: f64 = 1.0 / 1.5;
/// Longest wait for the disk.
const WAIT: Duration = Duration::from_secs(20);
/// Load before each measurement.
const WARM_UP: Duration = Duration::from_millis(300);

/// Reads a second, and CPU time of each, ns.
type Found = (f64, f64);

pub(crate) fn measure(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    if !options.wants(CASE) {
        return Ok(());
    }
    let (server_core, load_core) = two_cores(report);
    let server = Server::ashlar(&options.binary()?, server_core, &[Backing::Memory])?;
    let url = format!("iscsi://{}/{}/{}", server.portal, server.target, server.luns[0]);
    let (mut rates, mut cpu) = (Series::default(), Series::default());
    for round in 0..options.rounds {
        let what = format!("iscsi-initiator: round {}", round + 1);
        progress(Progress { done: round, of: options.rounds, what });
        let (rate, ns) = ours(&server, options.seconds, load_core).map_err(|e| e.within(CASE))?;
        rates.ours.push(rate);
        cpu.ours.push(ns / 1e3);
        match theirs(&url, options.seconds, load_core) {
            Ok((rate, ns)) => {
                rates.theirs.push(rate);
                cpu.theirs.push(ns / 1e3);
            }
            Err(error) if error.kind == Kind::Missing => {
                report.notes.push(format!("iscsi-initiator: {}", error.what));
            }
            Err(error) => return Err(error.within(CASE)),
        }
    }
    let goal = Goal { of: Of::Ratio, at_most: PEER_RATIO };
    let rows = [
        (cpu.row(CASE, ("initiator CPU a read", "us"), Some("libiscsi")), Some(goal)),
        (rates.row(CASE, ("reads", "1/s"), Some("libiscsi")), None),
    ];
    for (row, goal) in rows {
        report.rows.extend(row.map(|r| with(r, options, "iscsi", goal)));
    }
    Ok(())
}

/// `iscsi-perf`, weighed from outside while it is under way.
fn theirs(url: &str, seconds: u32, core: Option<usize>) -> Result<Found, Error> {
    let home = Scratch::new("perf")?;
    let mut command = pinned(&tool("iscsi-perf")?, core)?;
    let longer = seconds + 2;
    command.args(["-i", "iqn.2026-11.bench.ashlar:perf", "-r", "-b", "8"]);
    command.args(["-m", &DEPTH.to_string(), "-t", &longer.to_string(), url]);
    let child = Child::start("iscsi-perf", &mut command, &home.path().join("log"))?;
    sleep(WARM_UP);
    let (cpu, begun) = (weigh::cpu_ns(child.pid())?, Instant::now());
    sleep(Duration::from_secs(seconds.into()));
    let (cpu, took) = (weigh::cpu_ns(child.pid())?.saturating_sub(cpu), begun.elapsed());
    sleep(Duration::from_secs(3));
    let log = child.log();
    // Progress lines say "iops average" too: the last one counts.
    let average = log.rsplit_once("iops average ").and_then(|(_, last)| {
        last.split_whitespace().next().and_then(|number| number.parse::<f64>().ok())
    });
    let rate = average
        .ok_or_else(|| Error::new(Kind::Server, format!("iscsi-perf gave no average: {log}")))?;
    Ok((rate, cpu as f64 / (rate * took.as_secs_f64()).max(1.0)))
}

/// Our initiator, on a thread of its own.
fn ours(server: &Server, seconds: u32, core: Option<usize>) -> Result<Found, Error> {
    let (portal, target) = (server.portal, server.target.clone());
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            if let Some(core) = core {
                let mut set = CpuSet::new();
                set.set(core);
                sched_setaffinity(None, &set).map_err(|e| Error::system("pin", e.into()))?;
            }
            run(portal, &target, seconds)
        });
        thread.join().map_err(|_| Error::new(Kind::System, "the initiator's thread panicked"))?
    })
}

fn run(portal: SocketAddr, target: &str, seconds: u32) -> Result<Found, Error> {
    let mut bed = Bed::start()?;
    let cam = Arc::new(CamClass::new(bed.inbox.clone(), cam::sims::kinds(), 1));
    bed.load(cam.clone())?;
    let params = json!({ "kind": "iscsi", "params": {
        "portals": [portal], "target": target, "initiator": "iqn.2026-11.bench.ashlar:initiator",
        "header_digest": "off", "data_digest": "off",
    } });
    bed.verb(CAM_CLASS, "attach", "iscsi0", &params)?;
    let begun = Instant::now();
    while bed.control.topology.find("da0").is_none() {
        if begun.elapsed() > WAIT {
            return Err(failed("the initiator finds no disk"));
        }
        bed.core.turn(reactor::Patience::Peek);
        bed.control.pump();
        for (bus, done) in cam.look(&mut bed.control) {
            done.map_err(|e| failed(format_args!("{bus}: {e}")))?;
        }
    }
    let edge = bed.open("da0")?;
    let mut drive = Drive::new(&bed, DEPTH, BYTES as usize)?.sleeping();
    let mut random = SeededRandom::new(7);
    let mut place = move |_| (edge, random.below(MEMORY_BYTES / BYTES) * BYTES);
    let until = |time: Duration| {
        let begun = Instant::now();
        // The clock is read now and then.
        move |_: &mut Bed, n: u64| n % 64 != 0 || begun.elapsed() < time
    };
    drive.run(&mut bed, (Op::Read, false), &mut place, until(WARM_UP))?;
    let time = until(Duration::from_secs(seconds.into()));
    let took = drive.run(&mut bed, (Op::Read, false), &mut place, time)?;
    cam.shut_down();
    bed.core.turn(reactor::Patience::Peek);
    Ok((1e9 / took.wall().max(1.0), took.cpu()))
}
