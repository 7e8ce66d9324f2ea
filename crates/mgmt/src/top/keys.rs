//! Keys of `top`: each changes the view.

use super::column::Column;
use super::tab::Tab;
use super::view::{Mode, View};
use crate::verbs::top::Sort;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Longest filter that can be typed, in characters. Further ones are not taken.
const FILTER_CHARS_MAX: usize = 64;

/// The keys and their effect, as `?` shows them.
pub const KEYS: [(&str, &str); 14] = [
    ("1 to 6", "show all, disks, layers, LUNs, initiators, cores"),
    ("tab, right", "next tab"),
    ("shift-tab, left", "previous tab"),
    ("s", "sort by the next column"),
    ("S", "sort by the previous column"),
    ("r", "reverse the order"),
    ("c", "choose columns: up, down, space; enter ends"),
    ("d", "show or hide deletes"),
    ("a", "show only busy objects"),
    ("/", "filter by a part of the name, or by a pattern with * and ?"),
    ("esc", "clear the filter, then quit"),
    ("space", "pause"),
    ("?", "show or hide this list"),
    ("q, ctrl-c", "quit"),
];

/// Applies a key to the view. True: leave.
pub fn handle_key(key: KeyEvent, view: &mut View) -> bool {
    if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
        return true;
    }
    match view.mode {
        Mode::Table => return in_table(key.code, view),
        Mode::Filter => in_filter(key.code, view),
        Mode::Columns(at) => in_columns(key.code, at, view),
        Mode::Help => view.mode = Mode::Table,
    }
    false
}

fn in_filter(code: KeyCode, view: &mut View) {
    match code {
        KeyCode::Enter => view.mode = Mode::Table,
        KeyCode::Esc => (view.mode, view.filter) = (Mode::Table, String::new()),
        KeyCode::Backspace => drop(view.filter.pop()),
        KeyCode::Char(c) if view.filter.chars().count() < FILTER_CHARS_MAX => view.filter.push(c),
        _ => {}
    }
}

fn in_columns(code: KeyCode, at: usize, view: &mut View) {
    let last = Column::ALL.len().saturating_sub(1);
    view.mode = match code {
        KeyCode::Up => Mode::Columns(at.saturating_sub(1)),
        KeyCode::Down => Mode::Columns((at + 1).min(last)),
        KeyCode::Char(' ') => {
            if let Some(column) = Column::ALL.get(at).copied() {
                let is_shown = !view.has(column);
                view.set_shown(|other| other == column, is_shown);
            }
            Mode::Columns(at)
        }
        KeyCode::Enter | KeyCode::Esc | KeyCode::Char('c' | 'q') => Mode::Table,
        _ => Mode::Columns(at),
    };
}

fn in_table(code: KeyCode, view: &mut View) -> bool {
    match code {
        KeyCode::Char('q') => return true,
        KeyCode::Esc if view.filter.is_empty() => return true,
        KeyCode::Esc => view.filter.clear(),
        KeyCode::Tab | KeyCode::Right => view.tab = view.tab.moved(1),
        KeyCode::BackTab | KeyCode::Left => view.tab = view.tab.moved(-1),
        KeyCode::Char(digit @ '1'..='6') => {
            let at = digit.to_digit(10).map_or(0, |number| number as usize - 1);
            view.tab = Tab::ALL.get(at).copied().unwrap_or_default();
        }
        KeyCode::Char('a') => view.active = !view.active,
        KeyCode::Char('d') => {
            let is_shown = !view.deletes();
            view.set_shown(Column::is_delete, is_shown);
        }
        KeyCode::Char('c') => view.mode = Mode::Columns(0),
        KeyCode::Char('?' | 'h') => view.mode = Mode::Help,
        KeyCode::Char('r') => view.reverse = !view.reverse,
        KeyCode::Char(' ') => view.paused = !view.paused,
        KeyCode::Char('/') => (view.mode, view.filter) = (Mode::Filter, String::new()),
        KeyCode::Char('s') => view.sort = moved(view.sort, 1),
        KeyCode::Char('S') => view.sort = moved(view.sort, Sort::ALL.len() - 1),
        _ => {}
    }
    false
}

/// The order so many places further.
fn moved(sort: Sort, by: usize) -> Sort {
    let at = Sort::ALL.iter().position(|one| *one == sort).unwrap_or(0);
    Sort::ALL.get((at + by) % Sort::ALL.len()).copied().unwrap_or_default()
}
