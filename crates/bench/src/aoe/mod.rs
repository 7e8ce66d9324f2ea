//! Load over AoE: Ashlar beside vblade and the bare responder, in turns, on the same cores, each
//! on a cable of its own; and our initiator beside the line.

pub(crate) mod bare;
mod cable;
mod client;
pub(crate) mod initiator;
mod servers;

use crate::cpu_affinity::{Cores, two_cores};
use crate::error::Error;
use crate::options::Options;
use crate::progress::Progress;
use crate::report::{Goal, Of, Report, Series};
use crate::servers::MEMORY_BYTES;
use crate::turns::{
    FIGURES, Round, Rounds, Turns, calls_a_request, counters, measure_load, or_note,
};
use client::{Load, REQUEST_BYTES, Work};
use servers::{Server, Store};

/// One case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    /// Its name.
    pub name: &'static str,
    store: Store,
    work: Work,
    depth: u32,
    /// The goal of many reads in flight holds.
    goals: bool,
}

const READ: Case = Case { name: "", store: Store::File, work: Work::Read, depth: 32, goals: true };
const WRITE: Case = Case { work: Work::Write, goals: false, ..READ };

/// Every case. Places are random within 256 MiB, 4 KiB a request and frame.
pub(crate) const CASES: [Case; 4] = [
    Case { name: "aoe-file-read-4k-d32", ..READ },
    Case { name: "aoe-memory-read-4k-d32", store: Store::Memory, ..READ },
    Case { name: "aoe-file-write-4k-d32", ..WRITE },
    Case { name: "aoe-file-read-4k-d1", depth: 1, goals: false, ..READ },
];

/// Goal: our CPU time over vblade's.
const PEER_RATIO: f64 = 1.0 / 3.0;
/// Goal: requests a second of the line over those of our initiator.
const LINE_RATIO: f64 = 1.0 / 0.9;
/// vblade's name in tables.
const VBLADE: &str = "vblade";

pub(crate) fn measure(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let cases = options.choose(&CASES, |c| c.name);
    let lines = options.choose(&initiator::CASES, |c| c.name);
    if cases.is_empty() && lines.is_empty() {
        return Ok(());
    }
    let cores = two_cores(report);
    if !lines.is_empty() {
        measure_initiator(options, report, progress, &lines, cores)?;
    }
    match cases.is_empty() {
        true => Ok(()),
        false => measure_target(options, report, progress, &cases, cores),
    }
}

/// Our initiator and a bare client, in turns, with the bare responder.
fn measure_initiator(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
    cases: &[&initiator::Case],
    (server_core, load_core): Cores,
) -> Result<(), Error> {
    let server = servers::bare(server_core).map_err(|e| e.within("aoe"));
    let Some(server) = or_note(server, report)? else { return Ok(()) };
    let mut turns = Turns { kind: "aoe", options, progress, cases: cases.len(), done: 0 };
    for &case in cases {
        let rounds = turns.take(case.name, 2, |side| {
            if side > 0 {
                let rate = initiator::line(&server, *case, options.seconds, load_core)?;
                return Ok([None, None, Some(rate), None, None]);
            }
            let found = initiator::ours(&server, *case, options.seconds, load_core)?;
            Ok([Some(found.cpu_ns / 1e3), None, Some(found.rate), None, None])
        })?;
        let rates = Series { ours: rounds.of(0, 2), theirs: rounds.of(1, 2) };
        let goal = Goal { of: Of::Inverse, at_most: LINE_RATIO };
        let row = rates.row(case.name, ("requests", "1/s"), Some("line"));
        report.add(options, "aoe", row, Some(goal));
        let cpu = Series { ours: rounds.of(0, 0), theirs: Vec::new() };
        let row = cpu.row(case.name, ("processor time between answers", "us"), None);
        report.add(options, "aoe", row, None);
    }
    Ok(())
}

fn measure_target(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
    cases: &[&Case],
    (server_core, load_core): Cores,
) -> Result<(), Error> {
    let ours = servers::ashlar(&options.binary()?, server_core).map_err(|e| e.within("aoe"));
    let Some(ours) = or_note(ours, report)? else { return Ok(()) };
    let mut servers = vec![ours];
    if !options.no_peers {
        servers.extend(or_note(servers::vblade(server_core), report)?);
        servers.push(servers::bare(server_core)?);
    }
    let counters = counters(options, report);
    for server in &servers {
        progress(Progress { done: 0, of: 1, step: format!("aoe: data of {}", server.name) });
        for store in [Store::Memory, Store::File] {
            let fill = Load {
                depth: 8,
                work: Work::Fill,
                requests: Some(MEMORY_BYTES / REQUEST_BYTES),
                core: load_core,
                ..Load::new(server, store)
            };
            client::run(&fill).map_err(|e| e.within(&format!("data of {}", server.name)))?;
        }
    }
    let mut turns = Turns { kind: "aoe", options, progress, cases: cases.len(), done: 0 };
    for &case in cases {
        let rounds = turns.take(case.name, servers.len(), |n| {
            let server = &servers[n];
            let one = weigh_round(server, case, options, load_core, counters);
            one.map_err(|e| e.within(server.name))
        })?;
        rows(options, report, case, &servers, &rounds);
    }
    Ok(())
}

fn weigh_round(
    server: &Server,
    case: &Case,
    options: &Options,
    core: Option<usize>,
    counters: bool,
) -> Result<Round, Error> {
    let load = Load { depth: case.depth, work: case.work, core, ..Load::new(server, case.store) };
    let weighed = measure_load(client::start(&load)?, server.pid(), options)?;
    let again = |n| Ok(client::run(&Load { requests: Some(n), ..load })?.requests);
    let calls = counters.then(|| calls_a_request(server.pid(), &weighed, again));
    Ok(weighed.round(calls.transpose()?))
}

fn rows(options: &Options, report: &mut Report, case: &Case, servers: &[Server], rounds: &Rounds) {
    let mut add = |n: usize, side: usize, of: Of, at_most: Option<f64>| {
        let Some(&figure) = FIGURES.get(n) else { return };
        let theirs = if side > 0 { rounds.of(side, n) } else { Vec::new() };
        let peer = servers.get(side).filter(|_| side > 0).map(|s| s.name);
        let row = Series { ours: rounds.of(0, n), theirs }.row(case.name, figure, peer);
        let goal = at_most.filter(|_| case.goals).map(|at_most| Goal { of, at_most });
        report.add(options, "aoe", row, goal);
    };
    for (side, server) in servers.iter().enumerate().skip(1) {
        add(0, side, Of::Ratio, (server.name == VBLADE).then_some(PEER_RATIO));
        for n in 1..FIGURES.len() {
            add(n, side, Of::Ours, None);
        }
    }
    if servers.len() == 1 {
        (2..FIGURES.len()).for_each(|n| add(n, 0, Of::Ours, None));
    }
    let at = |name| servers.iter().position(|s| s.name == name);
    if let (Some(vblade), Some(bare)) = (at(VBLADE), at("bare")) {
        let work = "a frame in and a frame out";
        report.floor(case.name, work, &rounds.of(bare, 0), (VBLADE, &rounds.of(vblade, 0)));
    }
}
