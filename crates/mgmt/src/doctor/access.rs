//! Check for hosts that are let in without proof, or under the name of another host.

use super::{Check, CheckFinding, Facts, Severity, bad, ok};
use crate::config::exposures;

/// See the module.
pub const CHECK: Check =
    Check { id: "access", doc: "whether hosts can log in without authentication", findings };

fn findings(facts: &Facts) -> Vec<CheckFinding> {
    let Some(config) = facts.valid_config() else { return ok("no configuration to look at") };
    let all = exposures(config, &facts.catalog);
    if all.is_empty() {
        return ok("no target is open to every host");
    }
    let finding = |e: crate::config::Exposure| {
        let seen = format!("target {}: {}", e.target, e.why);
        bad(Severity::Warn, seen, "any host can read and write the LUNs", e.fix)
    };
    all.into_iter().map(finding).collect()
}
