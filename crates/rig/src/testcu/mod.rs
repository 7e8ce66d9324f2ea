//! libiscsi's conformance suite, one process a test, over units of several flavours, against an
//! expectation file.
//!
//! A test that a unit cannot answer, for it is not removable, not write-protected, has one address
//! only, is skipped by the tool. So there are [`Flavour`]s of units, and each takes the tests that
//! mean something on it.
//!
//! Invariants
//!  T1  Tests of one flavour run one after the other: they reserve, reset and overwrite the same
//!      unit. Flavours run beside each other; each needs a target of its own, for some tests reset
//!      all units of a target.
//!  T2  Every test of the tool's own list that a flavour takes has exactly one outcome on it; a
//!      hang is one, too. A test that no flavour takes is an error, and so is a pattern of a
//!      flavour that fits no test.
//!  T3  A comparison is two-sided. A test on a flavour that is not in the file is a difference, as
//!      is a line of the file that no such run answers, or a changed outcome.

mod expect;
mod flavour;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};

pub use expect::{Difference, Expectations};
pub use flavour::Flavour;

use crate::proc;

/// A test that takes longer is counted as hanging. The longest takes a few seconds on an idle
/// machine; the rest is for one that is busy.
pub const TEST_LIMIT: Duration = Duration::from_secs(120);

/// Length of a shortened sleep, µs.
const NAP_US: u32 = 200_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// All its assertions hold.
    Pass,
    /// The tool found that the unit lacks the tested feature.
    Skip,
    /// An assertion failed, or the tool died.
    Fail,
    /// It did not end within [`TEST_LIMIT`].
    Hang,
}

impl Outcome {
    const ALL: [(Outcome, &'static str); 4] = [
        (Outcome::Pass, "pass"),
        (Outcome::Skip, "skip"),
        (Outcome::Fail, "fail"),
        (Outcome::Hang, "hang"),
    ];

    fn parse(word: &str) -> Option<Outcome> {
        Outcome::ALL.iter().find(|(_, name)| *name == word).map(|(outcome, _)| *outcome)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Outcome::ALL.iter().find(|(outcome, _)| outcome == self);
        f.write_str(name.map_or("?", |(_, name)| name))
    }
}

/// Outcome of one test and the tool's output about it.
#[derive(Clone, Debug)]
pub struct TestResult {
    /// `SUITE.TEST`.
    pub name: String,
    /// The flavour of the unit it ran on.
    pub flavour: String,
    pub outcome: Outcome,
    /// The lines about this test, without the tool's frame.
    pub text: String,
    /// Wall-clock time.
    pub took: Duration,
}

/// The names of all tests the installed tool knows, in its order, as `SUITE.TEST`.
pub fn list() -> Result<Vec<String>> {
    let text = proc::run(Command::new(proc::tool("iscsi-test-cu")?).arg("-l"))?;
    // The tool lists families, suites and tests as A, A.B and A.B.C; family ALL holds them all.
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("ALL."));
    let names: Vec<String> = names.filter(|name| name.contains('.')).map(str::to_string).collect();
    ensure!(!names.is_empty(), "iscsi-test-cu -l lists no tests:\n{text}");
    Ok(names)
}

/// Runs one test, destructive ones included, on a unit.
pub fn run_one(name: &str, flavour: &Flavour) -> Result<TestResult> {
    let mut command = tool(flavour)?;
    command.arg("-d");
    if flavour.sanitize {
        command.arg("-S");
    }
    command.arg("-t").arg(format!("ALL.{name}")).args(&flavour.urls);
    let ran = proc::run_limited(&mut command, TEST_LIMIT)?;
    let outcome = judge(ran.status.is_some(), &ran.output);
    let (name, flavour) = (name.to_string(), flavour.name.to_string());
    Ok(TestResult { name, flavour, outcome, text: about(&ran.output), took: ran.took })
}

/// The tool, with shortened sleeps where the flavour requires them.
fn tool(flavour: &Flavour) -> Result<Command> {
    let tool = proc::tool("iscsi-test-cu")?;
    let Some(first) = flavour.awake_from else { return Ok(Command::new(tool)) };
    let mut command = Command::new(proc::tool("strace")?);
    command.args(["-qq", "-o", "/dev/null", "-e", "trace=clock_nanosleep", "-e"]);
    let naps = format!("inject=clock_nanosleep:retval=0:delay_exit={NAP_US}:when={first}+");
    command.arg(naps).arg(tool);
    Ok(command)
}

/// Runs every test of the tool's list on every flavour that takes it (T2).
pub fn run_all(flavours: &[Flavour]) -> Result<Report> {
    let start = Instant::now();
    let names = list()?;
    flavours.iter().try_for_each(|flavour| flavour.check(&names))?;
    for name in &names {
        ensure!(flavours.iter().any(|f| f.takes(name)), "no flavour takes {name}");
    }
    let all_of = |flavour: &Flavour| -> Result<Vec<(usize, TestResult)>> {
        let taken = names.iter().enumerate().filter(|(_, name)| flavour.takes(name));
        taken.map(|(number, name)| Ok((number, run_one(name, flavour)?))).collect()
    };
    let mut results = Vec::new();
    std::thread::scope(|scope| -> Result<()> {
        let all_of = &all_of;
        let runs = flavours.iter().map(|flavour| scope.spawn(move || all_of(flavour)));
        for run in runs.collect::<Vec<_>>() {
            results.extend(run.join().map_err(|_| anyhow!("a thread of the suite panicked"))??);
        }
        Ok(())
    })?;
    // In the tool's order, the flavours of a test in theirs.
    results.sort_by_key(|(number, _)| *number);
    let results = results.into_iter().map(|(_, result)| result).collect();
    Ok(Report { results, took: start.elapsed() })
}

/// The outcome of a whole run.
pub struct Report {
    pub results: Vec<TestResult>,
    /// Wall-clock time of the run.
    pub took: Duration,
}

impl Report {
    pub fn count(&self, outcome: Outcome) -> usize {
        self.results.iter().filter(|result| result.outcome == outcome).count()
    }

    /// Tests that were skipped on every flavour they ran on: the suite proves nothing about them.
    pub fn skipped_everywhere(&self) -> Vec<&str> {
        let ran = self.results.iter().filter(|result| result.outcome != Outcome::Skip);
        let ran: BTreeSet<&str> = ran.map(|result| result.name.as_str()).collect();
        let all: BTreeSet<&str> = self.results.iter().map(|r| r.name.as_str()).collect();
        all.difference(&ran).copied().collect()
    }

    /// Asserts that the results are those of a file. If the environment variable `redraft` names
    /// another file, writes the present results to it.
    #[track_caller]
    pub fn assert_expected(&self, file: &Path, redraft: &str) {
        let expected = Expectations::read(file).unwrap_or_else(|e| panic!("{e:#}"));
        if let Some(path) = std::env::var_os(redraft) {
            std::fs::write(path, expected.redraft(&self.results)).expect("a writable file");
        }
        let differences = expected.differences(&self.results);
        let text: Vec<String> = differences.iter().map(ToString::to_string).collect();
        assert!(differences.is_empty(), "{}\n{}", self.summary(), text.join("\n"));
    }

    /// One line with all counts.
    pub fn summary(&self) -> String {
        let counts = Outcome::ALL.map(|(outcome, name)| format!("{} {name}", self.count(outcome)));
        format!("{} in {:.1} s", counts.join(", "), self.took.as_secs_f32())
    }
}

/// Uses the tool's own table instead of its exit code. The tool cleans up after a test that passed.
/// Conditions found there (a unit attention after a reset, no persistent reservations) are not the
/// test's.
fn judge(ended: bool, output: &str) -> Outcome {
    let skipped = about(output).contains("[SKIPPED]");
    match (ended, test_counts(output)) {
        (false, _) => Outcome::Hang,
        (true, Some([ran, passed, failed])) if ran > 0 && ran == passed && failed == 0 => {
            if skipped { Outcome::Skip } else { Outcome::Pass }
        }
        // A failed test, or no test at all: the login failed, the tool died.
        (true, _) => Outcome::Fail,
    }
}

/// The table's line `tests Total Ran Passed Failed Inactive`: how many ran, passed, failed.
fn test_counts(output: &str) -> Option<[u32; 3]> {
    let (_, table) = output.split_once("Run Summary")?;
    let line = table.lines().find_map(|line| line.trim().strip_prefix("tests "))?;
    let mut numbers = line.split_whitespace().skip(1).map(|word| word.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

/// The lines between the tool's banner and its table, without those of the clean-up.
fn about(output: &str) -> String {
    let lines = output.lines().skip_while(|line| !line.starts_with("Suite:"));
    let lines = lines.take_while(|line| !line.starts_with("Run Summary"));
    let mut kept = Vec::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        // The outcome is on a line of its own when the test printed something. Otherwise it is on
        // one line with the output of the clean-up.
        let verdict = match line.strip_prefix("passed") {
            Some(_) => Some("passed"),
            None => line.find("...passed").and_then(|at| line.get(..at + 9)),
        };
        kept.push(verdict.unwrap_or(line));
        if verdict.is_some() {
            break;
        }
    }
    let text = kept.join("\n");
    if text.is_empty() { output.trim().to_string() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T2.
    #[test]
    fn test_outcomes_are_read_from_the_output() {
        let frame = |middle: &str, counts: &str| {
            format!(
                "\nSuite: A\n  Test: b ...{middle}\n\n\
                 Run Summary:    Type  Total    Ran Passed Failed Inactive\n\
                 \x20             suites      1      1    n/a      0        0\n\
                 \x20               tests      {counts}        0\n"
            )
        };
        let good = "1      1      1      0";
        assert_eq!(judge(true, &frame("passed", good)), Outcome::Pass);
        assert_eq!(judge(true, &frame("passed    [FAILED] in the clean-up", good)), Outcome::Pass);
        assert_eq!(judge(true, &frame("passed    [SKIPPED] in the clean-up", good)), Outcome::Pass);
        assert_eq!(judge(true, &frame("    [SKIPPED] no.\npassed", good)), Outcome::Skip);
        assert_eq!(judge(true, &frame("    [FAILED] no", "1      1      0      1")), Outcome::Fail);
        assert_eq!(judge(true, &frame("", "0      0      0      0")), Outcome::Fail);
        assert_eq!(judge(true, "Failed to log in"), Outcome::Fail);
        assert_eq!(judge(false, ""), Outcome::Hang);
        assert_eq!(about(&frame("passed", good)), "Suite: A\n  Test: b ...passed");
    }
}
