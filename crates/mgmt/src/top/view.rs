//! The selected rows of `top`, and their text.

use super::rate::{OpRate, Rate};
use crate::text;
use crate::verbs::top::Sort;

/// The user's selection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Pattern, or part of a name; empty for all.
    pub filter: String,
    /// Only busy rows.
    pub active: bool,
    /// Also DELETE.
    pub deletes: bool,
    /// Order.
    pub sort: Sort,
    /// No new numbers.
    pub paused: bool,
    /// The filter is being typed.
    pub typing: bool,
}

impl View {
    /// Whether a provider of that name is shown.
    pub fn shows(&self, name: &str) -> bool {
        if self.filter.contains(['*', '?']) {
            wire::pattern::matches(&self.filter, name)
        } else {
            name.contains(&self.filter)
        }
    }

    /// Names of the columns; those with `>` in front hold numbers.
    pub fn columns(&self) -> Vec<&'static str> {
        let mut out = vec![
            ">L(q)",
            ">ops/s",
            ">r/s",
            ">kBps",
            ">ms/r p50",
            ">p99",
            ">w/s",
            ">kBps",
            ">ms/w p50",
            ">p99",
        ];
        if self.deletes {
            out.extend([">d/s", ">kBps", ">ms/d p50", ">p99"]);
        }
        out.extend([">%busy", "Name"]);
        out
    }

    /// One row of [`Self::columns`].
    pub fn row(&self, rate: &Rate) -> Vec<String> {
        let mut out = vec![rate.queue.to_string(), format!("{:.0}", rate.ops_per_s)];
        out.extend(op(&rate.read));
        out.extend(op(&rate.write));
        if self.deletes {
            out.extend(op(&rate.delete));
        }
        out.extend([format!("{:.1}", rate.busy_percent), rate.name.clone()]);
        out
    }
}

/// Milliseconds with as many decimals as still mean something.
fn ms(ns: Option<u64>) -> String {
    let Some(ns) = ns else { return "0.0".to_owned() };
    let ms = ns as f64 / 1e6;
    if ms < 1.0 { format!("{ms:.3}") } else { format!("{ms:.1}") }
}

fn op(rate: &OpRate) -> [String; 4] {
    [
        format!("{:.0}", rate.ops_per_s),
        format!("{:.0}", rate.bytes_per_s / 1024.0),
        ms(rate.p50_ns),
        ms(rate.p99_ns),
    ]
}

/// The head line of a table: what time it covers.
pub fn heading(interval_ns: u64, view: &View) -> String {
    let filter =
        if view.filter.is_empty() { String::new() } else { format!("  filter: {}", view.filter) };
    format!("dT: {:.3}s{filter}", interval_ns as f64 / 1e9)
}

/// A table as text.
pub fn lines(interval_ns: u64, rates: &[Rate], view: &View) -> String {
    let rows: Vec<_> = rates.iter().map(|r| view.row(r)).collect();
    format!("{}\n{}", heading(interval_ns, view), text::table(&view.columns(), &rows))
}

/// The first line of CSV.
pub fn csv_head(view: &View) -> String {
    let mut out = "timestamp,name,q-depth,total_ops/s,read/s,read-KiB/s,ms/read,ms/read-p50,\
                   ms/read-p99,write/s,write-KiB/s,ms/write,ms/write-p50,ms/write-p99"
        .to_owned();
    if view.deletes {
        out.push_str(",delete/s,delete-KiB/s,ms/delete,ms/delete-p50,ms/delete-p99");
    }
    out + ",%busy"
}

/// One line of CSV; `unix_s` in seconds since 1970.
pub fn csv_line(unix_s: u64, rate: &Rate, view: &View) -> String {
    let name = if rate.name.contains([',', '"']) {
        format!("\"{}\"", rate.name.replace('"', "\"\""))
    } else {
        rate.name.clone()
    };
    let op = |r: &OpRate| {
        let exact = |ns: Option<u64>| format!("{:.6}", ns.unwrap_or(0) as f64 / 1e6);
        format!(
            ",{:.1},{:.1},{},{},{}",
            r.ops_per_s,
            r.bytes_per_s / 1024.0,
            exact(r.mean_ns),
            exact(r.p50_ns),
            exact(r.p99_ns)
        )
    };
    let mut out = format!("{unix_s},{name},{},{:.1}", rate.queue, rate.ops_per_s);
    out.push_str(&op(&rate.read));
    out.push_str(&op(&rate.write));
    if view.deletes {
        out.push_str(&op(&rate.delete));
    }
    out + &format!(",{:.1}", rate.busy_percent)
}
