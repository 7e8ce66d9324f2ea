//! The verb `stats`: the statistics of clients.

use geom::{At, Error, JsonSchema, Verb};
use serde::{Deserialize, Serialize};

use super::{chosen, with};
use crate::sched::class::SchedClass;
use crate::sched::clients::Service;
use crate::sched::geom::SchedStats;

/// Show throughput and waiting times of each client
#[derive(Deserialize, JsonSchema)]
pub(super) struct Stats {
    /// Schedulers: DISK.sched. or DISK [default: all]
    names: Vec<String>,
}

/// The statistics of each scheduler's clients.
#[derive(Serialize, JsonSchema)]
pub(super) struct Counters {
    /// Result for people.
    text: String,
    /// Each scheduler.
    geoms: Vec<SchedStats>,
}

impl Verb<SchedClass> for Stats {
    const NAME: &'static str = "stats";
    const EXAMPLE: &'static str = "sched stats d0.sched.";
    type Answer = Counters;

    fn run(self, (_, control): At<'_, SchedClass>) -> Result<Counters, Error> {
        let (mut text, mut geoms) = (String::new(), Vec::new());
        for geom in chosen(control, &self.names)? {
            let name = control.topology.geom_name(geom).to_owned();
            let stats = with(control, geom, |g| g.stats(&name))?;
            text += &table(&stats);
            geoms.push(stats);
        }
        Ok(Counters { text, geoms })
    }
}

/// A table of one scheduler's clients.
fn table(stats: &SchedStats) -> String {
    let mut out = format!("{}: {}\n", stats.name, stats.algorithm);
    out += &format!(
        "{:<40} {:>10} {:>12} {:>12} {:>10} {:>10} {:>7} {:>7} {:>9}\n",
        "CLIENT",
        "REQUESTS",
        "READ KB",
        "WRITTEN KB",
        "WAIT US",
        "MAX US",
        "WEIGHT",
        "IOPS",
        "KB/S"
    );
    for client in &stats.clients {
        let Service { requests, read_bytes, written_bytes, wait_ns, wait_max_ns } = client.service;
        let mean = wait_ns.checked_div(requests).unwrap_or_default() / 1000;
        out += &format!(
            "{:<40} {:>10} {:>12} {:>12} {mean:>10} {:>10} {:>7} {:>7} {:>9}\n",
            client.client,
            requests,
            read_bytes / 1024,
            written_bytes / 1024,
            wait_max_ns / 1000,
            client.share.weight,
            client.share.iops,
            client.share.kbps,
        );
    }
    out
}
