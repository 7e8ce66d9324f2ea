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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub name: &'static str,
    store: Store,
    work: Work,
    depth: u32,
}

const READ: Case = Case { name: "", store: Store::File, work: Work::Read, depth: 32 };
const WRITE: Case = Case { work: Work::Write, ..READ };

/// Every case. Places are random within 256 MiB, 4 KiB a request and frame.
pub(crate) const CASES: [Case; 5] = [
    Case { name: "aoe-file-read-4k-d32", ..READ },
    Case { name: "aoe-memory-read-4k-d32", store: Store::Memory, ..READ },
    Case { name: "aoe-file-write-4k-d32", ..WRITE },
    Case { name: "aoe-file-read-4k-d1", depth: 1, ..READ },
    Case { name: "aoe-file-write-4k-d1", depth: 1, ..WRITE },
];

/// Names of the peers in tables.
const VBLADE: &str = "vblade";
const BARE: &str = "bare";

/// Goal: our CPU time over that of a peer, for every case.
fn cpu_goal(peer: &str) -> Option<f64> {
    match peer {
        BARE => Some(1.15),
        VBLADE => Some(1.0),
        _ => None,
    }
}

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
    cores: Cores,
) -> Result<(), Error> {
    let (server_core, load_core) = cores;
    let server = servers::bare(server_core).map_err(|e| e.within("aoe"));
    let Some(server) = or_note(server, report)? else { return Ok(()) };
    let mut turns = Turns { kind: "aoe", options, progress, cases: cases.len(), done: 0 };
    for &case in cases {
        let busy = case.start_busy(cores)?;
        let rounds = turns.take(case.name, 2, |side| {
            if side > 0 {
                let rate = initiator::line(&server, *case, options.seconds, load_core)?;
                return Ok([None, None, Some(rate), None, None]);
            }
            let found = initiator::ours(&server, *case, options.seconds, load_core)?;
            Ok([Some(found.cpu_ns / 1e3), None, Some(found.rate), None, None])
        })?;
        let rates = Series { ours: rounds.of(0, 2), theirs: rounds.of(1, 2) };
        drop(busy);
        let goal = Goal { of: Of::Inverse, at_most: 1.0 / case.line_part() };
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
        let goal = at_most.map(|at_most| Goal { of, at_most });
        report.add(options, "aoe", row, goal);
    };
    for (side, server) in servers.iter().enumerate().skip(1) {
        add(0, side, Of::Ratio, cpu_goal(server.name));
        for n in 1..FIGURES.len() {
            add(n, side, Of::Ours, None);
        }
    }
    if servers.len() == 1 {
        (2..FIGURES.len()).for_each(|n| add(n, 0, Of::Ours, None));
    }
    let at = |name| servers.iter().position(|s| s.name == name);
    if let (Some(vblade), Some(bare)) = (at(VBLADE), at(BARE)) {
        let work = "a frame in and a frame out";
        report.floor(case.name, work, &rounds.of(bare, 0), (VBLADE, &rounds.of(vblade, 0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_depth_and_work_has_a_file_case_with_both_goals() {
        let has = |work, depth| {
            let is_one = |c: &&Case| (c.store, c.work, c.depth) == (Store::File, work, depth);
            CASES.iter().filter(is_one).count() == 1
        };
        for (work, depth) in [Work::Read, Work::Write].into_iter().flat_map(|w| [(w, 1), (w, 32)]) {
            assert!(has(work, depth), "{work:?} at depth {depth}");
        }
        assert_eq!([BARE, VBLADE, "other"].map(cpu_goal), [Some(1.15), Some(1.0), None]);
        let parts = initiator::CASES.map(|case| case.line_part());
        assert_eq!(parts, [0.9, 0.9, 0.95, 0.95]);
    }
}
