//! Load over NBD: Ashlar beside nbdkit and QEMU's storage daemon, in turns, on the same cores.

pub(crate) mod client;
pub(crate) mod copier;
pub(crate) mod servers;

use wire::nbd::Form;

use crate::cpu_affinity::two_cores;
use crate::error::Error;
use crate::options::Options;
use crate::progress::Progress;
use crate::report::{Goal, Of, Report, Series};
use crate::servers::MEMORY_BYTES;
use crate::turns::{
    FIGURES, Round, Rounds, Turns, calls_a_request, counters, measure_load, or_note,
};
use client::{Load, Work};
use servers::{Server, Store};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub name: &'static str,
    store: Store,
    write: bool,
    request_bytes: u32,
    depth: u32,
    form: Form,
    /// The goals of many 4 KiB requests in flight hold.
    goals: bool,
}

const READ: Case = Case {
    name: "",
    store: Store::Null,
    write: false,
    request_bytes: 4096,
    depth: 32,
    form: Form::Simple,
    goals: true,
};
const ALONE: Case = Case { depth: 1, goals: false, ..READ };
const LARGE: Case = Case { request_bytes: 131_072, depth: 8, goals: false, ..READ };

/// Every case. Places are random within 256 MiB, one connection.
pub(crate) const CASES: [Case; 7] = [
    Case { name: "nbd-null-read-4k-d32", ..READ },
    Case { name: "nbd-memory-read-4k-d32", store: Store::Memory, ..READ },
    Case { name: "nbd-null-write-4k-d32", write: true, ..READ },
    Case { name: "nbd-memory-write-4k-d32", store: Store::Memory, write: true, ..READ },
    Case {
        name: "nbd-memory-read-4k-d32-structured",
        store: Store::Memory,
        form: Form::Structured,
        ..READ
    },
    Case { name: "nbd-null-read-4k-d1", ..ALONE },
    Case { name: "nbd-memory-read-128k-d8", store: Store::Memory, ..LARGE },
];

/// Goal: CPU time of a 4 KiB request, us.
const DEEP_US: f64 = 2.5;
/// Goal: our CPU time over that of a peer.
const PEER_RATIO: f64 = 1.0 / 3.0;
/// Goal: system calls a request.
const SYSCALLS: f64 = 0.15;
/// Requests that prove that a server keeps data.
const PROOF_REQUESTS: u64 = 4000;

/// Bytes of a request that fills a memory disk.
const FILL_BYTES: u32 = 64 * 1024;

pub(crate) fn measure(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    copier::measure(options, report, progress)?;
    let cases = options.choose(&CASES, |c| c.name);
    if cases.is_empty() {
        return Ok(());
    }
    let (server_core, load_core) = two_cores(report);
    let mut servers = vec![servers::ashlar(&options.binary()?, server_core)?];
    if let Some(binary) = &options.before {
        servers.push(servers::before(binary, server_core)?);
    }
    if !options.no_peers {
        for start in [servers::nbdkit, servers::qemu] {
            servers.extend(or_note(start(server_core), report)?);
        }
    }
    let counters = counters(options, report);
    for server in &servers {
        progress(Progress { done: 0, of: 1, step: format!("nbd: data of {}", server.name) });
        let proof = Load {
            depth: 16,
            work: Work::Verify,
            requests: Some(PROOF_REQUESTS),
            core: load_core,
            ..Load::new(server, Store::Memory)
        };
        // Then memory for every block, so that no request pays for a page's first use.
        let fill = Load {
            depth: 8,
            request_bytes: FILL_BYTES,
            work: Work::Fill,
            requests: Some(MEMORY_BYTES / u64::from(FILL_BYTES)),
            ..proof.clone()
        };
        let chunks = Load { form: Form::Structured, ..proof.clone() };
        let all = [&proof, &chunks, &fill].into_iter().try_for_each(|load| {
            client::run(load)?;
            Ok(())
        });
        all.map_err(|e: Error| e.within(&format!("data of {}", server.name)))?;
    }
    let mut turns = Turns { kind: "nbd", options, progress, cases: cases.len(), done: 0 };
    for case in cases {
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
    let load = Load {
        depth: case.depth,
        request_bytes: case.request_bytes,
        work: if case.write { Work::Write } else { Work::Read },
        form: case.form,
        core,
        ..Load::new(server, case.store)
    };
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
        report.add(options, "nbd", row, goal);
    };
    add(0, 0, Of::Ours, Some(DEEP_US));
    add(1, 0, Of::Ours, Some(SYSCALLS));
    for side in 1..servers.len() {
        add(0, side, Of::Ratio, Some(PEER_RATIO));
        for n in 1..FIGURES.len() {
            add(n, side, Of::Ours, None);
        }
    }
    if servers.len() == 1 {
        (2..FIGURES.len()).for_each(|n| add(n, 0, Of::Ours, None));
    }
}
