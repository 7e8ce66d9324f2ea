//! Text format of Prometheus, version 0.0.4.

use super::buckets::classic;
use super::families::Family;
use super::number::{Number, seconds};
use super::page::{Label, Labels, SampleLabels};
use crate::api::Histogram;
use std::io::Write;

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

/// Adds a label: the first one after a brace, others after a comma.
fn label((name, value): Label<'_>, is_first: bool, out: &mut Vec<u8>) {
    out.push(if is_first { b'{' } else { b',' });
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"=\"");
    escape(value, out);
    out.push(b'"');
}

/// The labels of an object without the closing brace; nothing without labels.
pub(super) fn common(labels: &Labels<'_>, out: &mut Vec<u8>) {
    for (i, one) in labels.iter().enumerate() {
        label(*one, i == 0, out);
    }
}

/// The labels without the closing brace; nothing without labels.
fn open_braces(labels: SampleLabels<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(labels.common);
    if let Some(last) = labels.last {
        label(last, labels.common.is_empty(), out);
    }
}

/// The end of a line.
fn end(value: Number, out: &mut Vec<u8>) {
    out.push(b' ');
    value.write(out);
    out.push(b'\n');
}

/// Adds a sample to `out`.
pub(super) fn sample(name: &str, labels: SampleLabels<'_>, value: Number, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    open_braces(labels, out);
    if !labels.is_empty() {
        out.push(b'}');
    }
    end(value, out);
}

/// Adds the series of a histogram to `out`.
pub(super) fn histogram(name: &str, labels: SampleLabels<'_>, h: &Histogram, out: &mut Vec<u8>) {
    // All series have the same labels, but buckets have one more.
    let mut same = Vec::new();
    open_braces(labels, &mut same);
    let mut bucket = |bound: Option<Number>, count: u64| {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"_bucket");
        out.extend_from_slice(&same);
        out.extend_from_slice(if same.is_empty() { b"{le=\"" } else { b",le=\"" });
        match bound {
            Some(bound) => bound.write(out),
            None => out.extend_from_slice(b"+Inf"),
        }
        out.extend_from_slice(b"\"}");
        end(count.into(), out);
    };
    classic(h).for_each(|(bound_ns, count)| bucket(Some(seconds(bound_ns)), count));
    bucket(None, h.count());
    let closing: &[u8] = if same.is_empty() { b"" } else { b"}" };
    let values = [("_sum", seconds(h.sum_ns)), ("_count", h.count().into())];
    for (suffix, value) in values {
        for part in [name.as_bytes(), suffix.as_bytes(), &same, closing] {
            out.extend_from_slice(part);
        }
        end(value, out);
    }
}

/// Adds a family with its samples to `out`.
pub(super) fn family(family: &Family, samples: &[u8], out: &mut Vec<u8>) {
    let Family { name, kind, help, .. } = family;
    // Writing to a Vec cannot fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    out.extend_from_slice(samples);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_where_they_are_written() {
        let (mut out, mut written) = (b"before ".to_vec(), Vec::new());
        common(&[("a", "\\x\"\n"), ("b", "")], &mut written);
        let last = Some(("c", "é\n\n"));
        sample("m", SampleLabels { common: &written, last }, 1_u64.into(), &mut out);
        sample("m", SampleLabels { common: &[], last }, 3_u64.into(), &mut out);
        sample("m", SampleLabels { common: &written, last: None }, 4_u64.into(), &mut out);
        sample("m", SampleLabels { common: &[], last: None }, 2_u64.into(), &mut out);
        let text = String::from_utf8(out).expect("text");
        let lines = [
            r#"before m{a="\\x\"\n",b="",c="é\n\n"} 1"#,
            r#"m{c="é\n\n"} 3"#,
            r#"m{a="\\x\"\n",b=""} 4"#,
            "m 2",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn histogram_has_the_same_labels_in_all_its_series() {
        let of = |labels: SampleLabels<'_>| {
            let mut out = Vec::new();
            histogram("m", labels, &Histogram::default(), &mut out);
            let text = String::from_utf8(out).expect("text");
            let lines = text.lines().map(str::to_owned).collect::<Vec<_>>();
            [lines.first().cloned(), lines.get(lines.len() - 2).cloned(), lines.last().cloned()]
                .map(Option::unwrap_or_default)
        };
        let (mut written, last) = (Vec::new(), Some(("op", "read")));
        common(&[("a", "x")], &mut written);
        let first = "m_bucket{a=\"x\",op=\"read\",le=\"0.000001024\"} 0";
        let ends = ["m_sum{a=\"x\",op=\"read\"} 0", "m_count{a=\"x\",op=\"read\"} 0"];
        assert_eq!(of(SampleLabels { common: &written, last }), [first, ends[0], ends[1]]);
        let bare = ["m_bucket{le=\"0.000001024\"} 0", "m_sum 0", "m_count 0"];
        assert_eq!(of(SampleLabels { common: &[], last: None }), bare);
    }
}
