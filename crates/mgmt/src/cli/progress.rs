//! Progress of a verb, for people or programs, on standard error.
//!
//! Nothing is shown in the first second: most verbs are done by then. JSON shows every line.

use crate::api::{ProgressLine, ProgressUnit};
use crate::config::units::short;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How long a verb may take before it has to show how far it is.
const QUIET_TIME: Duration = Duration::from_secs(1);

/// How it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressMode {
    /// A bar that moves.
    Bar,
    /// A line a second.
    Plain,
    /// Every line as JSON.
    Json,
    /// Not at all.
    None,
}

impl ProgressMode {
    /// From the option, else from what standard error is.
    pub fn of(word: Option<&str>) -> ProgressMode {
        match word {
            Some("bar") => ProgressMode::Bar,
            Some("plain") => ProgressMode::Plain,
            Some("json") => ProgressMode::Json,
            Some(_) => ProgressMode::None,
            None if std::io::stderr().is_terminal() => ProgressMode::Bar,
            None => ProgressMode::Plain,
        }
    }
}

/// Shows progress until it is dropped.
pub struct ProgressMeter<'a> {
    mode: ProgressMode,
    err: &'a mut dyn Write,
    next: Instant,
    bar: Option<ProgressBar>,
}

impl<'a> ProgressMeter<'a> {
    /// A meter that begins now.
    pub fn new(mode: ProgressMode, err: &'a mut dyn Write) -> ProgressMeter<'a> {
        ProgressMeter { mode, err, next: Instant::now() + QUIET_TIME, bar: None }
    }

    /// Takes note of one line.
    pub fn show(&mut self, line: &ProgressLine) {
        let now = Instant::now();
        match self.mode {
            ProgressMode::None => {}
            ProgressMode::Json => {
                // Progress that cannot be shown is no reason to fail.
                let _ = writeln!(self.err, "{}", serde_json::json!({ "progress": line }));
            }
            ProgressMode::Plain if now >= self.next => {
                self.next = now + QUIET_TIME;
                let _ = writeln!(self.err, "{}", text(line));
            }
            ProgressMode::Bar if now >= self.next => self.draw(line),
            ProgressMode::Plain | ProgressMode::Bar => {}
        }
    }

    fn draw(&mut self, line: &ProgressLine) {
        let bar = self.bar.get_or_insert_with(|| {
            let target = ProgressDrawTarget::stderr();
            let bar = ProgressBar::with_draw_target(Some(line.total), target);
            bar.set_style(style(line.unit));
            bar
        });
        bar.set_length(line.total.max(1));
        bar.set_position(line.done.min(line.total));
        bar.set_message(line.what.clone());
    }
}

impl Drop for ProgressMeter<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style(unit: ProgressUnit) -> ProgressStyle {
    let template = match unit {
        ProgressUnit::Steps => "{bar:30} {pos}/{len} {msg} ({elapsed})",
        ProgressUnit::Bytes => "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {msg} (eta {eta})",
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// One line: `3/7 create disk d0`, `40% 12M of 30M copy`.
fn text(line: &ProgressLine) -> String {
    let ProgressLine { what, done, total, unit, .. } = line;
    match (unit, total) {
        (_, 0) => what.clone(),
        (ProgressUnit::Steps, total) => format!("{done}/{total} {what}"),
        (ProgressUnit::Bytes, total) => {
            let percent = u128::from(*done) * 100 / u128::from(*total);
            format!("{percent}% {} of {} {what}", short(*done), short(*total))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(done: u64, total: u64, unit: ProgressUnit) -> ProgressLine {
        ProgressLine { what: "copy".to_owned(), done, total, unit, goes_on: None }
    }

    #[test]
    fn progress_lines_show_percentage_or_steps() {
        assert_eq!(text(&line(12 << 20, 48 << 20, ProgressUnit::Bytes)), "25% 12M of 48M copy");
        assert_eq!(text(&line(3, 7, ProgressUnit::Steps)), "3/7 copy");
        assert_eq!(text(&line(3, 0, ProgressUnit::Steps)), "copy");
    }

    #[test]
    fn plain_progress_starts_after_a_second_and_json_at_once() {
        let mut out = Vec::new();
        ProgressMeter::new(ProgressMode::Plain, &mut out).show(&line(1, 2, ProgressUnit::Steps));
        assert!(out.is_empty());
        let mut meter = ProgressMeter::new(ProgressMode::Plain, &mut out);
        meter.next = Instant::now();
        meter.show(&line(1, 2, ProgressUnit::Steps));
        meter.show(&line(2, 2, ProgressUnit::Steps));
        drop(meter);
        assert_eq!(out, b"1/2 copy\n", "one line a second");
        out.clear();
        ProgressMeter::new(ProgressMode::Json, &mut out).show(&line(1, 2, ProgressUnit::Steps));
        assert!(out.starts_with(b"{\"progress\":{"));
        assert_eq!(ProgressMode::of(Some("none")), ProgressMode::None);
    }
}
