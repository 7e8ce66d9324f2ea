//! What to measure, and how long.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind};

/// Most rounds; more are refused, for the run would take hours.
const ROUNDS_MAX: u32 = 1000;
/// Longest measurement of one round, seconds; more is refused for the same reason.
const SECONDS_MAX: u32 = 3600;

/// Which measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Everything.
    #[default]
    All,
    /// What a layer costs a Bio.
    Layers,
    /// What the classes with members cost, beside the disks below them.
    Classes,
    /// Load over iSCSI.
    Iscsi,
    /// Load over iSCSI from a Linux kernel in a guest.
    Kernel,
    /// Load over NBD, beside nbdkit and QEMU's storage daemon.
    Nbd,
    /// Load over AoE, beside vblade, over cables into network namespaces.
    Aoe,
    /// Files over 9P, beside diod; and what a dump costs those who use them.
    Files,
    /// What a daemon costs that has nothing to do.
    Idle,
    /// What a second core adds, without a network.
    Cores,
    /// What very many logical units cost, without a network.
    Luns,
    /// The comparisons of the project's seeds; not a part of `all`.
    Seeds,
    /// No measurement: the bare responder serves on `listen`, or at `interface`, until killed.
    Bare,
}

/// A seed document of the project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Seed {
    /// The posting that introduced SCST: threads, and one system call a command.
    #[default]
    Scst,
    /// The page on geom_sched: who gets what of a disk beside whom.
    Sched,
    /// The paper on the diskless file server: what its link carried, in virtual time.
    Aoe,
    /// The same paper: what a client of the file server saw, in virtual time.
    Fileserver,
    /// Lessons learned about TRIM: what three ways of telling a disk cost, in virtual time.
    Trim,
}

/// A target to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
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

    /// Whether it keeps what is written in a file.
    pub(crate) fn serves_files(self) -> bool {
        self == Peer::Tgt
    }
}

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Options {
    /// Which measurements: `all`, `layers`, `classes`, `iscsi`, `kernel`, `nbd`, `aoe`, `files`,
    /// `cores`, `luns`, `idle`; or `seeds`; or `bare`, the bare responder alone.
    pub what: What,
    /// Which seed, for `seeds`: `scst`, `sched`, `trim`, `aoe`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<Seed>,
    /// Only the cases whose name contains this; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
    /// Rounds; every figure is the median over them. Servers take turns within a round.
    #[schemars(range(min = 1, max = 1000))]
    pub rounds: u32,
    /// Seconds measured in each round of load.
    #[schemars(range(min = 1, max = 3600))]
    pub seconds: u32,
    /// Seconds an idle server is watched.
    #[schemars(range(min = 1, max = 3600))]
    pub idle_seconds: u32,
    /// Address of the bare responder, for `bare`; absent: a free port of 127.0.0.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Network interface of the bare responder of AoE, for `bare`, instead of `listen`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Targets to compare with.
    pub peers: Vec<Peer>,
    /// Measure Ashlar alone.
    pub no_peers: bool,
    /// Path of the `ashlar` binary to measure; absent: the one that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ashlar: Option<String>,
    /// Path of another `ashlar` binary, such as one of an earlier version, that is measured as one
    /// more server by `iscsi`, `nbd` and `kernel`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Leave out what perf and the allocation counter measure: system calls, allocations.
    pub no_counters: bool,
    /// The command that repeats this program with other options: the words before them. Empty: the
    /// program that runs, with the word `bench`.
    #[serde(skip)]
    #[schemars(skip)]
    pub worker: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            what: What::All,
            seed: None,
            case: None,
            rounds: 5,
            seconds: 1,
            idle_seconds: 10,
            listen: None,
            interface: None,
            peers: vec![Peer::Tgt, Peer::Bare],
            no_peers: false,
            ashlar: None,
            before: None,
            no_counters: false,
            worker: Vec::new(),
        }
    }
}

impl Options {
    /// Refuses numbers that cannot be meant.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |what: String| Err(Error::new(Kind::Options, what));
        if !(1..=ROUNDS_MAX).contains(&self.rounds) {
            return refuse(format!("rounds: 1 to {ROUNDS_MAX}, not {}", self.rounds));
        }
        for (name, value) in [("seconds", self.seconds), ("idle_seconds", self.idle_seconds)] {
            if !(1..=SECONDS_MAX).contains(&value) {
                return refuse(format!("{name}: 1 to {SECONDS_MAX}, not {value}"));
            }
        }
        Ok(())
    }

    /// Whether a case of that name was asked for.
    pub(crate) fn wants(&self, case: &str) -> bool {
        self.case.as_ref().is_none_or(|part| case.contains(part.as_str()))
    }

    /// Of these cases those that were asked for: a whole name means that case alone, although
    /// others may begin like it.
    pub(crate) fn choose<'a, C>(&self, cases: &'a [C], name: fn(&C) -> &str) -> Vec<&'a C> {
        let asked = |case: &&C| self.case.as_deref() == Some(name(case));
        match cases.iter().find(asked) {
            Some(one) => vec![one],
            None => cases.iter().filter(|case| self.wants(name(case))).collect(),
        }
    }

    /// The peers to measure.
    pub(crate) fn peers(&self) -> &[Peer] {
        if self.no_peers { &[] } else { &self.peers }
    }

    /// The program to measure.
    pub(crate) fn binary(&self) -> Result<String, Error> {
        match &self.ashlar {
            Some(path) => Ok(path.clone()),
            None => own_path(),
        }
    }

    /// The words that start this program for one case.
    pub(crate) fn worker(&self) -> Result<Vec<String>, Error> {
        match self.worker.as_slice() {
            [] => Ok(vec![own_path()?, "bench".into()]),
            words => Ok(words.to_vec()),
        }
    }

    /// The command that repeats one case alone, for people.
    pub(crate) fn command(&self, what: &str, case: &str) -> String {
        let mut words = match self.worker.as_slice() {
            [] => "ashlar bench".to_owned(),
            words => words.join(" "),
        };
        words.push_str(&match what {
            "iscsi" | "nbd" | "files" | "cores" | "luns" | "seeds scst" => {
                format!(" {what} --case {case} --rounds {} --seconds {}", self.rounds, self.seconds)
            }
            "seeds sched" => format!(" {what} --case {case}"),
            "idle" => format!(" idle --case {case} --idle-seconds {}", self.idle_seconds),
            _ => format!(" {what} --case {case} --rounds {}", self.rounds),
        });
        let servers = matches!(what, "iscsi" | "kernel" | "nbd" | "files" | "idle");
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

fn own_path() -> Result<String, Error> {
    let path = std::env::current_exe().map_err(|e| Error::system("own path", e))?;
    path.into_os_string()
        .into_string()
        .map_err(|p| Error::new(Kind::System, format!("own path {p:?} is not text")))
}
