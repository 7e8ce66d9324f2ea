//! Files over 9P: Ashlar beside diod, in turns, on the same cores; and the cost of a dump for
//! concurrent clients.

mod client;
mod servers;

use std::thread::sleep;
use std::time::{Duration, Instant};

use wire::ninep::IOHDR;

use crate::cpu_affinity::two_cores;
use crate::error::Error;
use crate::options::Options;
use crate::progress::Progress;
use crate::report::{Goal, Of, Report, Series};
use crate::turns::{FIGURE_COUNT, Round, Rounds, Turns, measure_load, or_note};
use client::{Load, Work};
use servers::{FILE, FILE_BYTES, PIECE, Server, Sizes, Store};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Case {
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
/// Cost of a dump for the clients of a file system.
struct Halt {
    name: &'static str,
    sizes: Sizes,
    /// Blocks of its files together, and bytes of contents in each.
    tree: (u64, u64),
    /// Goal: longest wait of a client while a dump is taken, ms.
    most_ms: Option<f64>,
}

const VOLUME: Halt = Halt {
    name: "files-dump-halt",
    sizes: Sizes { block: Some(4096), on: Store::Memory, ..SIZES },
    tree: (1_000_000, 4096),
    most_ms: Some(HALT_MS),
};

const HALTS: [Halt; 3] = [
    VOLUME,
    // On the machine's own disk, which others may be using: no goal.
    Halt {
        name: "files-dump-halt-disk",
        sizes: Sizes { block: Some(4096), on: Store::Files, device: 2 * 4096 * 100_000, ..SIZES },
        tree: (100_000, 4096),
        most_ms: None,
    },
    Halt {
        name: "files-dump-halt-image",
        // Each round writes some 0.3 GB to the WORM.
        sizes: Sizes { device: 3 * 16_384 * 100_000, on: Store::Prepared, ..SIZES },
        tree: (100_000, 16_372),
        most_ms: Some(HALT_MS),
    },
];
/// An image, and a block cache of 256 MiB.
const SIZES: Sizes =
    Sizes { block: None, memory: 256 << 20, device: 2 * 4096 * 1_000_000, on: Store::Memory };
/// Names of these cases.
pub(crate) const HALT_NAMES: [&str; 3] = [HALTS[0].name, HALTS[1].name, HALTS[2].name];
/// Clients that write while a dump is taken, each with a connection and a file of its own.
const CLIENTS: u64 = 4;
/// Blocks changed before each dump, by all clients together.
const CHANGED: u64 = 1000;
/// See [`Halt::most_ms`].
const HALT_MS: f64 = 10.0;
/// Around a dump, the clients are watched so long.
const AROUND: Duration = Duration::from_millis(300);

const FIGURES: [(&str, &str); FIGURE_COUNT] = [
    ("server CPU a request", "us"),
    ("time a request", "us"),
    ("requests", "1/s"),
    ("latency p50", "us"),
    ("latency p99", "us"),
];

pub(crate) fn measure(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let cases = options.choose(&CASES, |c| c.name);
    if !cases.is_empty() {
        load(options, report, progress, &cases)?;
    }
    options
        .choose(&HALTS, |c| c.name)
        .into_iter()
        .try_for_each(|case| halt(case, options, report, progress))
}

fn load(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
    cases: &[&Case],
) -> Result<(), Error> {
    let (server_core, load_core) = two_cores(report);
    let (block, memory) = (Some(16 << 10), 2 * FILE_BYTES);
    let sizes = Sizes { block, memory, device: 2 << 30, on: Store::Memory };
    let mut servers = vec![servers::ashlar(&options.binary()?, server_core, sizes)?];
    if !options.no_peers {
        servers.extend(or_note(servers::diod(server_core), report)?);
    }
    for server in &servers {
        progress(Progress { done: 0, of: 1, step: format!("files: data of {}", server.name) });
        let proof = |work| Load { depth: 8, core: load_core, ..Load::new(server, work) };
        if server.name == "ashlar" {
            client::run(&proof(Work::Fill(FILE_BYTES)))?;
        }
        let looked = client::run(&proof(Work::Verify));
        looked.map_err(|e| e.within(&format!("data of {}", server.name)))?;
    }
    let mut turns = Turns { kind: "files", options, progress, cases: cases.len(), done: 0 };
    for case in cases {
        let sides = if case.peer { servers.len() } else { 1 };
        let rounds = turns.take(case.name, sides, |n| {
            let one = weigh_round(&servers[n], case, options, load_core);
            one.map_err(|e| e.within(servers[n].name))
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
) -> Result<Round, Error> {
    let load =
        Load { depth: case.depth, msize: LARGE + IOHDR, core, ..Load::new(server, case.work) };
    let w = measure_load(client::start(&load)?, server.pid(), options)?;
    let (cpu, time) = (Some(w.cpu_us()), Some(1e6 / w.rate()));
    Ok([cpu, time, Some(w.rate()), w.us(0.5), w.us(0.99)])
}

fn rows(options: &Options, report: &mut Report, case: &Case, servers: &[Server], rounds: &Rounds) {
    let peer = servers.get(1).filter(|_| rounds.sides() > 1).map(|s| s.name);
    for (n, &figure) in FIGURES.iter().enumerate() {
        let theirs = if peer.is_some() { rounds.of(1, n) } else { Vec::new() };
        let row = Series { ours: rounds.of(0, n), theirs }.row(case.name, figure, peer);
        let goal = match n {
            0 if peer.is_some() => case.ratio.map(|at_most| Goal { of: Of::Ratio, at_most }),
            1 => case.most_us.map(|at_most| Goal { of: Of::Ours, at_most }),
            _ => None,
        };
        report.add(options, "files", row, goal);
    }
}

/// The longest wait of four clients, each of which writes a block at a time, while a dump is taken
/// of a large tree, a thousand blocks of which were changed. Also the time of the dump.
fn halt(
    case: &Halt,
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let (server_core, load_core) = two_cores(report);
    let piece = PIECE as u64;
    let bytes = case.tree.0 * case.tree.1 / CLIENTS / piece * piece;
    let server = servers::ashlar(&options.binary()?, server_core, case.sizes)?;
    let what = format!("files: a tree of {} blocks", case.tree.0);
    progress(Progress { done: 0, of: 1, step: what });
    let write = |work, depth, requests| -> Vec<Load> {
        let one = |n| {
            let file = format!("{FILE}{n}");
            Load { depth, requests, file, core: load_core, ..Load::new(&server, work) }
        };
        (0..CLIENTS).map(one).collect()
    };
    // One after the other, so that the blocks of each file follow each other.
    write(Work::Fill(bytes), 8, None).iter().try_for_each(|load| client::run(load).map(drop))?;
    server.typed("dump --wait")?;
    let (mut longest, mut took, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..options.rounds {
        let what = format!("files: {}, round {}", case.name, round + 1);
        progress(Progress { done: round, of: options.rounds, step: what });
        client::start_all(write(Work::Soil(bytes), 8, Some(CHANGED / CLIENTS)))?.join()?;
        // The same clients without a dump, as the reference for delays of the machine itself.
        for dump in [false, true] {
            let running = client::start_all(write(Work::Soil(bytes), 1, None))?;
            sleep(AROUND);
            running.record(true);
            let begun = Instant::now();
            if dump {
                server.typed("dump")?;
                took.push(begun.elapsed().as_secs_f64() * 1e3);
            }
            sleep(AROUND);
            // They keep recording: a request that the dump delays ends after all others.
            let latency = running.stop()?.latency;
            let most = latency.quantile(1.0).map_or(0.0, |ns| ns as f64 / 1e6);
            if dump { &mut longest } else { &mut alone }.push(most);
        }
    }
    let goal = case.most_ms.map(|at_most| Goal { of: Of::Ours, at_most });
    let series = Series { ours: longest, theirs: alone };
    let row = series.row(case.name, ("longest wait of a client", "ms"), Some("no dump"));
    report.add(options, "files", row, goal);
    let series = Series { ours: took, theirs: Vec::new() };
    let row = series.row(case.name, ("the command", "ms"), None);
    report.add(options, "files", row, None);
    Ok(())
}
