//! A folder of the live file system or of a dump.

use super::{
    CONTENT, Cell, FILES, FOLDER, FilesQuery, ROWS_MAX, VERSIONS, ask, command, heading, link,
    live_path, parts, table, time,
};
use crate::api::Result;
use crate::config::units::exact;
use crate::file_service::FileService;
use crate::page::html::Html;
use crate::text::count;
use serde::Deserialize;
use serde_json::json;

/// The answer of `fs ls`.
#[derive(Deserialize)]
struct Listing {
    entries: Vec<Entry>,
    next: Option<u64>,
}

/// One entry of it. Years and dumps have only a name.
#[derive(Deserialize)]
struct Entry {
    name: String,
    directory: bool,
    mode: Option<u32>,
    uid: Option<String>,
    gid: Option<String>,
    bytes: Option<u64>,
    mtime_ns: Option<u64>,
}

fn row(server: &str, path: &str, entry: &Entry) -> Vec<Cell> {
    let at = format!("{}/{}", path.trim_end_matches('/'), entry.name);
    let to = |page: &str| link(page, &[("server", server), ("path", &at)]);
    let dash = || "-".to_owned();
    let (name, actions) = match entry.directory {
        true => (Cell::link(&format!("{}/", entry.name), to(FOLDER)), Cell::Links(Vec::new())),
        false => (
            Cell::link(&entry.name, to(VERSIONS)),
            Cell::Links(vec![
                ("Versions".to_owned(), to(VERSIONS)),
                ("Download".to_owned(), to(CONTENT)),
            ]),
        ),
    };
    let size = entry.bytes.filter(|_| !entry.directory);
    vec![
        name,
        Cell::text(entry.mode.map_or_else(dash, |mode| format!("{:03o}", mode & 0o777))),
        Cell::text(entry.uid.clone().unwrap_or_else(dash)),
        Cell::text(entry.gid.clone().unwrap_or_else(dash)),
        Cell::text(size.map_or_else(dash, exact)),
        Cell::text(entry.mtime_ns.map_or_else(dash, time)),
        actions,
    ]
}

/// Links to the folders above, and a form for another path.
fn above(html: &mut Html, server: &str, path: &str) {
    html.open("nav", &[("aria-label", "Folders above")]);
    let mut at = String::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let target = if at.is_empty() { "/" } else { &at };
        let text = at.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("/");
        let href = link(FOLDER, &[("server", server), ("path", target)]);
        html.element("a", &[("href", &href)], text);
        at = format!("{at}/{part}");
    }
    html.close();
    html.open("form", &[("method", "get"), ("action", FOLDER)]);
    html.void("input", &[("type", "hidden"), ("name", "server"), ("value", server)]);
    html.open("label", &[]);
    html.text("Path ");
    html.void("input", &[("type", "text"), ("name", "path"), ("value", path)]);
    html.close();
    html.element("button", &[], "Show");
    html.close();
}

pub(super) fn page(html: &mut Html, files: &dyn FileService, query: &FilesQuery) -> Result<()> {
    let (server, after) = (query.server.as_str(), query.after);
    let path = if query.path.is_empty() { "/" } else { query.path.as_str() };
    let params = json!({ "path": path, "after": after, "limit": ROWS_MAX });
    let listing: Listing = ask(files, server, "ls", &params)?;
    parts(html, server);
    heading(html, "folder", &format!("{path} of {server}"));
    above(html, server, path);
    let days = link(FILES, &[("server", server), ("path", &live_path(path))]);
    html.element("a", &[("href", &days)], "This folder in the dumps");
    let from = if after > 0 { " (continued)" } else { "" };
    html.element("p", &[], &format!("{}{from}.", count(listing.entries.len(), "listed object")));
    let columns = ["name", "mode", "owner", "group", ">size", "changed", "actions"];
    let rows: Vec<_> = listing.entries.iter().map(|entry| row(server, path, entry)).collect();
    table(html, "folder", &columns, &rows);
    if let Some(next) = listing.next {
        let after = next.to_string();
        let href = link(FOLDER, &[("server", server), ("path", path), ("after", &after)]);
        html.element("a", &[("href", &href), ("rel", "next")], "Next objects");
    }
    command(html, &["ls", server, path]);
    html.close();
    Ok(())
}
