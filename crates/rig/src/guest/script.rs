//! Script of a guest and the results of its steps.

use std::time::Duration;

use anyhow::{Result, ensure};

/// One step: a piece of shell that fails when its last command, or any under `set -e`, fails.
#[derive(Clone, Debug)]
pub struct Step {
    /// For the report.
    pub name: String,
    /// busybox sh, with the functions of `lib.sh`.
    pub shell: String,
}

/// Steps in order, and files the guest needs for them.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// The first step that fails ends the run.
    pub steps: Vec<Step>,
    /// Places in the guest and contents.
    pub files: Vec<(String, Vec<u8>)>,
}

impl Script {
    pub fn new() -> Script {
        Script::default()
    }

    pub fn step(&mut self, name: &str, shell: impl Into<String>) -> &mut Script {
        self.steps.push(Step { name: name.to_string(), shell: shell.into() });
        self
    }

    /// Adds a file; its folders are made.
    pub fn file(&mut self, place: &str, bytes: impl Into<Vec<u8>>) -> &mut Script {
        self.files.push((place.to_string(), bytes.into()));
        self
    }

    /// Adds all of another script behind this one.
    pub fn then(&mut self, other: Script) -> &mut Script {
        self.steps.extend(other.steps);
        self.files.extend(other.files);
        self
    }
}

/// A word for the shell that stays one word with any content.
pub fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepResult {
    pub name: String,
    /// Its exit status; None: it did not end, or was never begun.
    pub status: Option<i32>,
    /// The lines it printed.
    pub output: Vec<String>,
    /// Wall-clock time between its markers, on the host's clock.
    pub took: Duration,
}

/// Result of one boot.
#[derive(Clone, Debug)]
pub struct Run {
    pub steps: Vec<StepResult>,
    /// Everything the guest printed.
    pub console: String,
    /// From the start of the emulator to its end.
    pub took: Duration,
    /// Time from the start of the emulator to the guest's first output; None: not booted for it.
    pub boot: Option<Duration>,
    /// True: the deadline passed and the guest was killed.
    pub late: bool,
    /// None: the guest ran to its end or its deadline; else the reason of the stop on the host's
    /// side.
    pub stopped: Option<String>,
}

impl Run {
    /// An error with the failing step and the whole console, unless every step ended with 0.
    pub fn expect_ok(&self) -> Result<()> {
        let bad = self.steps.iter().find(|step| step.status != Some(0));
        let why = match (bad, &self.stopped, self.late) {
            (_, Some(why), _) => why.clone(),
            (None, None, _) => return Ok(()),
            (Some(step), None, late) => {
                let status = step.status.map_or("did not end".to_string(), |s| format!("is {s}"));
                let late = if late { "; the deadline passed" } else { "" };
                format!("step `{}`: status {status}{late}", step.name)
            }
        };
        ensure!(false, "guest after {:.1?}: {why}\n--- console ---\n{}", self.took, self.console);
        Ok(())
    }

    /// A line for each step: status, seconds, name.
    pub fn summary(&self) -> String {
        let boot = self.boot.map_or(String::new(), |boot| format!("booted in {boot:.1?}, "));
        let mut text = format!("{boot}all in {:.1?}\n", self.took);
        for step in &self.steps {
            let status = step.status.map_or("-".to_string(), |status| status.to_string());
            text.push_str(&format!("{status:>3} {:>6.1?}  {}\n", step.took, step.name));
        }
        text
    }
}
