//! Load over iSCSI: Ashlar and its peers side by side, in turns, on the same cores.

use crate::cpu_affinity::two_cores;
use crate::error::Error;
use crate::load::{self, Order, Spec, Work};
use crate::options::Options;
use crate::progress::Progress;
use crate::report::{Goal, Of, Report, Series};
use crate::servers::{Backing, MEMORY_BYTES, Server};
use crate::turns::{
    FIGURES, Round, Rounds, Turns, calls_a_request, counters, measure_load, or_note,
};

/// Goal: our CPU time a 4 KiB request over tgt's.
const TGT_RATIO: f64 = 1.0 / 4.0;
/// Goal: our CPU time a 4 KiB request over that of the bare responder.
const BARE_RATIO: f64 = 1.5;
/// Goal: the same for large requests, which are copies and the network.
const BARE_LARGE_RATIO: f64 = 1.3;
/// Goal: CPU time with digests over that without, in the same round.
const DIGEST_RATIO: f64 = 1.15;
/// Goal: half of the answers of a full connection take at most so many times as long as tgt's.
const FULL_RATIO: f64 = 1.25;
/// Place of the latency that [`FULL_RATIO`] means, in `FIGURES`.
const P50: usize = 3;
/// Goals: CPU time of a 4 KiB request, us, many in flight and one.
const DEEP_US: f64 = 3.0;
const ALONE_US: f64 = 8.0;
/// Goal: system calls a command.
const SYSCALLS: f64 = 0.15;
/// Bytes of a request that fills a memory disk.
const FILL_BYTES: u32 = 64 * 1024;
/// Requests of each session that proves the data, before anything is measured.
const PROOF_REQUESTS: u64 = 1000;
/// Fewest requests of a session whose system calls are counted: those of login and logout do not
/// matter then.
const EACH_MIN: u64 = 100;
/// Places of the units in a server's list.
const NULL_UNIT: usize = 0;
const MEMORY_UNIT: usize = 1;

/// Backing store of the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// Nothing.
    Null,
    /// Memory, filled before.
    Memory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub name: &'static str,
    /// Behind the unit.
    pub store: Store,
    /// WRITE instead of READ.
    pub write: bool,
    pub request_bytes: u32,
    /// Requests in flight in each session.
    pub depth: u32,
    /// Sessions of one connection each.
    pub sessions: u32,
    /// Header and data digests.
    pub digests: bool,
    /// The goals of the project that hold for it.
    pub goals: Goals,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goals {
    None,
    /// Those of 4 KiB requests, many in flight.
    Deep,
    /// Those of one 4 KiB request at a time.
    Alone,
    /// Those of large requests.
    Large,
    Digests,
    /// Large requests, so many in flight that the connection is full.
    Full,
}

const READ: Case = Case {
    name: "",
    store: Store::Null,
    write: false,
    request_bytes: 4096,
    depth: 32,
    sessions: 1,
    digests: false,
    goals: Goals::None,
};

/// Every case. Places are random.
pub const CASES: [Case; 20] = [
    Case { name: "null-read-4k-d32", goals: Goals::Deep, ..READ },
    Case { name: "memory-read-4k-d32", store: Store::Memory, goals: Goals::Deep, ..READ },
    Case { name: "null-write-4k-d32", write: true, goals: Goals::Deep, ..READ },
    Case { name: "memory-write-4k-d32", goals: Goals::Deep, write: true, ..MEMORY },
    Case { name: "null-read-4k-d1", depth: 1, goals: Goals::Alone, ..READ },
    Case { name: "memory-read-4k-d1", depth: 1, goals: Goals::Alone, ..MEMORY },
    Case { name: "memory-read-128k-d8", depth: 8, ..LARGE },
    Case { name: "memory-write-128k-d8", depth: 8, write: true, ..LARGE },
    Case { name: "null-read-64k-d32", request_bytes: 65536, ..FULL },
    Case { name: "null-read-64k-d32-c8", request_bytes: 65536, sessions: 8, ..FULL },
    Case { name: "null-read-256k-d32", request_bytes: 262_144, ..FULL },
    Case { name: "null-read-1m-d8", request_bytes: 1 << 20, depth: 8, ..FULL },
    Case { name: "null-write-64k-d32", request_bytes: 65536, write: true, ..FULL },
    Case { name: "null-write-256k-d32", request_bytes: 262_144, write: true, ..FULL },
    Case { name: "null-write-1m-d8", request_bytes: 1 << 20, depth: 8, write: true, ..FULL },
    Case { name: "null-read-4k-d32-digests", digests: true, goals: Goals::Digests, ..READ },
    Case { name: "null-write-4k-d32-digests", write: true, ..DIGESTS },
    Case { name: "null-read-4k-d1-c8", depth: 1, sessions: 8, ..READ },
    Case { name: "null-read-4k-d32-c8", sessions: 8, ..READ },
    Case { name: "memory-read-4k-d32-c8", store: Store::Memory, sessions: 8, ..READ },
];

const MEMORY: Case = Case { store: Store::Memory, ..READ };
const LARGE: Case = Case { request_bytes: 131_072, goals: Goals::Large, ..MEMORY };
const FULL: Case = Case { goals: Goals::Full, ..READ };
const DIGESTS: Case = Case { digests: true, goals: Goals::Digests, ..READ };

/// Ourselves without digests, as the one to compare with.
const PLAIN: &str = "undigested";

pub(crate) fn measure(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let cases = options.choose(&CASES, |c| c.name);
    if cases.is_empty() {
        return Ok(());
    }
    let (server_core, load_core) = two_cores(report);
    let stores = [Backing::Null, Backing::Memory];
    let mut servers = vec![Server::ashlar(&options.binary()?, server_core, &stores)?];
    if let Some(binary) = &options.before {
        servers.push(Server::before(binary, server_core, &stores)?);
    }
    for &peer in options.peers() {
        servers.extend(or_note(Server::peer(peer, server_core, &stores), report)?);
    }
    let counters = counters(options, report);
    for server in &servers {
        progress(Progress { done: 0, of: 1, step: format!("iscsi: data of {}", server.name) });
        prove(server, load_core).map_err(|e| e.within(&format!("data of {}", server.name)))?;
    }
    let mut turns = Turns { kind: "iscsi", options, progress, cases: cases.len(), done: 0 };
    for case in cases {
        let sides = sides(case, &servers);
        let rounds = turns.take(case.name, sides.len(), |n| {
            let Side { server, case, name } = sides[n];
            let one = weigh_round(server, &case, options, load_core, counters);
            one.map_err(|e| e.within(name))
        })?;
        rows(options, report, case, &sides, &rounds);
    }
    Ok(())
}

/// One of those that are compared in a case; the first is ours.
#[derive(Clone, Copy)]
struct Side<'a> {
    name: &'static str,
    server: &'a Server,
    case: Case,
}

/// Ourselves and the peers that can do the case; with digests also ourselves without.
fn sides<'a>(case: &Case, servers: &'a [Server]) -> Vec<Side<'a>> {
    let can = |s: &&Server| !case.digests || s.digest_target.is_some();
    let side = |server: &'a Server| Side { name: server.name, server, case: *case };
    let mut sides: Vec<Side<'a>> = servers.iter().filter(can).map(side).collect();
    if case.digests
        && let Some(ours) = servers.first()
    {
        let plain = Case { digests: false, ..*case };
        sides.push(Side { name: PLAIN, server: ours, case: plain });
    }
    sides
}

fn spec(server: &Server, case: &Case) -> Spec {
    let nth = match case.store {
        Store::Null => NULL_UNIT,
        Store::Memory => MEMORY_UNIT,
    };
    let digest_target = server.digest_target.as_ref().filter(|_| case.digests);
    let target = digest_target.unwrap_or(&server.target);
    Spec {
        depth: case.depth,
        sessions: case.sessions,
        request_bytes: case.request_bytes,
        work: if case.write { Work::Write } else { Work::Read },
        span_bytes: Some(MEMORY_BYTES),
        digests: case.digests,
        spin: true,
        ..Spec::new(server.portal, target.clone(), server.luns[nth])
    }
}

/// Checks that the server keeps written data, because the figures of one that does not are
/// meaningless. Then writes every block of its memory, so that reads find memory behind it.
fn prove(server: &Server, core: Option<usize>) -> Result<(), Error> {
    let small =
        Spec { core, ..Spec::new(server.portal, server.target.clone(), server.luns[MEMORY_UNIT]) };
    for (digests, target) in [(false, Some(&server.target)), (true, server.digest_target.as_ref())]
    {
        let Some(target) = target else { continue };
        load::run(&Spec {
            target: target.clone(),
            sessions: 4,
            depth: 16,
            work: Work::Verify,
            digests,
            requests: Some(PROOF_REQUESTS),
            ..small.clone()
        })?;
    }
    let whole = Spec {
        depth: 8,
        request_bytes: FILL_BYTES,
        work: Work::Fill,
        order: Order::Sequential,
        requests: Some(MEMORY_BYTES / u64::from(FILL_BYTES)),
        ..small
    };
    load::run(&whole)?;
    load::run(&Spec { work: Work::Check, ..whole }).map(drop)
}

fn weigh_round(
    server: &Server,
    case: &Case,
    options: &Options,
    core: Option<usize>,
    counters: bool,
) -> Result<Round, Error> {
    weigh_load(server, Spec { core, spin: core.is_some(), ..spec(server, case) }, options, counters)
}

/// One round of a load at a server, with its system calls if these are counted.
pub(crate) fn weigh_load(
    server: &Server,
    spec: Spec,
    options: &Options,
    counters: bool,
) -> Result<Round, Error> {
    let weighed = measure_load(load::start(&spec)?, server.pid(), options)?;
    let again = |n: u64| {
        let each = n.div_ceil(u64::from(spec.sessions)).max(EACH_MIN);
        Ok(load::run(&Spec { requests: Some(each), ..spec })?.requests)
    };
    let calls = counters.then(|| calls_a_request(server.pid(), &weighed, again));
    Ok(weighed.round(calls.transpose()?))
}

fn rows(options: &Options, report: &mut Report, case: &Case, sides: &[Side<'_>], rounds: &Rounds) {
    let mut add = |n: usize, theirs: Vec<f64>, peer: Option<&str>, goal: Option<Goal>| {
        let Some(&figure) = FIGURES.get(n) else { return };
        let row = Series { ours: rounds.of(0, n), theirs }.row(case.name, figure, peer);
        report.add(options, "iscsi", row, goal);
    };
    if let Some(at_most) = absolute(case) {
        add(0, Vec::new(), None, Some(Goal { of: Of::Ours, at_most }));
    }
    // The first peer is compared in all figures, others in the cost of a request.
    let first = sides.get(1);
    for n in 0..FIGURES.len() {
        let goal = match (n, first) {
            (0, Some(side)) => relative(case, side.name),
            (P50, Some(side)) if case.goals == Goals::Full && side.name == "tgt" => {
                Some(Goal { of: Of::Ratio, at_most: FULL_RATIO })
            }
            (1, _) if case.goals == Goals::Deep => Some(Goal { of: Of::Ours, at_most: SYSCALLS }),
            _ => None,
        };
        let theirs = if first.is_some() { rounds.of(1, n) } else { Vec::new() };
        add(n, theirs, first.map(|s| s.name), goal);
    }
    for (n, side) in sides.iter().enumerate().skip(2) {
        add(0, rounds.of(n, 0), Some(side.name), relative(case, side.name));
    }
}

/// Goal for our CPU time of a request, us.
fn absolute(case: &Case) -> Option<f64> {
    match case.goals {
        Goals::Deep => Some(DEEP_US),
        Goals::Alone => Some(ALONE_US),
        _ => None,
    }
}

/// Goal for our CPU time of a request over a peer's.
fn relative(case: &Case, peer: &str) -> Option<Goal> {
    let at_most = match (case.goals, peer) {
        (Goals::Deep, "tgt") => TGT_RATIO,
        (Goals::Deep | Goals::Alone, "bare") => BARE_RATIO,
        (Goals::Large, "bare") => BARE_LARGE_RATIO,
        (Goals::Digests, PLAIN) => DIGEST_RATIO,
        _ => return None,
    };
    Some(Goal { of: Of::Ratio, at_most })
}
