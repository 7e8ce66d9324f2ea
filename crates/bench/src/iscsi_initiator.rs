//! CPU time of a read at the initiator: our iSCSI initiator beside libiscsi's (`iscsi-perf`), in
//! turns, on the same target.

use std::thread::sleep;
use std::time::{Duration, Instant};

use bio::Op;
use serde_json::json;

use crate::cpu_affinity::{on_core, two_cores};
use crate::error::{Error, Kind};
use crate::initiator::{self, Ask, Found};
use crate::options::Options;
use crate::process_costs;
use crate::progress::Progress;
use crate::report::{Goal, Of, Report, Series};
use crate::servers::{Backing, Child, Scratch, Server, pinned, tool};
use crate::turns::WARM_UP;

pub(crate) const CASE: &str = "iscsi-initiator-read-4k-d32";
const BYTES: u64 = 4096;
const DEPTH: u32 = 32;
/// Goal: CPU time of a read over libiscsi's.
const PEER_RATIO: f64 = 1.0 / 1.5;
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
        progress(Progress { done: round, of: options.rounds, step: what });
        let found = ours(&server, options.seconds, load_core).map_err(|e| e.within(CASE))?;
        rates.ours.push(found.rate);
        cpu.ours.push(found.cpu_ns / 1e3);
        match theirs(&url, options.seconds, load_core) {
            Ok(found) => {
                rates.theirs.push(found.rate);
                cpu.theirs.push(found.cpu_ns / 1e3);
            }
            Err(error) if error.kind == Kind::Missing => {
                report.notes.push(format!("iscsi-initiator: {}", error.message));
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
        report.add(options, "iscsi", row, goal);
    }
    Ok(())
}

/// `iscsi-perf`, measured from outside while it runs.
fn theirs(url: &str, seconds: u32, core: Option<usize>) -> Result<Found, Error> {
    let home = Scratch::new("perf")?;
    let mut command = pinned(&tool("iscsi-perf")?, core)?;
    let longer = seconds + 2;
    command.args(["-i", "iqn.2026-11.bench.ashlar:perf", "-r", "-b", "8"]);
    command.args(["-m", &DEPTH.to_string(), "-t", &longer.to_string(), url]);
    let child = Child::start("iscsi-perf", &mut command, &home.path().join("log"))?;
    sleep(WARM_UP);
    let (cpu, begun) = (process_costs::cpu_ns(child.pid())?, Instant::now());
    sleep(Duration::from_secs(seconds.into()));
    let (cpu, took) = (process_costs::cpu_ns(child.pid())?.saturating_sub(cpu), begun.elapsed());
    sleep(Duration::from_secs(3));
    let log = child.log();
    // Progress lines contain "iops average" too: the last one counts.
    let average = log.rsplit_once("iops average ").and_then(|(_, last)| {
        last.split_whitespace().next().and_then(|number| number.parse::<f64>().ok())
    });
    let rate = average
        .ok_or_else(|| Error::new(Kind::Server, format!("iscsi-perf gave no average: {log}")))?;
    Ok(Found { rate, cpu_ns: cpu as f64 / (rate * took.as_secs_f64()).max(1.0) })
}

/// Our initiator, on a thread of its own.
fn ours(server: &Server, seconds: u32, core: Option<usize>) -> Result<Found, Error> {
    let params = json!({ "kind": "iscsi", "params": {
        "portals": [server.portal], "target": server.target,
        "initiator": "iqn.2026-11.bench.ashlar:initiator",
        "header_digest": "off", "data_digest": "off",
    } });
    let ask = Ask {
        op: Op::Read,
        depth: DEPTH,
        bytes: BYTES,
        sleeps: true,
        warm: WARM_UP,
        time: Duration::from_secs(seconds.into()),
    };
    on_core(core, || initiator::measure("iscsi0", &params, "da0", &ask))
}
