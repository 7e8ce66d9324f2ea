//! Report of the measurements: rows and their output.

mod chart;
mod table;

use serde::{Deserialize, Serialize};

use crate::options::Options;

/// The figure that a goal limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    /// Our figure.
    Ours,
    /// Our figure divided by the peer's.
    Ratio,
    /// The peer's figure divided by ours, where ours is to be large.
    Inverse,
}

/// A goal: the number must not be above `at_most`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// Which number.
    pub of: Of,
    /// The bound, in the row's unit or as a plain ratio.
    pub at_most: f64,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The case, as `--case` wants it.
    pub case: String,
    /// Name of the figure.
    pub figure: String,
    /// Its unit.
    pub unit: String,
    /// Ashlar's, median over the rounds.
    pub ours: f64,
    /// Lowest and highest round.
    pub range: [f64; 2],
    /// Name of the peer; absent where there is none to compare with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// The peer's, median over the rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theirs: Option<f64>,
    /// Median over the rounds of ours divided by the peer's in the same round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Rounds behind the medians.
    pub rounds: u32,
    /// Goal of the figure; absent where none was promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
    /// The command that repeats it alone.
    pub command: String,
}

impl Row {
    /// One line for people.
    pub fn line(&self) -> String {
        table::line(self)
    }

    /// Whether the goal is met; None without a goal, or without the number it is about.
    pub fn met(&self) -> Option<bool> {
        let goal = self.goal?;
        let number = match goal.of {
            Of::Ours => self.ours,
            Of::Ratio => self.ratio?,
            Of::Inverse => 1.0 / self.ratio?,
        };
        Some(number <= goal.at_most)
    }
}

/// Everything measured in one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Where it was measured: processor, cores, kernel, versions of the peers.
    pub machine: Vec<String>,
    /// The figures.
    pub rows: Vec<Row>,
    /// Measurements that could not be made, and why.
    pub notes: Vec<String>,
    /// Called with each row when it is measured.
    #[serde(skip)]
    pub on_row: Option<fn(&Row)>,
}

impl Report {
    /// Notes how much of a peer's CPU time the bare responder takes for the same work, round by
    /// round. No target can do it with less.
    pub(crate) fn floor(
        &mut self,
        case: &str,
        work: &str,
        bare: &[f64],
        (peer, theirs): (&str, &[f64]),
    ) {
        let parts: Vec<f64> = bare.iter().zip(theirs).map(|(bare, peer)| bare / peer).collect();
        if let Some(part) = median(&parts) {
            self.notes.push(format!(
                "{case}: {work}, by the bare responder, take {part:.2} of the CPU time of {peer}"
            ));
        }
    }

    /// Adds a row, if there is one, with its goal and the command that repeats it.
    pub(crate) fn add(
        &mut self,
        options: &Options,
        what: &str,
        row: Option<Row>,
        goal: Option<Goal>,
    ) {
        self.rows.extend(row.map(|row| {
            let command = options.command(what, &row.case);
            let row = Row { goal, command, ..row };
            if let Some(tell) = self.on_row {
                tell(&row);
            }
            row
        }));
    }

    pub fn missed(&self) -> bool {
        self.rows.iter().any(|row| row.met() == Some(false))
    }

    /// The table for people, with a line end.
    pub fn table(&self) -> String {
        table::render(self)
    }

    /// The chart of the compared rows whose figure has this in its name, or of the main ones of
    /// them (`short`), as SVG; `None` without such a row.
    pub fn chart(&self, figure: &str, short: bool) -> Option<String> {
        chart::render(self, figure, short)
    }

    /// The report as JSON, with a line end.
    pub fn json(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        text.map(|t| t + "\n").unwrap_or_default()
    }
}

/// Figures of both sides, round by round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    pub ours: Vec<f64>,
    /// The peer's, in the same order; empty without a peer.
    pub theirs: Vec<f64>,
}

impl Series {
    /// The row of these figures; None when there is not one of ours.
    pub fn row(&self, case: &str, (figure, unit): (&str, &str), peer: Option<&str>) -> Option<Row> {
        let ours = median(&self.ours)?;
        let theirs = median(&self.theirs);
        let pairs = self.ours.iter().zip(&self.theirs).filter(|(_, theirs)| **theirs > 0.0);
        let ratios: Vec<f64> = pairs.map(|(ours, theirs)| ours / theirs).collect();
        let low = self.ours.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self.ours.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Row {
            case: case.to_owned(),
            figure: figure.to_owned(),
            unit: unit.to_owned(),
            ours,
            range: [low, high],
            peer: theirs.and(peer).map(str::to_owned),
            theirs,
            ratio: median(&ratios),
            rounds: u32::try_from(self.ours.len()).unwrap_or(u32::MAX),
            goal: None,
            command: String::new(),
        })
    }
}

/// The middle one, or the mean of the two in the middle; None of nothing.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) =
        (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some((low + high) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let series = Series { ours: vec![3.0, 1.0, 2.0], theirs: vec![6.0, 8.0, 10.0] };
        let mut row = series.row("null-read", ("server CPU per I/O", "us"), Some("tgt")).unwrap();
        row.goal = Some(Goal { of: Of::Ratio, at_most: 0.34 });
        row.command = "ashlar-bench iscsi --case null-read --rounds 3 --seconds 1".into();
        let alone = Series { ours: vec![20.0, 10.0], theirs: vec![] };
        let mut other = alone.row("layers-1", ("a layer", "ns"), Some("tgt")).unwrap();
        other.goal = Some(Goal { of: Of::Ours, at_most: 14.0 });
        Report {
            machine: vec!["2 cores".into()],
            rows: vec![row, other],
            notes: vec!["perf is missing".into()],
            on_row: None,
        }
    }

    #[test]
    fn figures_are_medians_and_ratios_are_paired() {
        let report = report();
        let row = &report.rows[0];
        assert_eq!((row.ours, row.theirs, row.range), (2.0, Some(8.0), [1.0, 3.0]));
        // 3/6, 1/8, 2/10: pairs of one round, not the ratio of the medians.
        assert_eq!((row.ratio, row.met()), (Some(0.2), Some(true)));
        let other = &report.rows[1];
        assert_eq!((other.ours, other.theirs, other.peer.as_deref()), (15.0, None, None));
        assert_eq!(other.met(), Some(false));
        assert_eq!(median(&[]), None);
        assert!(Series::default().row("x", ("y", "z"), None).is_none());
    }

    #[test]
    fn json_report_has_its_documented_fields_and_parses_back() {
        let report = report();
        let value: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        let row = &value["rows"][0];
        for key in ["figure", "unit", "ours", "peer", "theirs", "ratio", "rounds", "command"] {
            assert!(!row[key].is_null(), "{key}");
        }
        assert_eq!(row["goal"], serde_json::json!({ "of": "ratio", "at_most": 0.34 }));
        assert!(value["rows"][1].get("peer").is_none());
        let read = serde_json::from_value::<Report>(value).unwrap();
        assert_eq!(
            (read.machine, read.rows, read.notes),
            (report.machine, report.rows, report.notes)
        );
    }

    #[test]
    fn the_table_shows_figures_goals_and_commands() {
        let text = report().table();
        let line = |word: &str| text.lines().find(|l| l.contains(word)).unwrap_or("").to_owned();
        let ours = line("server CPU per I/O");
        for part in ["null-read", "2.00", "8.00 tgt", "0.20", "<= 0.34 of peer", "met"] {
            assert!(ours.contains(part), "{part}: {ours}");
        }
        assert!(line("a layer").contains("MISSED"), "{text}");
        assert!(text.contains("ashlar-bench iscsi --case null-read --rounds 3 --seconds 1"));
        assert!(text.contains("perf is missing"));
        assert!(text.ends_with('\n'));
    }
}
