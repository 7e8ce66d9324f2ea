//! Columns of the tables of `top`.

use super::rate::{OpRate, Rate};

/// A column. Names are always shown, as the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Requests in flight.
    Queue,
    /// Requests a second.
    Ops,
    /// A number of reads.
    Read(Part),
    /// A number of writes.
    Write(Part),
    /// A number of deletes.
    Delete(Part),
    /// Share of time with requests in flight.
    Busy,
    /// Sparkline of the last minute; on a screen only.
    Minute,
}

/// A number of one kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Requests a second.
    Ops,
    /// KiB a second.
    Bytes,
    /// Median latency.
    P50,
    /// 99th percentile of the latency.
    P99,
}

impl Part {
    /// The title of a column that follows the one of the rate.
    const fn title(self) -> &'static str {
        match self {
            Part::Ops => ">ops/s",
            Part::Bytes => ">kBps",
            Part::P50 => ">p50",
            Part::P99 => ">p99",
        }
    }
}

/// Milliseconds with as many decimals as still mean something.
fn ms(ns: Option<u64>) -> String {
    let Some(ns) = ns else { return "0.0".to_owned() };
    let ms = ns as f64 / 1e6;
    if ms < 1.0 { format!("{ms:.3}") } else { format!("{ms:.1}") }
}

fn part(of: Part, rate: &OpRate) -> String {
    match of {
        Part::Ops => format!("{:.0}", rate.ops_per_s),
        Part::Bytes => format!("{:.0}", rate.bytes_per_s / 1024.0),
        Part::P50 => ms(rate.p50_ns),
        Part::P99 => ms(rate.p99_ns),
    }
}

impl Column {
    /// All columns, from the left to the right.
    pub const ALL: [Column; 16] = [
        Column::Queue,
        Column::Ops,
        Column::Read(Part::Ops),
        Column::Read(Part::Bytes),
        Column::Read(Part::P50),
        Column::Read(Part::P99),
        Column::Write(Part::Ops),
        Column::Write(Part::Bytes),
        Column::Write(Part::P50),
        Column::Write(Part::P99),
        Column::Delete(Part::Ops),
        Column::Delete(Part::Bytes),
        Column::Delete(Part::P50),
        Column::Delete(Part::P99),
        Column::Busy,
        Column::Minute,
    ];

    /// Whether it is a column of deletes.
    pub const fn is_delete(self) -> bool {
        matches!(self, Column::Delete(_))
    }

    /// The title; numbers have `>` in front.
    pub const fn title(self) -> &'static str {
        match self {
            Column::Queue => ">L(q)",
            Column::Ops => ">ops/s",
            Column::Read(Part::Ops) => ">r/s",
            Column::Write(Part::Ops) => ">w/s",
            Column::Delete(Part::Ops) => ">d/s",
            Column::Read(Part::P50) => ">ms/r p50",
            Column::Write(Part::P50) => ">ms/w p50",
            Column::Delete(Part::P50) => ">ms/d p50",
            Column::Read(part) | Column::Write(part) | Column::Delete(part) => part.title(),
            Column::Busy => ">%busy",
            Column::Minute => "last minute",
        }
    }

    /// Content of the column, for the list of columns.
    pub const fn doc(self) -> &'static str {
        match self {
            Column::Queue => "requests in flight",
            Column::Ops => "requests a second",
            Column::Read(Part::Ops) => "reads a second",
            Column::Read(Part::Bytes) => "KiB read a second",
            Column::Read(Part::P50) => "median latency of reads",
            Column::Read(Part::P99) => "99th percentile of reads",
            Column::Write(Part::Ops) => "writes a second",
            Column::Write(Part::Bytes) => "KiB written a second",
            Column::Write(Part::P50) => "median latency of writes",
            Column::Write(Part::P99) => "99th percentile of writes",
            Column::Delete(Part::Ops) => "deletes a second",
            Column::Delete(Part::Bytes) => "KiB deleted a second",
            Column::Delete(Part::P50) => "median latency of deletes",
            Column::Delete(Part::P99) => "99th percentile of deletes",
            Column::Busy => "time with requests in flight",
            Column::Minute => "requests of the last minute",
        }
    }

    /// The cell of a row; empty for a sparkline.
    pub fn cell(self, rate: &Rate) -> String {
        match self {
            Column::Queue => rate.queue.to_string(),
            Column::Ops => format!("{:.0}", rate.ops_per_s),
            Column::Read(of) => part(of, &rate.read),
            Column::Write(of) => part(of, &rate.write),
            Column::Delete(of) => part(of, &rate.delete),
            Column::Busy => format!("{:.1}", rate.busy_percent),
            Column::Minute => String::new(),
        }
    }
}
