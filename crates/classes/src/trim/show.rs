//! Output of lists and `stats` for a queue.

use schemars::JsonSchema;
use serde::Serialize;

use super::params::{TrimParams, Zeroes};
use super::shared::TrimShared;

pub(super) fn lines(shared: &TrimShared, params: &TrimParams) -> Vec<(&'static str, String)> {
    let (fill, totals) = (shared.delete_queue.fill(), shared.delete_queue.totals(false));
    let policy = params.policy();
    let mode = match (shared.defers, fill.off) {
        (false, _) => "passes deletes on as they come",
        (true, true) => "off: the device takes no deletes",
        (true, false) if fill.sending_all => "sends everything",
        (true, false) => "queues",
    };
    let mut out = vec![
        ("mode", mode.to_owned()),
        ("share", format!("{} %", params.pacing().share)),
        ("short", policy.short.to_string()),
        ("batch", policy.batch_ranges.to_string()),
        ("quiet", format!("{} ms", policy.quiet_ns / 1_000_000)),
        ("expire", format!("{} ms", policy.expire_ns / 1_000_000)),
        ("queued ranges", fill.queued.0.to_string()),
        ("queued bytes", fill.queued.1.to_string()),
        ("stale ranges", fill.stale.0.to_string()),
        ("stale bytes", fill.stale.1.to_string()),
        ("bytes in flight", fill.in_flight.1.to_string()),
        ("deleted bytes", totals.freed.to_string()),
        ("trimmed bytes", totals.trimmed.to_string()),
        ("commands", totals.commands.to_string()),
    ];
    if fill.sending_all {
        let (done, all) = fill.done;
        let percent = u128::from(done) * 100 / u128::from(all.max(1));
        out.push(("full trim", format!("{percent}%, {done} of {all} bytes")));
    }
    let limits = shared.delete_queue.limits();
    out.push(("granule", limits.granule.to_string()));
    let zeroes = match params.zeroes {
        Zeroes::Drop => "drop",
        Zeroes::Keep => "keep",
    };
    out.push(("zeroes", zeroes.to_owned()));
    out.push(("ranges a command", limits.ranges.to_string()));
    out.push(("bytes a command", limits.command_max.to_string()));
    if let Some(ns) = fill.last_ns {
        out.push(("last command", format!("{} us", ns / 1_000)));
    }
    out
}

/// Figures of a queue: each has its name here alone.
macro_rules! figures {
    ($($(#[$about:meta])* $name:ident,)+) => {
        /// Figures of a queue since their last reset, and its present content.
        #[derive(Serialize, JsonSchema)]
        #[schemars(rename = "TrimFigures")]
        struct Figures { $($(#[$about])* $name: u64,)+ }

        impl Figures {
            /// A line each.
            fn text(&self) -> String {
                let mut out = String::new();
                for (name, value) in [$((stringify!($name), self.$name)),+] {
                    out += &format!("{:>18}  {value}\n", name.replace('_', " "));
                }
                out
            }
        }
    };
}

figures! {
    /// Deletes that were queued.
    deletes,
    /// Bytes that were deleted.
    deleted_bytes,
    /// Bytes that were written again before their delete was sent.
    taken_back_bytes,
    /// Commands sent to the device.
    commands,
    /// Ranges sent to the device.
    ranges,
    /// Bytes sent to the device.
    trimmed_bytes,
    /// Commands that failed.
    failed_commands,
    /// Bytes that became stale.
    expired_bytes,
    /// Stale bytes that were forgotten.
    forgotten_bytes,
    /// Writes that had to wait.
    waited_writes,
    /// Ranges in the queue.
    queued_ranges,
    /// Bytes in the queue.
    queued_bytes,
    /// Stale ranges: expired, and sent only by a full trim.
    stale_ranges,
    /// Stale bytes: expired, and sent only by a full trim.
    stale_bytes,
    /// Bytes of commands that the device has.
    in_flight_bytes,
    /// Bytes of a full trim that are done; 0: none runs.
    full_trim_done_bytes,
    /// Bytes of a full trim; 0: none runs.
    full_trim_bytes,
    /// Time that the device spent on commands, ns.
    device_ns,
    /// Time of the last command, ns; 0: there was none.
    last_command_ns,
}

/// The statistics of a queue.
#[derive(Serialize, JsonSchema)]
pub(super) struct StatsAnswer {
    /// Result for people.
    text: String,
    /// Figures of the queue.
    stats: Figures,
}

/// The answer of `stats`; with `reset` its counters restart.
pub(super) fn stats(shared: &TrimShared, reset: bool) -> StatsAnswer {
    let (fill, totals) = (shared.delete_queue.fill(), shared.delete_queue.totals(reset));
    let stats = Figures {
        deletes: totals.freed_calls,
        deleted_bytes: totals.freed,
        taken_back_bytes: totals.taken_back,
        commands: totals.commands,
        ranges: totals.ranges,
        trimmed_bytes: totals.trimmed,
        failed_commands: totals.failed,
        expired_bytes: totals.expired,
        forgotten_bytes: totals.forgotten,
        waited_writes: totals.waits,
        queued_ranges: fill.queued.0 as u64,
        queued_bytes: fill.queued.1,
        stale_ranges: fill.stale.0 as u64,
        stale_bytes: fill.stale.1,
        in_flight_bytes: fill.in_flight.1,
        full_trim_done_bytes: if fill.sending_all { fill.done.0 } else { 0 },
        full_trim_bytes: if fill.sending_all { fill.done.1 } else { 0 },
        device_ns: fill.spent_ns,
        last_command_ns: fill.last_ns.unwrap_or(0),
    };
    StatsAnswer { text: stats.text(), stats }
}
