//! Text format of Prometheus, version 0.0.4.

use super::buckets::classic;
use super::families::Family;
use super::page::Labels;
use crate::api::Histogram;
use std::fmt::{self, Display};
use std::io::Write;

/// Nanoseconds that are printed as seconds, without zeros at the end.
#[derive(Clone, Copy)]
pub(super) struct Seconds(u64);

pub(super) fn seconds(ns: u64) -> Seconds {
    Seconds(ns)
}

impl Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, mut rest) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let mut digits = 9;
        while rest.is_multiple_of(10) {
            rest /= 10;
            digits -= 1;
        }
        write!(f, "{whole}.{rest:0digits$}")
    }
}

/// A label's value as it is written between quotes.
fn escape(text: &str, out: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|b| matches!(b, b'\\' | b'"' | b'\n')) {
        let (plain, special) = rest.split_at(at);
        out.extend_from_slice(plain);
        out.push(b'\\');
        let Some((byte, after)) = special.split_first() else { return };
        out.push(if *byte == b'\n' { b'n' } else { *byte });
        rest = after;
    }
    out.extend_from_slice(rest);
}

/// The labels in braces; nothing without labels.
fn braces(labels: &Labels<'_>, out: &mut Vec<u8>) {
    for (i, (name, value)) in labels.iter().enumerate() {
        out.push(if i == 0 { b'{' } else { b',' });
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"=\"");
        escape(value, out);
        out.push(b'"');
    }
    if !labels.is_empty() {
        out.push(b'}');
    }
}

/// The end of a line.
fn end(value: impl Display, out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = writeln!(out, " {value}");
}

/// Adds a sample to `out`.
pub(super) fn sample(name: &str, labels: &Labels<'_>, value: impl Display, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    braces(labels, out);
    end(value, out);
}

/// Adds the series of a histogram to `out`.
pub(super) fn histogram(name: &str, labels: &Labels<'_>, h: &Histogram, out: &mut Vec<u8>) {
    // All series have the same labels, but buckets have one more.
    let mut all = Vec::new();
    braces(labels, &mut all);
    let mut of_bucket = all.strip_suffix(b"}").unwrap_or_default().to_vec();
    of_bucket.push(if labels.is_empty() { b'{' } else { b',' });
    let mut bucket = |bound: &dyn Display, count: u64| {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"_bucket");
        out.extend_from_slice(&of_bucket);
        let _ = write!(out, "le=\"{bound}\"}}");
        end(count, out);
    };
    classic(h).for_each(|(bound_ns, count)| bucket(&seconds(bound_ns), count));
    bucket(&"+Inf", h.count());
    let mut line = |suffix: &str, value: &dyn Display| {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(suffix.as_bytes());
        out.extend_from_slice(&all);
        end(value, out);
    };
    line("_sum", &seconds(h.sum_ns));
    line("_count", &h.count());
}

/// Adds a family with its samples to `out`.
pub(super) fn family(family: &Family, samples: &[u8], out: &mut Vec<u8>) {
    let Family { name, kind, help, .. } = family;
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    out.extend_from_slice(samples);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact_and_have_no_zeros_at_the_end() {
        for (ns, text) in [
            (0, "0"),
            (1, "0.000000001"),
            (20, "0.00000002"),
            (1_200_000_000, "1.2"),
            (10_000_000_000, "10"),
            (100_010_000_000, "100.01"),
            (u64::MAX, "18446744073.709551615"),
        ] {
            assert_eq!(seconds(ns).to_string(), text);
        }
    }

    #[test]
    fn labels_are_escaped_where_they_are_written() {
        let mut out = b"before ".to_vec();
        let labels = [("a", "\\x\"\n"), ("b", ""), ("c", "é\n\n")];
        sample("m", &labels, 1, &mut out);
        sample("m", &[], "2", &mut out);
        let text = String::from_utf8(out).expect("text");
        let first = r#"before m{a="\\x\"\n",b="",c="é\n\n"} 1"#;
        assert_eq!(text, format!("{first}\nm 2\n"));
    }
}
