//! Tests of the protobuf format, with a decoder of its own.

use crate::api::{Bucket, Histogram, SystemState};
use crate::fake::geom_state;
use crate::http::metrics::{Format, render};

/// A value of a field.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Number(u64),
    Double(f64),
    Bytes(Vec<u8>),
}

/// Reads a number of seven bits a byte, the lowest first.
fn number(input: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (byte, rest) = input.split_first().expect("a byte");
        *input = rest;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return value;
        }
    }
}

fn bytes(input: &mut &[u8], length: u64) -> Vec<u8> {
    let (taken, rest) = input.split_at(usize::try_from(length).expect("a length"));
    *input = rest;
    taken.to_vec()
}

fn delimited(input: &mut &[u8]) -> Vec<u8> {
    let length = number(input);
    bytes(input, length)
}

/// The fields of a message, in their order.
fn fields(message: &[u8]) -> Vec<(u64, Value)> {
    let (mut input, mut out) = (message, Vec::new());
    while !input.is_empty() {
        let key = number(&mut input);
        let value = match key & 7 {
            0 => Value::Number(number(&mut input)),
            1 => {
                let eight = bytes(&mut input, 8).try_into().expect("eight bytes");
                Value::Double(f64::from_le_bytes(eight))
            }
            2 => Value::Bytes(delimited(&mut input)),
            other => panic!("wire type {other}"),
        };
        out.push((key >> 3, value));
    }
    out
}

fn all(message: &[u8], field: u64) -> Vec<Value> {
    let fields = fields(message).into_iter().filter(|(number, _)| *number == field);
    fields.map(|(_, value)| value).collect()
}

#[track_caller]
fn numbers(message: &[u8], field: u64) -> Vec<u64> {
    let number = |value| match value {
        Value::Number(number) => number,
        other => panic!("{field}: {other:?}"),
    };
    all(message, field).into_iter().map(number).collect()
}

#[track_caller]
fn doubles(message: &[u8], field: u64) -> Vec<f64> {
    let double = |value| match value {
        Value::Double(double) => double,
        other => panic!("{field}: {other:?}"),
    };
    all(message, field).into_iter().map(double).collect()
}

#[track_caller]
fn messages(message: &[u8], field: u64) -> Vec<Vec<u8>> {
    let bytes = |value| match value {
        Value::Bytes(bytes) => bytes,
        other => panic!("{field}: {other:?}"),
    };
    all(message, field).into_iter().map(bytes).collect()
}

fn texts(message: &[u8], field: u64) -> Vec<String> {
    let text = |bytes| String::from_utf8(bytes).expect("text");
    messages(message, field).into_iter().map(text).collect()
}

fn signed(value: u64) -> i64 {
    let half = i64::try_from(value / 2).expect("a small number");
    if value & 1 == 0 { half } else { -half - 1 }
}

fn families(page: &[u8]) -> Vec<Vec<u8>> {
    let (mut input, mut out) = (page, Vec::new());
    while !input.is_empty() {
        out.push(delimited(&mut input));
    }
    out
}

/// The native buckets: their numbers with their counts.
fn native(histogram: &[u8]) -> Vec<(i64, i64)> {
    let packed = messages(histogram, 13).concat();
    let (mut deltas, mut number_of, mut count) = (packed.as_slice(), 0, 0);
    let mut out = Vec::new();
    for span in messages(histogram, 12) {
        number_of += signed(numbers(&span, 1)[0]);
        for _ in 0..numbers(&span, 2)[0] {
            count += signed(number(&mut deltas));
            out.push((number_of, count));
            number_of += 1;
        }
    }
    assert!(deltas.is_empty(), "each delta has a bucket");
    out
}

/// A state whose disk has this histogram of reads.
fn state(buckets: &[(u64, u64)]) -> SystemState {
    let mut geom = geom_state("disk", "d0", 1, &[], "d0");
    let buckets = buckets.iter().map(|&(upper_ns, count)| Bucket { upper_ns, count });
    let buckets: Vec<Bucket> = buckets.collect();
    let read = &mut geom.providers[0].stats.read;
    read.ops = 1 << 60;
    read.latency = Histogram { buckets, sum_ns: 2_500_000_000 };
    SystemState { geoms: vec![geom], ..SystemState::default() }
}

fn histogram(state: &SystemState) -> Vec<u8> {
    let page = render(state, u32::MAX, Format::Protobuf);
    let mut families = families(&page).into_iter();
    let own = families.find(|of| texts(of, 1) == ["ashlar_provider_latency_seconds"]);
    let own = own.expect("a family of histograms");
    assert_eq!(numbers(&own, 3), [4], "its type");
    let metrics = messages(&own, 4);
    let [metric] = metrics.as_slice() else { panic!("{} metrics", metrics.len()) };
    messages(metric, 7).concat()
}

#[test]
fn protobuf_page_has_the_families_and_samples_of_the_text() {
    let state = state(&[(1_023, 2), (3_000_000, 1)]);
    let text = String::from_utf8(render(&state, u32::MAX, Format::Text)).expect("text");
    let heads = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let page = render(&state, u32::MAX, Format::Protobuf);
    let families = families(&page);
    let kind = |of: &Vec<u8>| ["counter", "gauge", "", "", "histogram"][numbers(of, 3)[0] as usize];
    let named: Vec<String> =
        families.iter().map(|of| format!("{} {}", texts(of, 1)[0], kind(of))).collect();
    assert_eq!(named, heads.collect::<Vec<_>>());
    let mut samples = 0;
    for family in &families {
        let name = &texts(family, 1)[0];
        for metric in messages(family, 4) {
            let pair = |of: Vec<u8>| format!("{}=\"{}\"", texts(&of, 1)[0], texts(&of, 2)[0]);
            let pairs: Vec<String> = messages(&metric, 1).into_iter().map(pair).collect();
            let of_value = [2, 3].map(|field| messages(&metric, field).concat()).concat();
            let Some(value) = doubles(&of_value, 1).first().copied() else { continue };
            let labels =
                if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
            let head = format!("{name}{labels} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&head));
            assert_eq!(line.and_then(|v| v.parse::<f64>().ok()), Some(value), "{head}");
            samples += 1;
        }
    }
    let series = text.lines().filter(|line| !line.starts_with('#'));
    let plain = series.filter(|line| !line.starts_with("ashlar_provider_latency_seconds_"));
    assert_eq!(samples, plain.count());
}

#[test]
fn x4_each_request_is_in_one_bucket_of_a_native_histogram() {
    // One and two buckets in a row, a gap, and the last one, which has no end.
    let counted = [(1, 4), (767, 1), (1_023, 3), (1_535, 2), (1_073_741_823, 5), (u64::MAX, 1)];
    let histogram = histogram(&state(&counted));
    assert_eq!(numbers(&histogram, 1), [16], "sample count");
    assert_eq!(doubles(&histogram, 2), [2.5], "sum");
    assert_eq!(numbers(&histogram, 5), [2], "schema 1, as a signed number");
    assert_eq!(numbers(&histogram, 7), [4], "zero bucket");
    let native = native(&histogram);
    let one_second = (0, 5);
    assert_eq!(native, [(-41, 1), (-40, 3), (-39, 2), one_second, (20, 1)]);
    let zero = i64::try_from(numbers(&histogram, 7)[0]).expect("a small number");
    assert_eq!(zero + native.iter().map(|(_, count)| count).sum::<i64>(), 16);
    assert!(doubles(&histogram, 6)[0] < 2_f64.powf(-58.0 / 2.0), "below the first bucket");
}

#[test]
fn x4_native_bounds_are_a_seventh_below_the_counted_ones_at_most() {
    for power in 1..39 {
        for half in 0..2 {
            let lower_ns = (2 + half) << (power - 1);
            let upper_ns = (3 + half) << (power - 1);
            let native = native(&histogram(&state(&[(upper_ns - 1, 1)])));
            let [(number, 1)] = native.as_slice() else { panic!("{native:?}") };
            let bound = |number: i64| 2_f64.powf(number as f64 / 2.0) * 1e9;
            for (own, counted) in [(number - 1, lower_ns), (*number, upper_ns)] {
                let ratio = counted as f64 / bound(own);
                assert!((1.07..1.14).contains(&ratio), "{upper_ns} ns: {ratio}");
            }
        }
    }
}

#[test]
fn classic_buckets_of_protobuf_are_cumulative() {
    let histogram = histogram(&state(&[(900, 2), (3_000_000, 1)]));
    let buckets = messages(&histogram, 3);
    let counts: Vec<u64> = buckets.iter().map(|of| numbers(of, 1)[0]).collect();
    let bounds: Vec<f64> = buckets.iter().map(|of| doubles(of, 2)[0]).collect();
    assert_eq!((counts.first(), counts.last()), (Some(&2), Some(&3)));
    assert!(counts.is_sorted() && bounds.is_sorted(), "{counts:?} {bounds:?}");
    assert_eq!(bounds.first(), Some(&0.000_001_024));
}
