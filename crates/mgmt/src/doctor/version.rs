//! Check that the command and the daemon have the same version.

use super::{Check, CheckFinding, Facts, Severity, bad, ok};
use crate::api::SCHEMA_VERSION;

/// See the module.
pub const CHECK: Check =
    Check { id: "version", doc: "whether command and daemon have the same version", findings };

/// How to run the installed version, with and without systemd.
const RESTART: &str = "restart the daemon with the installed binary: `systemctl restart ashlar` \
                       where systemd runs it, else stop its process and run `ashlar serve` again";

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
            RESTART,
        )];
    }
    if theirs != ours {
        return vec![bad(
            Severity::Warn,
            format!("the daemon has version {theirs}, this command {ours}"),
            "verbs of the newer version are missing in the older one",
            RESTART,
        )];
    }
    ok(format!("both are {ours}"))
}
