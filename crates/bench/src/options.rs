//! Options of a run: the measurements and their length.

use std::net::SocketAddr;

use clap::builder::RangedI64ValueParser;
use clap::{Args, ValueEnum};

use crate::error::Error;

/// Most rounds; more are refused, for the run would take hours.
const ROUNDS_MAX: i64 = 1000;
/// Longest measurement of one round, seconds; more is refused for the same reason.
const SECONDS_MAX: i64 = 3600;

/// Which measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Measurement {
    /// Everything.
    #[default]
    All,
    /// Cost of a layer for a Bio.
    Layers,
    /// Cost of classes with members, beside the disks below them.
    Classes,
    /// Load over iSCSI.
    Iscsi,
    /// Load over iSCSI from a Linux kernel in a guest.
    Kernel,
    /// Load over NBD, beside nbdkit and QEMU's storage daemon.
    Nbd,
    /// Load over AoE, beside vblade, over cables into network namespaces.
    Aoe,
    /// Files over 9P, beside diod, and the cost of a dump for their users.
    Files,
    /// Cost of an idle daemon.
    Idle,
    /// Gain of a second core, without a network.
    Cores,
    /// Cost of very many logical units, without a network.
    Luns,
    /// Cost of an open page, a trace, the sandbox, a scrape and the samples of the last hour, and
    /// waits for `status` during a start.
    Operate,
    /// The effect of one setting: a daemon with it beside one without; not a part of `all`.
    Settings,
    /// The comparisons of the project's seeds; not a part of `all`.
    Seeds,
    /// No measurement: the bare responder serves on `listen`, or at `interface`, until killed.
    Bare,
}

/// A seed document of the project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Seed {
    /// The posting that introduced SCST: threads, and one system call a command.
    #[default]
    Scst,
    /// The page on geom_sched: the share of each client of one disk.
    Sched,
    /// The paper on the diskless file server: bytes on its link, in virtual time.
    Aoe,
    /// The same paper: waits of a client of the file server, in virtual time.
    Fileserver,
    /// Lessons learned about TRIM: cost of three ways to report freed blocks, in virtual time.
    Trim,
}

/// A target to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// tgt, from Debian's package `tgt`.
    Tgt,
    /// The bare responder: a header in, header and data out, and nothing that a target has to do.
    Bare,
}

impl Peer {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Tgt => "tgt",
            Peer::Bare => "bare",
        }
    }
}

fn seconds() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=SECONDS_MAX)
}

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct Options {
    /// Which measurements.
    #[arg(value_enum, default_value_t)]
    pub what: Measurement,
    /// Which seed, for `seeds`.
    #[arg(value_enum)]
    pub seed: Option<Seed>,
    /// Only the cases whose name contains this; absent: all.
    #[arg(long)]
    pub case: Option<String>,
    /// Rounds; every figure is the median over them. Servers take turns within a round.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=ROUNDS_MAX))]
    pub rounds: u32,
    /// Seconds measured in each round of load.
    #[arg(long, default_value_t = 1, value_parser = seconds())]
    pub seconds: u32,
    /// Seconds an idle server is watched.
    #[arg(long, default_value_t = 10, value_parser = seconds())]
    pub idle_seconds: u32,
    /// One round of the first case of each measurement: less than two minutes for everything.
    #[arg(long, conflicts_with_all = ["case", "rounds"])]
    pub quick: bool,
    /// Address of the bare responder, for `bare`; absent: a free port of 127.0.0.1.
    #[arg(long)]
    pub listen: Option<SocketAddr>,
    /// Network interface of the bare responder of AoE, for `bare`, instead of `listen`.
    #[arg(long)]
    pub interface: Option<String>,
    /// File behind the bare responder, for `bare`: unit 0 over iSCSI; over AoE the second slot, as
    /// long as its memory.
    #[arg(long)]
    pub file: Option<String>,
    /// Targets to compare with.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Peer::Tgt, Peer::Bare])]
    pub peers: Vec<Peer>,
    /// Measure Ashlar alone.
    #[arg(long)]
    pub no_peers: bool,
    /// Path of the `ashlar` binary to measure; absent: the one beside this program, else of PATH.
    #[arg(long)]
    pub ashlar: Option<String>,
    /// Path of another `ashlar` binary, such as one of an earlier version, that is measured as one
    /// more server by `iscsi`, `kernel` and `nbd`.
    #[arg(long)]
    pub before: Option<String>,
    /// Leave out what perf and the allocation counter measure: system calls, allocations.
    #[arg(long)]
    pub no_counters: bool,
    /// Divides the requests of a round of `layers` and `classes`, and the LUNs and times of
    /// `operate`. 1 measures, more only shows that the cases run. No option of the command line.
    #[arg(skip = 1_u64)]
    pub requests_divisor: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Length {
    /// Rounds that count.
    pub rounds: u32,
    /// See [`Options::requests_divisor`].
    divisor: u64,
}

impl Length {
    /// Requests, bytes, LUNs or time of a round, of those of a measurement; at least one.
    pub fn scaled(self, measured: u64) -> u64 {
        (measured / self.divisor.max(1)).max(1)
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            what: Measurement::All,
            seed: None,
            case: None,
            rounds: 5,
            seconds: 1,
            idle_seconds: 10,
            quick: false,
            listen: None,
            interface: None,
            file: None,
            peers: vec![Peer::Tgt, Peer::Bare],
            no_peers: false,
            ashlar: None,
            before: None,
            no_counters: false,
            requests_divisor: 1,
        }
    }
}

impl Options {
    /// With `quick` carried out.
    pub(crate) fn settled(self) -> Options {
        if !self.quick {
            return self;
        }
        Options { rounds: 1, idle_seconds: 2, no_counters: true, ..self }
    }

    /// Rounds and requests of a measurement.
    pub(crate) fn length(&self) -> Length {
        Length { rounds: self.rounds, divisor: self.requests_divisor }
    }

    /// Whether a case of that name was selected.
    pub(crate) fn wants(&self, case: &str) -> bool {
        self.case.as_ref().is_none_or(|part| case.contains(part.as_str()))
    }

    /// The selected ones of these cases: a whole name means that case alone, although others may
    /// begin like it.
    pub(crate) fn choose<'a, C>(&self, cases: &'a [C], name: fn(&C) -> &str) -> Vec<&'a C> {
        if self.quick {
            return cases.first().into_iter().collect();
        }
        let asked = |case: &&C| self.case.as_deref() == Some(name(case));
        match cases.iter().find(asked) {
            Some(one) => vec![one],
            None => cases.iter().filter(|case| self.wants(name(case))).collect(),
        }
    }

    pub(crate) fn peers(&self) -> &[Peer] {
        if self.no_peers { &[] } else { &self.peers }
    }

    /// The program to measure.
    pub(crate) fn binary(&self) -> Result<String, Error> {
        match &self.ashlar {
            Some(path) => Ok(path.clone()),
            None => crate::servers::ashlar_beside(),
        }
    }

    /// The command that repeats one case alone, for people.
    pub(crate) fn command(&self, what: &str, case: &str) -> String {
        let mut words = "ashlar-bench".to_owned();
        words.push_str(&match what {
            "iscsi" | "nbd" | "files" | "cores" | "luns" | "settings" | "seeds scst" => {
                format!(" {what} --case {case} --rounds {} --seconds {}", self.rounds, self.seconds)
            }
            "operate" => format!(
                " operate --case {case} --rounds {} --seconds {} --idle-seconds {}",
                self.rounds, self.seconds, self.idle_seconds
            ),
            "seeds sched" => format!(" {what} --case {case}"),
            "idle" => format!(" idle --case {case} --idle-seconds {}", self.idle_seconds),
            _ => format!(" {what} --case {case} --rounds {}", self.rounds),
        });
        let servers =
            matches!(what, "iscsi" | "kernel" | "nbd" | "files" | "operate" | "settings" | "idle");
        if self.no_peers && servers {
            words.push_str(" --no-peers");
        }
        if let Some(path) = self.ashlar.as_ref().filter(|_| servers) {
            words.push_str(&format!(" --ashlar {path}"));
        }
        if let Some(path) = self.before.as_ref().filter(|_| compared_before(what)) {
            words.push_str(&format!(" --before {path}"));
        }
        words
    }
}

/// Whether that measurement starts the binary of [`Options::before`].
fn compared_before(what: &str) -> bool {
    matches!(what, "iscsi" | "kernel" | "nbd")
}
