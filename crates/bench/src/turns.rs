//! Servers side by side. Each case has rounds, in each round every server has its turn with the
//! same load, and the first server changes from round to round.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::error::{Error, Kind};
use crate::load::{Histogram, Running};
use crate::options::Options;
use crate::process_costs::{self, ThreadTimes};
use crate::progress::{Progress, check_stopped};
use crate::report::Report;

/// Load before each measurement, so that caches and windows are warm.
pub(crate) const WARM_UP: Duration = Duration::from_millis(300);
/// Part of the measured requests that is made again to count system calls. It is apart, because
/// counting costs the server time. It is a given number, because the load need not be steady.
const COUNTED_PART: f64 = 0.25;

/// Figures of a round in which system calls are counted.
pub(crate) const FIGURES: [(&str, &str); FIGURE_COUNT] = [
    ("server CPU a request", "us"),
    ("system calls a request", ""),
    ("requests", "1/s"),
    ("latency p50", "us"),
    ("latency p99", "us"),
];
pub(crate) const FIGURE_COUNT: usize = 5;

/// One round of one server: the figures in their order; None where not measured.
pub(crate) type Round = [Option<f64>; FIGURE_COUNT];

/// Rounds of each side; the first is ours.
pub(crate) struct Rounds<R = Round>(Vec<Vec<R>>);

impl<R> Rounds<R> {
    /// The rounds of a side, in order.
    pub fn side(&self, side: usize) -> &[R] {
        self.0.get(side).map(Vec::as_slice).unwrap_or_default()
    }

    /// How many were compared.
    pub fn sides(&self) -> usize {
        self.0.len()
    }
}

impl Rounds {
    pub fn of(&self, side: usize, figure: usize) -> Vec<f64> {
        let all = self.side(side).iter();
        all.filter_map(|round| round.get(figure).copied().flatten()).collect()
    }
}

/// All turns of one case; steps are reported as `what: case, round n`.
pub(crate) struct Turns<'a> {
    /// The kind of measurement: the word before the cases.
    pub kind: &'static str,
    pub options: &'a Options,
    pub progress: &'a mut dyn FnMut(Progress),
    /// Cases in all, and done.
    pub cases: usize,
    pub done: u32,
}

impl Turns<'_> {
    /// `one(side)` is one round of a side.
    pub fn take<R>(
        &mut self,
        case: &str,
        sides: usize,
        mut one: impl FnMut(usize) -> Result<R, Error>,
    ) -> Result<Rounds<R>, Error> {
        let mut rounds: Vec<Vec<R>> = (0..sides).map(|_| Vec::new()).collect();
        for round in 0..self.options.rounds {
            self.step(case, round);
            for turn in 0..sides {
                check_stopped()?;
                let n = (turn + round as usize) % sides;
                rounds[n].push(one(n).map_err(|e| e.within(case))?);
            }
        }
        Ok(Rounds(rounds))
    }

    fn step(&mut self, case: &str, round: u32) {
        let of = u32::try_from(self.cases).unwrap_or(u32::MAX).saturating_mul(self.options.rounds);
        let what = format!("{}: {case}, round {}", self.kind, round + 1);
        (self.progress)(Progress { done: self.done, of, step: what });
        self.done += 1;
    }
}

/// A server that a load was measured at.
pub(crate) struct LoadResult {
    pub requests: f64,
    /// Of all its threads, ns.
    pub cpu_ns: f64,
    /// On the wall, s.
    pub took: f64,
    pub latency: Histogram,
}

impl LoadResult {
    /// CPU time of a request, us.
    pub fn cpu_us(&self) -> f64 {
        self.cpu_ns / self.requests / 1e3
    }

    /// Requests a second.
    pub fn rate(&self) -> f64 {
        self.requests / self.took
    }

    /// A quantile of the latency, us.
    pub fn us(&self, part: f64) -> Option<f64> {
        self.latency.quantile(part).map(|ns| ns as f64 / 1e3)
    }

    /// The round of [`FIGURES`].
    pub fn round(&self, calls: Option<f64>) -> Round {
        [Some(self.cpu_us()), calls, Some(self.rate()), self.us(0.5), self.us(0.99)]
    }
}

/// Weighs a server under a load for the requested seconds, then ends the load.
pub(crate) fn measure_load(
    running: Running,
    pid: u32,
    options: &Options,
) -> Result<LoadResult, Error> {
    measure_load_for(running, pid, Duration::from_secs(u64::from(options.seconds)))
}

/// Weighs a server under a load for that time, then ends the load.
pub(crate) fn measure_load_for(
    running: Running,
    pid: u32,
    window: Duration,
) -> Result<LoadResult, Error> {
    sleep(WARM_UP);
    running.record(true);
    let (requests, cpu, begun) = (running.requests(), ThreadTimes::of(pid)?, Instant::now());
    sleep(window);
    let (requests, cpu, took) = (
        running.requests() - requests,
        ThreadTimes::of(pid)?.since(&cpu),
        begun.elapsed().as_secs_f64(),
    );
    running.record(false);
    let latency = running.stop()?.latency;
    if requests == 0 {
        return Err(Error::new(Kind::Timeout, "no request ended while it was measured"));
    }
    Ok(LoadResult { requests: requests as f64, cpu_ns: cpu as f64, took, latency })
}

/// System calls of a request, of so many that those around the load do not matter: `load(n)` makes
/// n requests and answers how many ended.
pub(crate) fn calls_a_request(
    pid: u32,
    weighed: &LoadResult,
    load: impl FnOnce(u64) -> Result<u64, Error>,
) -> Result<f64, Error> {
    let each = (weighed.requests * COUNTED_PART).ceil().max(100.0) as u64;
    let counter = process_costs::Counter::start(pid)?;
    let requests = load(each)?;
    Ok(counter.finish()? as f64 / (requests as f64).max(1.0))
}

/// Whether system calls are to be counted and can be; a note when they cannot.
pub(crate) fn counters(options: &Options, report: &mut Report) -> bool {
    let can = process_costs::has_perf();
    if !can && !options.no_counters {
        let note = "system calls were not counted: perf (package linux-perf) is missing, \
                    or this user may not use it (kernel.perf_event_paranoid)";
        report.notes.push(note.to_owned());
    }
    can && !options.no_counters
}

/// A server that may be missing on this machine: then a note is added to the report.
pub(crate) fn or_note<S>(
    server: Result<S, Error>,
    report: &mut Report,
) -> Result<Option<S>, Error> {
    match server {
        Ok(server) => Ok(Some(server)),
        Err(error) if error.kind == Kind::Missing => {
            report.notes.push(error.message);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
