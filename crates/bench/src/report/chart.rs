//! Chart of a report as SVG: for each compared row a bar of ours, a bar of the peer's, and their
//! ratio. Both bars of a row have one scale; other rows have others.

use super::table::number;
use super::{Report, Row};

const WIDTH: usize = 800;
const MARGIN: usize = 16;
/// Longest bar; to its right there is space for a value with its unit and name.
const BAR_WIDTH: f64 = 520.0;
const BAR_HEIGHT: usize = 12;
const TITLE_HEIGHT: usize = 56;
const ROW_HEIGHT: usize = 60;
const NOTE_HEIGHT: usize = 18;

/// Colours for a light page and, by the setting of the reader, for a dark one.
const STYLE: &str = "\
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.page { fill: #ffffff; }
.title { font-size: 16px; font-weight: 600; }
.note { font-size: 12px; fill: #59636e; }
.ratio { text-anchor: end; font-weight: 600; }
.ours { fill: #0969da; }
.peer { fill: #8c959f; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.page { fill: #0d1117; }
.note { fill: #9198a1; }
.ours { fill: #58a6ff; }
.peer { fill: #6e7681; }
}
";

/// Rows of the short chart: case, peer, and a label for readers who do not know the cases.
const MAIN: &[(&str, &str, &str)] = &[
    ("null-read-4k-d32", "tgt", "iSCSI target, reads of 4 KiB, depth 32"),
    ("null-read-4k-d32", "bare", "iSCSI target, reads of 4 KiB, depth 32"),
    ("iscsi-initiator-read-4k-d32", "libiscsi", "iSCSI initiator, reads of 4 KiB, depth 32"),
    ("nbd-null-read-4k-d32", "nbdkit", "NBD server, reads of 4 KiB, depth 32"),
    ("nbd-null-read-4k-d32", "qemu", "NBD server, reads of 4 KiB, depth 32"),
    ("aoe-file-read-4k-d32", "vblade", "AoE target, reads of 4 KiB from a file"),
    ("aoe-memory-read-4k-d32", "vblade", "AoE target, reads of 4 KiB from memory"),
    ("files-read-8k-d16", "diod", "9P, random reads of 8 KiB, depth 16"),
];

fn main_label(row: &Row, peer: &str) -> Option<&'static str> {
    let mut rows = MAIN.iter().filter(|(case, other, _)| *case == row.case && *other == peer);
    rows.next().map(|(_, _, label)| *label)
}

/// A row that has a figure of a peer: that figure, the peer's name and the ratio.
fn compared(row: &Row) -> Option<(&Row, f64, &str, f64)> {
    let (theirs, peer, ratio) = (row.theirs?, row.peer.as_deref()?, row.ratio?);
    let is_drawable = [row.ours, theirs, ratio].iter().all(|v| v.is_finite() && *v > 0.0);
    is_drawable.then_some((row, theirs, peer, ratio))
}

/// The chart of the rows whose figure has this in its name, or of the main ones of them (`short`);
/// `None` without a compared row.
pub(super) fn render(report: &Report, figure: &str, short: bool) -> Option<String> {
    let named = report.rows.iter().filter(|row| row.figure.contains(figure));
    let mut rows: Vec<_> = named.filter_map(compared).collect();
    rows.retain(|(row, _, peer, _)| !short || main_label(row, peer).is_some());
    if rows.is_empty() {
        return None;
    }
    let below = TITLE_HEIGHT + rows.len() * ROW_HEIGHT + NOTE_HEIGHT;
    let height = below + report.machine.len() * NOTE_HEIGHT;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <title>Ashlar beside its peers</title>\n<style>\n{STYLE}</style>\n\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n"
    );
    text(&mut out, (MARGIN, 26), "title", "Ashlar beside its peers, in one run on one machine");
    let note = "The ratio is ours divided by the peer's. A unit per second: more is better; \
                another unit: less is better.";
    text(&mut out, (MARGIN, 44), "note", note);
    for (n, row) in rows.iter().enumerate() {
        bars(&mut out, TITLE_HEIGHT + n * ROW_HEIGHT, *row, short);
    }
    for (n, line) in report.machine.iter().enumerate() {
        text(&mut out, (MARGIN, below + n * NOTE_HEIGHT), "note", line);
    }
    out.push_str("</svg>\n");
    Some(out)
}

/// One row, from this height on.
fn bars(
    out: &mut String,
    top: usize,
    (row, theirs, peer, ratio): (&Row, f64, &str, f64),
    short: bool,
) {
    let name = main_label(row, peer).filter(|_| short).unwrap_or(&row.case);
    let label = format!("{name}, beside {peer}: {}", row.figure);
    text(out, (MARGIN, top + 16), "label", &label);
    text(out, (WIDTH - MARGIN, top + 16), "ratio", &number(ratio));
    let longest = row.ours.max(theirs);
    let both = [("ours", row.ours, "Ashlar"), ("peer", theirs, peer)];
    for (n, (class, value, name)) in both.into_iter().enumerate() {
        let y = top + 22 + n * (BAR_HEIGHT + 4);
        let width = (value / longest * BAR_WIDTH).max(1.0);
        out.push_str(&format!(
            "<rect class=\"{class}\" x=\"{MARGIN}\" y=\"{y}\" width=\"{width:.1}\" \
             height=\"{BAR_HEIGHT}\"/>\n"
        ));
        let at = MARGIN as f64 + width + 8.0;
        let value = format!("{} {} {name}", number(value), row.unit).replace("  ", " ");
        text(out, (at.round() as usize, y + BAR_HEIGHT - 1), "value", &value);
    }
}

fn text(out: &mut String, (x, y): (usize, usize), class: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    out.push_str(&format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{words}</text>\n"));
}

#[cfg(test)]
mod tests {
    use super::super::Series;
    use super::*;

    fn row_of(case: &str, figure: &str, (ours, theirs): (f64, Option<f64>), peer: &str) -> Row {
        let theirs = theirs.into_iter().collect();
        let series = Series { ours: vec![ours], theirs };
        series.row(case, (figure, "us"), Some(peer)).unwrap()
    }

    fn row(figure: &str, ours: f64, theirs: Option<f64>) -> Row {
        row_of("read<4k>", figure, (ours, theirs), "tgt")
    }

    fn report(rows: Vec<Row>) -> Report {
        Report { machine: vec!["2 cores & more".into()], rows, ..Report::default() }
    }

    #[test]
    fn chart_has_two_bars_and_the_ratio_of_each_compared_row() {
        let rows = vec![
            row("server CPU a request", 2.0, Some(8.0)),
            row("server CPU a request", 3.0, None),
            row("latency p50", 1.0, Some(2.0)),
        ];
        let svg = render(&report(rows), "CPU", false).unwrap();
        for part in ["width=\"130.0\"", "width=\"520.0\"", ">0.25<", ">8.00 us tgt<"] {
            assert_eq!(svg.matches(part).count(), 1, "{part}: {svg}");
        }
        assert_eq!(svg.matches("<rect").count(), 3, "the page and two bars: {svg}");
        assert!(!svg.contains("latency"), "{svg}");
    }

    #[test]
    fn chart_escapes_names_and_has_colours_for_dark_pages() {
        let svg = render(&report(vec![row("server CPU", 2.0, Some(8.0))]), "", false).unwrap();
        assert!(svg.contains("read&lt;4k&gt;, beside tgt: server CPU"), "{svg}");
        assert!(svg.contains("2 cores &amp; more"), "{svg}");
        assert!(svg.contains("prefers-color-scheme: dark"), "{svg}");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    }

    #[test]
    fn short_chart_has_the_main_rows_with_labels_and_peers() {
        let pair = (2.0, Some(8.0));
        let rows = vec![
            row_of("null-read-4k-d32", "server CPU", pair, "tgt"),
            row_of("null-read-4k-d32", "server CPU", pair, "bare"),
            row_of("null-read-4k-d1", "server CPU", pair, "tgt"),
        ];
        let svg = render(&report(rows), "CPU", true).unwrap();
        for peer in ["tgt", "bare"] {
            let label = format!("of 4 KiB, depth 32, beside {peer}: server CPU");
            assert_eq!(svg.matches(&label).count(), 1, "{label}: {svg}");
        }
        assert_eq!(svg.matches("class=\"label\"").count(), 2, "{svg}");
        assert_eq!(render(&report(vec![row("server CPU", 2.0, Some(8.0))]), "CPU", true), None);
    }

    #[test]
    fn report_without_a_comparison_has_no_chart() {
        assert_eq!(render(&report(vec![row("server CPU", 2.0, None)]), "CPU", false), None);
        assert_eq!(render(&report(vec![row("server CPU", 2.0, Some(0.0))]), "CPU", false), None);
        assert_eq!(render(&report(vec![row("server CPU", 2.0, Some(8.0))]), "p50", false), None);
    }
}
