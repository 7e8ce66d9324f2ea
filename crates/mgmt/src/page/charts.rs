//! Charts of the last hour of one object, as SVG with a text of the same content.
//!
//! The axis of time is always an hour, now at its right end. An interval is a horizontal line, so
//! that joined intervals show their length.

use super::detail::Detail;
use super::html::Html;
use super::tables::{Cell, Table};
use crate::api::{ObjectRates, OpSample, RateSample};
use crate::config::units::{short, short_ns};
use crate::samples::KEPT_NS;
use crate::verbs::rates::{WHOLE_COLUMNS, whole_rows};

/// Width of the drawing, in pixels.
const WIDTH: f64 = 600.0;
/// Height of the drawing, in pixels.
const HEIGHT: f64 = 120.0;

/// Unit of the values of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Requests,
    Bytes,
    Nanoseconds,
}

/// A line of a chart.
#[derive(Clone, Debug, PartialEq)]
struct Curve {
    name: &'static str,
    /// Class of the style: `read`, `write`, and `dashed` for a high percentile.
    class: &'static str,
    /// Begin and end of each interval in parts of the hour, and the value.
    steps: Vec<(f64, f64, f64)>,
}

impl Curve {
    fn top(&self) -> f64 {
        self.steps.iter().map(|step| step.2).fold(0.0, f64::max)
    }
}

/// A chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    title: &'static str,
    curves: Vec<Curve>,
    unit: Unit,
}

impl Chart {
    fn text(&self, value: f64) -> String {
        match self.unit {
            Unit::Requests => format!("{value:.1}"),
            Unit::Bytes => short(value as u64),
            Unit::Nanoseconds => short_ns(value as u64),
        }
    }

    /// Whether an interval without requests is drawn as zero: it has a rate, but no latency.
    fn is_rate(&self) -> bool {
        self.unit != Unit::Nanoseconds
    }

    fn top(&self) -> f64 {
        self.curves.iter().map(Curve::top).fold(0.0, f64::max)
    }

    /// The chart in a sentence.
    fn summary(&self) -> String {
        let most = |c: &Curve| match c.steps.is_empty() {
            true => format!("{} none", c.name),
            false => format!("{} at most {}", c.name, self.text(c.top())),
        };
        let all: Vec<String> = self.curves.iter().map(most).collect();
        format!("{} of the last hour: {}", self.title, all.join(", "))
    }

    /// Commands of the path of a curve.
    fn path(&self, curve: &Curve) -> String {
        let top = self.top().max(f64::MIN_POSITIVE);
        let (mut out, mut end) = (String::new(), 0.0);
        if self.is_rate() {
            out.push_str(&format!("M0 {HEIGHT}"));
        }
        for (from, to, value) in &curve.steps {
            let (x, y) = (from * WIDTH, HEIGHT * (1.0 - value / top));
            // Neighbours touch up to the rounding of their times.
            let is_apart = x - end > 0.01;
            if self.is_rate() && is_apart {
                out.push_str(&format!("L{end:.1} {HEIGHT}L{x:.1} {HEIGHT}"));
            }
            let command = if out.is_empty() || is_apart && !self.is_rate() { 'M' } else { 'L' };
            end = to * WIDTH;
            out.push_str(&format!("{command}{x:.1} {y:.1}H{end:.1}"));
        }
        if self.is_rate() {
            out.push_str(&format!("L{end:.1} {HEIGHT}H{WIDTH}"));
        }
        out
    }

    /// Draws the chart.
    pub fn draw(&self, html: &mut Html) {
        html.open("figure", &[("class", "plot")]);
        html.open("figcaption", &[]);
        html.text(self.title);
        for curve in &self.curves {
            let class = format!("legend {}", curve.class);
            html.text(" ");
            html.element("span", &[("class", &class)], curve.name);
        }
        html.close();
        let (label, whole) = (self.summary(), format!("0 0 {WIDTH} {HEIGHT}"));
        html.open("svg", &[("viewBox", &whole), ("role", "img"), ("aria-label", &label)]);
        for curve in &self.curves {
            html.void("path", &[("class", curve.class), ("d", &self.path(curve))]);
        }
        let (right, bottom) = (WIDTH.to_string(), (HEIGHT - 4.0).to_string());
        html.element("text", &[("x", "4"), ("y", "12")], &self.text(self.top()));
        html.element("text", &[("x", "4"), ("y", &bottom)], "an hour ago");
        let place = [("x", right.as_str()), ("y", bottom.as_str()), ("text-anchor", "end")];
        html.element("text", &place, "now");
        html.close();
        html.close();
    }
}

/// A curve of these values; an interval without a value is left out.
fn curve(
    rates: &ObjectRates,
    (name, class): (&'static str, &'static str),
    value: impl Fn(&RateSample) -> Option<f64>,
) -> Curve {
    let first_ns = rates.at_ns as f64 - KEPT_NS as f64;
    let part = |ns: u64| ((ns as f64 - first_ns) / KEPT_NS as f64).clamp(0.0, 1.0);
    let step = |sample: &RateSample| {
        let begin_ns = sample.at_ns.saturating_sub(sample.span_ns);
        Some((part(begin_ns), part(sample.at_ns), value(sample)?))
    };
    Curve { name, class, steps: rates.samples.iter().filter_map(step).collect() }
}

fn charts(rates: &ObjectRates) -> Vec<Chart> {
    type Count = fn(&OpSample) -> u64;
    let per_second = |count: Count| {
        let read = move |s: &RateSample| Some(s.per_second(count(&s.read)));
        let write = move |s: &RateSample| Some(s.per_second(count(&s.write)));
        vec![curve(rates, ("read", "read"), read), curve(rates, ("write", "write"), write)]
    };
    let p50 = |op: &OpSample| op.latency.map(|l| l.p50_ns as f64);
    let p99 = |op: &OpSample| op.latency.map(|l| l.p99_ns as f64);
    let latency = vec![
        curve(rates, ("read p50", "read"), |s| p50(&s.read)),
        curve(rates, ("read p99", "read dashed"), |s| p99(&s.read)),
        curve(rates, ("write p50", "write"), |s| p50(&s.write)),
        curve(rates, ("write p99", "write dashed"), |s| p99(&s.write)),
    ];
    let chart = |title, curves, unit| Chart { title, curves, unit };
    vec![
        chart("Requests per second", per_second(|op| op.ops), Unit::Requests),
        chart("Bytes per second", per_second(|op| op.bytes), Unit::Bytes),
        chart("Latency", latency, Unit::Nanoseconds),
    ]
}

/// Adds the last hour of an object to its detail: a table, which scripts and screen readers use
/// too, and charts.
pub fn add(detail: &mut Detail, rates: &ObjectRates) {
    let cells = |row: Vec<String>| row.into_iter().map(Cell::text).collect();
    let rows = whole_rows(rates).into_iter().map(cells);
    let heading = ("hour", "Requests of the last hour", "No requests.");
    let table = Table::new(heading, &WHOLE_COLUMNS, rows);
    detail.tables.insert(0, table);
    detail.charts = charts(rates);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Bucket, Stats};
    use testkit::clock::S;

    fn sample(at_s: u64, span_s: u64, ops: u64, upper_ns: u64) -> RateSample {
        let mut stats = Stats::default();
        (stats.read.ops, stats.read.bytes) = (ops, ops * 1024);
        stats.read.latency.buckets = vec![Bucket { upper_ns, count: ops }];
        RateSample::of(at_s * S, span_s * S, &stats)
    }

    fn drawn(samples: Vec<RateSample>) -> String {
        let rates = ObjectRates { at_ns: 7200 * S, samples, ..ObjectRates::default() };
        let mut html = Html::default();
        charts(&rates).iter().for_each(|chart| chart.draw(&mut html));
        html.finish()
    }

    #[test]
    fn intervals_are_steps_and_idle_time_is_zero() {
        let text = drawn(vec![
            sample(3900, 300, 3000, 1_000_000),
            sample(4200, 300, 1500, 4_000_000),
            sample(7200, 600, 3000, 2_000_000),
        ]);
        let requests = "d=\"M0 120L0.0 0.0H50.0L50.0 60.0H100.0L100.0 120L500.0 120\
                        L500.0 60.0H600.0L600.0 120H600\"";
        assert!(text.contains(requests), "{text}");
        let latency = "class=\"read dashed\" d=\"M0.0 90.0H50.0L50.0 0.0H100.0M500.0 60.0H600.0\"";
        assert!(text.contains(latency), "{text}");
        let label = "Latency of the last hour: read p50 at most 4.0ms, read p99 at most 4.0ms, \
                     write p50 none, write p99 none";
        assert!(text.contains(label), "{text}");
        assert!(text.contains("Bytes per second of the last hour: read at most 10K"), "{text}");
    }

    #[test]
    fn object_without_requests_has_empty_charts() {
        let text = drawn(Vec::new());
        assert_eq!(text.matches("<svg").count(), 3, "{text}");
        assert!(text.contains("Requests per second of the last hour: read none"), "{text}");
        assert!(text.contains("d=\"M0 120L0.0 120H600\""), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
