//! Check that the kernel allows io_uring.

use super::{Check, CheckFinding, Facts, Severity, bad, ok};

/// See the module.
pub const CHECK: Check =
    Check { id: "io_uring", doc: "whether the kernel allows io_uring", findings };

fn findings(facts: &Facts) -> Vec<CheckFinding> {
    // The choice of a running daemon is better evidence than a sysctl.
    if let Ok(state) = &facts.daemon
        && let Some(core) = state.daemon.cores.first()
    {
        let text = format!("the daemon uses {} ({})", core.port_kind, core.why);
        return match core.port_kind.as_str() {
            "uring" => ok(text),
            _ if core.why == AS_CONFIGURED => ok(text),
            _ => vec![bad(Severity::Warn, text, SLOWER, "sysctl kernel.io_uring_disabled=0")],
        };
    }
    let path = facts.proc.join("sys/kernel/io_uring_disabled");
    match std::fs::read_to_string(path).as_deref().map(str::trim) {
        Ok("0") => ok("allowed for all users"),
        Ok("1") => vec![bad(
            Severity::Warn,
            "allowed only for root and one group (kernel.io_uring_disabled is 1)",
            SLOWER,
            "sysctl kernel.io_uring_disabled=0, or add the user to kernel.io_uring_group",
        )],
        Ok(_) => vec![bad(
            Severity::Warn,
            "forbidden (kernel.io_uring_disabled is 2)",
            SLOWER,
            "sysctl kernel.io_uring_disabled=0",
        )],
        Err(_) => ok("the kernel has no switch for io_uring; the log of `serve` shows whether it \
                      works"),
    }
}

/// The reason that the reactor reports when `[daemon] port = "poll"` made the choice.
const AS_CONFIGURED: &str = "poll, as configured";

const SLOWER: &str = "the daemon falls back to epoll: more system calls for every request";
