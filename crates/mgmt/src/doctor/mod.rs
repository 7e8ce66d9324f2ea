//! The checks of `doctor`: one file and one line of [`CHECKS`] each.

mod access;
mod backing;
mod buses;
mod certificates;
mod config;
mod fds;
mod io_uring;
mod listeners;
mod names;
mod ports;
mod sandbox;
mod secrets;
mod socket;
mod version;

use crate::api::{Error, Kind, SystemState};
use crate::config::{Catalog, Config};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Nothing to repair.
    #[default]
    Ok,
    /// Works, but worse than it could.
    Warn,
    /// Does not work.
    Fail,
}

impl Severity {
    /// The word printed.
    pub const fn label(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Warn => "warn",
            Severity::Fail => "FAIL",
        }
    }
}

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckFinding {
    /// Which check.
    pub check: String,
    /// How bad it is.
    pub grade: Severity,
    /// The observation.
    pub finding: String,
    /// What follows from it; empty when nothing does.
    pub consequence: String,
    /// The command that repairs it; empty when there is nothing to repair.
    pub fix: String,
}

/// The input of all checks. It is passed in from outside, so that tests can supply their own.
pub struct Facts {
    /// Root of the kernel's process files: `/proc`.
    pub proc: PathBuf,
    /// The configuration's file.
    pub file: PathBuf,
    /// Its content; `None` when there is no such file.
    pub config: Option<Result<Config, Error>>,
    /// The possible content of a configuration.
    pub catalog: Catalog,
    /// The daemon's socket.
    pub socket: PathBuf,
    /// The state that the daemon reports.
    pub daemon: Result<SystemState, Error>,
    /// Steps of a plan for the configuration that the daemon would refuse, each with why.
    pub refused_steps: Vec<String>,
    /// Version of this binary.
    pub version: String,
}

impl Facts {
    /// The configuration, when there is a good one.
    fn valid_config(&self) -> Option<&Config> {
        self.config.as_ref().and_then(|c| c.as_ref().ok())
    }

    /// A warning that something was not checked, when a daemon runs that does not report its state.
    /// Its own locks and ports would be reported as those of another program.
    fn unchecked(&self, what: &str) -> Option<CheckFinding> {
        let error = self.daemon.as_ref().err()?;
        let why = match error.kind {
            Kind::Unreachable => return None,
            Kind::Silent => "the running daemon does not answer".to_owned(),
            _ => format!("the daemon does not report its state: {}", error.source),
        };
        Some(bad(
            Severity::Warn,
            format!("{what} are not checked: {why}"),
            "their problems are not reported",
            "ashlar doctor socket; repeat this check when the daemon answers",
        ))
    }

    /// The words of the line of `/proc/self/limits` that begins with `name`: soft limit, hard
    /// limit, unit.
    fn limit(&self, name: &str) -> Option<(String, String)> {
        let text = std::fs::read_to_string(self.proc.join("self/limits")).ok()?;
        let line = text.lines().find_map(|l| l.strip_prefix(name))?;
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    }
}

/// One check.
pub struct Check {
    /// Its name on the command line.
    pub id: &'static str,
    /// The subject of the check.
    pub doc: &'static str,
    findings: fn(&Facts) -> Vec<CheckFinding>,
}

impl Check {
    /// See [`STATE_CHECKS`].
    pub fn is_of_state(&self) -> bool {
        STATE_CHECKS.contains(&self.id)
    }

    /// Runs the check, and puts its id into the findings.
    pub fn run(&self, facts: &Facts) -> Vec<CheckFinding> {
        let found = (self.findings)(facts);
        found.into_iter().map(|f| CheckFinding { check: self.id.to_owned(), ..f }).collect()
    }
}

/// Every check, in the order of the report.
pub const CHECKS: &[Check] = &[
    io_uring::CHECK,
    fds::CHECK,
    config::CHECK,
    secrets::CHECK,
    certificates::CHECK,
    access::CHECK,
    listeners::CHECK,
    backing::CHECK,
    buses::CHECK,
    names::CHECK,
    ports::CHECK,
    sandbox::CHECK,
    socket::CHECK,
    version::CHECK,
];

/// Checks that need only the state that a daemon reports. They examine a daemon of another machine,
/// too, without a configuration.
const STATE_CHECKS: [&str; 5] = ["io_uring", "certificates", "listeners", "buses", "version"];

fn ok(finding: impl Into<String>) -> Vec<CheckFinding> {
    vec![CheckFinding { finding: finding.into(), ..CheckFinding::default() }]
}

fn bad(
    grade: Severity,
    finding: impl Into<String>,
    consequence: impl Into<String>,
    fix: impl Into<String>,
) -> CheckFinding {
    let check = String::new();
    CheckFinding {
        check,
        grade,
        finding: finding.into(),
        consequence: consequence.into(),
        fix: fix.into(),
    }
}

#[cfg(test)]
mod tests;
