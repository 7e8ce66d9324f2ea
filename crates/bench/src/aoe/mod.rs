//! Load over AoE: Ashlar beside vblade and the bare responder, in turns, on the same cores, each
//! on a cable of its own; and our initiator beside the line.

pub(crate) mod bare;
mod cable;
mod client;
pub(crate) mod initiator;
mod servers;

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::error::{Error, Kind};
use crate::iscsi::{counters, two_cores};
use crate::options::Options;
use crate::report::{Goal, Of, Report, Series, median};
use crate::run::{Progress, with};
use crate::servers::MEMORY_BYTES;
use crate::weigh;
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
/// Load before each measurement.
const WARM_UP: Duration = Duration::from_millis(300);
/// Requests that are counted with perf, of those that a round brought.
const COUNTED_PART: f64 = 0.25;

const FIGURES: [(&str, &str); 5] = [
    ("server CPU a request", "us"),
    ("system calls a request", ""),
    ("requests", "1/s"),
    ("latency p50", "us"),
    ("latency p99", "us"),
];

type Round = [Option<f64>; FIGURES.len()];

pub(crate) fn measure(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let exact = CASES.iter().any(|c| options.case.as_deref() == Some(c.name));
    let wanted = |name: &str| {
        if exact { options.case.as_deref() == Some(name) } else { options.wants(name) }
    };
    let cases: Vec<&Case> = CASES.iter().filter(|c| wanted(c.name)).collect();
    let lines: Vec<initiator::Case> =
        initiator::CASES.into_iter().filter(|c| wanted(c.name)).collect();
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

type Cores = (Option<usize>, Option<usize>);

/// Our initiator and a bare client, in turns, with the bare responder.
fn measure_initiator(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
    cases: &[initiator::Case],
    (server_core, load_core): Cores,
) -> Result<(), Error> {
    let server = match servers::bare(&options.worker()?, server_core) {
        Ok(server) => server,
        Err(error) if error.kind == Kind::Missing => {
            report.notes.push(format!("aoe: {}", error.what));
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let steps = u32::try_from(cases.len()).unwrap_or(u32::MAX).saturating_mul(options.rounds);
    let mut done = 0;
    for case in cases {
        let (mut rates, mut cpu) = (Series { ours: Vec::new(), theirs: Vec::new() }, Vec::new());
        for round in 0..options.rounds {
            let what = format!("aoe: {}, round {}", case.name, round + 1);
            progress(Progress { done, of: steps, what });
            done += 1;
            let mut ours = || -> Result<(), Error> {
                let (rate, ns) = initiator::ours(&server, *case, options.seconds, load_core)
                    .map_err(|e| e.within(case.name))?;
                rates.ours.push(rate);
                cpu.push(ns / 1e3);
                Ok(())
            };
            // Who begins changes from round to round.
            if round % 2 == 0 {
                ours()?;
            }
            let line = initiator::line(&server, *case, options.seconds, load_core);
            let line = line.map_err(|e| e.within(case.name))?;
            if round % 2 == 1 {
                ours()?;
            }
            rates.theirs.push(line);
        }
        let goal = Goal { of: Of::Inverse, at_most: LINE_RATIO };
        let row = rates.row(case.name, ("requests", "1/s"), Some("line"));
        report.rows.extend(row.map(|r| with(r, options, "aoe", Some(goal))));
        let cpu = Series { ours: cpu, theirs: Vec::new() };
        let row = cpu.row(case.name, ("processor time between answers", "us"), None);
        report.rows.extend(row.map(|r| with(r, options, "aoe", None)));
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
    let mut servers = Vec::new();
    match servers::ashlar(&options.binary()?, server_core) {
        Ok(server) => servers.push(server),
        Err(error) if error.kind == Kind::Missing => {
            report.notes.push(format!("aoe: {}", error.what));
            return Ok(());
        }
        Err(error) => return Err(error),
    }
    if !options.no_peers {
        match servers::vblade(server_core) {
            Ok(server) => servers.push(server),
            Err(error) if error.kind == Kind::Missing => report.notes.push(error.what),
            Err(error) => return Err(error),
        }
        servers.push(servers::bare(&options.worker()?, server_core)?);
    }
    let counters = !options.no_counters && counters(report);
    for server in &servers {
        progress(Progress { done: 0, of: 1, what: format!("aoe: data of {}", server.name) });
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
    let steps = u32::try_from(cases.len()).unwrap_or(u32::MAX).saturating_mul(options.rounds);
    let mut done = 0;
    for &case in cases {
        let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); servers.len()];
        for round in 0..options.rounds {
            let what = format!("aoe: {}, round {}", case.name, round + 1);
            progress(Progress { done, of: steps, what });
            done += 1;
            // Who begins changes from round to round.
            for turn in 0..servers.len() {
                let n = (turn + round as usize) % servers.len();
                let server = &servers[n];
                let one = weigh_round(server, case, options, load_core, counters);
                let place = format!("{} in case {}", server.name, case.name);
                rounds[n].push(one.map_err(|e| e.within(&place))?);
            }
        }
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
    let running = client::start(&load)?;
    sleep(WARM_UP);
    running.record(true);
    let (requests, cpu, begun) = (running.requests(), weigh::cpu_ns(server.pid())?, Instant::now());
    sleep(Duration::from_secs(u64::from(options.seconds)));
    let (requests, cpu, took) = (
        running.requests() - requests,
        weigh::cpu_ns(server.pid())?.saturating_sub(cpu),
        begun.elapsed().as_secs_f64(),
    );
    running.record(false);
    let latency = running.stop()?.latency;
    if requests == 0 {
        return Err(Error::new(Kind::Timeout, "no request ended while it was measured"));
    }
    let us = |part| latency.quantile(part).map(|ns| ns as f64 / 1e3);
    let requests = requests as f64;
    let calls = if counters {
        let each = (requests * COUNTED_PART).ceil().max(100.0) as u64;
        let counter = weigh::Counter::start(server.pid())?;
        let outcome = client::run(&Load { requests: Some(each), ..load })?;
        Some(counter.finish()? as f64 / (outcome.requests as f64).max(1.0))
    } else {
        None
    };
    Ok([Some(cpu as f64 / requests / 1e3), calls, Some(requests / took), us(0.5), us(0.99)])
}

fn rows(
    options: &Options,
    report: &mut Report,
    case: &Case,
    servers: &[Server],
    rounds: &[Vec<Round>],
) {
    let pick = |side: usize, figure: usize| -> Vec<f64> {
        let all = rounds.get(side).map(Vec::as_slice).unwrap_or_default();
        all.iter().filter_map(|round| round.get(figure).copied().flatten()).collect()
    };
    let mut add = |n: usize, side: usize, of: Of, at_most: Option<f64>| {
        let Some(&figure) = FIGURES.get(n) else { return };
        let theirs = if side > 0 { pick(side, n) } else { Vec::new() };
        let peer = servers.get(side).filter(|_| side > 0).map(|s| s.name);
        let row = Series { ours: pick(0, n), theirs }.row(case.name, figure, peer);
        let goal = at_most.filter(|_| case.goals).map(|at_most| Goal { of, at_most });
        report.rows.extend(row.map(|r| with(r, options, "aoe", goal)));
    };
    for (side, server) in servers.iter().enumerate().skip(1) {
        add(0, side, Of::Ratio, (server.name == VBLADE).then_some(PEER_RATIO));
        for n in 1..FIGURES.len() {
            add(n, side, Of::Ours, None);
        }
    }
    let at = |name| servers.iter().position(|s| s.name == name);
    if let (Some(vblade), Some(bare)) = (at(VBLADE), at("bare")) {
        let parts = pick(bare, 0).into_iter().zip(pick(vblade, 0));
        let parts: Vec<f64> = parts.map(|(bare, vblade)| bare / vblade).collect();
        if let Some(part) = median(&parts) {
            let note = format!(
                "{}: a frame in and a frame out, by the bare responder, take {part:.2} of \
                 vblade's CPU time",
                case.name
            );
            report.notes.push(note);
        }
    }
    if servers.len() == 1 {
        (2..FIGURES.len()).for_each(|n| add(n, 0, Of::Ours, None));
    }
}
