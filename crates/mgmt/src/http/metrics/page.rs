//! Page of samples in a format of Prometheus, with a limited number of series.
//!
//! Invariants
//!  X1  The samples of a metric are together, and no series occurs twice.
//!  X2  At most `series_max` series are on the page, and those of a histogram are there together
//!      or not at all. Others are counted.

use super::buckets::HISTOGRAM_SERIES;
use super::families::{Family, METRICS, Metric, metric};
use super::format::Format;
use super::number::Number;
use super::{protobuf, text};
use crate::api::{Health, Histogram, Stats};
use crate::time_slices::TimeSlices;

/// Name and value of a label.
pub(super) type Label<'a> = (&'static str, &'a str);

/// Labels of a series, or those that all series of an object have.
pub(super) type Labels<'a> = [Label<'a>];

#[derive(Clone, Copy)]
pub(super) struct SampleLabels<'a> {
    /// Those of its object, as the format writes them.
    pub(super) common: &'a [u8],
    /// A further one.
    pub(super) last: Option<Label<'a>>,
}

impl SampleLabels<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.common.is_empty() && self.last.is_none()
    }
}

/// Bytes of a family on the page beside its samples, so that the page is not moved as it grows.
const FAMILY_BYTES: usize = 256;

/// Samples of all metrics.
pub(super) struct Page {
    format: Format,
    /// Written samples of each metric, in the order of the list.
    samples: Vec<Vec<u8>>,
    /// Written labels of the present object: it has several samples.
    common: Vec<u8>,
    /// Names of these labels.
    names: Vec<&'static str>,
    series: usize,
    series_max: usize,
    dropped: usize,
    slices: TimeSlices,
}

/// An object whose samples are added.
pub(super) struct Object<'a>(&'a mut Page);

impl Page {
    pub(super) fn new(format: Format, series_max: u32) -> Page {
        Page {
            format,
            samples: vec![Vec::new(); METRICS.len()],
            common: Vec::new(),
            names: Vec::new(),
            series: 0,
            series_max: usize::try_from(series_max).unwrap_or(usize::MAX),
            dropped: 0,
            slices: TimeSlices::default(),
        }
    }

    /// An object with these labels. Each of its samples may have one more.
    pub(super) fn object(&mut self, labels: &Labels<'_>) -> Object<'_> {
        self.set_labels(labels);
        Object(self)
    }

    fn set_labels(&mut self, labels: &Labels<'_>) {
        self.names.clear();
        self.names.extend(labels.iter().map(|(name, _)| *name));
        self.common.clear();
        // X2: a full page has no further sample.
        if self.series < self.series_max {
            match self.format {
                Format::Text => text::common(labels, &mut self.common),
                Format::Protobuf => protobuf::common(labels, &mut self.common),
            }
        }
    }

    /// Whether so many series fit; otherwise they are counted as left out (X2).
    fn admits(&mut self, series: usize) -> bool {
        let fits = self.series.saturating_add(series) <= self.series_max;
        let count = if fits { &mut self.series } else { &mut self.dropped };
        *count += series;
        self.slices.spend(series);
        fits
    }

    /// Adds a sample of the present object.
    fn push(&mut self, metric: Metric, last: Option<Label<'_>>, value: Number) {
        let (format, family) = (self.format, metric.family());
        let Some((labels, out)) = self.samples_of(metric, last) else { return };
        match format {
            Format::Text => text::sample(family.name, labels, value, out),
            Format::Protobuf => protobuf::sample(family, labels, value, out),
        }
    }

    /// Adds a histogram of the present object.
    fn push_histogram(&mut self, metric: Metric, last: Label<'_>, h: &Histogram) {
        let (format, family) = (self.format, metric.family());
        let Some((labels, out)) = self.samples_of(metric, Some(last)) else { return };
        match format {
            Format::Text => text::histogram(family.name, labels, h, out),
            Format::Protobuf => protobuf::histogram(family, labels, h, out),
        }
    }

    /// The labels of a sample of the present object, which the list gives to its metric, and the
    /// written samples of the metric.
    fn samples_of<'a>(
        &'a mut self,
        metric: Metric,
        last: Option<Label<'a>>,
    ) -> Option<(SampleLabels<'a>, &'a mut Vec<u8>)> {
        let Family { name, labels, .. } = metric.family();
        let names = || self.names.iter().copied().chain(last.map(|(name, _)| name));
        debug_assert!(labels.iter().copied().eq(names()), "{name}: {:?} {last:?}", self.names);
        let out = self.samples.get_mut(metric.place())?;
        Some((SampleLabels { common: &self.common, last }, out))
    }

    /// The page, with the numbers of series on it and left out.
    pub(super) fn render(mut self) -> Vec<u8> {
        let (series, dropped) = (self.series, self.dropped);
        self.set_labels(&[]);
        self.push(metric!("ashlar_metrics_series"), None, series.into());
        self.push(metric!("ashlar_metrics_series_dropped"), None, dropped.into());
        let Page { format, samples, mut slices, .. } = self;
        let lengths = samples.iter().map(|samples| samples.len() + FAMILY_BYTES);
        let mut out = Vec::with_capacity(lengths.sum());
        let all = METRICS.iter().zip(samples);
        for (family, samples) in all.filter(|(_, samples)| !samples.is_empty()) {
            match format {
                Format::Text => text::family(family, &samples, &mut out),
                Format::Protobuf => protobuf::family(family, &samples, &mut out),
            }
            slices.spend_long();
        }
        out
    }
}

impl Object<'_> {
    /// Adds a sample.
    pub(super) fn add(&mut self, metric: Metric, value: impl Into<Number>) {
        self.sample(metric, None, value.into());
    }

    /// Adds a sample that has one more label than the object.
    pub(super) fn add_with(&mut self, metric: Metric, last: Label<'_>, value: impl Into<Number>) {
        self.sample(metric, Some(last), value.into());
    }

    fn sample(&mut self, metric: Metric, last: Option<Label<'_>>, value: Number) {
        if self.0.admits(1) {
            self.0.push(metric, last, value);
        }
    }

    pub(super) fn health(&mut self, metric: Metric, health: Health) {
        for state in [Health::Ok, Health::Degraded, Health::Failed] {
            self.add_with(metric, ("state", state.label()), health == state);
        }
    }

    /// The two histograms that are kept: of reads, and of everything else as `write`.
    pub(super) fn latency(&mut self, metric: Metric, stats: &Stats) {
        for (op, of) in [("read", &stats.read), ("write", &stats.write)] {
            if !of.latency.buckets.is_empty() && self.0.admits(HISTOGRAM_SERIES) {
                self.0.push_histogram(metric, ("op", op), &of.latency);
            }
        }
    }
}
