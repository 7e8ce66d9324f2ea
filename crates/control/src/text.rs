//! Tables for people: columns padded with spaces, nothing else.

/// How a column is set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Lines with aligned columns. A column whose name begins with `>` is set to the right. The last
/// column is not padded.
pub fn table(columns: &[&str], rows: &[Vec<String>]) -> String {
    let sides: Vec<Side> =
        columns.iter().map(|c| if c.starts_with('>') { Side::Right } else { Side::Left }).collect();
    let head: Vec<String> = columns.iter().map(|c| c.trim_start_matches('>').to_owned()).collect();
    let width = |i: usize| {
        let cells = rows.iter().filter_map(|r| r.get(i)).chain(head.get(i));
        cells.map(|c| c.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut out = String::new();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (i, ((cell, &width), side)) in row.iter().zip(&widths).zip(&sides).enumerate() {
            if i > 0 {
                line.push_str("  ");
            }
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            match side {
                Side::Left => line.extend([cell.as_str(), &pad]),
                Side::Right => line.extend([&pad, cell.as_str()]),
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// A word, or a dash where there is none.
pub fn dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

/// `1 disk`, `2 disks`.
pub fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// Seconds since 1970 as `2026-11-21 21:53:37Z`.
pub fn utc(unix_s: u64) -> String {
    let days = i64::try_from(unix_s / 86_400).unwrap_or(0);
    let second = unix_s % 86_400;
    // Days to a date of the Gregorian calendar, counted from 1 March of year 0 in eras of 400
    // years, so that the leap day is the last of its year.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day = shifted.rem_euclid(146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + later;
    let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{of_month:02} {h:02}:{m:02}:{s:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn dates() {
        assert_eq!(utc(0), "1970-01-01 00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00Z");
        assert_eq!(utc(1_795_298_017), "2026-11-21 21:53:37Z");
    }
}
