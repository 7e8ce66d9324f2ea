//! The `stats` and `reset` verbs: show and clear the statistics of clients.

use geom::{Error, GraphControl, JsonSchema, MessageAnswer, Verb};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{chosen, with};
use crate::sched::class::SchedClass;

/// Show throughput and waiting times of each client
#[derive(Deserialize, JsonSchema)]
pub(super) struct Stats {
    /// Schedulers: DISK.sched. or DISK [default: all]
    names: Vec<String>,
}

/// The statistics of each scheduler's clients.
#[derive(Serialize)]
pub(super) struct Counters {
    text: String,
    geoms: Vec<Value>,
}

impl Verb<SchedClass> for Stats {
    const NAME: &'static str = "stats";
    const EXAMPLE: &'static str = "sched stats d0.sched.";
    type Answer = Counters;

    fn run(self, _: &SchedClass, control: &mut GraphControl) -> Result<Counters, Error> {
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
fn table(stats: &Value) -> String {
    let word = |key: &str| stats.get(key).and_then(Value::as_str).unwrap_or("");
    let mut out = format!("{}: {}\n", word("name"), word("algorithm"));
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
    let clients = stats.get("clients").and_then(Value::as_array);
    for client in clients.into_iter().flatten() {
        let number = |key: &str| client.get(key).and_then(Value::as_u64).unwrap_or_default();
        let mean = number("wait_ns").checked_div(number("requests")).unwrap_or_default() / 1000;
        out += &format!(
            "{:<40} {:>10} {:>12} {:>12} {mean:>10} {:>10} {:>7} {:>7} {:>9}\n",
            client.get("client").and_then(Value::as_str).unwrap_or(""),
            number("requests"),
            number("read_bytes") / 1024,
            number("written_bytes") / 1024,
            number("wait_max_ns") / 1000,
            number("weight"),
            number("iops"),
            number("kbps"),
        );
    }
    out
}

/// Reset the counters of schedulers
#[derive(Deserialize, JsonSchema)]
pub(super) struct Reset {
    /// Schedulers: DISK.sched. or DISK
    #[schemars(length(min = 1))]
    names: Vec<String>,
}

impl Verb<SchedClass> for Reset {
    const NAME: &'static str = "reset";
    const EXAMPLE: &'static str = "sched reset d0.sched.";
    type Answer = MessageAnswer;

    fn run(self, _: &SchedClass, control: &mut GraphControl) -> Result<MessageAnswer, Error> {
        for geom in chosen(control, &self.names)? {
            with(control, geom, |g| g.shared.reset())?;
        }
        Ok(MessageAnswer::new("counters reset"))
    }
}
