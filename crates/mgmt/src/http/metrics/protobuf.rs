//! Protobuf format of Prometheus: a sequence of `io.prometheus.client.MetricFamily` messages, each
//! after its length.
//!
//! Histograms have the classic buckets of the text format, and those of a native histogram.
//! Numbers of fields are those of `metrics.proto` of the Prometheus client model.

use super::buckets::{NATIVE_SCHEMA, NativeBuckets, ZERO_SECONDS, classic};
use super::families::Family;
use super::number::Number;
use super::page::{Label, Labels, SampleLabels};
use crate::api::Histogram;

/// A message that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value as u8) | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// `uint32`, `uint64` or an enumeration.
    fn unsigned(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    /// `sint32`.
    fn signed(&mut self, field: u64, value: i64) {
        self.unsigned(field, zigzag(value));
    }

    fn double(&mut self, field: u64, value: f64) {
        self.varint((field << 3) | 1);
        self.0.extend(value.to_le_bytes());
    }

    /// `string`, a message, or packed numbers.
    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.varint((field << 3) | 2);
        self.delimited(value);
    }

    fn delimited(&mut self, value: &[u8]) {
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// A `LabelPair` of a `Metric`.
    fn label(&mut self, (name, value): Label<'_>) {
        let mut pair = Message::default();
        pair.bytes(1, name.as_bytes());
        pair.bytes(2, value.as_bytes());
        self.bytes(1, &pair.0);
    }

    fn metric(labels: SampleLabels<'_>) -> Message {
        let mut metric = Message(labels.common.to_vec());
        if let Some(last) = labels.last {
            metric.label(last);
        }
        metric
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The number of a type, and the field of a `Metric` that has its value.
fn type_of(family: &Family) -> (u64, u64) {
    match family.kind {
        "counter" => (0, 3),
        "histogram" => (4, 7),
        _ => (1, 2),
    }
}

/// Adds a `Metric` to those of a family.
fn add(metric: &Message, samples: &mut Vec<u8>) {
    let mut family = Message(std::mem::take(samples));
    family.bytes(4, &metric.0);
    *samples = family.0;
}

/// The labels of an object, as its `Metric`s begin.
pub(super) fn common(labels: &Labels<'_>, out: &mut Vec<u8>) {
    let mut metric = Message(std::mem::take(out));
    labels.iter().for_each(|label| metric.label(*label));
    *out = metric.0;
}

/// Adds a sample to those of a family.
pub(super) fn sample(
    family: &Family,
    labels: SampleLabels<'_>,
    value: Number,
    samples: &mut Vec<u8>,
) {
    let mut number = Message::default();
    number.double(1, value.to_double());
    let mut metric = Message::metric(labels);
    metric.bytes(type_of(family).1, &number.0);
    add(&metric, samples);
}

/// Adds a histogram, with classic and native buckets, to the samples of a family.
pub(super) fn histogram(
    family: &Family,
    labels: SampleLabels<'_>,
    h: &Histogram,
    samples: &mut Vec<u8>,
) {
    let mut all = Message::default();
    all.unsigned(1, h.count());
    all.double(2, h.sum_ns as f64 / 1e9);
    for (bound_ns, count) in classic(h) {
        let mut bucket = Message::default();
        bucket.unsigned(1, count);
        bucket.double(2, bound_ns as f64 / 1e9);
        all.bytes(3, &bucket.0);
    }
    let native = NativeBuckets::of(h);
    all.signed(5, NATIVE_SCHEMA);
    all.double(6, ZERO_SECONDS);
    all.unsigned(7, native.zero);
    let (mut end, mut before, mut deltas) = (0, 0, Message::default());
    for (first, counts) in native.runs() {
        // The first offset is a number of a bucket, the others are gaps.
        let mut span = Message::default();
        span.signed(1, first - end);
        span.unsigned(2, counts.len() as u64);
        all.bytes(12, &span.0);
        end = first + counts.len() as i64;
        for count in counts {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            deltas.varint(zigzag(count - before));
            before = count;
        }
    }
    all.bytes(13, &deltas.0);
    let mut metric = Message::metric(labels);
    metric.bytes(type_of(family).1, &all.0);
    add(&metric, samples);
}

/// Adds a family with its samples to `out`.
pub(super) fn family(family: &Family, samples: &[u8], out: &mut Vec<u8>) {
    let mut all = Message::default();
    all.bytes(1, family.name.as_bytes());
    all.bytes(2, family.help.as_bytes());
    all.unsigned(3, type_of(family).0);
    all.0.extend_from_slice(samples);
    let mut whole = Message(std::mem::take(out));
    whole.delimited(&all.0);
    *out = whole.0;
}

#[cfg(test)]
#[path = "protobuf_tests.rs"]
mod tests;
