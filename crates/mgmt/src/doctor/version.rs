//! Check that the command and the daemon have the same version.

use super::{Check, CheckFinding, Facts, Severity, bad, ok};
use crate::api::SCHEMA_VERSION;

/// See the module.
pub const CHECK: Check =
    Check { id: "version", doc: "whether command and daemon have the same version", findings };

fn findings(facts: &Facts) -> Vec<CheckFinding> {
    let Ok(state) = &facts.daemon else { return ok(format!("this is {}", facts.version)) };
    let (theirs, ours) = (&state.daemon.version, &facts.version);
    if state.schema_version != SCHEMA_VERSION {
        return vec![bad(
            Severity::Fail,
            format!(
                "the daemon uses schema version {}, this command {SCHEMA_VERSION}",
                state.schema_version
            ),
            "answers may be misread",
            "restart the daemon with the binary that is installed: systemctl restart ashlar",
        )];
    }
    if theirs != ours {
        return vec![bad(
            Severity::Warn,
            format!("the daemon has version {theirs}, this command {ours}"),
            "verbs of the newer version are missing in the older one",
            "restart the daemon with the binary that is installed: systemctl restart ashlar",
        )];
    }
    ok(format!("both are {ours}"))
}
