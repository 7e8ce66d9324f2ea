//! Text of a table for people.

use super::space;
use super::table::{Entry, Table};
use serde::Serialize;
use std::fmt::Write;

/// Content of the fourth column of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Column {
    /// The type by its alias.
    #[default]
    Kind,
    /// The label, `(null)` where there is none.
    Label,
    /// The type as it is stored.
    Raw,
}

/// One line of `show`: a partition, or free space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// First sector.
    pub start: u64,
    /// Sectors.
    pub sectors: u64,
    /// Bytes.
    pub bytes: u64,
    /// Index; none for free space.
    pub index: Option<u32>,
    /// Type by its alias or raw; none for free space.
    pub kind: Option<String>,
    /// Type as it is stored; none for free space.
    pub raw: Option<String>,
    /// Label; none for free space or when empty.
    pub label: Option<String>,
    /// Unique id (GPT).
    pub uuid: Option<String>,
    /// Added to the disk's name this makes the provider's.
    pub suffix: Option<String>,
    /// Attributes that are set.
    pub attributes: Vec<&'static str>,
}

impl Table {
    /// Partitions and free space in order of their place.
    pub fn rows(&self) -> Vec<Row> {
        let size = u64::from(self.media.sector_size);
        let free = space::gaps(self, None).into_iter().map(|gap| Row {
            start: gap.start,
            sectors: gap.end - gap.start + 1,
            bytes: (gap.end - gap.start + 1).saturating_mul(size),
            index: None,
            kind: None,
            raw: None,
            label: None,
            uuid: None,
            suffix: None,
            attributes: Vec::new(),
        });
        let mut rows: Vec<Row> =
            self.entries.iter().map(|entry| self.row(entry)).chain(free).collect();
        rows.sort_by_key(|row| row.start);
        rows
    }

    fn row(&self, entry: &Entry) -> Row {
        let sectors = entry.end.saturating_sub(entry.start).saturating_add(1);
        let label = entry.label();
        Row {
            start: entry.start,
            sectors,
            bytes: sectors.saturating_mul(u64::from(self.media.sector_size)),
            index: Some(entry.index),
            kind: Some(entry.kind.to_string()),
            raw: Some(entry.kind.raw()),
            label: (!label.is_empty()).then_some(label),
            uuid: self.disk_guid().map(|_| entry.guid.to_string()),
            suffix: Some(self.suffix(entry)),
            attributes: entry.attribute_names(),
        }
    }

    /// The text of `show`. `name` is the provider's; with `names` the partitions' provider names
    /// replace the indexes.
    pub fn show(&self, name: &str, column: Column, names: bool) -> String {
        let rows = self.rows();
        let total = self.last.saturating_sub(self.first).saturating_add(1);
        let widest = |texts: &mut dyn Iterator<Item = String>| texts.map(|t| t.len()).max();
        let number = |value: u64| value.to_string();
        let edge = [self.first, total].into_iter();
        let spots = rows.iter().map(|row| row.start).chain(edge.clone());
        let first = widest(&mut spots.map(number)).unwrap_or(0);
        let counts = rows.iter().map(|row| row.sectors).chain(edge);
        let second = widest(&mut counts.map(number)).unwrap_or(0);
        let who = |row: &Row| match (row.index, &row.suffix) {
            (Some(_), Some(suffix)) if names => format!("{name}{suffix}"),
            (Some(index), _) => index.to_string(),
            _ => String::new(),
        };
        let third = widest(&mut rows.iter().map(who)).unwrap_or(0).max(name.len());
        let mut out = String::new();
        let size = human(self.media.sectors.saturating_mul(u64::from(self.media.sector_size)));
        let state = if self.is_corrupt() { " [CORRUPT]" } else { "" };
        let scheme = self.scheme().name();
        let (from, blank) = (self.first, "  ");
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "=>{from:>first$}  {total:>second$}  {name:>third$}  {scheme}  ({size}){state}"
        );
        for row in &rows {
            let (start, count, who) = (row.start, row.sectors, who(row));
            // A line break in a name stays within its row.
            let label = row.label.as_deref().map(escape_controls);
            let what = match (column, row.index) {
                (_, None) => "- free -",
                (Column::Kind, _) => row.kind.as_deref().unwrap_or(""),
                (Column::Raw, _) => row.raw.as_deref().unwrap_or(""),
                (Column::Label, _) => label.as_deref().unwrap_or("(null)"),
            };
            let _ =
                write!(out, "{blank}{start:>first$}  {count:>second$}  {who:>third$}  {what}  ");
            if !row.attributes.is_empty() {
                let _ = write!(out, "[{}]  ", row.attributes.join(","));
            }
            let _ = writeln!(out, "({})", human(row.bytes));
        }
        out.push('\n');
        out
    }
}

/// A name with `\n` in place of a line break, and so on.
fn escape_controls(name: &str) -> String {
    let escaped = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    name.chars().map(escaped).collect()
}

/// Bytes with one suffix: `512B`, `495K`, `8.0G`, `10G`. One decimal below ten, unless the value
/// is bytes.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "K", "M", "G", "T", "P", "E"];
    let mut unit = 0;
    let mut scale: u128 = 1;
    let bytes = u128::from(bytes);
    while unit + 1 < UNITS.len() && (bytes * 2 + scale) / (scale * 2) >= 1000 {
        scale *= 1024;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or("");
    let tenths = (bytes * 20 + scale) / (scale * 2);
    match unit > 0 && tenths < 100 {
        true => format!("{}.{}{name}", tenths / 10, tenths % 10),
        false => format!("{}{name}", (bytes * 2 + scale) / (scale * 2)),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_are_formatted_with_one_suffix() {
        for (bytes, want) in [
            (0, "0B"),
            (512, "512B"),
            (999, "999B"),
            (1000, "1.0K"),
            (524_288, "512K"),
            (990 * 512, "495K"),
            (8 << 30, "8.0G"),
            (10 << 30, "10G"),
            (4_192_223 * 512, "2.0G"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(super::human(bytes), want);
        }
    }
}
