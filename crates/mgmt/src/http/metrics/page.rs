//! Page of samples in the text format of Prometheus, with a limited number of series.
//!
//! Invariants
//!  X1  The samples of a metric are together, and no series occurs twice.
//!  X2  At most `series_max` series are on the page, and those of a histogram are there together
//!      or not at all. Others are counted.
//!  X3  All series of a histogram have the same buckets, whatever they counted: otherwise a sum
//!      over series by `le` would not be monotone, and its percentiles would be false.

use super::families::METRICS;
use crate::api::{Health, Histogram, Stats};
use std::fmt::{Display, Write};

/// Bounds of the buckets of every histogram, as powers of two of nanoseconds: from 1 us to 34 s.
const BOUNDS: std::ops::RangeInclusive<u32> = 10..=35;

/// Series of a histogram: its buckets, `+Inf`, sum and count.
const HISTOGRAM_SERIES: usize = 26 + 3;

/// Names and values of the labels of a series.
pub(super) type Labels<'a> = [(&'a str, &'a str)];

/// A label's value, quoted.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

pub(super) fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Samples of all metrics.
pub(super) struct Page {
    samples: Vec<(&'static str, String)>,
    series_max: usize,
    dropped: usize,
}

impl Page {
    pub(super) fn new(series_max: u32) -> Page {
        let series_max = usize::try_from(series_max).unwrap_or(usize::MAX);
        Page { samples: Vec::new(), series_max, dropped: 0 }
    }

    /// Whether so many series fit; otherwise they are counted as left out (X2).
    fn admits(&mut self, series: usize) -> bool {
        let fits = self.samples.len() + series <= self.series_max;
        self.dropped += if fits { 0 } else { series };
        fits
    }

    pub(super) fn add(&mut self, name: &'static str, labels: &Labels<'_>, value: impl Display) {
        debug_assert!(has_labels(name, labels), "{name} {labels:?}");
        if self.admits(1) {
            self.push(name, "", labels, value);
        }
    }

    fn push(&mut self, name: &'static str, suffix: &str, labels: &Labels<'_>, value: impl Display) {
        let pairs: Vec<String> =
            labels.iter().map(|(k, v)| format!("{k}=\"{}\"", escape(v))).collect();
        let braces =
            if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
        self.samples.push((name, format!("{name}{suffix}{braces} {value}")));
    }

    pub(super) fn health(&mut self, name: &'static str, labels: &Labels<'_>, health: Health) {
        for state in [Health::Ok, Health::Degraded, Health::Failed] {
            let mut labels = labels.to_vec();
            labels.push(("state", state.label()));
            self.add(name, &labels, u8::from(health == state));
        }
    }

    /// The two histograms that are kept: of reads, and of everything else as `write`.
    pub(super) fn latency(&mut self, name: &'static str, labels: &Labels<'_>, stats: &Stats) {
        for (op, of) in [("read", &stats.read), ("write", &stats.write)] {
            if !of.latency.buckets.is_empty() {
                let mut labels = labels.to_vec();
                labels.push(("op", op));
                self.histogram(name, &labels, &of.latency);
            }
        }
    }

    fn histogram(&mut self, name: &'static str, labels: &Labels<'_>, h: &Histogram) {
        debug_assert!(has_labels(name, labels), "{name} {labels:?}");
        if !self.admits(HISTOGRAM_SERIES) {
            return;
        }
        let sum: u64 = h.buckets.iter().map(|b| b.count).sum();
        for power in BOUNDS {
            let bound_ns = 1u64 << power;
            let below = h.buckets.iter().filter(|b| b.upper_ns <= bound_ns);
            let bound = seconds(bound_ns);
            let mut labels = labels.to_vec();
            labels.push(("le", &bound));
            self.push(name, "_bucket", &labels, below.map(|b| b.count).sum::<u64>());
        }
        let mut all = labels.to_vec();
        all.push(("le", "+Inf"));
        self.push(name, "_bucket", &all, sum);
        self.push(name, "_sum", labels, seconds(h.sum_ns));
        self.push(name, "_count", labels, sum);
    }

    /// The text, with the numbers of series on it and left out.
    pub(super) fn render(mut self) -> String {
        let (series, dropped) = (self.samples.len(), self.dropped);
        self.push("ashlar_metrics_series", "", &[], series);
        self.push("ashlar_metrics_series_dropped", "", &[], dropped);
        // Stable: samples of a metric keep their order.
        self.samples.sort_by_cached_key(|(name, _)| METRICS.iter().position(|f| f.name == *name));
        let mut out = String::new();
        let mut last = "";
        for (name, line) in &self.samples {
            if *name != last
                && let Some(family) = METRICS.iter().find(|f| f.name == *name)
            {
                let (kind, help) = (family.kind, family.help);
                // Writing to a String cannot fail.
                let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            }
            last = name;
            out.push_str(line);
            out.push('\n');
        }
        out
    }
}

/// Whether a metric is in the list with these labels.
fn has_labels(name: &str, labels: &Labels<'_>) -> bool {
    let family = METRICS.iter().find(|f| f.name == name);
    family.is_some_and(|f| f.labels.iter().eq(labels.iter().map(|(key, _)| key)))
}
