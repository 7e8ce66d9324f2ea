//! Cost of an idle server: ten units, and ten or a thousand sessions without requests.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::cpu_affinity::two_cores;
use crate::error::{Error, Kind};
use crate::load::{self, Spec};
use crate::options::{Options, Peer};
use crate::process_costs;
use crate::progress::Progress;
use crate::report::{Goal, Of, Report, Series};
use crate::servers::{Backing, FILE_BYTES, Scratch, Server};
use crate::turns::counters;

#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub name: &'static str,
    sessions: u32,
    /// Goal: percent of a core.
    cpu_percent: f64,
    /// Goal: MiB resident.
    resident_mib: f64,
    /// Beside the peers; else alone.
    peers: bool,
}

pub(crate) const CASES: [Case; 2] = [
    Case { name: "idle", sessions: 10, cpu_percent: 1.0, resident_mib: 64.0, peers: true },
    // 64 KiB for each of the thousand, and the allowance of ten.
    Case { name: "idle-1000", sessions: 1000, cpu_percent: 0.5, resident_mib: 126.5, peers: false },
];
/// Units; sessions use them in turn.
const UNITS: u32 = 10;
/// Requests each session makes before it falls silent, so that buffers have been used.
const REQUESTS: u64 = 64;
/// After the last request, before anything is measured.
const SETTLE: Duration = Duration::from_millis(500);

const FIGURES: [(&str, &str); 4] =
    [("CPU", "%"), ("wake-ups", "1/s"), ("system calls", "1/s"), ("resident", "MiB")];

pub(crate) fn measure(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    // By its whole name: each is a part of the other's.
    let named = |c: &&Case| options.case.as_deref().is_none_or(|n| n == c.name);
    CASES.iter().filter(named).try_for_each(|case| measure_case(options, case, report, progress))
}

fn measure_case(
    options: &Options,
    case: &Case,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let cores = two_cores(report);
    let counters = counters(options, report);
    let peers = if case.peers { options.peers() } else { &[] };
    let steps = 1 + u32::try_from(peers.len()).unwrap_or(0);
    progress(Progress { done: 0, of: steps, step: format!("{}: ashlar", case.name) });
    let binary = options.binary()?;
    let ours = weigh_one(options, case, cores.1, counters, &|backings| {
        Server::ashlar(&binary, cores.0, backings)
    })?;
    let mut sides = Vec::new();
    let peers = peers.iter().filter(|p| **p != Peer::Bare);
    for (n, &peer) in (1..).zip(peers) {
        progress(Progress { done: n, of: steps, step: format!("idle: {}", peer.name()) });
        let start = |backings: &[Backing]| Server::peer(peer, cores.0, backings);
        match weigh_one(options, case, cores.1, counters, &start) {
            Ok(theirs) => sides.push((Some(peer.name()), theirs)),
            Err(error) if error.kind == Kind::Missing => report.notes.push(error.message),
            Err(error) => return Err(error),
        }
    }
    if sides.is_empty() {
        sides.push((None, [None; FIGURES.len()]));
    }
    for (peer, theirs) in sides {
        for (n, figure) in FIGURES.into_iter().enumerate() {
            let series = Series {
                ours: ours.get(n).copied().flatten().into_iter().collect(),
                theirs: theirs.get(n).copied().flatten().into_iter().collect(),
            };
            let goal = match n {
                0 => Some(Goal { of: Of::Ours, at_most: case.cpu_percent }),
                3 => Some(Goal { of: Of::Ours, at_most: case.resident_mib }),
                _ => None,
            };
            report.add(options, "idle", series.row(case.name, figure, peer), goal);
        }
    }
    Ok(())
}

type Figures = [Option<f64>; FIGURES.len()];

fn weigh_one(
    options: &Options,
    case: &Case,
    core: Option<usize>,
    counters: bool,
    start: &dyn Fn(&[Backing]) -> Result<Server, Error>,
) -> Result<Figures, Error> {
    let scratch = Scratch::new("idle")?;
    let file = |n| scratch.file(&format!("disk{n}"), FILE_BYTES).map(Backing::File);
    let backings = (0..UNITS).map(file).collect::<Result<Vec<_>, _>>()?;
    let server = start(&backings)?;
    let name = format!("{} {}", case.name, server.name);
    let sessions = load::start(&Spec {
        luns: server.luns.clone(),
        sessions: case.sessions,
        depth: 8,
        requests: Some(REQUESTS),
        linger: true,
        core,
        ..Spec::new(server.portal, server.target.clone(), 0)
    });
    let sessions = sessions.map_err(|e| e.within(&name))?;
    let begun = Instant::now();
    while sessions.requests() < REQUESTS * u64::from(case.sessions) {
        if sessions.is_finished() || begun.elapsed() > Duration::from_secs(30) {
            sessions.stop().map_err(|e| e.within(&name))?;
            return Err(Error::new(Kind::Timeout, format!("{name}: its requests did not end")));
        }
        sleep(Duration::from_millis(10));
    }
    sleep(SETTLE);
    let pid = server.pid();
    let (cpu, switches, begun) =
        (process_costs::cpu_ns(pid)?, process_costs::switches(pid)?, Instant::now());
    let counter = if counters { Some(process_costs::Counter::start(pid)?) } else { None };
    sleep(Duration::from_secs(u64::from(options.idle_seconds)));
    let calls = counter.map(process_costs::Counter::finish).transpose()?;
    let took = begun.elapsed().as_secs_f64();
    let cpu = process_costs::cpu_ns(pid)?.saturating_sub(cpu) as f64 / 1e9 / took * 100.0;
    let switches = process_costs::switches(pid)?.saturating_sub(switches) as f64 / took;
    let resident = process_costs::resident_bytes(pid)? as f64 / f64::from(1 << 20);
    sessions.stop().map_err(|e| e.within(&name))?;
    Ok([Some(cpu), Some(switches), calls.map(|n| n as f64 / took), Some(resident)])
}
