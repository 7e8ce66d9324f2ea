//! Text for people: tables with columns padded with spaces, and nothing that a terminal would obey.
//!
//! Names are from initiators, media and file systems, so they may hold control characters. They are
//! escaped here, on the way out, and nowhere else: stored and compared they are as they are.

use std::borrow::Cow;
use std::fmt::Write as _;

use jiff::Timestamp;

/// How a column is set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Characters that a terminal or a reader of the log obeys instead of showing. They are controls
/// (C0, DEL, C1), line and paragraph separators, and those that turn the direction of the text.
/// Others show nothing at all, so that two names would look alike.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// A text of several lines that can be shown: `\u{1b}` in place of an escape character.
pub fn escape_text(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_unprintable(c) && c != '\n' && c != '\t')
}

/// The same of one line: newlines are escaped too.
pub fn escape_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_unprintable)
}

/// A JSON document that can be shown and means the same: `\u001b`. In JSON such characters are in
/// strings alone.
pub fn json(text: &str) -> Cow<'_, str> {
    let odd = |c: char| is_unprintable(c) && c != '\n';
    if !text.contains(odd) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if !odd(c) {
            out.push(c);
            continue;
        }
        // JSON escapes units of UTF-16: a character behind the basic plane has two.
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    Cow::Owned(out)
}

fn escaped(text: &str, odd: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&odd) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match odd(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Lines with aligned columns. A column whose name begins with `>` is set to the right. The last
/// column is not padded.
pub fn table(columns: &[&str], rows: &[Vec<String>]) -> String {
    let sides: Vec<Side> =
        columns.iter().map(|c| if c.starts_with('>') { Side::Right } else { Side::Left }).collect();
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| escape_line(cell).into_owned()).collect())
        .collect();
    let head: Vec<String> = columns.iter().map(|c| c.trim_start_matches('>').to_owned()).collect();
    let width = |i: usize| {
        let cells = rows.iter().filter_map(|r| r.get(i)).chain(head.get(i));
        cells.map(|c| c.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut out = String::new();
    for row in std::iter::once(&head).chain(&rows) {
        let mut set = String::new();
        for (i, ((cell, &width), side)) in row.iter().zip(&widths).zip(&sides).enumerate() {
            if i > 0 {
                set.push_str("  ");
            }
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            match side {
                Side::Left => set.extend([cell.as_str(), &pad]),
                Side::Right => set.extend([&pad, cell.as_str()]),
            }
        }
        out.push_str(set.trim_end());
        out.push('\n');
    }
    out
}

/// A word, or a dash where there is none.
pub fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

/// A word of a command line for a shell: names may contain anything.
pub fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._/:@".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// `1 disk`, `2 disks`.
pub fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// Seconds since 1970 as `2026-11-21 21:53:37Z`; a time that no calendar has is the last one.
pub fn utc(unix_s: u64) -> String {
    let second = i64::try_from(unix_s).unwrap_or(i64::MAX);
    let at = Timestamp::from_second(second).unwrap_or(Timestamp::MAX);
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_command_are_quoted_for_a_shell() {
        assert_eq!(shell_word("/lib/x-1.txt"), "/lib/x-1.txt");
        assert_eq!(shell_word("a b"), "'a b'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn columns_line_up() {
        let rows = vec![
            vec!["a".to_owned(), "10".to_owned(), "x".to_owned()],
            vec!["länger".to_owned(), "9".to_owned(), String::new()],
        ];
        let text = table(&["name", ">size", "why"], &rows);
        assert_eq!(text, "name    size  why\na         10  x\nlänger     9\n");
    }

    #[test]
    fn control_characters_are_escaped() {
        let name = "iqn.a\u{1b}]0;title\u{7}\u{9b}31m\u{202e}\r\nforged\tx";
        let escaped = "iqn.a\\u{1b}]0;title\\u{7}\\u{9b}31m\\u{202e}\\r";
        assert_eq!(escape_text(name), format!("{escaped}\nforged\tx"));
        assert_eq!(escape_line(name), format!("{escaped}\\nforged\\tx"));
        assert_eq!(table(&["name"], &[vec![name.to_owned()]]).lines().count(), 2);
        assert!(matches!(escape_text("länger"), Cow::Borrowed(_)));
        let value = serde_json::json!({ "name": name });
        let text = format!("{value:#}");
        let safe = json(&text);
        assert!(!safe.contains(|c| is_unprintable(c) && c != '\n'), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).expect("JSON"), value);
    }

    #[test]
    fn invisible_characters_are_escaped() {
        let name = "d\u{200b}0\u{ad}\u{feff}\u{61c}\u{2060}\u{fffb}\u{e0041}";
        let escaped = "d\\u{200b}0\\u{ad}\\u{feff}\\u{61c}\\u{2060}\\u{fffb}\\u{e0041}";
        assert_eq!(escape_line(name), escaped);
        let value = serde_json::json!({ "name": name });
        let text = value.to_string();
        let safe = json(&text);
        assert!(safe.is_ascii() && safe.contains("\\udb40\\udc41"), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).expect("JSON"), value);
    }

    #[test]
    fn utc_dates_are_formatted() {
        assert_eq!(utc(0), "1970-01-01 00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00Z");
        assert_eq!(utc(1_795_298_017), "2026-11-21 21:53:37Z");
        assert_eq!(utc(u64::MAX), "9999-12-30 22:00:00Z");
    }
}
