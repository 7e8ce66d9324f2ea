//! Text format of Prometheus, version 0.0.4.

use super::buckets::classic;
use super::families::Family;
use super::page::Labels;
use crate::api::Histogram;
use std::fmt::{Display, Write};

/// A label's value, quoted.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

pub(super) fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The line of a series.
fn line(name: &str, suffix: &str, labels: &Labels<'_>, value: impl Display) -> String {
    let pairs: Vec<String> = labels.iter().map(|(k, v)| format!("{k}=\"{}\"", escape(v))).collect();
    let braces = if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
    format!("{name}{suffix}{braces} {value}\n")
}

/// A sample.
pub(super) fn sample(name: &str, labels: &Labels<'_>, value: impl Display) -> Vec<u8> {
    line(name, "", labels, value).into_bytes()
}

/// The series of a histogram.
pub(super) fn histogram(name: &str, labels: &Labels<'_>, h: &Histogram) -> Vec<u8> {
    let mut out = String::new();
    let mut bucket = |bound: &str, count: u64| {
        let mut labels = labels.to_vec();
        labels.push(("le", bound));
        out.push_str(&line(name, "_bucket", &labels, count));
    };
    classic(h).for_each(|(bound_ns, count)| bucket(&seconds(bound_ns), count));
    bucket("+Inf", h.count());
    out.push_str(&line(name, "_sum", labels, seconds(h.sum_ns)));
    out.push_str(&line(name, "_count", labels, h.count()));
    out.into_bytes()
}

/// Adds a family with its samples to `out`.
pub(super) fn family<'s>(
    family: &Family,
    samples: impl Iterator<Item = &'s [u8]>,
    out: &mut Vec<u8>,
) {
    let Family { name, kind, help, .. } = family;
    let mut head = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(head, "# HELP {name} {help}\n# TYPE {name} {kind}");
    out.extend_from_slice(head.as_bytes());
    samples.for_each(|sample| out.extend_from_slice(sample));
}
