//! The terminal: a table that is drawn anew, and its keys.

use super::rate::Rate;
use super::view::{View, heading};
use crate::api::{Error, Kind, Result};
use crate::verbs::top::Sort;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// See the module. The terminal is given back when it is dropped.
pub struct Screen {
    terminal: ratatui::DefaultTerminal,
    last: Option<Instant>,
}

/// Longest filter that can be typed, in characters. Further ones are not taken.
const FILTER_CHARS_MAX: usize = 64;

fn fail(e: std::io::Error) -> Error {
    Error::new(Kind::System, "draw", e).next("Run `ashlar top --batch`, which needs no terminal.")
}

impl Screen {
    /// Whether there is a terminal to draw on and to read keys from.
    pub fn is_terminal() -> bool {
        std::io::stdout().is_terminal() && std::io::stdin().is_terminal()
    }

    /// Takes the terminal.
    ///
    /// # Errors
    /// [`Kind::System`].
    pub fn open() -> Result<Screen> {
        let terminal = ratatui::try_init().map_err(fail)?;
        Ok(Screen { terminal, last: None })
    }

    /// Draws one table.
    ///
    /// # Errors
    /// [`Kind::System`].
    pub fn draw(&mut self, interval_ns: u64, rates: &[Rate], view: &View) -> Result<()> {
        let drawn = self.terminal.draw(|frame| draw(frame, interval_ns, rates, view));
        drawn.map(|_| ()).map_err(fail)
    }

    /// Whether it is time for new numbers; the first time always.
    pub fn due(&mut self, pause: Duration) -> bool {
        let due = self.last.is_none_or(|at| at.elapsed() >= pause);
        if due {
            self.last = Some(Instant::now());
        }
        due
    }

    /// Waits for a key or the end of the pause. True: the user wants to leave.
    ///
    /// # Errors
    /// [`Kind::System`].
    pub fn wait(&mut self, pause: Duration, view: &mut View) -> Result<bool> {
        let left = self.last.map_or(Duration::ZERO, |at| pause.saturating_sub(at.elapsed()));
        if !event::poll(left).map_err(fail)? {
            return Ok(false);
        }
        match event::read().map_err(fail)? {
            Event::Key(key) if key.kind == KeyEventKind::Press => Ok(handle_key(key, view)),
            _ => Ok(false),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Applies a key to the view. True: leave.
pub fn handle_key(key: KeyEvent, view: &mut View) -> bool {
    if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
        return true;
    }
    if view.typing {
        match key.code {
            KeyCode::Enter => view.typing = false,
            KeyCode::Esc => (view.typing, view.filter) = (false, String::new()),
            KeyCode::Backspace => drop(view.filter.pop()),
            KeyCode::Char(c) if view.filter.chars().count() < FILTER_CHARS_MAX => {
                view.filter.push(c);
            }
            _ => {}
        }
        return false;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return true,
        KeyCode::Char('a') => view.active = !view.active,
        KeyCode::Char('d') => view.deletes = !view.deletes,
        KeyCode::Char(' ') => view.paused = !view.paused,
        KeyCode::Char('/') => (view.typing, view.filter) = (true, String::new()),
        KeyCode::Char('s') => {
            view.sort = match view.sort {
                Sort::Graph => Sort::Name,
                Sort::Name => Sort::Ops,
                Sort::Ops => Sort::Bytes,
                Sort::Bytes => Sort::Latency,
                Sort::Latency => Sort::Busy,
                Sort::Busy => Sort::Graph,
            };
        }
        _ => {}
    }
    false
}

fn footer(view: &View) -> String {
    if view.typing {
        return format!("filter: {}_   enter: keep  esc: clear", view.filter);
    }
    let sort = format!("{:?}", view.sort).to_lowercase();
    let pause = if view.paused { "  PAUSED" } else { "" };
    format!("q quit  s sort ({sort})  a active  d deletes  / filter  space pause{pause}")
}

/// Colours as gstat has them: over 80 % red, over 50 magenta, over 20 green.
fn colour(busy: f64) -> Style {
    match busy {
        b if b > 80.0 => Style::new().fg(Color::Red),
        b if b > 50.0 => Style::new().fg(Color::Magenta),
        b if b > 20.0 => Style::new().fg(Color::Green),
        _ => Style::new(),
    }
}

/// Draws one table on a frame.
pub fn draw(frame: &mut Frame<'_>, interval_ns: u64, rates: &[Rate], view: &View) {
    let parts = [Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)];
    let [top, middle, bottom] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(Line::from(heading(interval_ns, view)), top);
    frame.render_widget(Line::from(footer(view)), bottom);
    let columns = view.columns();
    let rows: Vec<Vec<String>> = rates.iter().map(|r| view.row(r)).collect();
    let width = |(i, name): (usize, &&str)| {
        let cells = rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count());
        let title = name.trim_start_matches('>').chars().count();
        let most = cells.max().unwrap_or(0).max(title);
        if name.starts_with('>') {
            // Numbers keep their column while they change.
            Constraint::Length(u16::try_from(most.max(6)).unwrap_or(u16::MAX))
        } else {
            Constraint::Min(u16::try_from(most).unwrap_or(u16::MAX))
        }
    };
    let widths: Vec<Constraint> = columns.iter().enumerate().map(width).collect();
    let cell = |(text, name): (String, &&str)| {
        let line = Line::from(text);
        Cell::from(if name.starts_with('>') { line.right_aligned() } else { line })
    };
    let titles = columns.iter().map(|c| (c.trim_start_matches('>').to_owned(), c)).map(cell);
    let title = Row::new(titles).style(Style::new().add_modifier(Modifier::BOLD));
    let body = rows.into_iter().zip(rates).map(|(row, rate)| {
        Row::new(row.into_iter().zip(&columns).map(cell)).style(colour(rate.busy_percent))
    });
    let table = Table::new(body, widths).header(title).column_spacing(1);
    frame.render_widget(table, middle);
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
