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
use crate::time_slices::TimeSlices;
use std::collections::HashMap;
use std::fmt::Display;

/// Names and values of the labels of a series.
pub(super) type Labels<'a> = [(&'a str, &'a str)];

/// Samples of all metrics.
pub(super) struct Page {
    format: Format,
    /// Written samples of each metric, in the order of the list.
    samples: Vec<Vec<u8>>,
    /// Places of the metrics in the list, by name.
    places: HashMap<&'static str, usize>,
    series: usize,
    series_max: usize,
    dropped: usize,
    slices: TimeSlices,
}

impl Page {
    pub(super) fn new(format: Format, series_max: u32) -> Page {
        let series_max = usize::try_from(series_max).unwrap_or(usize::MAX);
        let samples = vec![Vec::new(); METRICS.len()];
        let places = METRICS.iter().enumerate().map(|(place, f)| (f.name, place)).collect();
        let slices = TimeSlices::default();
        Page { format, samples, places, series: 0, series_max, dropped: 0, slices }
    }

    /// Whether so many series fit; otherwise they are counted as left out (X2).
    fn admits(&mut self, series: usize) -> bool {
        let fits = self.series.saturating_add(series) <= self.series_max;
        let count = if fits { &mut self.series } else { &mut self.dropped };
        *count += series;
        self.slices.spend(series);
        fits
    }

    /// Counts an object that was examined for series as the work of a series.
    pub(super) fn pause(&mut self) {
        self.slices.spend(1);
    }

    pub(super) fn add(&mut self, name: &str, labels: &Labels<'_>, value: impl Display) {
        if self.admits(1) {
            self.push(name, labels, value);
        }
    }

    fn push(&mut self, name: &str, labels: &Labels<'_>, value: impl Display) {
        let format = self.format;
        let Some((family, out)) = self.metric(name, labels) else { return };
        match format {
            Format::Text => text::sample(name, labels, value, out),
            Format::Protobuf => protobuf::sample(family, labels, value, out),
        }
    }

    pub(super) fn health(&mut self, name: &str, labels: &Labels<'_>, health: Health) {
        let mut labels = [labels, &[("state", "")]].concat();
        for state in [Health::Ok, Health::Degraded, Health::Failed] {
            if let Some(last) = labels.last_mut() {
                last.1 = state.label();
            }
            self.add(name, &labels, u8::from(health == state));
        }
    }

    /// The two histograms that are kept: of reads, and of everything else as `write`.
    pub(super) fn latency(&mut self, name: &str, labels: &Labels<'_>, stats: &Stats) {
        for (op, of) in [("read", &stats.read), ("write", &stats.write)] {
            if !of.latency.buckets.is_empty() {
                let labels = [labels, &[("op", op)]].concat();
                self.histogram(name, &labels, &of.latency);
            }
        }
    }

    fn histogram(&mut self, name: &str, labels: &Labels<'_>, h: &Histogram) {
        if !self.admits(HISTOGRAM_SERIES) {
            return;
        }
        let format = self.format;
        let Some((family, out)) = self.metric(name, labels) else { return };
        match format {
            Format::Text => text::histogram(name, labels, h, out),
            Format::Protobuf => protobuf::histogram(family, labels, h, out),
        }
    }

    /// A metric of the list, which has these labels, and its written samples.
    fn metric(
        &mut self,
        name: &str,
        labels: &Labels<'_>,
    ) -> Option<(&'static Family, &mut Vec<u8>)> {
        let found = self.places.get(name).and_then(|place| Some((*place, METRICS.get(*place)?)));
        debug_assert!(
            found.is_some_and(|(_, f)| f.labels.iter().eq(labels.iter().map(|(key, _)| key))),
            "{name} {labels:?}"
        );
        let (place, family) = found?;
        Some((family, self.samples.get_mut(place)?))
    }

    /// The page, with the numbers of series on it and left out.
    pub(super) fn render(mut self) -> Vec<u8> {
        let (series, dropped) = (self.series, self.dropped);
        self.push("ashlar_metrics_series", &[], series);
        self.push("ashlar_metrics_series_dropped", &[], dropped);
        let mut out = Vec::with_capacity(self.samples.iter().map(Vec::len).sum());
        let all = METRICS.iter().zip(&self.samples);
        for (family, samples) in all.filter(|(_, samples)| !samples.is_empty()) {
            match self.format {
                Format::Text => text::family(family, samples, &mut out),
                Format::Protobuf => protobuf::family(family, samples, &mut out),
            }
            self.slices.spend_long();
        }
        out
    }
}
