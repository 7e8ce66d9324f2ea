//! The terminal: tabs, a table that is drawn anew, and the lists of columns and keys over it.

use super::column::Column;
use super::keys::{KEYS, handle_key};
use super::minute::Minute;
use super::rate::Rate;
use super::tab::Tab;
use super::view::{Mode, View, heading};
use crate::api::{Error, Kind, Result};
use crate::text::escape_line;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// See the module. The terminal is given back when it is dropped.
pub struct Screen {
    terminal: ratatui::DefaultTerminal,
    last: Option<Instant>,
}

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
    pub fn draw(&mut self, interval_ns: u64, rows: (&[Rate], &Minute), view: &View) -> Result<()> {
        let drawn = self.terminal.draw(|frame| draw(frame, interval_ns, rows, view));
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

/// The line of the tabs; that of the table is marked.
fn tabs(view: &View) -> Line<'static> {
    let tab = |(number, tab): (usize, &Tab)| {
        let text = format!("{} {}", number + 1, tab.label());
        match *tab == view.tab {
            true => Span::styled(format!("[{text}] "), Style::new().add_modifier(Modifier::BOLD)),
            false => Span::raw(format!(" {text}  ")),
        }
    };
    Line::from(Tab::ALL.iter().enumerate().map(tab).collect::<Vec<_>>())
}

fn footer(view: &View) -> String {
    match view.mode {
        Mode::Filter => return format!("filter: {}_   enter: keep  esc: clear", view.filter),
        Mode::Columns(_) => return "up, down: select  space: show or hide  enter: end".to_owned(),
        Mode::Help => return "any key: back to the table".to_owned(),
        Mode::Table => {}
    }
    let sort = format!("{:?}", view.sort).to_lowercase();
    let order = if view.reverse { ", reversed" } else { "" };
    let pause = if view.paused { "  PAUSED" } else { "" };
    format!("? keys  tab  s sort ({sort}{order})  r reverse  c columns  / filter  q quit{pause}")
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

/// Draws tabs, table and the line of keys on a frame.
pub fn draw(
    frame: &mut Frame<'_>,
    interval_ns: u64,
    (rates, minute): (&[Rate], &Minute),
    view: &View,
) {
    let one = Constraint::Length(1);
    let parts = [one, one, Constraint::Min(1), one];
    let [first, second, middle, bottom] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(tabs(view), first);
    frame.render_widget(Line::from(heading(interval_ns, view)), second);
    frame.render_widget(Line::from(footer(view)), bottom);
    // Rows below the end of the screen are not made.
    let seen = rates.get(..usize::from(middle.height)).unwrap_or(rates);
    table(frame, middle, (seen, minute), view);
    match view.mode {
        Mode::Columns(at) => over(frame, middle, "columns", &columns(view, at)),
        Mode::Help => {
            let line = |(key, effect): &(&str, &str)| format!("{key:<16} {effect}");
            over(frame, middle, "keys", &KEYS.iter().map(line).collect::<Vec<_>>());
        }
        Mode::Table | Mode::Filter => {}
    }
}

fn table(frame: &mut Frame<'_>, area: Rect, (rates, minute): (&[Rate], &Minute), view: &View) {
    let titles: Vec<&str> = view.columns.iter().map(|c| c.title()).chain(["Name"]).collect();
    let row = |rate: &Rate| -> Vec<String> {
        let cell = |column: &Column| match column {
            Column::Minute => minute.sparkline(view.tab, &rate.name),
            other => other.cell(rate),
        };
        let name = escape_line(&rate.name).into_owned();
        view.columns.iter().map(cell).chain([name]).collect()
    };
    let rows: Vec<Vec<String>> = rates.iter().map(row).collect();
    let width = |(i, title): (usize, &&str)| {
        let cells = rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count());
        let own = title.trim_start_matches('>').chars().count();
        let most = cells.max().unwrap_or(0).max(own);
        // Numbers keep their column while they change. The last column is that of names.
        match i + 1 == titles.len() {
            true => Constraint::Min(u16::try_from(most).unwrap_or(u16::MAX)),
            false => Constraint::Length(u16::try_from(most.max(6)).unwrap_or(u16::MAX)),
        }
    };
    let widths: Vec<Constraint> = titles.iter().enumerate().map(width).collect();
    let cell = |(text, title): (String, &&str)| {
        let line = Line::from(text);
        Cell::from(if title.starts_with('>') { line.right_aligned() } else { line })
    };
    let head = titles.iter().map(|c| (c.trim_start_matches('>').to_owned(), c)).map(cell);
    let head = Row::new(head).style(Style::new().add_modifier(Modifier::BOLD));
    let body = rows.into_iter().zip(rates).map(|(row, rate)| {
        Row::new(row.into_iter().zip(&titles).map(cell)).style(colour(rate.busy_percent))
    });
    frame.render_widget(Table::new(body, widths).header(head).column_spacing(1), area);
}

/// Lines of the column chooser.
fn columns(view: &View, cursor: usize) -> Vec<String> {
    let line = |(at, column): (usize, &Column)| {
        let pointer = if at == cursor { '>' } else { ' ' };
        let mark = if view.has(*column) { 'x' } else { ' ' };
        let title = column.title().trim_start_matches('>');
        format!("{pointer}[{mark}] {title:<12} {}", column.doc())
    };
    Column::ALL.iter().enumerate().map(line).collect()
}

/// Draws lines in a box over the table. If there are too many, those around the cursor are shown.
fn over(frame: &mut Frame<'_>, area: Rect, title: &'static str, lines: &[String]) {
    let size = |n: usize| u16::try_from(n + 2).unwrap_or(u16::MAX);
    let widest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let place = Rect {
        width: size(widest).min(area.width),
        height: size(lines.len()).min(area.height),
        ..area
    };
    let shown = usize::from(place.height.saturating_sub(2));
    let cursor = lines.iter().position(|line| line.starts_with('>')).unwrap_or(0);
    let skipped = (cursor + 1).saturating_sub(shown);
    let text: Vec<Line<'_>> = lines.iter().skip(skipped).map(Line::raw).collect();
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(text).block(Block::bordered().title(title)), place);
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
