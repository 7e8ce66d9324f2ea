//! Page of samples in a format of Prometheus, with a limited number of series.
//!
//! Invariants
//!  X1  The samples of a metric are together, and no series occurs twice.
//!  X2  At most `series_max` series are on the page, and those of a histogram are there together
//!      or not at all. Others are counted.

use super::buckets::HISTOGRAM_SERIES;
use super::families::{Family, METRICS};
use super::format::Format;
use super::{protobuf, text};
use crate::api::{Health, Histogram, Stats};
use std::fmt::Display;

/// Names and values of the labels of a series.
pub(super) type Labels<'a> = [(&'a str, &'a str)];

/// Samples of all metrics.
pub(super) struct Page {
    format: Format,
    /// Samples with the places of their metrics in the list. A histogram is one of them.
    samples: Vec<(usize, Vec<u8>)>,
    series: usize,
    series_max: usize,
    dropped: usize,
}

impl Page {
    pub(super) fn new(format: Format, series_max: u32) -> Page {
        let series_max = usize::try_from(series_max).unwrap_or(usize::MAX);
        Page { format, samples: Vec::new(), series: 0, series_max, dropped: 0 }
    }

    /// Whether so many series fit; otherwise they are counted as left out (X2).
    fn admits(&mut self, series: usize) -> bool {
        let fits = self.series.saturating_add(series) <= self.series_max;
        let count = if fits { &mut self.series } else { &mut self.dropped };
        *count += series;
        fits
    }

    pub(super) fn add(&mut self, name: &str, labels: &Labels<'_>, value: impl Display) {
        if self.admits(1) {
            self.push(name, labels, value);
        }
    }

    fn push(&mut self, name: &str, labels: &Labels<'_>, value: impl Display) {
        let Some((place, family)) = find(name, labels) else { return };
        let sample = match self.format {
            Format::Text => text::sample(name, labels, value),
            Format::Protobuf => protobuf::sample(family, labels, value),
        };
        self.samples.push((place, sample));
    }

    pub(super) fn health(&mut self, name: &str, labels: &Labels<'_>, health: Health) {
        for state in [Health::Ok, Health::Degraded, Health::Failed] {
            let mut labels = labels.to_vec();
            labels.push(("state", state.label()));
            self.add(name, &labels, u8::from(health == state));
        }
    }

    /// The two histograms that are kept: of reads, and of everything else as `write`.
    pub(super) fn latency(&mut self, name: &str, labels: &Labels<'_>, stats: &Stats) {
        for (op, of) in [("read", &stats.read), ("write", &stats.write)] {
            if !of.latency.buckets.is_empty() {
                let mut labels = labels.to_vec();
                labels.push(("op", op));
                self.histogram(name, &labels, &of.latency);
            }
        }
    }

    fn histogram(&mut self, name: &str, labels: &Labels<'_>, h: &Histogram) {
        if !self.admits(HISTOGRAM_SERIES) {
            return;
        }
        let Some((place, family)) = find(name, labels) else { return };
        let sample = match self.format {
            Format::Text => text::histogram(name, labels, h),
            Format::Protobuf => protobuf::histogram(family, labels, h),
        };
        self.samples.push((place, sample));
    }

    /// The page, with the numbers of series on it and left out.
    pub(super) fn render(mut self) -> Vec<u8> {
        let (series, dropped) = (self.series, self.dropped);
        self.push("ashlar_metrics_series", &[], series);
        self.push("ashlar_metrics_series_dropped", &[], dropped);
        // Stable: samples of a metric keep their order.
        self.samples.sort_by_key(|(place, _)| *place);
        let mut out = Vec::new();
        for together in self.samples.chunk_by(|(a, _), (b, _)| a == b) {
            let place = together.first().map(|(place, _)| *place);
            let Some(family) = place.and_then(|place| METRICS.get(place)) else { continue };
            let samples = together.iter().map(|(_, sample)| sample.as_slice());
            match self.format {
                Format::Text => text::family(family, samples, &mut out),
                Format::Protobuf => protobuf::family(family, samples, &mut out),
            }
        }
        out
    }
}

/// A metric of the list and its place there; each has the labels that the list gives it.
fn find(name: &str, labels: &Labels<'_>) -> Option<(usize, &'static Family)> {
    let found = METRICS.iter().enumerate().find(|(_, family)| family.name == name);
    debug_assert!(
        found.is_some_and(|(_, f)| f.labels.iter().eq(labels.iter().map(|(key, _)| key))),
        "{name} {labels:?}"
    );
    found
}
