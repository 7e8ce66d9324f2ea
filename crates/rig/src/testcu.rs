//! libiscsi's conformance suite, one process a test, against an expectation file.
//!
//! Invariants
//!  T1  Tests run one after the other: they reserve, reset and overwrite the same unit.
//!  T2  Every test of the tool's own list has exactly one outcome; a hang is one, too.
//!  T3  A comparison is two-sided: a test that is not in the file and a line of the file that
//!      no test answers are differences, as a changed outcome is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::proc;

/// A test that takes longer is counted as hanging.
pub const TEST_LIMIT: Duration = Duration::from_secs(15);

/// How one test went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// All its assertions hold.
    Pass,
    /// The tool found that the unit lacks what the test is about.
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

/// One test's outcome and what the tool said about it.
#[derive(Clone, Debug)]
pub struct TestResult {
    /// `SUITE.TEST`.
    pub name: String,
    /// How it went.
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

/// Runs one test, destructive ones included, against a unit given as an `iscsi://` address.
pub fn run_one(name: &str, url: &str) -> Result<TestResult> {
    let mut command = Command::new(proc::tool("iscsi-test-cu")?);
    command.args(["-d", "-t"]).arg(format!("ALL.{name}")).arg(url);
    let ran = proc::run_limited(&mut command, TEST_LIMIT)?;
    let outcome = judge(ran.status.is_some(), &ran.output);
    Ok(TestResult { name: name.to_string(), outcome, text: about(&ran.output), took: ran.took })
}

/// Runs the named tests in order. `progress` hears of each result as it comes.
pub fn run(
    names: &[String],
    url: &str,
    progress: &mut dyn FnMut(&TestResult),
) -> Result<Vec<TestResult>> {
    let mut results = Vec::with_capacity(names.len());
    for name in names {
        let result = run_one(name, url)?;
        progress(&result);
        results.push(result);
    }
    Ok(results)
}

/// Runs every test of the tool's list.
pub fn run_all(url: &str) -> Result<Report> {
    let start = Instant::now();
    let results = run(&list()?, url, &mut |_| {})?;
    Ok(Report { results, took: start.elapsed() })
}

/// The outcome of a whole run.
pub struct Report {
    /// A result a test.
    pub results: Vec<TestResult>,
    /// Wall-clock time of the run.
    pub took: Duration,
}

impl Report {
    /// How many tests had this outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.results.iter().filter(|result| result.outcome == outcome).count()
    }

    /// One line with all counts.
    pub fn summary(&self) -> String {
        let counts = Outcome::ALL.map(|(outcome, name)| format!("{} {name}", self.count(outcome)));
        format!("{} in {:.1} s", counts.join(", "), self.took.as_secs_f32())
    }
}

/// By the tool's own table, not by its exit code: after a test that passed it cleans up, and what
/// it meets there (a unit attention after a reset, no persistent reservations) is not the test's.
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
        // The verdict has a line of its own when the test said something, and is glued to what
        // the clean-up says.
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

/// What is expected of each test: a line `SUITE.TEST outcome # reason` each.
///
/// Two outcomes joined by `|` allow either, for tests that race with themselves. A line whose
/// only or first outcome is not `pass` needs its reason.
#[derive(Clone, Debug, Default)]
pub struct Expectations {
    lines: BTreeMap<String, (Vec<Outcome>, String)>,
}

impl Expectations {
    /// Reads the text form; the error names the line.
    pub fn parse(text: &str) -> Result<Expectations> {
        let mut lines = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let number = number + 1;
            let (words, reason) = line.split_once('#').unwrap_or((line, ""));
            let mut words = words.split_whitespace();
            let Some(name) = words.next() else { continue };
            let outcomes = words.next().with_context(|| format!("line {number}: no outcome"))?;
            ensure!(words.next().is_none(), "line {number}: more than a name and an outcome");
            let outcomes: Option<Vec<Outcome>> = outcomes.split('|').map(Outcome::parse).collect();
            let outcomes = outcomes
                .with_context(|| format!("line {number}: outcomes are pass, skip, fail, hang"))?;
            let reason = reason.trim().to_string();
            let plain = outcomes.as_slice() == [Outcome::Pass];
            ensure!(plain || !reason.is_empty(), "line {number}: {name} needs a reason");
            if lines.insert(name.to_string(), (outcomes, reason)).is_some() {
                bail!("line {number}: {name} is here twice");
            }
        }
        Ok(Expectations { lines })
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Expectations> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Expectations::parse(&text).with_context(|| path.display().to_string())
    }

    /// The tests the file names, in alphabetical order.
    pub fn names(&self) -> Vec<String> {
        self.lines.keys().cloned().collect()
    }

    /// Every difference between the file and a run, in both directions (T3).
    pub fn differences(&self, results: &[TestResult]) -> Vec<Difference> {
        let mut differences = Vec::new();
        let mut seen = BTreeSet::new();
        for result in results {
            seen.insert(result.name.as_str());
            let expected = match self.lines.get(&result.name) {
                Some((outcomes, _)) if outcomes.contains(&result.outcome) => continue,
                Some((outcomes, _)) => outcomes.clone(),
                None => Vec::new(),
            };
            differences.push(Difference {
                name: result.name.clone(),
                expected,
                got: Some(result.outcome),
                text: result.text.clone(),
            });
        }
        for (name, (outcomes, _)) in &self.lines {
            if !seen.contains(name.as_str()) {
                let (name, expected) = (name.clone(), outcomes.clone());
                differences.push(Difference { name, expected, got: None, text: String::new() });
            }
        }
        differences
    }
}

/// One disagreement between file and run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// `SUITE.TEST`.
    pub name: String,
    /// What the file allows; empty: the file has no line for it.
    pub expected: Vec<Outcome>,
    /// What happened; None: the test was not run.
    pub got: Option<Outcome>,
    /// What the tool said.
    pub text: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected: Vec<String> = self.expected.iter().map(Outcome::to_string).collect();
        let expected = expected.join("|");
        match (self.expected.is_empty(), self.got) {
            (true, Some(got)) => write!(f, "{}: {got}, but the file has no line for it", self.name),
            (_, None) => write!(f, "{}: the file expects {expected}, it was not run", self.name),
            (false, Some(got)) => write!(f, "{}: expected {expected}, got {got}", self.name),
        }?;
        if self.text.is_empty() { Ok(()) } else { write!(f, "\n{}", self.text) }
    }
}

/// The lines of an expectation file for a run, with the tool's first words as the reason.
pub fn render(results: &[TestResult]) -> String {
    let mut text = String::new();
    for result in results {
        let mut line = format!("{:<52} {}", result.name, result.outcome);
        if result.outcome != Outcome::Pass {
            line.push_str(&format!("  # {}", reason(&result.text)));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn reason(text: &str) -> String {
    let marks = ["[SKIPPED]", "[FAILED]"];
    let line = text.lines().find(|line| marks.iter().any(|mark| line.contains(mark)));
    let line = line.or_else(|| text.lines().last()).unwrap_or("the tool said nothing");
    let line = line.split_once(']').map_or(line, |(_, words)| words);
    line.trim().chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(name: &str, outcome: Outcome) -> TestResult {
        let text = format!("Suite: x\n  Test: y ...    [SKIPPED] {name} why. Skipping");
        TestResult { name: name.to_string(), outcome, text, took: Duration::ZERO }
    }

    #[test]
    fn outcomes_are_judged() {
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

    #[test]
    fn t3_differences_go_both_ways() {
        let file = "# head\nA.same pass\nA.changed pass\nA.race fail|pass # two answers\n\
                    A.gone skip # not there\n";
        let file = Expectations::parse(file).unwrap();
        let run = [
            result("A.same", Outcome::Pass),
            result("A.changed", Outcome::Fail),
            result("A.race", Outcome::Pass),
            result("A.new", Outcome::Skip),
        ];
        let got: Vec<String> = file
            .differences(&run)
            .iter()
            .map(|d| d.to_string().lines().next().unwrap().to_string())
            .collect();
        assert_eq!(
            got,
            [
                "A.changed: expected pass, got fail",
                "A.new: skip, but the file has no line for it",
                "A.gone: the file expects skip, it was not run",
            ]
        );
    }

    #[test]
    fn a_bad_file_is_refused_with_its_line() {
        for (text, word) in [
            ("A.b", "line 1: no outcome"),
            ("\nA.b good", "line 2: outcomes"),
            ("A.b skip", "needs a reason"),
            ("A.b pass\nA.b pass", "line 2: A.b is here twice"),
            ("A.b pass pass", "more than"),
        ] {
            let error = format!("{:#}", Expectations::parse(text).unwrap_err());
            assert!(error.contains(word), "{text:?}: {error}");
        }
    }

    #[test]
    fn what_is_rendered_is_read() {
        let run = [result("A.b", Outcome::Skip), result("A.c", Outcome::Pass)];
        let text = render(&run);
        assert!(text.contains("A.b") && text.contains("# A.b why"), "{text}");
        assert_eq!(Expectations::parse(&text).unwrap().differences(&run), []);
    }
}
