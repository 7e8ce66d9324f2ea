//! Check that there are file descriptors for many connections.

use super::{Check, CheckFinding, Facts, Severity, bad, ok};

/// File descriptors below which a busy target runs out.
const FDS_MIN: u64 = 4096;

/// See the module.
pub const CHECK: Check =
    Check { id: "fds", doc: "whether there are file descriptors for many connections", findings };

fn findings(facts: &Facts) -> Vec<CheckFinding> {
    let Some((soft, hard)) = facts.limit("Max open files") else {
        return ok("the kernel reports no limit");
    };
    match soft.parse::<u64>() {
        Ok(n) if n < FDS_MIN => {
            let top = hard.parse::<u64>().unwrap_or(1 << 20).clamp(FDS_MIN, 1 << 20);
            vec![bad(
                Severity::Warn,
                format!("at most {n} file descriptors"),
                format!("about {n} connections and disks, then logins are refused"),
                format!("ulimit -n {top}, or LimitNOFILE={top} in the unit"),
            )]
        }
        _ => ok(format!("limit {soft}")),
    }
}
