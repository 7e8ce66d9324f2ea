//! trace: the requests that take long, with the time that each layer needs.

use super::entry::{CommandVerb, Local};
use super::tree::{self, text_of};
use crate::App;
use crate::api::{Error, Health, Kind, Result, SlowRequest, TraceQuery, TraceState, TracedLayer};
use crate::config::units::{self, short_ns};
use crate::text::{self, count, escape_line};
use geom::Verb;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time between two questions: the daemon keeps few requests between them.
const POLL: Duration = Duration::from_millis(500);

/// Requests in the answer; further ones are only counted.
const REQUESTS_MAX: usize = 10_000;

/// Parameters of `trace`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TraceParams {
    /// Least time of a shown request, with a unit: 500us, 10ms.
    pub slow: String,
    /// Show only requests of LUNs on this provider [default: all]
    pub lun: Option<String>,
    /// Show only requests that passed this geom [default: all]
    pub geom: Option<String>,
    /// Time after which the command ends, in seconds.
    pub seconds: u64,
    /// Do not end; with --json, print a line for each request.
    pub follow: bool,
}

impl Default for TraceParams {
    fn default() -> TraceParams {
        let slow = "10ms".to_owned();
        TraceParams { slow, lun: None, geom: None, seconds: 10, follow: false }
    }
}

/// Time that one layer took of all requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LayerTime {
    /// Class and name of the geom.
    pub geom: String,
    /// Parts of requests in the layer.
    pub parts: u64,
    /// Time in the layer itself, not in those below it, in nanoseconds.
    pub own_ns: u64,
}

/// Answer of `trace`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TraceAnswer {
    /// Least time of a shown request, in nanoseconds.
    pub slow_ns: u64,
    /// Number of the slow requests.
    pub total: u64,
    /// Slow requests that were not recorded, because too many ended at the same time.
    pub missed: u64,
    /// Cores that did not answer in time at least once.
    pub silent_cores: u64,
    /// The requests in the order in which they ended; at most 10,000.
    pub requests: Vec<SlowRequest>,
    /// The layers, the one that took most time first.
    pub layers: Vec<LayerTime>,
}

impl Verb<App> for TraceParams {
    const NAME: &'static str = "trace";
    const DOC: &'static str = "Show slow requests and the time in each layer";
    const DETAIL: &'static str = "Requests are recorded while the command runs, and for 5 seconds \
        after it. Each is shown as a tree: the time in a layer with those below it, and the time \
        in the layer itself. The time begins when a request reaches the uppermost layer, so \
        waiting at the target is not in it. At the end, a table shows which layer took most. \
        Parts of less than a 64th of --slow are left out. Addresses are shown, data is not.";
    const EXAMPLE: &'static str = "trace";
    const MORE_EXAMPLES: &'static [&'static str] = &[
        "trace --slow 50ms --lun mirror/data --seconds 60",
        "trace --geom mirror:data --follow --json",
    ];
    type Answer = TraceAnswer;

    fn run(self, mut local: Local<'_>) -> Result<TraceAnswer> {
        let wrong = |e| {
            let why = format!("--slow: `{}` is not a time such as 10ms: {e}", self.slow);
            Error::new(Kind::Usage, "trace", why)
        };
        let slow_ns = units::duration(&self.slow).map_err(wrong)?;
        let TraceParams { lun, geom, seconds, follow, .. } = self;
        let mut query = TraceQuery { slow_ns, after: None, lun, geom };
        let begun = ask(&local, &query)?;
        query.after = Some(begun.last);
        #[cfg(feature = "otel")]
        let collector = super::trace_otlp::Collector::from_env()?;
        let (began, limit) = (Instant::now(), Duration::from_secs(seconds));
        let mut collected = Collected::default();
        collected.answer.slow_ns = slow_ns;
        loop {
            let left = limit.saturating_sub(began.elapsed());
            std::thread::sleep(if follow { POLL } else { left.min(POLL) });
            let found = ask(&local, &query)?;
            query.after = Some(found.last);
            collected.answer.missed = found.missed.saturating_sub(begun.missed);
            collected.answer.silent_cores = collected.answer.silent_cores.max(found.silent_cores);
            #[cfg(feature = "otel")]
            if let Some(collector) = &collector {
                collector.send(&found.requests)?;
            }
            for request in found.requests {
                collected.add(&mut local, follow, request)?;
            }
            if !follow && left <= POLL {
                return Ok(collected.finish());
            }
        }
    }
}

impl CommandVerb<App> for TraceParams {
    fn table(answer: &TraceAnswer) -> String {
        let slow = short_ns(answer.slow_ns);
        let total = usize::try_from(answer.total).unwrap_or(usize::MAX);
        let mut out = format!("{} took {slow} or longer\n", count(total, "request"));
        let all: u64 = answer.layers.iter().map(|layer| layer.own_ns).sum();
        let rows: Vec<Vec<String>> = answer
            .layers
            .iter()
            .map(|layer| {
                let percent = (u128::from(layer.own_ns) * 100).checked_div(all.into());
                let share = format!("{}%", percent.unwrap_or(0));
                let (parts, time) = (layer.parts.to_string(), short_ns(layer.own_ns));
                vec![layer.geom.clone(), parts, time, share]
            })
            .collect();
        if !rows.is_empty() {
            out.push_str(&text::table(&["layer", ">parts", ">time in itself", ">share"], &rows));
        }
        if answer.missed > 0 {
            let missed = answer.missed;
            out.push_str(&format!("{missed} more were not recorded: too many ended at once\n"));
        }
        if answer.silent_cores > 0 {
            let cores = count(usize::try_from(answer.silent_cores).unwrap_or(usize::MAX), "core");
            out.push_str(&format!("{cores} did not answer in time; requests may be missing\n"));
        }
        out
    }
}

fn layer_node(layer: &TracedLayer) -> tree::Node {
    let mut about = format!("{}  itself {}", short_ns(layer.took_ns), short_ns(layer.own_ns));
    if let Some(error) = &layer.error {
        about.push_str(&format!("  {error}"));
    }
    tree::Node {
        kind: "layer".to_owned(),
        name: escape_line(&layer.geom).into_owned(),
        about: escape_line(&about).into_owned(),
        health: if layer.error.is_some() { Health::Failed } else { Health::Ok },
        children: layer.below.iter().map(layer_node).collect(),
    }
}

/// A request as a tree of its layers.
fn request_text(request: &SlowRequest) -> String {
    let layer = &request.layer;
    let mut about = format!("{}  {}", request.operation, layer.provider);
    if layer.length_bytes > 0 {
        let (length, offset) = (layer.length_bytes, layer.offset_bytes);
        about.push_str(&format!("  {length} bytes at {offset}"));
    }
    if !request.initiator.is_empty() {
        about.push_str(&format!("  {}", request.initiator));
    }
    if let Some(lun) = request.lun {
        about.push_str(&format!("  LUN {lun}"));
    }
    if !request.task.is_empty() {
        about.push_str(&format!("  {}", request.task));
    }
    if !request.is_complete {
        about.push_str("  (some parts are not known)");
    }
    text_of(&[tree::Node {
        kind: "request".to_owned(),
        name: short_ns(layer.took_ns),
        about: escape_line(&about).into_owned(),
        health: Health::Ok,
        children: vec![layer_node(layer)],
    }])
}

/// Requests that were printed or kept, and the sums of their layers.
#[derive(Default)]
struct Collected {
    answer: TraceAnswer,
    layers: BTreeMap<String, LayerTime>,
}

impl Collected {
    /// Adds a request to the sums, and prints or keeps it.
    fn add(&mut self, local: &mut Local<'_>, follow: bool, request: SlowRequest) -> Result<()> {
        self.answer.total += 1;
        request.layer.each(&mut |layer| {
            let sum = self.layers.entry(layer.geom.clone()).or_default();
            sum.parts += 1;
            sum.own_ns = sum.own_ns.saturating_add(layer.own_ns);
        });
        let text = match (local.json, follow) {
            (false, _) => request_text(&request),
            (true, true) => {
                let line = serde_json::to_string(&request);
                let line = line.map_err(|e| Error::new(Kind::Internal, "trace", e))?;
                text::json(&line).into_owned() + "\n"
            }
            (true, false) => String::new(),
        };
        if !follow && self.answer.requests.len() < REQUESTS_MAX {
            self.answer.requests.push(request);
        }
        let wrote = local.out.write_all(text.as_bytes()).and_then(|()| local.out.flush());
        wrote.map_err(|e| Error::new(Kind::System, "trace", e))
    }

    fn finish(self) -> TraceAnswer {
        let named = |(geom, time): (String, LayerTime)| LayerTime { geom, ..time };
        let mut layers: Vec<LayerTime> = self.layers.into_iter().map(named).collect();
        layers.sort_by_key(|layer| std::cmp::Reverse(layer.own_ns));
        TraceAnswer { layers, ..self.answer }
    }
}

fn ask(local: &Local<'_>, query: &TraceQuery) -> Result<TraceState> {
    let value = local.client.get(&query.to_path())?;
    TraceState::deserialize(&value).map_err(|e| Error::new(Kind::Protocol, "trace", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_names_the_layer_that_took_most() {
        let layer = |geom: &str, own_ns: u64| LayerTime { geom: geom.to_owned(), parts: 2, own_ns };
        let answer = TraceAnswer {
            slow_ns: 10_000_000,
            total: 2,
            missed: 3,
            layers: vec![layer("disk:d1", 30_000_000), layer("limit:l0", 10_000_000)],
            ..TraceAnswer::default()
        };
        assert_eq!(
            TraceParams::table(&answer),
            "2 requests took 10.0ms or longer\n\
             layer     parts  time in itself  share\n\
             disk:d1       2          30.0ms    75%\n\
             limit:l0      2          10.0ms    25%\n\
             3 more were not recorded: too many ended at once\n"
        );
    }
}
