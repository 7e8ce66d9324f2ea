//! Output of lists and `stats` for a queue.

use serde_json::{Value, json};

use super::params::{TrimParams, Zeroes};
use super::shared::TrimShared;

/// Lines for lists.
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
    let zeroes = params.zeroes.map(|zeroes| match zeroes {
        Zeroes::Drop => "drop",
        Zeroes::Keep => "keep",
    });
    out.extend(zeroes.map(|word| ("zeroes", word.to_owned())));
    out.push(("ranges a command", limits.ranges.to_string()));
    out.push(("bytes a command", limits.command_max.to_string()));
    if let Some(ns) = fill.last_ns {
        out.push(("last command", format!("{} us", ns / 1_000)));
    }
    out
}

/// The answer of `stats`; with `reset` its counters restart.
pub(super) fn stats(shared: &TrimShared, reset: bool) -> Value {
    let (fill, totals) = (shared.delete_queue.fill(), shared.delete_queue.totals(reset));
    let figures = [
        ("deletes", totals.freed_calls),
        ("deleted_bytes", totals.freed),
        ("taken_back_bytes", totals.taken_back),
        ("commands", totals.commands),
        ("ranges", totals.ranges),
        ("trimmed_bytes", totals.trimmed),
        ("failed_commands", totals.failed),
        ("expired_bytes", totals.expired),
        ("forgotten_bytes", totals.forgotten),
        ("waited_writes", totals.waits),
        ("queued_ranges", fill.queued.0 as u64),
        ("queued_bytes", fill.queued.1),
        ("stale_ranges", fill.stale.0 as u64),
        ("stale_bytes", fill.stale.1),
        ("in_flight_bytes", fill.in_flight.1),
        ("full_trim_done_bytes", if fill.sending_all { fill.done.0 } else { 0 }),
        ("full_trim_bytes", if fill.sending_all { fill.done.1 } else { 0 }),
        ("device_ns", fill.spent_ns),
        ("last_command_ns", fill.last_ns.unwrap_or(0)),
    ];
    let mut text = String::new();
    let mut all = serde_json::Map::new();
    for (name, value) in figures {
        text += &format!("{:>18}  {value}\n", name.replace('_', " "));
        all.insert(name.to_owned(), value.into());
    }
    json!({ "text": text, "stats": all })
}
