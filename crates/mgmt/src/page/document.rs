//! The page as an HTML document, which `/` answers.

use super::access::ACCESS;
use super::assets::{ICON, SCRIPT, STYLE};
use super::detail::Detail;
use super::drawing::draw;
use super::files::FILES;
use super::html::Html;
use super::login::LOGIN;
use super::query::{Query, link};
use super::tables::{Cell, Table};
use super::{Drawing, View};
use crate::api::Health;
use crate::text::count;
use crate::verbs::status::StatusAnswer;

/// Opens a document and its `main` element. `is_live`: its script replaces the contents.
pub(super) fn begin(title: &str, is_live: bool) -> Html {
    let mut html = Html::document();
    html.open("html", &[("lang", "en")]);
    html.open("head", &[]);
    html.void("meta", &[("charset", "utf-8")]);
    let viewport = "width=device-width, initial-scale=1";
    html.void("meta", &[("name", "viewport"), ("content", viewport)]);
    html.void("meta", &[("name", "color-scheme"), ("content", "light dark")]);
    html.element("title", &[], title);
    html.void("link", &[("rel", "icon"), ("href", ICON)]);
    html.void("link", &[("rel", "stylesheet"), ("href", STYLE)]);
    if is_live {
        html.element("script", &[("type", "module"), ("src", SCRIPT)], "");
    }
    html.close();
    html.open("body", &[]);
    html.element("a", &[("class", "skip"), ("href", "#main")], "Skip to the contents");
    html.open("header", &[]);
    html.element("h1", &[], "Ashlar");
    html.open("nav", &[("aria-label", "Sections")]);
    for (target, text) in [
        ("/", "Status"),
        ("#graph", "Graph"),
        ("#rebuilds", "Rebuilds"),
        ("#luns", "LUNs"),
        ("#access", "Access"),
        ("#sessions", "Sessions"),
        ("#objects", "Targets and others"),
        ("#events", "Events"),
        ("#cores", "Cores"),
        ("#change", "Change"),
        (ACCESS, "Access matrix"),
        (FILES, "Files"),
        (LOGIN, "Log in"),
    ] {
        let is_elsewhere = !is_live && target.starts_with('#');
        let target = if is_elsewhere { format!("/{target}") } else { target.to_owned() };
        html.element("a", &[("href", &target)], text);
    }
    html.close();
    html.close();
    html.open("main", &[("id", "main"), ("tabindex", "-1")]);
    html
}

fn health(html: &mut Html, health: Health) {
    let class = format!("health {}", health.label());
    html.element("span", &[("class", &class)], health.label());
}

pub(super) fn heading(html: &mut Html, id: &str, title: &str) {
    html.open("section", &[("aria-labelledby", id)]);
    html.element("h2", &[("id", id)], title);
}

/// Opens a part that the keyboard can scroll, with the name of a heading.
pub(super) fn scrolled(html: &mut Html, class: &str, id: &str) {
    let name = ("aria-labelledby", id);
    html.open("div", &[("class", class), ("tabindex", "0"), ("role", "group"), name]);
}

fn status(html: &mut Html, status: &StatusAnswer) {
    heading(html, "status", "Status");
    html.open("p", &[("class", "summary"), ("role", "status")]);
    health(html, status.health);
    html.text(if status.starting { " The daemon starts." } else { "" });
    html.close();
    html.element("p", &[], &status.daemon);
    html.element("p", &[], &status.serves);
    if status.findings.is_empty() {
        html.element("p", &[], "No problems.");
    } else {
        html.open("ul", &[("class", "findings")]);
        for finding in &status.findings {
            html.open("li", &[]);
            health(html, finding.health);
            html.element("strong", &[], &finding.at);
            html.element("span", &[("class", "why")], &finding.why);
            html.element("span", &[("class", "action")], &finding.action);
            html.element("code", &[], &finding.see);
            html.close();
        }
        html.close();
    }
    html.close();
}

fn graph(html: &mut Html, graph: &Drawing, query: &Query) {
    heading(html, "graph", "Graph");
    html.open("form", &[("method", "get"), ("action", "/"), ("role", "search")]);
    html.open("label", &[]);
    html.text("Search ");
    html.void("input", &[("type", "search"), ("name", "find"), ("value", &query.find)]);
    html.close();
    html.element("button", &[], "Search");
    html.element("a", &[("href", "/")], "Show all");
    html.close();
    let hidden = graph.total.saturating_sub(graph.drawn);
    let mut text = format!("{} of {}", graph.drawn, count(graph.total, "object"));
    if hidden > 0 {
        text += ": those above and below the selected ones";
    }
    html.element("p", &[], &text);
    scrolled(html, "graph", "graph");
    draw(html, graph, query);
    html.close();
    html.close();
}

fn cell(html: &mut Html, cell: &Cell) {
    match (&cell.at, cell.health) {
        (Some(at), _) => html.element("a", &[("href", &link(at))], &cell.text),
        (None, Some(health)) => {
            let class = format!("health {}", health.label());
            html.element("span", &[("class", &class)], &cell.text);
        }
        (None, None) => html.text(&cell.text),
    }
    if let Some(percent) = cell.percent {
        let value = percent.to_string();
        html.element("progress", &[("max", "100"), ("value", &value)], "");
    }
    if !cell.actions.is_empty() {
        commands(html, cell.actions.iter().map(|action| action.command.as_str()));
    }
}

fn commands<'c>(html: &mut Html, all: impl IntoIterator<Item = &'c str>) {
    html.open("ul", &[("class", "commands")]);
    for command in all {
        html.open("li", &[]);
        html.element("code", &[], command);
        html.close();
    }
    html.close();
}

/// A table that the keyboard can scroll, with the name of a heading. `cell` writes one cell; a
/// column with `>` in front of its name is one of numbers.
pub(super) fn grid<C: AsRef<str>, T>(
    html: &mut Html,
    id: &str,
    (columns, rows): (&[C], &[Vec<T>]),
    cell: impl Fn(&mut Html, &T),
) {
    let class = |name: &C| if name.as_ref().starts_with('>') { "number" } else { "word" };
    scrolled(html, "scroll", id);
    html.open("table", &[]);
    html.open("thead", &[]);
    html.open("tr", &[]);
    for name in columns {
        let text = name.as_ref().trim_start_matches('>');
        html.element("th", &[("scope", "col"), ("class", class(name))], text);
    }
    html.close();
    html.close();
    html.open("tbody", &[]);
    for row in rows {
        html.open("tr", &[]);
        for (one, name) in row.iter().zip(columns) {
            html.open("td", &[("class", class(name))]);
            cell(html, one);
            html.close();
        }
        html.close();
    }
    (0..3).for_each(|_| html.close());
}

fn table(html: &mut Html, table: &Table) {
    heading(html, &table.id, &table.title);
    if table.rows.is_empty() {
        html.element("p", &[], &table.empty);
        html.close();
        return;
    }
    if table.total > table.rows.len() {
        let text = format!("{} of {}; search to see others.", table.rows.len(), table.total);
        html.element("p", &[], &text);
    }
    grid(html, &table.id, (table.columns.as_slice(), table.rows.as_slice()), cell);
    html.close();
}

fn detail(html: &mut Html, detail: &Detail) {
    html.open("article", &[("class", "detail"), ("aria-labelledby", "detail")]);
    html.element("h2", &[("id", "detail")], &detail.title);
    html.open("p", &[]);
    health(html, detail.health);
    html.text(&format!(" {}", detail.why));
    html.close();
    if !detail.charts.is_empty() {
        html.open("div", &[("class", "charts")]);
        detail.charts.iter().for_each(|chart| chart.draw(html));
        html.close();
    }
    html.element("h3", &[], "Commands");
    let changes = detail.actions.iter().map(|action| &action.command);
    commands(html, detail.commands.iter().chain(changes).map(String::as_str));
    detail.tables.iter().for_each(|one| table(html, one));
    html.close();
}

fn change(html: &mut Html) {
    heading(html, "change", "Change");
    html.element(
        "p",
        &[],
        "The editor of the configuration needs JavaScript. These commands do the same:",
    );
    commands(html, ["ashlar export > new.toml", "ashlar plan new.toml", "ashlar apply new.toml"]);
    html.close();
}

/// The document of a view.
pub fn render(view: &View) -> String {
    let mut html = begin(&format!("Ashlar: {}", view.status.health.label()), true);
    status(&mut html, &view.status);
    if let Some(selected) = &view.detail {
        detail(&mut html, selected);
    } else if !view.query.at.is_empty() {
        let text = format!("{}: no object has this identifier.", view.query.at);
        html.element("p", &[("role", "alert")], &text);
    }
    graph(&mut html, &view.graph, &view.query);
    view.tables.iter().for_each(|one| table(&mut html, one));
    change(&mut html);
    html.finish()
}
