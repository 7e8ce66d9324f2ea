#![forbid(unsafe_code)]
//! `ashlar-bench`: the measurements and the demo as a program of their own, so that the daemon's
//! binary has neither load generators nor launchers of peers in it.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use bench::{Error, Kind, Options, Progress, Report, Row, demo, man};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Exit codes, as those of `ashlar`.
const FAILED: u8 = 1;
const USAGE: u8 = 2;
const MISSED: u8 = 3;

const EXITS: &[(u8, &str)] = &[
    (0, "measured"),
    (FAILED, "failed or stopped"),
    (USAGE, "the command line is wrong"),
    (MISSED, "a goal was missed"),
];

const EXAMPLES: &[&str] = &[
    "ashlar-bench --quick",
    "ashlar-bench layers --rounds 9",
    "ashlar-bench iscsi --no-peers --json",
    "ashlar-bench nbd --no-peers --before /usr/bin/ashlar",
    "ashlar-bench kernel",
    "ashlar-bench operate --case operate-page",
    "ashlar-bench seeds aoe",
    "ashlar-bench chart report.json > speed.svg",
    "ashlar-bench chart --short report.json > speed-short.svg",
    "ashlar-bench demo --data /tmp/try --serve",
];

/// The end of the help.
fn after_help() -> String {
    let exits: Vec<String> = EXITS.iter().map(|(code, doc)| format!("{code} {doc}")).collect();
    format!("Exit codes: {}.\n\nExamples:\n  {}", exits.join("; "), EXAMPLES.join("\n  "))
}

/// Measure Ashlar beside its peers, and show it at work.
///
/// Starts servers of its own and, from Debian's packages, peers; server on one processor, load on
/// the other, rounds in turn, medians. Every row names the command that repeats it alone. Ctrl-C
/// ends the run after the present step and prints the finished measurements.
#[derive(Parser)]
#[command(name = "ashlar-bench", version, args_conflicts_with_subcommands = true)]
#[command(after_help = after_help())]
struct Command {
    #[command(flatten)]
    options: Options,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    tool: Option<ToolCommand>,
}

/// Tools beside the measurements.
#[derive(Subcommand)]
enum ToolCommand {
    /// Make images, lay out a graph, export it, and be the initiator.
    Demo(Demo),
    /// Draw the rows of a report that have a peer as a chart (SVG).
    Chart(Chart),
    /// Print completions for a shell.
    Completions {
        /// For which one.
        shell: clap_complete::Shell,
    },
    /// Print the manual page.
    Man,
}

/// Runs a daemon of its own in a folder of its own and stops it at the end.
#[derive(Args)]
struct Demo {
    /// Folder for images, configuration, socket and log; made when there is none.
    #[arg(long, default_value = "run")]
    data: PathBuf,
    /// Address that the target listens on.
    #[arg(long, default_value = "127.0.0.1:3260")]
    listen: String,
    /// Serve until stopped instead of acting as an initiator, and print what to type to connect.
    #[arg(long)]
    serve: bool,
    /// Path of the `ashlar` binary; absent: the one beside this program, else of PATH.
    #[arg(long)]
    ashlar: Option<PathBuf>,
}

/// A bar for Ashlar and one for the peer, and their ratio, for each compared row.
#[derive(Args)]
struct Chart {
    /// Report of `ashlar-bench --json`.
    report: PathBuf,
    /// Only figures whose name contains this; empty: all.
    #[arg(long, default_value = "CPU")]
    figure: String,
    /// Only the main rows, with labels for readers who do not know the cases.
    #[arg(long)]
    short: bool,
}

fn main() -> ExitCode {
    let parsed = Command::command().try_get_matches().and_then(|m| Command::from_arg_matches(&m));
    let command = match parsed {
        Ok(command) => command,
        Err(error) => {
            let code = if error.use_stderr() { USAGE } else { 0 };
            return ExitCode::from(if error.print().is_ok() { code } else { FAILED });
        }
    };
    let done = match command.tool {
        None => measure(command.options, command.json),
        Some(other) => other.run().map(|()| 0),
    };
    ExitCode::from(done.unwrap_or_else(|error| {
        eprintln!("ashlar-bench: {error}");
        if error.kind == Kind::Options { USAGE } else { FAILED }
    }))
}

impl ToolCommand {
    fn run(self) -> Result<(), Error> {
        let printed = match self {
            ToolCommand::Demo(demo) => return demo.run(),
            ToolCommand::Chart(chart) => io::stdout().write_all(chart.svg()?.as_bytes()),
            ToolCommand::Completions { shell } => {
                clap_complete::generate(
                    shell,
                    &mut Command::command(),
                    "ashlar-bench",
                    &mut io::stdout(),
                );
                Ok(())
            }
            ToolCommand::Man => man::page(Command::command(), EXITS, EXAMPLES)
                .and_then(|page| io::stdout().write_all(&page)),
        };
        printed.map_err(|e| Error::new(Kind::System, format!("print: {e}")))
    }
}

impl Chart {
    fn svg(self) -> Result<String, Error> {
        let name = self.report.display();
        let text = std::fs::read_to_string(&self.report).map_err(|e| {
            Error::new(Kind::System, format!("{name}: {e}; next: ashlar-bench --json > {name}"))
        })?;
        let report: Report = serde_json::from_str(&text).map_err(|e| {
            let why = format!("{name}: not a report: {e}; next: ashlar-bench --json > {name}");
            Error::new(Kind::Options, why)
        })?;
        report.chart(&self.figure, self.short).ok_or_else(|| {
            let why = format!("{name}: no row with a peer and a figure `{}`", self.figure);
            Error::new(Kind::Options, format!("{why}; next: ashlar-bench chart {name} --figure ''"))
        })
    }
}

impl Demo {
    fn run(self) -> Result<(), Error> {
        let ashlar = match self.ashlar {
            Some(path) => path,
            None => bench::servers::ashlar_beside()?.into(),
        };
        let data = demo::Wish { folder: self.data, listen: self.listen, serve: self.serve };
        until_a_signal()?;
        demo::run(data, &ashlar, &mut io::stdout())
    }
}

/// SIGINT and SIGTERM end the run at its next step.
fn until_a_signal() -> Result<(), Error> {
    let failed = |e| Error::new(Kind::System, format!("signals: {e}"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    std::thread::spawn(move || signals.forever().for_each(|_| bench::stop()));
    Ok(())
}

fn measure(options: Options, json: bool) -> Result<u8, Error> {
    until_a_signal()?;
    let on_row: Option<fn(&Row)> =
        if json { None } else { Some(|row| eprintln!("{}", row.line())) };
    let mut report = Report { on_row, ..Report::default() };
    let mut meter = Meter::default();
    let done = bench::run(options, &mut report, &mut |progress| meter.show(&progress));
    if done.is_ok() || !report.rows.is_empty() {
        let text = if json { report.json() } else { report.table() };
        match io::stdout().write_all(text.as_bytes()) {
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                return Err(Error::new(Kind::System, format!("print: {e}")));
            }
            _ => {}
        }
    }
    match done {
        // A server that ended with the same Ctrl-C is no failure of its own.
        Err(_) if bench::stopped() => Err(Error::new(Kind::Stopped, "stopped before the end")),
        Err(error) => Err(error),
        Ok(()) => Ok(if report.missed() { MISSED } else { 0 }),
    }
}

/// Shows the step that is measured, and the remaining time of this part.
#[derive(Default)]
struct Meter {
    begun: Option<Instant>,
}

impl Meter {
    fn show(&mut self, at: &Progress) {
        if at.done == 0 || self.begun.is_none() {
            self.begun = Some(Instant::now());
        }
        let took = self.begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64());
        let left = f64::from(at.of.saturating_sub(at.done)) * took / f64::from(at.done.max(1));
        let left = if at.done == 0 { String::new() } else { format!(", {left:.0} s left") };
        eprintln!("[{}/{}] {}{left}", at.done, at.of, at.step);
    }
}
