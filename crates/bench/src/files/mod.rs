//! Files over 9P: Ashlar beside diod, in turns, on the same cores; and what a dump costs those who
//! use the files meanwhile.

mod client;
mod servers;

use std::thread::sleep;
use std::time::{Duration, Instant};

use wire::ninep::IOHDR;

use crate::error::{Error, Kind};
use crate::iscsi::two_cores;
use crate::options::Options;
use crate::report::{Goal, Of, Report, Series};
use crate::run::{Progress, with};
use crate::weigh;
use client::{Load, Work};
use servers::{FILE_BYTES, Server, Sizes};

/// One case of load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Case {
    /// Its name.
    pub name: &'static str,
    work: Work,
    depth: u32,
    /// Beside diod.
    peer: bool,
    /// Most CPU time of a request, of the peer's.
    ratio: Option<f64>,
    /// Most time for a request, us.
    most_us: Option<f64>,
}

/// Bytes of a message's data in the sequential case.
const LARGE: u32 = 128 << 10;
/// Goal: 1.5 GB/s of them, as time for one.
const LARGE_US: f64 = LARGE as f64 / 1.5e3;
/// Goal: 20,000 files made or removed a second, as time for one.
const NAME_US: f64 = 50.0;
/// Goal: our CPU time of a small read over diod's.
const PEER_RATIO: f64 = 0.5;
/// Load before each measurement.
const WARM_UP: Duration = Duration::from_millis(300);

/// Every case of load.
pub(crate) const CASES: [Case; 4] = [
    Case {
        name: "files-read-128k",
        work: Work::Sequential,
        depth: 4,
        // diod's messages are smaller.
        peer: false,
        ratio: None,
        most_us: Some(LARGE_US),
    },
    Case {
        name: "files-read-8k-d16",
        work: Work::Random(8192),
        depth: 16,
        peer: true,
        ratio: Some(PEER_RATIO),
        most_us: None,
    },
    Case {
        name: "files-read-8k-d1",
        work: Work::Random(8192),
        depth: 1,
        peer: true,
        ratio: None,
        most_us: None,
    },
    Case {
        name: "files-create-remove",
        work: Work::Names,
        depth: 16,
        peer: false,
        ratio: None,
        most_us: Some(NAME_US),
    },
];
/// What a dump costs.
pub(crate) const HALT: &str = "files-dump-halt";
/// Blocks of its tree, and those changed before each dump.
const TREE_BLOCKS: u64 = 1_000_000;
const CHANGED: u64 = 1000;
/// Goal: longest wait of a client while a dump is taken, ms.
const HALT_MS: f64 = 10.0;
/// Around a dump, the client is watched so long.
const AROUND: Duration = Duration::from_millis(300);

const FIGURES: [(&str, &str); 5] = [
    ("server CPU a request", "us"),
    ("time a request", "us"),
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
    if !cases.is_empty() {
        load(options, report, progress, &cases)?;
    }
    if wanted(HALT) { halt(options, report, progress) } else { Ok(()) }
}

fn load(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
    cases: &[&Case],
) -> Result<(), Error> {
    let (server_core, load_core) = two_cores(report);
    let sizes = Sizes { block: 16 << 10, memory: 2 * FILE_BYTES, device: 2 << 30 };
    let mut servers = vec![servers::ashlar(&options.binary()?, server_core, sizes)?];
    if !options.no_peers {
        match servers::diod(server_core) {
            Ok(server) => servers.push(server),
            Err(error) if error.kind == Kind::Missing => report.notes.push(error.what),
            Err(error) => return Err(error),
        }
    }
    for server in &servers {
        progress(Progress { done: 0, of: 1, what: format!("files: data of {}", server.name) });
        let proof = |work| Load { depth: 8, core: load_core, ..Load::new(server, work) };
        if server.name == "ashlar" {
            client::run(&proof(Work::Fill(FILE_BYTES)))?;
        }
        let looked = client::run(&proof(Work::Verify));
        looked.map_err(|e| e.within(&format!("data of {}", server.name)))?;
    }
    let steps = u32::try_from(cases.len()).unwrap_or(u32::MAX).saturating_mul(options.rounds);
    let mut done = 0;
    for case in cases {
        let sides = if case.peer { servers.len() } else { 1 };
        let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); sides];
        for round in 0..options.rounds {
            let what = format!("files: {}, round {}", case.name, round + 1);
            progress(Progress { done, of: steps, what });
            done += 1;
            // Who begins changes from round to round.
            for turn in 0..sides {
                let n = (turn + round as usize) % sides;
                let one = weigh_round(&servers[n], case, options, load_core);
                let place = format!("{} in case {}", servers[n].name, case.name);
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
) -> Result<Round, Error> {
    let load =
        Load { depth: case.depth, msize: LARGE + IOHDR, core, ..Load::new(server, case.work) };
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
    let n = requests as f64;
    Ok([Some(cpu as f64 / n / 1e3), Some(took / n * 1e6), Some(n / took), us(0.5), us(0.99)])
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
    let peer = servers.get(1).filter(|_| rounds.len() > 1).map(|s| s.name);
    for (n, &figure) in FIGURES.iter().enumerate() {
        let theirs = if peer.is_some() { pick(1, n) } else { Vec::new() };
        let row = Series { ours: pick(0, n), theirs }.row(case.name, figure, peer);
        let goal = match n {
            0 if peer.is_some() => case.ratio.map(|at_most| Goal { of: Of::Ratio, at_most }),
            1 => case.most_us.map(|at_most| Goal { of: Of::Ours, at_most }),
            _ => None,
        };
        report.rows.extend(row.map(|r| with(r, options, "files", goal)));
    }
}

/// The longest wait of a client that writes a block at a time while a dump is taken of a tree of a
/// million blocks, a thousand of which were changed; and how long the dump took.
fn halt(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let (server_core, load_core) = two_cores(report);
    let bytes = TREE_BLOCKS * 4096;
    let sizes = Sizes { block: 4096, memory: 256 << 20, device: 2 * bytes };
    let server = servers::ashlar(&options.binary()?, server_core, sizes)?;
    progress(Progress { done: 0, of: 1, what: "files: a tree of a million blocks".into() });
    let write = |work, depth| Load { depth, core: load_core, ..Load::new(&server, work) };
    client::run(&write(Work::Fill(bytes / 65_536 * 65_536), 8))?;
    server.typed("dump --wait")?;
    let (mut longest, mut took, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..options.rounds {
        let what = format!("files: {HALT}, round {}", round + 1);
        progress(Progress { done: round, of: options.rounds, what });
        let soil = Load { requests: Some(CHANGED), ..write(Work::Soil(bytes), 8) };
        client::run(&soil)?;
        // The same client without a dump, for what the machine does to it by itself.
        for dump in [false, true] {
            let running = client::start(&write(Work::Soil(bytes), 1))?;
            sleep(AROUND);
            running.record(true);
            let begun = Instant::now();
            if dump {
                server.typed("dump")?;
                took.push(begun.elapsed().as_secs_f64() * 1e3);
            }
            sleep(AROUND);
            running.record(false);
            let latency = running.stop()?.latency;
            let most = latency.quantile(1.0).map_or(0.0, |ns| ns as f64 / 1e6);
            if dump { &mut longest } else { &mut alone }.push(most);
        }
    }
    let goal = Goal { of: Of::Ours, at_most: HALT_MS };
    let series = Series { ours: longest, theirs: alone };
    let row = series.row(HALT, ("longest wait of a client", "ms"), Some("no dump"));
    report.rows.extend(row.map(|r| with(r, options, "files", Some(goal))));
    let series = Series { ours: took, theirs: Vec::new() };
    let row = series.row(HALT, ("the command", "ms"), None);
    report.rows.extend(row.map(|r| with(r, options, "files", None)));
    Ok(())
}
