//! File servers, and the dumps of one of them as a calendar.

use super::{FILES, FOLDER, FilesQuery, ask, clients, command, grid, heading, link, time};
use crate::api::Result;
use crate::config::units::short;
use crate::file_service::FileService;
use crate::page::html::Html;
use crate::text::count;
use jiff::civil::Date;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;

const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The answer of `fs dumps`.
#[derive(Deserialize)]
struct Dumps {
    dumps: Vec<Dump>,
}

#[derive(Deserialize)]
struct Dump {
    /// `2026/1121`, `2026/11211` for the second of a day.
    path: String,
    time_ns: u64,
    bytes: Option<u64>,
    on: Vec<String>,
}

impl Dump {
    /// Year, month and day.
    fn date(&self) -> Option<(&str, usize, i8)> {
        let (year, day) = self.path.split_once('/')?;
        Some((year, day.get(..2)?.parse().ok()?, day.get(2..4)?.parse().ok()?))
    }
}

/// Dumps of the months of a year: by month and day.
type Year<'d> = BTreeMap<usize, BTreeMap<i8, Vec<&'d Dump>>>;

/// Weeks of a month from Monday to Sunday; 0: a day of another month.
fn weeks(year: i16, month: usize) -> Vec<Vec<i8>> {
    let month = i8::try_from(month).unwrap_or(0);
    let Ok(first) = Date::new(year, month, 1) else { return Vec::new() };
    let before = first.weekday().to_monday_zero_offset();
    let days: Vec<i8> = (0..before).map(|_| 0).chain(1..=first.days_in_month()).collect();
    let whole = |week: &[i8]| -> Vec<i8> { week.iter().copied().chain([0; 7]).take(7).collect() };
    days.chunks(7).map(whole).collect()
}

fn servers(html: &mut Html, files: &dyn FileService) {
    heading(html, "servers", "File servers");
    let all = files.servers();
    if all.is_empty() {
        html.element("p", &[], "No file server runs.");
    }
    html.open("ul", &[]);
    for name in &all {
        html.open("li", &[]);
        html.element("a", &[("href", &link(FILES, &[("server", name)]))], name);
        html.close();
    }
    html.close();
    html.close();
}

/// The dumps of a day, as links to `path` in them.
fn day(html: &mut Html, (server, path): (&str, &str), number: i8, dumps: &[&Dump]) {
    for (i, dump) in dumps.iter().enumerate() {
        let again = if i == 0 { String::new() } else { format!(" ({})", i + 1) };
        let at = format!("/dump/{}{path}", dump.path);
        let size = dump.bytes.map_or(String::new(), |bytes| format!(", {}", short(bytes)));
        let on = match dump.on.is_empty() {
            true => "the cache device alone".to_owned(),
            false => dump.on.join(" "),
        };
        let title = format!("{}{size}, on {on}", time(dump.time_ns));
        let href = link(FOLDER, &[("server", server), ("path", &at)]);
        html.element("a", &[("href", &href), ("title", &title)], &format!("{number}{again}"));
        html.text(" ");
    }
    if dumps.is_empty() && number > 0 {
        html.text(&number.to_string());
    }
}

fn year(html: &mut Html, (server, path): (&str, &str), year: &str, months: &Year<'_>) {
    let number = year.parse().unwrap_or(0);
    for (month, days) in months {
        let name = MONTHS.get(month.saturating_sub(1)).copied().unwrap_or("");
        let id = format!("month-{month}");
        heading(html, &id, &format!("{name} {year}"));
        let weeks = weeks(number, *month);
        grid(html, &id, (WEEKDAYS.as_slice(), weeks.as_slice()), |html, number| {
            let dumps = days.get(number).map_or(&[][..], Vec::as_slice);
            day(html, (server, path), *number, dumps);
        });
        html.close();
    }
}

pub(super) fn page(html: &mut Html, files: &dyn FileService, query: &FilesQuery) -> Result<()> {
    servers(html, files);
    let server = query.server.as_str();
    if server.is_empty() {
        command(html, &["status"]);
        return Ok(());
    }
    let dumps = ask::<Dumps>(files, server, "dumps", &json!({}))?.dumps;
    let mut years: BTreeMap<&str, Year<'_>> = BTreeMap::new();
    for dump in &dumps {
        if let Some((year, month, day)) = dump.date() {
            let months = years.entry(year).or_default();
            months.entry(month).or_default().entry(day).or_default().push(dump);
        }
    }
    heading(html, "dumps", &format!("Dumps of {server}"));
    html.element("p", &[], &format!("{}.", count(dumps.len(), "dump")));
    html.open("nav", &[("aria-label", "Years")]);
    for name in years.keys() {
        let values = [("server", server), ("path", query.path.as_str()), ("year", *name)];
        html.element("a", &[("href", &link(FILES, &values))], name);
    }
    html.close();
    let root = link(FOLDER, &[("server", server), ("path", "/")]);
    html.element("a", &[("href", &root)], "Live files");
    command(html, &["dumps", server]);
    html.close();
    let newest = years.keys().next_back().copied().unwrap_or_default();
    let shown = if query.year.is_empty() { newest } else { query.year.as_str() };
    if let Some(months) = years.get(shown) {
        let path = query.path.trim_end_matches('/');
        year(html, (server, path), shown, months);
    }
    clients::section(html, files, server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weeks_begin_on_monday_and_are_whole() {
        // 2026-11-01 is a Sunday.
        let november = weeks(2026, 11);
        assert_eq!(november.first().map(Vec::as_slice), Some(&[0, 0, 0, 0, 0, 0, 1][..]));
        assert_eq!(november.last().map(Vec::as_slice), Some(&[30, 0, 0, 0, 0, 0, 0][..]));
        assert_eq!(weeks(2028, 2).concat().iter().filter(|day| **day > 0).count(), 29);
        assert!(weeks(2026, 13).is_empty());
    }
}
