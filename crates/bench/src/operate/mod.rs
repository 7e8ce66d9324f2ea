//! Cost of operating a daemon: an open page, `trace`, the sandbox, a scrape of metrics, and the
//! samples of the last hour. Also the answers of `status` during a start.
//!
//! The daemon is on one core and the load on another. The thread of the load also makes the
//! requests to the API, between its own. A further thread would take time of one of the two cores.

mod daemon;
mod http;
mod pollers;

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::cpu_affinity::{Cores, on_core, two_cores};
use crate::error::{Error, Kind};
use crate::load::{Running, WAIT};
use crate::nbd::client::{Load, start_beside};
use crate::options::Options;
use crate::process_costs::ThreadTimes;
use crate::progress::{Progress, check_stopped};
use crate::report::{Goal, Of, Report, Series, median};
use crate::turns::{FIGURES, LoadResult, Rounds, Turns, measure_load_for};
use daemon::{Daemon, EXPORT, Start};
use http::{Keep, get};
use pollers::{Page, Poller, Times, scraper, trace};

/// Comparison of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compared {
    /// A load with and without an open page.
    Page,
    /// A load with and without a client that traces slow requests.
    Trace,
    /// A load of a daemon with and of one without `sandbox`.
    Sandbox,
    /// One request after the other, with and without scrapes.
    Scrape,
    /// A daemon without requests: there is no switch, so nothing to compare with.
    Samples,
    /// Answers of `status` while a daemon starts, which is ended then.
    Start,
}

impl Compared {
    /// Shortest round, s.
    fn round_seconds(self) -> u32 {
        match self {
            Compared::Page => PAGE_SECONDS,
            _ => ROUND_SECONDS,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub name: &'static str,
    compared: Compared,
    luns: u64,
}

/// LUNs of a large daemon, of one that starts, and of the largest one that the goals name.
const LUNS: u64 = 1000;
const LUNS_STARTED: u64 = 4096;
const LUNS_MAX: u64 = 16_384;

/// Every case. Neighbours with the same number of LUNs share a daemon.
pub(crate) const CASES: [Case; 6] = [
    Case { name: "operate-page", compared: Compared::Page, luns: LUNS },
    Case { name: "operate-trace", compared: Compared::Trace, luns: LUNS },
    Case { name: "operate-sandbox", compared: Compared::Sandbox, luns: 1 },
    Case { name: "operate-scrape", compared: Compared::Scrape, luns: LUNS_MAX },
    Case { name: "operate-samples", compared: Compared::Samples, luns: LUNS_MAX },
    Case { name: "operate-start", compared: Compared::Start, luns: LUNS_STARTED },
];

/// Name in tables of the other side.
const WITHOUT: &str = "without";
/// Goal: server CPU of a request, over that without.
const CPU_RATIO: f64 = 1.01;
/// Goal: requests a second, over those without.
const RATE_RATIO: f64 = 0.99;
/// Goal: ms of a scrape.
const SCRAPE_MS: f64 = 100.0;
/// Goal: ms of the longest wait for `status` during a start.
const STATUS_MS: f64 = 100.0;
/// Goal: us by which a scrape delays a request.
const STALL_US: f64 = 1000.0;
/// Requests in flight where a load is compared.
const DEPTH: u32 = 32;
/// Shortest round, s: several scrapes, or answers of `trace`.
const ROUND_SECONDS: u32 = 4;
/// Shortest round with a page, s: two views, also if the page loads one every 10 s only.
const PAGE_SECONDS: u32 = 20;
/// From the start of a load to its measurement: the page has its first view and its stream then.
const SETTLE_MS: u64 = 1000;
/// Wait before a load without `trace`: cores record for 5 s after the last question.
const LEASE_MS: u64 = 5500;
/// Shortest watch of the samples, s: two readings.
const SAMPLES_SECONDS: u32 = 20;
/// The time to which the cost of samples is scaled, s.
const SAMPLE_SECONDS: f64 = 10.0;
/// Name of the daemon's control thread.
const CONTROL_THREAD: &str = "ashlar-mgmt";

pub(crate) fn measure(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let cases = options.choose(&CASES, |c| c.name);
    if cases.is_empty() {
        return Ok(());
    }
    let run = Run { options, binary: options.binary()?, cores: two_cores(report) };
    let mut last: Option<(u64, Daemon)> = None;
    for (done, case) in (0..).zip(&cases) {
        check_stopped()?;
        let daemon = match last.take() {
            Some((luns, daemon)) if luns == case.luns => Some(daemon),
            other => {
                // It ends before the next one starts: both have the same core.
                drop(other);
                run.start_for(case, progress)?
            }
        };
        let mut turns = Turns {
            kind: "operate",
            options,
            progress: &mut *progress,
            cases: cases.len(),
            done: done * options.rounds,
        };
        match (case.compared, &daemon) {
            (Compared::Page | Compared::Trace, Some(daemon)) => {
                run.compare_clients(case, daemon, &mut turns, report)?;
            }
            (Compared::Sandbox, Some(daemon)) => {
                run.compare_sandbox(case, daemon, &mut turns, report)?;
            }
            (Compared::Scrape, Some(daemon)) => run.scrapes(case, daemon, &mut turns, report)?,
            (Compared::Samples, Some(daemon)) => run.samples(case, daemon, report)?,
            (Compared::Start, _) | (_, None) => run.starts(case, &mut turns, report)?,
        }
        last = daemon.map(|daemon| (case.luns, daemon));
    }
    Ok(())
}

/// Figures of a round of [`Compared::Scrape`].
struct ScrapeRound {
    /// Longest request, us.
    longest_us: f64,
    /// Scrapes beside the requests, ms.
    beside_ms: Vec<f64>,
    /// A scrape without requests, ms.
    alone_ms: Option<f64>,
}

type ApiClient = (Box<dyn Poller>, Times);

/// Waits until the client of the API beside a load has its first answer.
fn first_answer(running: Running, times: &Times) -> Result<Running, Error> {
    let begun = Instant::now();
    while times.is_empty() {
        if running.is_finished() {
            running.join()?;
            return Err(Error::new(Kind::Protocol, "the load ended before it was measured"));
        }
        if begun.elapsed() > WAIT {
            let what = format!("the API: no answer within {} s", WAIT.as_secs());
            return Err(Error::new(Kind::Timeout, what));
        }
        sleep(Duration::from_millis(1));
    }
    Ok(running)
}

struct Run<'a> {
    options: &'a Options,
    binary: String,
    cores: Cores,
}

impl Run<'_> {
    fn start(&self, luns: u64, keys: &str) -> Result<Daemon, Error> {
        Daemon::start(&self.binary, self.cores.0, self.options.length().scaled(luns), keys)
    }

    /// The daemon of a case; a case of starts has none beforehand.
    fn start_for(
        &self,
        case: &Case,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Option<Daemon>, Error> {
        if case.compared == Compared::Start {
            return Ok(None);
        }
        let step = format!("operate: start of a daemon with {} LUNs", case.luns);
        progress(Progress { done: 0, of: 1, step });
        self.start(case.luns, "").map(Some).map_err(|e| e.within(case.name))
    }

    /// Time of a measurement of at least so many seconds.
    fn window(&self, seconds: u32, least: u32) -> Duration {
        Duration::from_millis(self.options.length().scaled(u64::from(seconds.max(least)) * 1000))
    }

    /// Sleeps for this time of a measurement.
    fn pause(&self, ms: u64) {
        sleep(Duration::from_millis(self.options.length().scaled(ms)));
    }

    /// Reads of the daemon at that depth, beside a client of the API, in a round of a case.
    fn load(
        &self,
        compared: Compared,
        (daemon, depth): (&Daemon, u32),
        client: Option<ApiClient>,
    ) -> Result<LoadResult, Error> {
        let load = Load { depth, core: self.cores.1, ..Load::of(daemon.portal, EXPORT) };
        let (mut poller, times) = client.unzip();
        let mut running = start_beside(&load, move || match &mut poller {
            Some(poller) => poller.poll(Instant::now()),
            None => Ok(()),
        })?;
        self.pause(SETTLE_MS);
        if let Some(times) = times {
            running = first_answer(running, &times)?;
        }
        let window = self.window(self.options.seconds, compared.round_seconds());
        measure_load_for(running, daemon.pid(), window)
    }

    /// A load with and without a client of the API.
    fn compare_clients(
        &self,
        case: &Case,
        daemon: &Daemon,
        turns: &mut Turns<'_>,
        report: &mut Report,
    ) -> Result<(), Error> {
        let rounds = turns.take(case.name, 2, |side| {
            if (side, case.compared) == (1, Compared::Trace) {
                self.pause(LEASE_MS);
            }
            let (socket, times) = (&daemon.socket, Times::default());
            let poller: Option<Box<dyn Poller>> = match (side, case.compared) {
                (0, Compared::Page) => Some(Box::new(Page::new(socket, times.clone()))),
                (0, _) => Some(Box::new(trace(socket, times.clone()))),
                _ => None,
            };
            let client = poller.map(|poller| (poller, times));
            Ok(self.load(case.compared, (daemon, DEPTH), client)?.round(None))
        })?;
        self.load_rows(case, &rounds, report);
        Ok(())
    }

    /// The load of a daemon with `sandbox`, and that of one without it.
    fn compare_sandbox(
        &self,
        case: &Case,
        without: &Daemon,
        turns: &mut Turns<'_>,
        report: &mut Report,
    ) -> Result<(), Error> {
        let with = match self.start(case.luns, "sandbox = true\nsandbox_required = true\n") {
            Ok(daemon) => daemon,
            // A kernel without Landlock or seccomp.
            Err(error) if error.kind == Kind::Server => {
                report.notes.push(format!("{}: not measured: {error}", case.name));
                return Ok(());
            }
            Err(error) => return Err(error.within(case.name)),
        };
        let rounds = turns.take(case.name, 2, |side| {
            let daemon = if side == 0 { &with } else { without };
            Ok(self.load(case.compared, (daemon, DEPTH), None)?.round(None))
        })?;
        self.load_rows(case, &rounds, report);
        Ok(())
    }

    fn load_rows(&self, case: &Case, rounds: &Rounds, report: &mut Report) {
        for (n, figure) in FIGURES.into_iter().enumerate() {
            let goal = match n {
                0 => Some(Goal { of: Of::Ratio, at_most: CPU_RATIO }),
                2 => Some(Goal { of: Of::Inverse, at_most: 1.0 / RATE_RATIO }),
                _ => None,
            };
            let series = Series { ours: rounds.of(0, n), theirs: rounds.of(1, n) };
            let row = series.row(case.name, figure, Some(WITHOUT));
            report.add(self.options, "operate", row, goal);
        }
    }

    /// Time of a scrape, and the longest request of a client meanwhile.
    fn scrapes(
        &self,
        case: &Case,
        daemon: &Daemon,
        turns: &mut Turns<'_>,
        report: &mut Report,
    ) -> Result<(), Error> {
        let times = Times::default();
        let rounds = turns.take(case.name, 2, |side| {
            let mut alone_ms = None;
            let mut client: Option<ApiClient> = None;
            if side == 0 {
                let scrape = || get(&daemon.socket, "/metrics", Keep::Length);
                let (_, took) = on_core(self.cores.1, scrape)?;
                alone_ms = Some(took.as_secs_f64() * 1e3);
                let poller: Box<dyn Poller> = Box::new(scraper(&daemon.socket, times.clone()));
                client = Some((poller, times.clone()));
            }
            let result = self.load(case.compared, (daemon, 1), client)?;
            let beside_ms = times.take();
            let longest_us = result.us(1.0).unwrap_or_default();
            Ok(ScrapeRound { longest_us, beside_ms, alone_ms })
        })?;
        self.scrape_rows(case, &rounds, report);
        Ok(())
    }

    fn scrape_rows(&self, case: &Case, rounds: &Rounds<ScrapeRound>, report: &mut Report) {
        let (with, without) = (rounds.side(0), rounds.side(1));
        let longest = |side: &[ScrapeRound]| side.iter().map(|r| r.longest_us).collect::<Vec<_>>();
        let all = with.iter().flat_map(|round| &round.beside_ms).copied();
        let waits = Series { ours: longest(with), theirs: longest(without) };
        let pairs = waits.ours.iter().zip(&waits.theirs);
        let delays: Vec<f64> = pairs.map(|(with, without)| (with - without).max(0.0)).collect();
        let scrape = Series {
            ours: with.iter().filter_map(|round| median(&round.beside_ms)).collect(),
            theirs: with.iter().filter_map(|round| round.alone_ms).collect(),
        };
        let alone = |ours| Series { ours, theirs: Vec::new() };
        let longest_scrape = alone(all.reduce(f64::max).into_iter().collect());
        for (series, figure, peer, at_most) in [
            (scrape, ("time of a scrape", "ms"), Some("without load"), Some(SCRAPE_MS)),
            (longest_scrape, ("longest scrape", "ms"), None, Some(SCRAPE_MS)),
            (waits, ("longest request", "us"), Some(WITHOUT), None),
            (alone(delays), ("delay of a request by a scrape", "us"), None, Some(STALL_US)),
        ] {
            let goal = at_most.map(|at_most| Goal { of: Of::Ours, at_most });
            let row = series.row(case.name, figure, peer);
            report.add(self.options, "operate", row, goal);
        }
    }

    /// Waits for `status` during starts.
    fn starts(&self, case: &Case, turns: &mut Turns<'_>, report: &mut Report) -> Result<(), Error> {
        let luns = self.options.length().scaled(case.luns);
        let ask = || Daemon::ask_during_start(&self.binary, self.cores.0, luns);
        let rounds = turns.take(case.name, 1, |_| on_core(self.cores.1, ask))?;
        self.start_rows(case, rounds.side(0), report);
        Ok(())
    }

    fn start_rows(&self, case: &Case, starts: &[Start], report: &mut Report) {
        let waits: Vec<Vec<f64>> = starts.iter().map(Start::waits_ms).collect();
        let longest: Vec<f64> =
            waits.iter().filter_map(|all| all.iter().copied().reduce(f64::max)).collect();
        let usual: Vec<f64> = waits.iter().filter_map(|all| median(all)).collect();
        let took: Vec<f64> = starts.iter().map(|start| start.took.as_secs_f64()).collect();
        for (ours, figure, at_most) in [
            (longest, ("longest wait for status", "ms"), Some(STATUS_MS)),
            (usual, ("median wait for status", "ms"), None),
            (took, ("time of a start", "s"), None),
        ] {
            let goal = at_most.map(|at_most| Goal { of: Of::Ours, at_most });
            let row = Series { ours, theirs: Vec::new() }.row(case.name, figure, None);
            report.add(self.options, "operate", row, goal);
        }
    }

    /// CPU time of a daemon without requests, which only takes its samples.
    fn samples(&self, case: &Case, daemon: &Daemon, report: &mut Report) -> Result<(), Error> {
        let (before, begun) = (ThreadTimes::of(daemon.pid())?, Instant::now());
        sleep(self.window(self.options.idle_seconds, SAMPLES_SECONDS));
        let (after, took) = (ThreadTimes::of(daemon.pid())?, begun.elapsed().as_secs_f64());
        for (figure, ns) in [
            ("CPU of the control thread in 10 s", after.since_of(CONTROL_THREAD, &before)),
            ("CPU of all threads in 10 s", after.since(&before)),
        ] {
            let ms = ns as f64 / 1e6 * SAMPLE_SECONDS / took;
            let series = Series { ours: vec![ms], theirs: Vec::new() };
            report.add(self.options, "operate", series.row(case.name, (figure, "ms"), None), None);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_has_a_command_of_its_own() {
        let options = Options::default();
        for case in &CASES {
            let named = Options { case: Some(case.name.to_owned()), ..Options::default() };
            assert_eq!(named.choose(&CASES, |c| c.name), [case]);
            let wanted = format!(
                "ashlar-bench operate --case {} --rounds 5 --seconds 1 --idle-seconds 10",
                case.name
            );
            assert_eq!(options.command("operate", case.name), wanted);
        }
    }

    #[test]
    fn rows_of_starts_have_the_longest_wait_for_status() {
        let options = Options::default();
        let run = Run { options: &options, binary: String::new(), cores: (None, None) };
        let start = |waits: [u64; 3]| Start {
            waits: waits.map(Duration::from_millis).to_vec(),
            took: Duration::from_secs(waits[0]),
        };
        let mut report = Report::default();
        let starts = [start([2, 4, 90]), start([3, 130, 6])];
        run.start_rows(&CASES[5], &starts, &mut report);
        let figures: Vec<_> = report.rows.iter().map(|row| (row.ours, row.met())).collect();
        assert_eq!(figures, [(110.0, Some(false)), (5.0, None), (2.5, None)]);
    }

    #[test]
    fn rows_of_scrapes_have_the_delay_of_the_same_round() {
        let options = Options::default();
        let run = Run { options: &options, binary: String::new(), cores: (None, None) };
        let mut turns = Turns {
            kind: "operate",
            options: &Options { rounds: 2, ..Options::default() },
            progress: &mut |_| {},
            cases: 1,
            done: 0,
        };
        let mut waits = [[900.0, 500.0], [300.0, 400.0]].into_iter();
        let mut now = [0.0; 2];
        let mut turn = 0;
        let rounds = turns.take("operate-scrape", 2, |side| {
            if turn % 2 == 0 {
                now = waits.next().expect("two rounds");
            }
            turn += 1;
            let beside_ms = if side == 0 { vec![40.0, 120.0, 60.0] } else { Vec::new() };
            let alone_ms = (side == 0).then_some(30.0);
            Ok(ScrapeRound { longest_us: now[side], beside_ms, alone_ms })
        });
        let mut report = Report::default();
        run.scrape_rows(&CASES[3], &rounds.expect("rounds"), &mut report);
        let figures: Vec<_> = report.rows.iter().map(|row| (row.ours, row.met())).collect();
        // The delays are 400 and 0 us: the second round was longer without a scrape.
        let wanted = [(60.0, Some(true)), (120.0, Some(false)), (600.0, None), (200.0, Some(true))];
        assert_eq!(figures, wanted);
        assert_eq!((report.rows[0].theirs, report.rows[2].theirs), (Some(30.0), Some(450.0)));
    }
}
