//! part show: partition tables with their gaps, as gpart prints them.

use super::entry::CommandVerb;
use crate::api::{PartAnswer, PartEntry, PartTable, Result};
use crate::config::units::short;
use crate::service::Control;
use crate::text::{escape_line, shell_word};
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Parameters of `part show`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PartShowParams {
    /// Providers with tables [default: all]
    pub geoms: Vec<String>,
    /// Print labels instead of types.
    #[schemars(extend("x-short" = "l"))]
    pub labels: bool,
    /// Print types as stored on the disk.
    #[schemars(extend("x-short" = "r"))]
    pub raw: bool,
    /// Print names of providers instead of index numbers.
    #[schemars(extend("x-short" = "p"))]
    pub providers: bool,
}

/// Answer of `part show`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PartShowAnswer {
    /// The tables.
    pub tables: Vec<PartTable>,
    /// Named providers without a table, each with the reason.
    #[serde(default)]
    pub without: Vec<String>,
    /// Style of the printed tables.
    pub style: TableStyle,
}

/// Contents of the columns of a printed table.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TableStyle {
    /// Labels instead of types.
    pub labels: bool,
    /// Types as they are on the disk.
    pub raw: bool,
    /// Names instead of index numbers.
    pub providers: bool,
}

/// One printed line: start, count, index or name, the rest.
struct EntryLine(u64, u64, String, String);

fn size(count: u64, table: &PartTable) -> String {
    short(count.saturating_mul(u64::from(table.sector_bytes)))
}

fn entry_line(entry: &PartEntry, table: &PartTable, style: TableStyle) -> EntryLine {
    let id = if style.providers { entry.name.clone() } else { entry.index.to_string() };
    let kind = match (style.labels, style.raw) {
        (true, _) if entry.label.is_empty() => "(null)",
        (true, _) => &entry.label,
        (false, true) => &entry.raw_kind,
        (false, false) => &entry.kind,
    };
    let flags = match entry.attributes.as_slice() {
        [] => String::new(),
        all => format!("  [{}]", all.join(",")),
    };
    // A line break in a label stays within its line.
    let kind = escape_line(kind);
    let rest = format!("{kind}{flags}  ({})", size(entry.count, table));
    EntryLine(entry.start, entry.count, id, rest)
}

/// One table: the head line, then partitions and gaps in order of place.
pub fn render(table: &PartTable, style: TableStyle) -> String {
    let blocks = table.last.saturating_sub(table.first).saturating_add(1);
    let corrupt = if table.corrupt { " [CORRUPT]" } else { "" };
    let waits = if table.modified { " [PENDING]" } else { "" };
    let scheme = table.scheme.to_uppercase();
    let head = format!("{scheme}  ({}){corrupt}{waits}", size(blocks, table));
    let mut lines = vec![EntryLine(table.first, blocks, table.geom.clone(), head)];
    let mut next = table.first;
    let gap = |from: u64, to: u64| {
        let count = to.saturating_sub(from);
        let text = format!("- free -  ({})", size(count, table));
        (count > 0).then(|| EntryLine(from, count, String::new(), text))
    };
    for entry in &table.entries {
        lines.extend(gap(next, entry.start));
        lines.push(entry_line(entry, table, style));
        next = next.max(entry.start.saturating_add(entry.count));
    }
    lines.extend(gap(next, table.last.saturating_add(1)));
    let width = |f: &dyn Fn(&EntryLine) -> usize| lines.iter().map(f).max().unwrap_or(0);
    let start = width(&|l| l.0.to_string().len()).max(8);
    let count = width(&|l| l.1.to_string().len()).max(8);
    let id = width(&|l| l.2.chars().count());
    let mut out = String::new();
    for (i, line) in lines.iter().enumerate() {
        let mark = if i == 0 { "=>" } else { "  " };
        let EntryLine(from, n, name, rest) = line;
        // The table's own name is left-aligned in its column, indexes are right-aligned.
        let name = if i == 0 { format!("{name:<id$}") } else { format!("{name:>id$}") };
        out.push_str(&format!("{mark}{from:>start$}  {n:>count$}  {name}  {rest}\n"));
    }
    if table.modified {
        let geom = shell_word(&table.geom);
        out.extend(table.pending.iter().map(|message| format!("   not written: {message}\n")));
        out.push_str(&format!("   `ashlar part commit {geom}` writes it, "));
        out.push_str(&format!("`ashlar part undo {geom}` forgets it\n"));
    }
    out.push('\n');
    out
}

/// Any answer about partitions for people: message, warnings, and the tables when there is no
/// message.
pub fn answer(answer: &PartAnswer) -> String {
    let mut out: String = answer.warnings.iter().map(|w| format!("warning: {w}\n")).collect();
    if answer.message.is_empty() {
        out.extend(answer.tables.iter().map(|t| render(t, TableStyle::default())));
    } else {
        out.push_str(&answer.message);
        out.push('\n');
        for table in answer.tables.iter().filter(|t| t.modified) {
            let geom = shell_word(&table.geom);
            out.push_str(&format!("not written yet: `ashlar part commit {geom}` does that\n"));
        }
    }
    out
}

impl Verb<Control> for PartShowParams {
    const NAME: &'static str = "part.show";
    const DOC: &'static str = "Show partition tables with their gaps";
    const DETAIL: &'static str = "Columns: first sector, number of sectors, index, type, \
        attributes, size. The first line is the whole usable range; [CORRUPT] marks a table that \
        `part recover` can repair, and [PENDING] a table with unwritten changes.";
    const POSITIONAL: &'static [&'static str] = &["geoms"];
    const EXAMPLE: &'static str = "part show";
    const MORE_EXAMPLES: &'static [&'static str] = &["part show ada0 --labels"];
    type Answer = PartShowAnswer;

    fn run(self, (control, progress): At<'_, Control>) -> Result<PartShowAnswer> {
        let PartShowParams { geoms, labels, raw, providers } = self;
        let value = json!({ "geoms": geoms });
        let answer: PartAnswer = control.verb(("part", "show"), &value, progress)?;
        let style = TableStyle { labels, raw, providers };
        Ok(PartShowAnswer { tables: answer.tables, without: answer.warnings, style })
    }
}

impl CommandVerb<Control> for PartShowParams {
    fn table(answer: &PartShowAnswer) -> String {
        let tables = answer.tables.iter().map(|t| render(t, answer.style));
        tables.chain(answer.without.iter().map(|w| format!("{w}\n"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_table_is_printed_as_by_gpart() {
        let entry = |index, start, count, kind: &str, flags: &[&str]| PartEntry {
            index,
            name: format!("ada0p{index}"),
            start,
            count,
            kind: kind.to_owned(),
            attributes: flags.iter().map(|f| (*f).to_owned()).collect(),
            ..PartEntry::default()
        };
        let table = PartTable {
            geom: "ada0".to_owned(),
            scheme: "gpt".to_owned(),
            sector_bytes: 512,
            first: 34,
            last: 20_971_486,
            entries: vec![
                entry(1, 34, 1024, "freebsd-boot", &[]),
                entry(2, 2048, 16_777_216, "freebsd-ufs", &[]),
                entry(3, 16_779_264, 4_192_223, "freebsd-swap", &["bootme"]),
            ],
            ..PartTable::default()
        };
        assert_eq!(
            render(&table, TableStyle::default()),
            "=>      34  20971453  ada0  GPT  (10G)\n        \
             34      1024     1  freebsd-boot  (512K)\n      \
             1058       990        - free -  (495K)\n      \
             2048  16777216     2  freebsd-ufs  (8.0G)\n  \
             16779264   4192223     3  freebsd-swap  [bootme]  (2.0G)\n\n"
        );
        let corrupt = PartTable { corrupt: true, entries: vec![], ..table.clone() };
        let pending = vec!["ada0p4 added".to_owned(), "ada0p1 deleted".to_owned()];
        let waits = PartTable { modified: true, pending, entries: vec![], ..table };
        let text = render(&waits, TableStyle::default());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("GPT  (10G) [PENDING]"), "{text}");
        assert_eq!(lines[2..4], ["   not written: ada0p4 added", "   not written: ada0p1 deleted"]);
        assert!(lines[4].contains("part commit ada0") && lines[4].contains("part undo ada0"));
        let text = render(&corrupt, TableStyle { labels: true, ..TableStyle::default() });
        assert!(text.starts_with("=>      34  20971453  ada0  GPT  (10G) [CORRUPT]\n"), "{text}");
        assert!(text.contains("- free -  (10G)"), "{text}");
    }

    #[test]
    fn line_break_of_a_label_stays_within_its_line() {
        let entry = PartEntry {
            label: "a\n=> forged\u{1b}[31m".to_owned(),
            start: 34,
            count: 8,
            ..PartEntry::default()
        };
        let table = PartTable { first: 34, last: 41, entries: vec![entry], ..PartTable::default() };
        let text = render(&table, TableStyle { labels: true, ..TableStyle::default() });
        assert_eq!(text.trim_end().lines().count(), 2, "{text}");
        assert!(text.contains("a\\n=> forged\\u{1b}[31m"), "{text}");
    }
}
