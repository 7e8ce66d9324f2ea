//! Expected outcome of each test on each flavour, and the differences of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::{Outcome, TestResult};

/// Test and flavour.
type Key = (String, String);

/// Expected outcome of each test: a line `SUITE.TEST flavour outcome # reason` each.
///
/// Two outcomes joined by `|` allow either, for tests that race with themselves. A line whose
/// only or first outcome is not `pass` needs its reason.
#[derive(Clone, Debug, Default)]
pub struct Expectations {
    lines: BTreeMap<Key, (Vec<Outcome>, String)>,
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
            let flavour = words.next().with_context(|| format!("line {number}: no flavour"))?;
            let outcomes = words.next().with_context(|| format!("line {number}: no outcome"))?;
            ensure!(words.next().is_none(), "line {number}: more than name, flavour and outcome");
            let outcomes: Option<Vec<Outcome>> = outcomes.split('|').map(Outcome::parse).collect();
            let outcomes = outcomes
                .with_context(|| format!("line {number}: outcomes are pass, skip, fail, hang"))?;
            let reason = reason.trim().to_string();
            let plain = outcomes.as_slice() == [Outcome::Pass];
            ensure!(plain || !reason.is_empty(), "line {number}: {name} needs a reason");
            let key = (name.to_string(), flavour.to_string());
            if lines.insert(key, (outcomes, reason)).is_some() {
                bail!("line {number}: {name} on {flavour} is here twice");
            }
        }
        Ok(Expectations { lines })
    }

    pub fn read(path: &Path) -> Result<Expectations> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Expectations::parse(&text).with_context(|| path.display().to_string())
    }

    /// The lines of a file for a run: the present ones where they hold, else new ones with the
    /// tool's first words as the reason.
    pub fn redraft(&self, results: &[TestResult]) -> String {
        let mut text = String::new();
        for result in results {
            let key = (result.name.clone(), result.flavour.clone());
            match self.lines.get(&key) {
                Some((outcomes, reason)) if outcomes.contains(&result.outcome) => {
                    let outcomes: Vec<String> = outcomes.iter().map(Outcome::to_string).collect();
                    text.push_str(&line(result, &outcomes.join("|"), reason));
                }
                _ if result.outcome == Outcome::Pass => text.push_str(&line(result, "pass", "")),
                _ => {
                    let outcome = result.outcome.to_string();
                    text.push_str(&line(result, &outcome, &reason(&result.text)));
                }
            }
        }
        text
    }

    /// Every difference between the file and a run, in both directions (T3).
    pub fn differences(&self, results: &[TestResult]) -> Vec<Difference> {
        let mut differences = Vec::new();
        let key = |result: &TestResult| (result.name.clone(), result.flavour.clone());
        let seen: BTreeSet<Key> = results.iter().map(key).collect();
        for result in results {
            let key = key(result);
            let expected = match self.lines.get(&key) {
                Some((outcomes, _)) if outcomes.contains(&result.outcome) => continue,
                Some((outcomes, _)) => outcomes.clone(),
                None => Vec::new(),
            };
            differences.push(Difference {
                name: key.0,
                flavour: key.1,
                expected,
                got: Some(result.outcome),
                text: result.text.clone(),
            });
        }
        for (key, (outcomes, _)) in self.lines.iter().filter(|(key, _)| !seen.contains(*key)) {
            differences.push(Difference {
                name: key.0.clone(),
                flavour: key.1.clone(),
                expected: outcomes.clone(),
                got: None,
                text: String::new(),
            });
        }
        differences
    }
}

/// One disagreement between file and run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// `SUITE.TEST`.
    pub name: String,
    pub flavour: String,
    /// Outcomes that the file allows; empty: the file has no line for the test.
    pub expected: Vec<Outcome>,
    /// The outcome; None: the test was not run.
    pub got: Option<Outcome>,
    /// Output of the tool.
    pub text: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected: Vec<String> = self.expected.iter().map(Outcome::to_string).collect();
        let expected = expected.join("|");
        write!(f, "{} on {}: ", self.name, self.flavour)?;
        match (self.expected.is_empty(), self.got) {
            (true, Some(got)) => write!(f, "{got}, but the file has no line for it"),
            (_, None) => write!(f, "the file expects {expected}, it was not run"),
            (false, Some(got)) => write!(f, "expected {expected}, got {got}"),
        }?;
        if self.text.is_empty() { Ok(()) } else { write!(f, "\n{}", self.text) }
    }
}

fn line(result: &TestResult, outcomes: &str, reason: &str) -> String {
    let mark = if reason.is_empty() { "" } else { "  # " };
    format!("{:<38} {:<10} {outcomes}{mark}{reason}\n", result.name, result.flavour)
}

fn reason(text: &str) -> String {
    let marks = ["[SKIPPED]", "[FAILED]"];
    let line = text.lines().find(|line| marks.iter().any(|mark| line.contains(mark)));
    let line = line.or_else(|| text.lines().last()).unwrap_or("the tool printed nothing");
    let line = line.split_once(']').map_or(line, |(_, words)| words);
    line.trim().chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn result(name: &str, outcome: Outcome) -> TestResult {
        let text = format!("Suite: x\n  Test: y ...    [SKIPPED] {name} why. Skipping");
        let (name, flavour) = (name.to_string(), "thin".to_string());
        TestResult { name, flavour, outcome, text, took: Duration::ZERO }
    }

    #[test]
    fn t3_unexpected_and_missing_results_are_differences() {
        let file = "# head\nA.same thin pass\nA.changed thin pass\n\
                    A.race thin fail|pass # two answers\nA.gone thin skip # not there\n\
                    A.same full pass\n";
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
                "A.changed on thin: expected pass, got fail",
                "A.new on thin: skip, but the file has no line for it",
                "A.gone on thin: the file expects skip, it was not run",
                "A.same on full: the file expects pass, it was not run",
            ]
        );
    }

    #[test]
    fn invalid_expectations_are_refused_with_the_line() {
        for (text, word) in [
            ("A.b", "line 1: no flavour"),
            ("A.b thin", "line 1: no outcome"),
            ("\nA.b thin good", "line 2: outcomes"),
            ("A.b thin skip", "needs a reason"),
            ("A.b thin pass\nA.b thin pass", "line 2: A.b on thin is here twice"),
            ("A.b thin pass pass", "more than"),
        ] {
            let error = format!("{:#}", Expectations::parse(text).unwrap_err());
            assert!(error.contains(word), "{text:?}: {error}");
        }
    }

    #[test]
    fn rendered_expectations_parse_unchanged() {
        let run = [result("A.b", Outcome::Skip), result("A.c", Outcome::Pass)];
        let text = Expectations::default().redraft(&run);
        assert!(text.contains("A.b") && text.contains("# A.b why"), "{text}");
        let file = Expectations::parse(&text).unwrap();
        assert_eq!(file.differences(&run), []);
        assert_eq!(file.redraft(&run), text);
        let kept = Expectations::parse("A.b thin skip|fail # mine").unwrap().redraft(&run);
        assert!(kept.contains("skip|fail  # mine\n"), "{kept}");
    }
}
