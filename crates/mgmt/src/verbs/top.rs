//! top: what every provider does now, as gstat shows it, with latency percentiles.

use super::entry::{Local, LocalVerb, Verb};
use crate::api::{Error, Kind, Result, SystemState};
use crate::config::units;
use crate::top::{Rate, Screen, View, csv_head, csv_line, lines, rates};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// See the module.
pub struct Top;

/// Order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sort {
    /// Order of the graph, disks first.
    #[default]
    Graph,
    /// By name.
    Name,
    /// Most requests a second first.
    Ops,
    /// Most bytes a second first.
    Bytes,
    /// Slowest (p99) first.
    Latency,
    /// Busiest first.
    Busy,
}

/// Parameters of `top`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TopParams {
    /// Time between two measurements, with a unit: 500ms, 1s.
    #[schemars(extend("x-short" = "I"))]
    pub interval: String,
    /// Print one table and exit; with --count, several tables.
    #[schemars(extend("x-short" = "b"))]
    pub batch: bool,
    /// Print comma-separated values.
    #[schemars(extend("x-short" = "C"))]
    pub csv: bool,
    /// Number of tables to print; 0: no limit.
    pub count: u64,
    /// Show only busy providers.
    #[schemars(extend("x-short" = "a"))]
    pub active: bool,
    /// Show only names that match this pattern; without * and ?, names that contain it.
    #[schemars(extend("x-short" = "f"))]
    pub filter: Option<String>,
    /// Order of the rows.
    #[schemars(extend("x-short" = "s"))]
    pub sort: Sort,
    /// Also show DELETE requests.
    #[schemars(extend("x-short" = "d"))]
    pub deletes: bool,
}

impl Default for TopParams {
    fn default() -> TopParams {
        TopParams {
            interval: "1s".to_owned(),
            batch: false,
            csv: false,
            count: 1,
            active: false,
            filter: None,
            sort: Sort::Graph,
            deletes: false,
        }
    }
}

/// Answer of `top`: the last table.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TopAnswer {
    /// Time between the two measurements, in nanoseconds.
    pub interval_ns: u64,
    /// One row for each provider.
    pub rates: Vec<Rate>,
    /// The table, unless it was printed already.
    pub text: String,
}

impl Verb for Top {
    type Params = TopParams;
    type Answer = TopAnswer;
    const NAME: &'static str = "top";
    const DOC: &'static str = "Show live load and latency of every provider";
    const DETAIL: &'static str = "Columns: L(q) requests in flight now; ops/s; for reads (r), \
        writes (w) and, with --deletes, deletes (d): per second, KiB per second, median and 99th \
        percentile in milliseconds; share of time with requests in flight. Keys: q quit, s sort, \
        a active only, d deletes, / filter, space pause. With --batch, --csv or --json, or without \
        a terminal, nothing is drawn.";
    const EXAMPLES: &'static [&'static str] =
        &["ashlar top", "ashlar top --filter 'd0*' --sort busy", "ashlar top -b -C --count 60"];

    fn table(answer: &TopAnswer) -> String {
        answer.text.clone()
    }
}

/// Two looks and the time between them.
struct StateSampler<'a, 'b> {
    local: &'a mut Local<'b>,
    last: SystemState,
    pause: Duration,
}

impl StateSampler<'_, '_> {
    /// Waits and looks again.
    fn next(&mut self, view: &View) -> Result<(u64, Vec<Rate>)> {
        std::thread::sleep(self.pause);
        self.sample(view)
    }

    /// Looks again, however long the last look is ago.
    fn sample(&mut self, view: &View) -> Result<(u64, Vec<Rate>)> {
        let now = self.local.client.state()?;
        let span = now.daemon.uptime_ns.saturating_sub(self.last.daemon.uptime_ns);
        let rates = rates(&self.last, &now, view);
        self.last = now;
        Ok((span, rates))
    }
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

fn batch(looks: &mut StateSampler<'_, '_>, params: &TopParams, view: &View) -> Result<TopAnswer> {
    let fail = |e| Error::new(Kind::System, "top", e);
    if params.csv && !looks.local.json {
        writeln!(looks.local.out, "{}", csv_head(view)).map_err(fail)?;
    }
    let mut done = 0;
    loop {
        let (interval_ns, rates) = looks.next(view)?;
        done += 1;
        let last = params.count != 0 && done >= params.count;
        let text = if params.csv {
            let at = unix_s();
            rates.iter().map(|r| csv_line(at, r, view) + "\n").collect()
        } else {
            lines(interval_ns, &rates, view)
        };
        if last {
            return Ok(TopAnswer { interval_ns, rates, text });
        }
        if !looks.local.json {
            looks.local.out.write_all(text.as_bytes()).map_err(fail)?;
            looks.local.out.flush().map_err(fail)?;
        }
    }
}

fn live(looks: &mut StateSampler<'_, '_>, mut view: View) -> Result<TopAnswer> {
    let mut screen = Screen::open()?;
    let (mut interval_ns, mut rows) = (0, Vec::new());
    loop {
        screen.draw(interval_ns, &rows, &view)?;
        if screen.wait(looks.pause, &mut view)? {
            return Ok(TopAnswer { interval_ns, rates: rows, text: String::new() });
        }
        if !view.paused && screen.due(looks.pause) {
            (interval_ns, rows) = looks.sample(&view)?;
        }
    }
}

impl LocalVerb for Top {
    fn run(local: &mut Local<'_>, params: TopParams) -> Result<TopAnswer> {
        let wrong = |e| {
            let why = format!("`{}` is not an interval such as 1s: {e}", params.interval);
            Error::new(Kind::Usage, "top", why)
        };
        let pause = Duration::from_nanos(units::duration(&params.interval).map_err(wrong)?);
        let view = View {
            filter: params.filter.clone().unwrap_or_default(),
            active: params.active,
            deletes: params.deletes,
            sort: params.sort,
            ..View::default()
        };
        let quiet = params.batch || params.csv || local.json || !Screen::is_terminal();
        let last = local.client.state()?;
        let mut looks = StateSampler { local, last, pause };
        if quiet { batch(&mut looks, &params, &view) } else { live(&mut looks, view) }
    }
}
