//! top: live load of disks, layers, LUNs, initiators and cores, with latency percentiles.

use super::entry::{CommandVerb, Local};
use crate::App;
use crate::api::{Error, Kind, Result, SystemState};
use crate::config::units;
use crate::top::{Minute, Rate, Screen, Tab, View, csv_head, csv_line, json_line, lines, rates};
use geom::Verb;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sort {
    /// Order of the graph, disks first.
    #[default]
    Graph,
    /// By name.
    Name,
    /// Most requests in flight first.
    Queue,
    /// Most requests a second first.
    Ops,
    /// Most reads a second first.
    Reads,
    /// Most writes a second first.
    Writes,
    /// Most bytes a second first.
    Bytes,
    /// Slowest (p99) first.
    Latency,
    /// Busiest first.
    Busy,
}

impl Sort {
    /// All orders, in the order of the key.
    pub(crate) const ALL: [Sort; 9] = [
        Sort::Graph,
        Sort::Name,
        Sort::Queue,
        Sort::Ops,
        Sort::Reads,
        Sort::Writes,
        Sort::Bytes,
        Sort::Latency,
        Sort::Busy,
    ];
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
    /// Print each table as one line of JSON.
    pub json_lines: bool,
    /// Number of tables to print; 0: no limit.
    #[schemars(extend("x-short" = "n"))]
    pub count: u64,
    /// Kind of the shown objects.
    #[schemars(extend("x-short" = "t"))]
    pub tab: Tab,
    /// Show only busy objects.
    #[schemars(extend("x-short" = "a"))]
    pub active: bool,
    /// Show only names that match this pattern; without * and ?, names that contain it.
    #[schemars(extend("x-short" = "f"))]
    pub filter: Option<String>,
    /// Order of the rows.
    #[schemars(extend("x-short" = "s"))]
    pub sort: Sort,
    /// Reverse the order of the rows.
    #[schemars(extend("x-short" = "r"))]
    pub reverse: bool,
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
            json_lines: false,
            count: 1,
            tab: Tab::All,
            active: false,
            filter: None,
            sort: Sort::Graph,
            reverse: false,
            deletes: false,
        }
    }
}

/// Answer of `top`: the last table.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TopAnswer {
    /// Time between the two measurements, in nanoseconds.
    pub interval_ns: u64,
    /// One row for each object.
    pub rates: Vec<Rate>,
    /// The table, unless it was printed already.
    pub text: String,
}

impl Verb<App> for TopParams {
    const NAME: &'static str = "top";
    const DOC: &'static str = "Show live load and latency of disks, LUNs and initiators";
    const DETAIL: &'static str = "Tabs: all providers, disks, layers, LUNs (units by provider), \
        initiators (with host and target) and cores (CPU time). Columns: L(q) \
        requests in flight now; ops/s; for reads (r), writes (w) and, with --deletes, deletes (d): \
        per second, KiB per second, median and 99th percentile in milliseconds; share of time with \
        requests in flight; requests of the last minute. Keys: ? lists all; tab or 1 to 6 select a \
        tab, s and S the order, r reverses it, c chooses columns, a shows busy objects only, d \
        deletes, / filters by name, space pauses, q quits. With --batch, --csv, --json-lines or \
        --json, or without a terminal, nothing is drawn. `rates` shows the last hour.";
    const EXAMPLE: &'static str = "top";
    const MORE_EXAMPLES: &'static [&'static str] = &[
        "top --filter 'd0*' --sort busy",
        "top -b -C --count 60",
        "top -b -n 2 --tab initiators --sort ops",
        "top -n 0 --json-lines --tab luns --active",
    ];
    type Answer = TopAnswer;

    fn run(self, mut local: Local<'_>) -> Result<TopAnswer> {
        let wrong = |e| {
            let why = format!("`{}` is not an interval such as 1s: {e}", self.interval);
            Error::new(Kind::Usage, "top", why)
        };
        let pause = Duration::from_nanos(units::duration(&self.interval).map_err(wrong)?);
        if self.csv && self.json_lines {
            let why = "--csv and --json-lines exclude each other";
            let next = "Repeat the command with one of them.";
            return Err(Error::new(Kind::Usage, "top", why).next(next));
        }
        let mut view = View {
            tab: self.tab,
            filter: self.filter.clone().unwrap_or_default(),
            active: self.active,
            sort: self.sort,
            reverse: self.reverse,
            ..View::default()
        };
        view.set_shown(|column| column.is_delete(), self.deletes);
        let is_printed = self.batch || self.csv || self.json_lines || local.json;
        let is_quiet = is_printed || !Screen::is_terminal();
        let now = local.client.state()?;
        let mut minute = Minute::default();
        minute.record(&now);
        let before = SystemState::default();
        let mut looks = StateSampler { local: &mut local, before, now, minute, pause };
        if is_quiet { batch(&mut looks, &self, &view) } else { live(&mut looks, view) }
    }
}

impl CommandVerb<App> for TopParams {
    fn table(answer: &TopAnswer) -> String {
        answer.text.clone()
    }
}

/// Two states and the time between them.
struct StateSampler<'a, 'b> {
    local: &'a mut Local<'b>,
    before: SystemState,
    now: SystemState,
    minute: Minute,
    pause: Duration,
}

impl StateSampler<'_, '_> {
    /// Requests the state, even soon after the last one.
    fn sample(&mut self) -> Result<()> {
        let now = self.local.client.state()?;
        self.minute.record(&now);
        self.before = std::mem::replace(&mut self.now, now);
        Ok(())
    }

    /// Time between both states, in nanoseconds.
    fn interval_ns(&self) -> u64 {
        self.now.daemon.uptime_ns.saturating_sub(self.before.daemon.uptime_ns)
    }

    /// The rows of a view; none before there are two states.
    fn rates(&self, view: &View) -> Vec<Rate> {
        match self.before.schema_version {
            0 => Vec::new(),
            _ => rates(&self.before, &self.now, view),
        }
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
        std::thread::sleep(looks.pause);
        looks.sample()?;
        let (interval_ns, rates) = (looks.interval_ns(), looks.rates(view));
        done += 1;
        let last = params.count != 0 && done >= params.count;
        let text = if params.csv {
            let at = unix_s();
            rates.iter().map(|r| csv_line(at, r, view) + "\n").collect()
        } else if params.json_lines {
            json_line(unix_s(), interval_ns, &rates)
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
    loop {
        let (interval_ns, rates) = (looks.interval_ns(), looks.rates(&view));
        screen.draw(interval_ns, (rates.as_slice(), &looks.minute), &view)?;
        if screen.wait(looks.pause, &mut view)? {
            return Ok(TopAnswer { interval_ns, rates, text: String::new() });
        }
        if !view.paused && screen.due(looks.pause) {
            looks.sample()?;
        }
    }
}
