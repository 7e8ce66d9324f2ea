//! Whether buffers can be locked in memory.

use super::{Check, Facts, Finding, Grade, bad, ok};

/// Least memory that io_uring's registered buffers need, in bytes.
const MEMLOCK_BYTES_MIN: u64 = 64 << 20;

/// See the module.
pub const CHECK: Check =
    Check { id: "memlock", doc: "whether buffers can be locked in memory", look };

fn look(facts: &Facts) -> Vec<Finding> {
    let Some((soft, _)) = facts.limit("Max locked memory") else {
        return ok("the kernel tells no limit");
    };
    match soft.parse::<u64>() {
        Ok(bytes) if bytes < MEMLOCK_BYTES_MIN => vec![bad(
            Grade::Warn,
            format!("at most {bytes} bytes"),
            "registered buffers may be refused; plain ones are used, a little slower",
            "ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit",
        )],
        _ => ok(format!("limit {soft}")),
    }
}
