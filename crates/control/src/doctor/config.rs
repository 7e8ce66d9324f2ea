//! Whether the configuration can be read.

use super::{Check, Facts, Finding, Grade, bad, ok};

/// See the module.
pub const CHECK: Check = Check { id: "config", doc: "whether the configuration can be read", look };

fn look(facts: &Facts) -> Vec<Finding> {
    let file = facts.file.display();
    match &facts.config {
        Some(Ok(_)) => ok(format!("{file} is good")),
        Some(Err(e)) => vec![bad(
            Grade::Fail,
            format!("{}: {}", e.at, e.source.lines().next().unwrap_or("")),
            "serve, plan and apply refuse it",
            format!("ashlar plan {file}, and correct the lines shown"),
        )],
        None => vec![bad(
            Grade::Warn,
            format!("there is no {file}"),
            "serve, plan and apply need a file to be named",
            "ashlar schema config, then write one; `ashlar schema KIND` has examples",
        )],
    }
}
