//! Check that the configuration can be read, and that the running daemon can carry it out.

use super::{Check, CheckFinding, Facts, Severity, bad, ok};
use crate::api::Error;
use crate::config::TargetConfig;

/// See the module.
pub const CHECK: Check =
    Check { id: "config", doc: "whether the configuration is valid and can be applied", findings };

/// A target that its driver would refuse.
fn target_refusal(e: Error) -> CheckFinding {
    let next = e.next.unwrap_or_else(|| "Correct it, then run `ashlar plan`.".to_owned());
    bad(Severity::Fail, format!("{}: {}", e.at, e.source), "apply refuses it", next)
}

/// A step that the daemon would refuse.
fn step_refusal(why: &str) -> CheckFinding {
    let next = "Correct the file, then run `ashlar plan`.";
    bad(Severity::Fail, why.to_string(), "plan and apply refuse it", next)
}

fn findings(facts: &Facts) -> Vec<CheckFinding> {
    let file = facts.file.display();
    match &facts.config {
        Some(Ok(config)) => {
            let check = facts.catalog.check_target;
            let judged = |t: &TargetConfig| check.and_then(|check| check(t).err());
            let refused = config.target.iter().filter_map(judged).map(target_refusal);
            let refused: Vec<CheckFinding> = refused
                .chain(facts.refused_steps.iter().map(|why| step_refusal(why)))
                .chain(facts.unchecked("locks on files of disks and steps of a plan"))
                .collect();
            match refused.is_empty() {
                true => ok(format!("{file} is good")),
                false => refused,
            }
        }
        Some(Err(e)) => vec![bad(
            Severity::Fail,
            format!("{}: {}", e.at, e.source.lines().next().unwrap_or("")),
            "serve, plan and apply refuse it",
            format!("ashlar plan {file}, and correct the lines shown"),
        )],
        None => vec![bad(
            Severity::Warn,
            format!("there is no {file}"),
            "serve, plan and apply need a file to be named",
            "ashlar schema config, then write one; `ashlar schema disk` has an example",
        )],
    }
}
