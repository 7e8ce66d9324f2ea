//! Pages of the files of a file server: its dumps as a calendar, its clients, folders, versions,
//! comparisons.
//!
//! They consist of links and forms and have no script. A page shows at most [`ROWS_MAX`] rows and a
//! link to the next ones. Contents of files are shown only as the lines of a comparison, which are
//! escaped as all other text is.

mod calendar;
mod clients;
mod folder;
mod versions;

use super::document::{begin, grid, heading};
use super::html::Html;
use crate::api::{Error, Kind, Result};
use crate::file_service::FileService;
use crate::query_string::{encode, fields};
use crate::text::{shell_word, utc};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Path of the page with the file servers and the calendar of one of them.
pub const FILES: &str = "/files";
/// Path of the page of a folder.
pub const FOLDER: &str = "/files/folder";
/// Path of the page with the versions of a file.
pub const VERSIONS: &str = "/files/versions";
/// Path of the page that compares two files.
pub const COMPARE: &str = "/files/compare";
/// Path of the contents of a file.
pub const CONTENT: &str = "/files/content";

/// All of these paths, with their descriptions and the fields of their queries.
pub const ROUTES: &[(&str, &str, &[&str])] = &[
    (FILES, "Show the calendar of the dumps of a file server", &["server", "path", "year"]),
    (FOLDER, "Show a folder of a file server", &["server", "path", "after"]),
    (VERSIONS, "Show the versions of a file", &["server", "path", "after"]),
    (COMPARE, "Compare two files", &["server", "old", "new"]),
    (CONTENT, "Download a file", &["server", "path"]),
];

/// Rows of a page, at most.
const ROWS_MAX: u64 = 200;

/// Longest value of a query that is read, in bytes: the path of a file, encoded.
const VALUE_BYTES_MAX: usize = 16 << 10;

/// Parts of a path, at most: the page of a folder has a link to each folder above it.
const PARTS_MAX: usize = 256;

/// Query of one of these pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilesQuery {
    /// Name of the file server.
    pub server: String,
    /// Path of a folder or file.
    pub path: String,
    /// Path of the older file of a comparison.
    pub old: String,
    /// Path of the newer file of a comparison.
    pub new: String,
    /// Year of the calendar; empty: the newest one with a dump.
    pub year: String,
    /// Where the rows of a page begin.
    pub after: u64,
}

impl FilesQuery {
    /// Refuses a path of so many parts, such as `/./././`, that its links would take much memory.
    fn check(&self) -> Result<()> {
        let parts = [&self.path, &self.old, &self.new].map(|path| path.split('/').count());
        let Some(parts) = parts.into_iter().find(|parts| *parts > PARTS_MAX) else {
            return Ok(());
        };
        let why = format!("the path has {parts} parts (limit {PARTS_MAX})");
        let next = "Shorten the path, or run `ashlar fs ls SERVER PATH`.";
        Err(Error::new(Kind::Usage, "show files", why).at(&self.server).next(next))
    }

    /// The fields of a query string; unknown ones are ignored.
    pub fn parse(query: &str) -> FilesQuery {
        let mut out = FilesQuery::default();
        for (key, value) in fields(query, VALUE_BYTES_MAX) {
            match key {
                "server" => out.server = value,
                "path" => out.path = value,
                "old" => out.old = value,
                "new" => out.new = value,
                "year" => out.year = value,
                "after" => out.after = value.parse().unwrap_or(0),
                _ => {}
            }
        }
        out
    }
}

/// Whether a path is that of one of these pages, or of the contents of a file.
pub fn is_route(path: &str) -> bool {
    ROUTES.iter().any(|(route, ..)| *route == path)
}

/// A link to one of these pages.
fn link(page: &str, values: &[(&str, &str)]) -> String {
    let pairs = values.iter().map(|(key, value)| format!("{key}={}", encode(value)));
    format!("{page}?{}", pairs.collect::<Vec<_>>().join("&"))
}

/// A cell of a table: a text, or links, each with its text.
enum Cell {
    Text(String),
    Links(Vec<(String, String)>),
}

impl Cell {
    fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    fn link(text: &str, href: String) -> Cell {
        Cell::Links(vec![(text.to_owned(), href)])
    }

    fn draw(html: &mut Html, cell: &Cell) {
        match cell {
            Cell::Text(text) => html.text(text),
            Cell::Links(links) => links.iter().for_each(|(text, href)| {
                html.element("a", &[("href", href)], text);
                html.text(" ");
            }),
        }
    }
}

/// A table under the open heading of that identifier.
fn table(html: &mut Html, id: &str, columns: &[&str], rows: &[Vec<Cell>]) {
    grid(html, id, (columns, rows), Cell::draw);
}

/// A time of a file, in nanoseconds since 1970.
fn time(ns: u64) -> String {
    utc(ns / 1_000_000_000)
}

/// The answer of a verb that changes nothing, as `A`.
fn ask<A: DeserializeOwned>(
    files: &dyn FileService,
    server: &str,
    verb: &str,
    params: &Value,
) -> Result<A> {
    let answer = files.query(server, verb, params)?;
    A::deserialize(&answer).map_err(|e| Error::new(Kind::Internal, format!("fs {verb}"), e))
}

/// The command line that does the same as the page.
fn command(html: &mut Html, words: &[&str]) {
    let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    html.open("p", &[]);
    html.text("The same on the command line: ");
    html.element("code", &[], &format!("ashlar fs {}", words.join(" ")));
    html.close();
}

/// The path of the live file of a path: that of a dump without `/dump/2026/1121`.
fn live_path(path: &str) -> String {
    let Some(rest) = path.strip_prefix("/dump/") else { return path.to_owned() };
    let inner = rest.splitn(3, '/').nth(2).unwrap_or("");
    format!("/{inner}")
}

/// Links to the parts of a file server that all pages have.
fn parts(html: &mut Html, server: &str) {
    html.open("nav", &[("aria-label", "File server")]);
    html.element("a", &[("href", FILES)], "File servers");
    html.element("a", &[("href", &link(FILES, &[("server", server)]))], "Dumps");
    let root = link(FOLDER, &[("server", server), ("path", "/")]);
    html.element("a", &[("href", &root)], "Live files");
    html.close();
}

/// The document of one of these pages.
///
/// # Errors
/// Those of the [`FileService`]; [`Kind::NotFound`]: there is no such page; [`Kind::Usage`]: a path
/// has too many parts.
pub fn render(files: &dyn FileService, page: &str, query: &FilesQuery) -> Result<String> {
    query.check()?;
    let mut html = begin("Ashlar: files", false);
    match page {
        FILES => calendar::page(&mut html, files, query)?,
        FOLDER => folder::page(&mut html, files, query)?,
        VERSIONS => versions::page(&mut html, files, query)?,
        COMPARE => versions::comparison(&mut html, files, query)?,
        other => return Err(Error::new(Kind::NotFound, "show files", "no such page").at(other)),
    }
    let text = "Permissions of files are not checked on this page. Each download and comparison is \
                recorded in the audit log.";
    html.element("p", &[], text);
    Ok(html.finish())
}

/// The document for a request that was refused or has failed.
pub fn refusal(error: &Error) -> String {
    let mut html = begin("Ashlar: files", false);
    heading(&mut html, "refused", "Refused");
    let at = if error.at.is_empty() { String::new() } else { format!("{}: ", error.at) };
    let text = format!("{at}{}", error.source.lines().next().unwrap_or(""));
    html.element("p", &[("role", "alert")], &text);
    html.element("p", &[], error.advice());
    if matches!(error.kind, Kind::Unauthenticated | Kind::Forbidden) {
        let text = "A browser sends no token with a link. Open this page with a client \
                    certificate whose role suffices, or over the forwarded control socket.";
        html.element("p", &[], text);
    }
    html.element("a", &[("href", FILES)], "File servers");
    html.finish()
}

#[cfg(test)]
mod tests;
