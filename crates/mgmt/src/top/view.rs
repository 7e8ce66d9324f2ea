//! The selected rows and columns of `top`, and their text.

use super::column::Column;
use super::rate::{OpRate, Rate};
use super::tab::Tab;
use crate::text;
use crate::verbs::top::Sort;

/// Part of the screen that the keys change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The table.
    #[default]
    Table,
    /// The filter, which is being typed.
    Filter,
    /// The list of columns, with the cursor at one of them.
    Columns(usize),
    /// The list of keys.
    Help,
}

/// The user's selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Kind of the rows.
    pub tab: Tab,
    /// Pattern, or part of a name; empty for all.
    pub filter: String,
    /// Only busy rows.
    pub active: bool,
    /// Order.
    pub sort: Sort,
    /// The opposite order.
    pub reverse: bool,
    /// No new numbers.
    pub paused: bool,
    /// Shown columns.
    pub columns: Vec<Column>,
    /// Part of the screen that the keys change.
    pub mode: Mode,
}

impl Default for View {
    fn default() -> View {
        View {
            tab: Tab::All,
            filter: String::new(),
            active: false,
            sort: Sort::Graph,
            reverse: false,
            paused: false,
            columns: Column::ALL.into_iter().filter(|column| !column.is_delete()).collect(),
            mode: Mode::Table,
        }
    }
}

impl View {
    /// Whether an object of that name is shown.
    pub fn shows(&self, name: &str) -> bool {
        if self.filter.contains(['*', '?']) {
            wire::pattern::matches(&self.filter, name)
        } else {
            name.contains(&self.filter)
        }
    }

    /// Whether a column is shown.
    pub fn has(&self, column: Column) -> bool {
        self.columns.contains(&column)
    }

    /// Shows or hides columns; they keep their order.
    pub fn set_shown(&mut self, is_changed: impl Fn(Column) -> bool, is_shown: bool) {
        let was = std::mem::take(&mut self.columns);
        let shown = |column: &Column| match is_changed(*column) {
            true => is_shown,
            false => was.contains(column),
        };
        self.columns = Column::ALL.into_iter().filter(shown).collect();
    }

    /// Whether deletes are shown.
    pub fn deletes(&self) -> bool {
        self.columns.iter().any(|column| column.is_delete())
    }
}

/// The head line of a table: what time it covers.
pub fn heading(interval_ns: u64, view: &View) -> String {
    let filter =
        if view.filter.is_empty() { String::new() } else { format!("  filter: {}", view.filter) };
    format!("dT: {:.3}s{filter}", interval_ns as f64 / 1e9)
}

/// A table as text.
pub fn lines(interval_ns: u64, rates: &[Rate], view: &View) -> String {
    let shown: Vec<Column> =
        view.columns.iter().copied().filter(|column| *column != Column::Minute).collect();
    let titles: Vec<&str> = shown.iter().map(|column| column.title()).chain(["Name"]).collect();
    let row = |rate: &Rate| {
        shown.iter().map(|column| column.cell(rate)).chain([rate.name.clone()]).collect()
    };
    let rows: Vec<Vec<String>> = rates.iter().map(row).collect();
    format!("{}\n{}", heading(interval_ns, view), text::table(&titles, &rows))
}

/// A table as one line of JSON; `unix_s` in seconds since 1970.
pub fn json_line(unix_s: u64, interval_ns: u64, rates: &[Rate]) -> String {
    let line = serde_json::json!({
        "unix_s": unix_s,
        "interval_ns": interval_ns,
        "rates": rates,
    });
    format!("{}\n", text::json(&line.to_string()))
}

/// The first line of CSV.
pub fn csv_head(view: &View) -> String {
    let mut out = "timestamp,name,q-depth,total_ops/s,read/s,read-KiB/s,ms/read,ms/read-p50,\
                   ms/read-p99,write/s,write-KiB/s,ms/write,ms/write-p50,ms/write-p99"
        .to_owned();
    if view.deletes() {
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
    if view.deletes() {
        out.push_str(&op(&rate.delete));
    }
    out + &format!(",{:.1}", rate.busy_percent)
}
