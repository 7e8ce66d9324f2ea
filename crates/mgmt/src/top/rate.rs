//! Rates of the objects of a tab between two states.

use super::view::View;
use crate::api::{OpStats, Stats, SystemState};
use crate::verbs::top::Sort;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// One kind of request of one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OpRate {
    /// Requests a second.
    pub ops_per_s: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Mean latency, in nanoseconds; absent when there were no requests.
    pub mean_ns: Option<u64>,
    /// Median latency, in nanoseconds.
    pub p50_ns: Option<u64>,
    /// 99th percentile, in nanoseconds.
    pub p99_ns: Option<u64>,
}

/// One object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rate {
    /// Its name.
    pub name: String,
    /// The class of its geom; `session` or `core` for others.
    pub class: String,
    /// The rank of its geom; 0 for others.
    pub rank: u32,
    /// Requests in flight now.
    pub queue: u64,
    /// All requests a second.
    pub ops_per_s: f64,
    /// READ.
    pub read: OpRate,
    /// WRITE.
    pub write: OpRate,
    /// DELETE.
    pub delete: OpRate,
    /// Share of time with requests in flight, 0 to 100.
    pub busy_percent: f64,
}

fn op(delta: &OpStats, seconds: f64) -> OpRate {
    OpRate {
        ops_per_s: delta.ops as f64 / seconds,
        bytes_per_s: delta.bytes as f64 / seconds,
        mean_ns: delta.latency.mean_ns(),
        p50_ns: delta.latency.p50_ns(),
        p99_ns: delta.latency.p99_ns(),
    }
}

/// Rates of the objects of the tab between two states of the same daemon. The counters of new
/// objects start at zero. After a restart of the daemon (its uptime shrank) all of them do.
pub fn rates(before: &SystemState, now: &SystemState, view: &View) -> Vec<Rate> {
    let restarted = now.daemon.uptime_ns < before.daemon.uptime_ns;
    let start = if restarted { 0 } else { before.daemon.uptime_ns };
    let span_ns = now.daemon.uptime_ns.saturating_sub(start).max(1);
    let seconds = span_ns as f64 / 1e9;
    let earlier = if restarted { Vec::new() } else { view.tab.objects(before) };
    let earlier: HashMap<&str, &Stats> =
        earlier.iter().map(|object| (&*object.name, &*object.stats)).collect();
    let nothing = Stats::default();
    let mut out = Vec::new();
    for object in view.tab.objects(now).into_iter().filter(|object| view.shows(&object.name)) {
        let was = earlier.get(&*object.name).copied().unwrap_or(&nothing);
        // Counters of ended sessions are removed: an initiator has no rate until the next interval.
        let delta = object.stats.since(was);
        let busy = delta.busy_ns as f64 * 100.0 / span_ns as f64;
        out.push(Rate {
            class: object.class.to_owned(),
            rank: object.rank,
            queue: delta.in_flight,
            ops_per_s: delta.ops() as f64 / seconds,
            read: op(&delta.read, seconds),
            write: op(&delta.write, seconds),
            delete: op(&delta.delete, seconds),
            busy_percent: busy.min(100.0),
            name: object.name.into_owned(),
        });
    }
    if view.active {
        out.retain(|r| r.busy_percent > 0.1 || r.queue > 0 || r.ops_per_s > 0.0);
    }
    sort(&mut out, view.sort);
    if view.reverse {
        out.reverse();
    }
    out
}

fn sort(rates: &mut [Rate], by: Sort) {
    let bytes = |r: &Rate| r.read.bytes_per_s + r.write.bytes_per_s;
    let slow = |r: &Rate| r.read.p99_ns.max(r.write.p99_ns);
    match by {
        Sort::Graph => rates.sort_by_key(|r| r.rank),
        Sort::Name => rates.sort_by(|a, b| a.name.cmp(&b.name)),
        Sort::Queue => rates.sort_by_key(|r| std::cmp::Reverse(r.queue)),
        Sort::Ops => rates.sort_by(|a, b| b.ops_per_s.total_cmp(&a.ops_per_s)),
        Sort::Reads => rates.sort_by(|a, b| b.read.ops_per_s.total_cmp(&a.read.ops_per_s)),
        Sort::Writes => rates.sort_by(|a, b| b.write.ops_per_s.total_cmp(&a.write.ops_per_s)),
        Sort::Bytes => rates.sort_by(|a, b| bytes(b).total_cmp(&bytes(a))),
        Sort::Latency => rates.sort_by_key(|r| std::cmp::Reverse(slow(r))),
        Sort::Busy => rates.sort_by(|a, b| b.busy_percent.total_cmp(&a.busy_percent)),
    }
}
