//! CPU time of reading an export: our disk of kind `nbd` beside libnbd's `nbdcopy`, in turns, on
//! the same server.
//!
//! Both read all of it in order by one connection, in requests of the same size with as many in
//! flight, and drop the data, which are zeroes. The export of nbdkit takes no memory.

use std::sync::Arc;
use std::time::Instant;

use bio::Op;
use serde_json::json;

use super::servers::{self, Store};
use crate::bed::{Bed, failed};
use crate::classes::drive::Drive;
use crate::cpu_affinity::{on_core, two_cores};
use crate::error::{Error, Kind};
use crate::initiator::Found;
use crate::options::Options;
use crate::process_costs::ended_children_ns;
use crate::progress::Progress;
use crate::report::{Goal, Of, Report, Series};
use crate::servers::{pinned, tool};

pub(crate) const CASE: &str = "nbd-client-read-256k-d64";
/// Bytes of the export: a second of CPU time and more, counted in steps of 10 ms.
const EXPORT_BYTES: u64 = 8 << 30;
const REQUEST_BYTES: u64 = 256 << 10;
const DEPTH: u32 = 64;
/// Goal: our CPU time over that of `nbdcopy`.
const PEER_RATIO: f64 = 1.3;

pub(super) fn measure(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    if !options.wants(CASE) {
        return Ok(());
    }
    let (server_core, load_core) = two_cores(report);
    let server = match servers::zeroes(server_core, EXPORT_BYTES) {
        Err(error) if error.kind == Kind::Missing => {
            report.notes.push(format!("{CASE}: {}", error.message));
            return Ok(());
        }
        server => server?,
    };
    let (address, _) = server.export(Store::Null);
    let address = address.to_string();
    let (mut rates, mut cpu) = (Series::default(), Series::default());
    for round in 0..options.rounds {
        let step = format!("nbd: a whole export is read, round {}", round + 1);
        progress(Progress { done: round, of: options.rounds, step });
        let found = on_core(load_core, || ours(&address)).map_err(|e| e.within(CASE))?;
        rates.ours.push(found.rate);
        cpu.ours.push(found.cpu_ns / 1e3);
        match theirs(&address, load_core) {
            Ok(found) => {
                rates.theirs.push(found.rate);
                cpu.theirs.push(found.cpu_ns / 1e3);
            }
            Err(error) if error.kind == Kind::Missing => {
                report.notes.push(format!("{CASE}: {}", error.message));
            }
            Err(error) => return Err(error.within(CASE)),
        }
    }
    let goal = Goal { of: Of::Ratio, at_most: PEER_RATIO };
    let rows = [
        (cpu.row(CASE, ("client CPU a read", "us"), Some("nbdcopy")), Some(goal)),
        (rates.row(CASE, ("reads", "1/s"), Some("nbdcopy")), None),
    ];
    for (row, goal) in rows {
        report.add(options, "nbd", row, goal);
    }
    Ok(())
}

/// `nbdcopy` to its sink `null:`, from its start to its end.
fn theirs(address: &str, core: Option<usize>) -> Result<Found, Error> {
    let mut command = pinned(&tool("nbdcopy")?, core)?;
    command.args(["--connections=1", "--threads=1", "--no-extents", "--sparse=0"]);
    command.args([format!("--requests={DEPTH}"), format!("--request-size={REQUEST_BYTES}")]);
    command.args([format!("nbd://{address}"), "null:".to_owned()]);
    let (before, begun) = (ended_children_ns()?, Instant::now());
    let output = command.output().map_err(|e| Error::system("nbdcopy", e))?;
    let took = begun.elapsed();
    if !output.status.success() {
        let what = format!("nbdcopy: {}", String::from_utf8_lossy(&output.stderr));
        return Err(Error::new(Kind::Server, what));
    }
    let (cpu, reads) = (ended_children_ns()? - before, EXPORT_BYTES / REQUEST_BYTES);
    Ok(Found { rate: reads as f64 / took.as_secs_f64(), cpu_ns: cpu as f64 / reads as f64 })
}

/// Our disk on the calling thread.
fn ours(address: &str) -> Result<Found, Error> {
    let mut bed = Bed::start()?;
    let class = Arc::new(disks::DiskClass::new(bed.inbox.clone(), 1));
    bed.load(class.clone())?;
    let params = json!({ "address": address, "connections": 1 });
    let made = bed.control.call(|t| class.add(t, "nbd", "n0", &params));
    made.map_err(failed)?;
    let edge = bed.open("n0")?;
    let mut drive = Drive::new(&bed, DEPTH, REQUEST_BYTES as usize)?.sleeping();
    let reads = EXPORT_BYTES / REQUEST_BYTES;
    let place = |n| (edge, n * REQUEST_BYTES);
    let took = drive.run(&mut bed, (Op::Read, false), place, |_, n| n < reads)?;
    Ok(Found { rate: 1e9 / took.wall().max(1.0), cpu_ns: took.cpu() })
}
