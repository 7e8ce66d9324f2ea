//! Access matrix: the LUNs of a target by the initiators that may log in, before any of them does.
//!
//! The page is a window of at most [`ROWS_MAX`] initiators and [`COLUMNS_MAX`] providers, with
//! links to the next ones. The question for one initiator is that of `ashlar access check`.

use super::document::{begin, grid, heading};
use super::html::Html;
use crate::api::{GroupState, Result, SystemState, TargetState};
use crate::query_string::{VALUE_BYTES_MAX, encode, fields};
use crate::text::{or_dash, shell_word};
use crate::verbs::access::{self, AccessCheckParams};
use std::collections::BTreeSet;

/// Path, title and fields of the query of the page.
pub const ROUTE: (&str, &str, &[&str]) = (
    ACCESS,
    "Show the LUNs of a target by initiators",
    &["target", "find", "initiator", "after", "column"],
);

/// Path of the page.
pub const ACCESS: &str = "/access";

/// Rows of a table, at most.
const ROWS_MAX: usize = 100;

/// Providers that are columns, at most.
const COLUMNS_MAX: usize = 16;

/// Targets that the page links to, at most; a link to any other one can be typed.
const TARGETS_MAX: usize = 200;

/// Query of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessQuery {
    /// Name of the target; empty: the first one.
    pub target: String,
    /// Part of the names of initiators and providers that are shown.
    pub find: String,
    /// Name of an initiator whose LUNs are listed.
    pub initiator: String,
    /// Number of the first row.
    pub after: usize,
    /// Number of the first column.
    pub column: usize,
}

impl AccessQuery {
    /// The fields of a query string; unknown ones are ignored.
    pub fn parse(query: &str) -> AccessQuery {
        let mut out = AccessQuery::default();
        for (key, value) in fields(query, VALUE_BYTES_MAX) {
            match key {
                "target" => out.target = value,
                "find" => out.find = value.trim().to_lowercase(),
                "initiator" => out.initiator = value.trim().to_owned(),
                "after" => out.after = value.parse().unwrap_or(0),
                "column" => out.column = value.parse().unwrap_or(0),
                _ => {}
            }
        }
        out
    }

    /// A link to another window of the matrix.
    fn link(&self, target: &str, after: usize, column: usize) -> String {
        let (target, find) = (encode(target), encode(&self.find));
        format!("{ACCESS}?target={target}&find={find}&after={after}&column={column}")
    }
}

/// The items that `find` selects; all of them if it selects none.
fn selected<T: Copy>(all: Vec<T>, is_match: impl Fn(T) -> bool) -> Vec<T> {
    let some: Vec<T> = all.iter().copied().filter(|one| is_match(*one)).collect();
    if some.is_empty() { all } else { some }
}

/// A part of a list from a number on, and the number of the next part.
fn window<T>(all: &[T], from: usize, most: usize) -> (&[T], Option<usize>) {
    let rest = all.get(from..).unwrap_or_default();
    match rest.get(..most) {
        Some(part) if rest.len() > most => (part, Some(from + most)),
        _ => (rest, None),
    }
}

/// The LUNs of a group on each of these providers, which are sorted: `0 rw`.
fn cells(group: &GroupState, providers: &[&str]) -> Vec<String> {
    let mut cells = vec![Vec::new(); providers.len()];
    let present = group
        .luns
        .iter()
        .map(|lun| (lun.provider.as_str(), lun.lun, if lun.read_only { "ro" } else { "rw" }));
    let missing = group.awaited.iter().map(|lun| (lun.provider.as_str(), lun.lun, "missing"));
    for (provider, number, mode) in present.chain(missing) {
        let at = providers.binary_search(&provider).ok();
        if let Some(cell) = at.and_then(|at| cells.get_mut(at)) {
            cell.push(format!("{number} {mode}"));
        }
    }
    cells.into_iter().map(|all| or_dash(&all.join(", "))).collect()
}

fn matrix(html: &mut Html, target: &TargetState, query: &AccessQuery) {
    heading(html, "matrix", &format!("Initiators by LUNs of {}", target.name));
    let has = |text: &str| text.to_lowercase().contains(&query.find);
    let groups = target.groups.iter();
    let luns = groups.clone().flat_map(|group| {
        let awaited = group.awaited.iter().map(|lun| lun.provider.as_str());
        group.luns.iter().map(|lun| lun.provider.as_str()).chain(awaited)
    });
    let providers: BTreeSet<&str> = luns.collect();
    let providers: Vec<&str> = selected(providers.into_iter().collect(), has);
    let initiators = groups.flat_map(|group| {
        group.initiators.iter().map(move |initiator| (group, initiator.as_str()))
    });
    let initiators: Vec<(&GroupState, &str)> = initiators.collect();
    let initiators = selected(initiators, |(group, name)| has(name) || has(&group.name));
    let (shown, next_column) = window(&providers, query.column, COLUMNS_MAX);
    let (rows, next_row) = window(&initiators, query.after, ROWS_MAX);
    let text = format!(
        "{} of {} initiators or patterns, {} of {} providers. A cell has the LUN and its mode.",
        rows.len(),
        initiators.len(),
        shown.len(),
        providers.len()
    );
    html.element("p", &[], &text);
    let row = |(group, initiator): &(&GroupState, &str)| -> Vec<String> {
        let portals = match group.portals.is_empty() {
            true => "any".to_owned(),
            false => group.portals.join(" "),
        };
        let in_group = target.sessions.iter().filter(|s| s.group.as_ref() == Some(&group.name));
        let is_own = |name: &str| wire::pattern::matches(initiator, name);
        let connected = in_group.filter(|s| is_own(&s.initiator)).count().to_string();
        let head = [(*initiator).to_owned(), group.name.clone(), portals, connected];
        head.into_iter().chain(cells(group, shown)).collect()
    };
    let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
    let columns = ["initiator", "group", "portals", ">sessions"].into_iter();
    let columns: Vec<&str> = columns.chain(shown.iter().copied()).collect();
    let write = |html: &mut Html, text: &String| html.text(text);
    grid(html, "matrix", (columns.as_slice(), rows.as_slice()), write);
    html.open("nav", &[("aria-label", "Parts of the matrix")]);
    if let Some(next) = next_row {
        let href = query.link(&target.name, next, query.column);
        html.element("a", &[("href", &href)], "Next initiators");
    }
    if let Some(next) = next_column {
        let href = query.link(&target.name, query.after, next);
        html.element("a", &[("href", &href)], "Next providers");
    }
    if query.after > 0 || query.column > 0 {
        html.element("a", &[("href", &query.link(&target.name, 0, 0))], "First part");
    }
    html.close();
    html.close();
}

/// The answer of `ashlar access check` for one initiator.
fn check(html: &mut Html, state: &SystemState, query: &AccessQuery) -> Result<()> {
    let initiator = query.initiator.clone();
    heading(html, "check", &format!("LUNs of {initiator}"));
    let params = AccessCheckParams { initiator, ..AccessCheckParams::default() };
    let rows = access::rows(&access::check(state, params)?);
    let (shown, next) = window(&rows, query.after, ROWS_MAX);
    let text = format!("{} of {} rows.", shown.len(), rows.len());
    html.element("p", &[], &text);
    let write = |html: &mut Html, text: &String| html.text(text);
    grid(html, "check", (access::COLUMNS.as_slice(), shown), write);
    if let Some(next) = next {
        let href = format!("{ACCESS}?initiator={}&after={next}", encode(&query.initiator));
        html.element("a", &[("href", &href), ("rel", "next")], "Next rows");
    }
    let word = shell_word(&query.initiator);
    html.element("p", &[], "The same on the command line:");
    html.element("code", &[], &format!("ashlar access check {word}"));
    html.close();
    Ok(())
}

/// A form with one field; `kept` is a hidden one.
fn form(html: &mut Html, (label, name, value): (&str, &str, &str), kept: (&str, &str)) {
    html.open("form", &[("method", "get"), ("action", ACCESS)]);
    if !kept.1.is_empty() {
        html.void("input", &[("type", "hidden"), ("name", kept.0), ("value", kept.1)]);
    }
    html.open("label", &[]);
    html.text(label);
    html.void("input", &[("type", "search"), ("name", name), ("value", value)]);
    html.close();
    html.element("button", &[], "Show");
    html.close();
}

/// The document of the page.
///
/// # Errors
/// Those of `access check`.
pub fn access(state: &SystemState, query: &AccessQuery) -> Result<String> {
    let mut html = begin("Ashlar: access", false);
    heading(&mut html, "access", "Access matrix");
    let text = "The LUNs that initiators get, whether or not they have logged in. Refused logins \
                are listed on the page with the status.";
    html.element("p", &[], text);
    form(&mut html, ("Initiator ", "initiator", &query.initiator), ("", ""));
    form(&mut html, ("Search ", "find", &query.find), ("target", &query.target));
    html.open("nav", &[("aria-label", "Targets")]);
    for target in state.targets.iter().take(TARGETS_MAX) {
        html.element("a", &[("href", &query.link(&target.name, 0, 0))], &target.name);
    }
    html.close();
    html.close();
    if !query.initiator.is_empty() {
        check(&mut html, state, query)?;
        return Ok(html.finish());
    }
    let is_wanted = |t: &&TargetState| query.target.is_empty() || t.name == query.target;
    match state.targets.iter().find(is_wanted) {
        Some(target) => matrix(&mut html, target, query),
        None if query.target.is_empty() => html.element("p", &[], "There is no target."),
        None => {
            let text = format!("{}: no target has this name.", query.target);
            html.element("p", &[("role", "alert")], &text);
        }
    }
    Ok(html.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{LunState, PendingLunState, SessionState};

    fn group(name: &str, initiators: &[&str], luns: impl Iterator<Item = u64>) -> GroupState {
        let lun = |n: u64| LunState {
            lun: n,
            provider: format!("d{n:05}"),
            read_only: n == 1,
            ..LunState::default()
        };
        GroupState {
            name: name.to_owned(),
            initiators: initiators.iter().map(|i| (*i).to_owned()).collect(),
            luns: luns.map(lun).collect(),
            ..GroupState::default()
        }
    }

    fn state(groups: Vec<GroupState>) -> SystemState {
        let session = SessionState {
            initiator: "iqn.h:a1".to_owned(),
            group: Some("hosts".to_owned()),
            ..SessionState::default()
        };
        let target = TargetState {
            name: "iqn.a:t".to_owned(),
            groups,
            sessions: vec![session],
            ..TargetState::default()
        };
        SystemState { targets: vec![target], ..SystemState::default() }
    }

    fn page(state: &SystemState, query: &str) -> String {
        access(state, &AccessQuery::parse(query)).expect("a page")
    }

    #[test]
    fn matrix_has_a_cell_for_each_initiator_and_provider() {
        let mut hosts = group("hosts", &["iqn.h:a*", "<script>"], 0..2);
        hosts.awaited = vec![PendingLunState { lun: 7, provider: "lost".to_owned() }];
        let state = state(vec![hosts, group("others", &["iqn.h:b"], 1..2)]);
        let text = page(&state, "");
        for part in ["iqn.h:a*", "&lt;script&gt;", "d00000", ">0 rw<", ">1 ro<", ">7 missing<"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains("3 of 3 initiators or patterns, 3 of 3 providers"), "{text}");
        assert!(text.contains("<td class=\"number\">1</td>"), "one session: {text}");
        assert!(!text.contains("<script"), "{text}");
        let text = page(&state, "find=h:b");
        assert!(text.contains("1 of 1 initiators or patterns, 3 of 3 providers"), "{text}");
        let lost = page(&state, "target=x");
        assert!(lost.contains("role=\"alert\""), "{lost}");
    }

    #[test]
    fn initiator_is_answered_as_by_access_check() {
        let state = state(vec![group("hosts", &["iqn.h:a*"], 0..150)]);
        let text = page(&state, "initiator=iqn.h:a9");
        assert!(text.contains("100 of 150 rows.") && text.contains("matches iqn.h:a*"), "{text}");
        assert!(page(&state, "initiator=iqn.h:a9&after=100").contains("50 of 150 rows."));
        let text = page(&state, "initiator=other");
        assert!(text.contains("no group matches; the default is deny"), "{text}");
    }

    #[test]
    fn matrix_of_many_luns_is_shown_in_parts() {
        let names: Vec<String> = (0..250).map(|n| format!("iqn.h:{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let state = state(vec![group("hosts", &names, 0..16_384)]);
        let text = page(&state, "");
        assert!(text.len() < 400_000, "{}", text.len());
        assert!(text.contains("100 of 250 initiators or patterns, 16 of 16384 providers"));
        assert!(text.contains("after=100&amp;column=0") && text.contains("after=0&amp;column=16"));
        let last = page(&state, "after=200&column=16368");
        assert!(last.contains("50 of 250 initiators or patterns, 16 of 16384 providers"));
        assert!(last.contains("d16383") && !last.contains("Next "), "{last}");
        assert!(page(&state, "find=d00077").contains("1 of 1 providers"));
    }
}
