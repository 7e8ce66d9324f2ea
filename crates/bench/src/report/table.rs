//! A report as text.

use super::{Of, Report, Row};

const COLUMNS: usize = 9;

const HEAD: [&str; COLUMNS] =
    ["case", "figure", "unit", "ours", "lowest..highest", "peer", "ratio", "goal", ""];

/// Columns of numbers are aligned right.
const RIGHT: [bool; COLUMNS] = [false, false, false, true, true, true, true, false, false];

pub(super) fn render(report: &Report) -> String {
    let mut out = String::new();
    for line in &report.machine {
        out.push_str(line);
        out.push('\n');
    }
    if !report.machine.is_empty() {
        out.push('\n');
    }
    let mut lines = vec![HEAD.map(str::to_owned)];
    let mut last = "";
    for row in &report.rows {
        lines.push(cells(row, row.case == last));
        last = &row.case;
    }
    let mut widths = [0; HEAD.len()];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for (n, line) in lines.iter().enumerate() {
        if n > 1 && !line[0].is_empty() {
            out.push('\n');
        }
        let padded = line.iter().zip(widths).zip(RIGHT).map(|((cell, width), right)| {
            if right { format!("{cell:>width$}") } else { format!("{cell:width$}") }
        });
        out.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    tail(report, &mut out);
    out
}

fn tail(report: &Report, out: &mut String) {
    out.push_str("\nTo repeat a case alone:\n");
    let mut seen: Vec<&str> = Vec::new();
    for row in report.rows.iter().filter(|r| !r.command.is_empty()) {
        if !seen.contains(&row.command.as_str()) {
            out.push_str(&format!("  {}\n", row.command));
            seen.push(&row.command);
        }
    }
    for note in &report.notes {
        out.push_str(&format!("note: {note}\n"));
    }
}

/// One row as a line of its own, while the table is not there yet.
pub(super) fn line(row: &Row) -> String {
    let [case, figure, unit, ours, range, peer, ratio, goal, met] = cells(row, false);
    let range = if range.is_empty() { range } else { format!(" ({range})") };
    let peer = if peer.is_empty() { peer } else { format!("; {peer}, ratio {ratio}") };
    let goal = if goal.is_empty() { goal } else { format!("; {goal} {met}") };
    let figure = if unit.is_empty() { figure } else { format!("{figure}, {unit}") };
    format!("{case}: {figure}: {ours}{range}{peer}{goal}")
}

fn cells(row: &Row, same_case: bool) -> [String; COLUMNS] {
    let goal = row.goal.map_or(String::new(), |goal| match goal.of {
        Of::Ours => format!("<= {}", number(goal.at_most)),
        Of::Inverse => format!(">= {} of peer", number(1.0 / goal.at_most)),
        Of::Ratio => format!("<= {} of peer", number(goal.at_most)),
    });
    let met = row.met().map_or("", |met| if met { "met" } else { "MISSED" });
    let [low, high] = row.range;
    let range =
        if row.rounds > 1 { format!("{}..{}", number(low), number(high)) } else { String::new() };
    let peer = match (&row.peer, row.theirs) {
        (Some(peer), Some(theirs)) => format!("{} {peer}", number(theirs)),
        _ => String::new(),
    };
    [
        if same_case { String::new() } else { row.case.clone() },
        row.figure.clone(),
        row.unit.clone(),
        number(row.ours),
        range,
        peer,
        row.ratio.map(number).unwrap_or_default(),
        goal,
        met.to_owned(),
    ]
}

/// Three digits or more, never an exponent.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v < 0.005 => format!("{value:.6}"),
        v if v < 100.0 => format!("{value:.2}"),
        v if v < 1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
