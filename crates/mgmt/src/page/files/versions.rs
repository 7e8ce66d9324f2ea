//! Versions of a file over the dumps, and the comparison of two of them.

use super::{
    COMPARE, CONTENT, Cell, FilesQuery, ROWS_MAX, VERSIONS, ask, command, heading, link, live_path,
    parts, table, time,
};
use crate::api::Result;
use crate::config::units::exact;
use crate::file_service::FileService;
use crate::page::document::scrolled;
use crate::page::html::Html;
use crate::text::count;
use serde::Deserialize;
use serde_json::json;

/// Lines of a comparison that are shown, at most.
const LINES_MAX: usize = 5000;

/// The answer of `fs history`.
#[derive(Deserialize)]
struct Versions {
    versions: Vec<Version>,
}

/// One version of it, the newest first.
#[derive(Deserialize)]
struct Version {
    path: String,
    mtime_ns: u64,
    bytes: u64,
    by: String,
}

fn row(server: &str, version: &Version, older: Option<&Version>) -> Vec<Cell> {
    let path = version.path.as_str();
    let content = link(CONTENT, &[("server", server), ("path", path)]);
    let mut actions = vec![("Download".to_owned(), content)];
    actions.extend(older.map(|old| {
        let href = link(COMPARE, &[("server", server), ("old", &old.path), ("new", path)]);
        ("Compare with the older one".to_owned(), href)
    }));
    vec![
        Cell::text(path),
        Cell::text(time(version.mtime_ns)),
        Cell::text(exact(version.bytes)),
        Cell::text(&version.by),
        Cell::Links(actions),
    ]
}

/// A form that compares any two of the listed versions.
fn choice(html: &mut Html, server: &str, listed: &[Version]) {
    // Paths may be longer than a phone is wide.
    scrolled(html, "scroll", "versions");
    html.open("form", &[("method", "get"), ("action", COMPARE)]);
    html.void("input", &[("type", "hidden"), ("name", "server"), ("value", server)]);
    for (name, text) in [("old", "Older "), ("new", " Newer ")] {
        html.open("label", &[]);
        html.text(text);
        html.open("select", &[("name", name)]);
        for version in listed {
            html.element("option", &[("value", &version.path)], &version.path);
        }
        html.close();
        html.close();
    }
    html.element("button", &[], "Compare");
    html.close();
    html.close();
}

/// The page of the versions of a file.
pub(super) fn page(html: &mut Html, files: &dyn FileService, query: &FilesQuery) -> Result<()> {
    let (server, path) = (query.server.as_str(), live_path(&query.path));
    let all: Versions = ask(files, server, "history", &json!({ "path": path }))?;
    let all = all.versions;
    let begin = usize::try_from(query.after).unwrap_or(usize::MAX).min(all.len());
    let rest = all.get(begin..).unwrap_or_default();
    let most = usize::try_from(ROWS_MAX).unwrap_or(usize::MAX);
    let listed = rest.get(..most).unwrap_or(rest);
    parts(html, server);
    heading(html, "versions", &format!("Versions of {path}"));
    let text = format!("{} of {}.", listed.len(), count(all.len(), "version"));
    html.element("p", &[], &text);
    let rows = listed.iter().enumerate().map(|(i, one)| row(server, one, rest.get(i + 1)));
    let columns = ["version", "changed", ">size", "by", "actions"];
    table(html, "versions", &columns, &rows.collect::<Vec<_>>());
    if rest.len() > listed.len() {
        let after = (begin + listed.len()).to_string();
        let href = link(VERSIONS, &[("server", server), ("path", &path), ("after", &after)]);
        html.element("a", &[("href", &href), ("rel", "next")], "Older versions");
    }
    choice(html, server, listed);
    command(html, &["history", server, &path]);
    html.close();
    Ok(())
}

/// The name of the dump of a path, `2026/1121`; `None`: a live file.
fn dump_of(path: &str) -> Option<String> {
    let mut parts = path.strip_prefix("/dump/")?.splitn(3, '/');
    Some(format!("{}/{}", parts.next()?, parts.next()?))
}

/// The command that compares two versions of one file, if the older one is in a dump.
fn diff_command(html: &mut Html, server: &str, old: &str, new: &str) {
    let (path, from) = (live_path(new), dump_of(old));
    let (Some(from), true) = (from, live_path(old) == path) else { return };
    let mut words = vec!["diff", server, &path, "--from", &from];
    let to = dump_of(new);
    words.extend(to.iter().flat_map(|to| ["--to", to.as_str()]));
    command(html, &words);
}

/// The page that compares two files.
pub(super) fn comparison(
    html: &mut Html,
    files: &dyn FileService,
    query: &FilesQuery,
) -> Result<()> {
    let (server, old, new) = (query.server.as_str(), query.old.as_str(), query.new.as_str());
    let found = files.compare(server, old, new)?;
    parts(html, server);
    heading(html, "comparison", "Comparison");
    let sides = [("older", old), ("newer", new)].into_iter();
    let facts = sides.zip(found.sizes.into_iter().zip(found.mtimes_ns));
    let rows = facts.map(|((side, path), (size, changed))| {
        let href = |page: &str| link(page, &[("server", server), ("path", path)]);
        vec![
            Cell::text(side),
            Cell::link(path, href(VERSIONS)),
            Cell::text(exact(size)),
            Cell::text(time(changed)),
            Cell::link("Download", href(CONTENT)),
        ]
    });
    let columns = ["file", "path", ">size", "changed", "actions"];
    table(html, "comparison", &columns, &rows.collect::<Vec<_>>());
    let [first, second] = found.sizes;
    let is_whole = found.compared >= first.max(second);
    let text = match found.first_difference {
        Some(at) => format!("The first difference is at byte {at}."),
        None if is_whole => "The files are equal.".to_owned(),
        None => format!("The first {} are equal. Only these were compared.", exact(found.compared)),
    };
    html.element("p", &[("role", "status")], &text);
    diff_command(html, server, old, new);
    html.close();
    let Some(text) = found.text.filter(|text| !text.is_empty()) else { return Ok(()) };
    heading(html, "changes", "Changes");
    scrolled(html, "scroll", "changes");
    html.open("pre", &[]);
    let lines = text.lines().count();
    text.lines().take(LINES_MAX).for_each(|line| html.line(&line.replace('\t', "    ")));
    html.close();
    html.close();
    if lines > LINES_MAX {
        let text = format!("{LINES_MAX} of {lines} lines; download the files to see all.");
        html.element("p", &[], &text);
    }
    html.close();
    Ok(())
}
