//! Page of the daemon for browsers: status, lists and the graph from disks to sessions.
//!
//! ```text
//! state --graph--> all nodes --fold--> at most 200 --layout--> places --+-> View
//!      '--tables, detail------------------------------------------------'    |
//!                                     HTML and SVG at `/`  <--document-------+
//!                                     JSON at `/v1/view`   <-----------------'
//! ```
//! The page is complete without JavaScript. Its script ([`asset`]) draws the same [`View`] again
//! when it changes, and adds rates and the editor of the configuration. [`files`],
//! [`access()`] and [`login()`] are pages of their own, without a script.

mod access;
mod actions;
mod assets;
mod charts;
mod detail;
mod document;
mod drawing;
mod edge_rates;
mod export_actions;
pub mod files;
mod fold;
pub(crate) mod formats;
mod graph;
mod html;
mod layout;
mod login;
mod objects;
mod query;
mod runbook;
mod search;
mod selection;
mod tables;

pub use access::{ACCESS, AccessQuery, ROUTE as ACCESS_ROUTE, access};
pub use assets::asset;
pub use document::render;
pub(crate) use fold::Toward;
pub use login::{LOGIN, LOGOUT, LoginQuery, forbidden, login};
pub use query::Query;
pub use runbook::{RUNBOOK, runbook};
pub(crate) use selection::{Selection, select};

use crate::api::{Event, Result, SCHEMA_VERSION, SystemState};
use crate::samples::find;
use crate::service::Control;
use crate::verbs::status::{StatusAnswer, status_of};
use detail::Detail;
use fold::Unfolded;
use graph::{Edge, Graph, Node, SESSION_KIND};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashSet;
use tables::{CellAction, Table};

/// Events that the page lists.
const EVENTS_SHOWN: usize = 50;

/// The drawn part of the graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ViewGraph")]
pub struct Drawing {
    /// Width, in pixels.
    pub width: u32,
    /// Height, in pixels.
    pub height: u32,
    /// Drawn nodes, each with its place.
    pub nodes: Vec<Node>,
    /// Edges between drawn nodes.
    pub edges: Vec<Edge>,
    /// Number of objects that the drawn nodes represent.
    pub drawn: usize,
    /// Number of all objects.
    pub total: usize,
}

/// Everything that the page shows.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct View {
    /// Version of the format.
    pub schema_version: u32,
    /// Time since the start of the daemon, in nanoseconds.
    pub uptime_ns: u64,
    /// Identifier of the newest event in the journal; 0 if there is none.
    pub last_event: u64,
    /// The query that the view answers.
    pub query: Query,
    /// Health, and problems with the next command.
    pub status: StatusAnswer,
    /// The graph, folded.
    pub graph: Drawing,
    /// The selected object; absent if none is selected or it does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
    /// Lists of rebuilds, LUNs, access groups, sessions, refused logins, other objects, events and
    /// cores.
    pub tables: Vec<Table>,
}

impl View {
    /// Keeps the changes that `may` accepts, by the verb of the API and its parameters.
    pub fn retain_actions(&mut self, may: impl Fn(&str, &Value) -> bool) {
        let may = |action: &CellAction| {
            let (verb, params) = action.call();
            may(&verb, &params)
        };
        let mut tables: Vec<&mut Table> = self.tables.iter_mut().collect();
        if let Some(detail) = &mut self.detail {
            detail.actions.retain(may);
            tables.extend(&mut detail.tables);
        }
        for cell in tables.into_iter().flat_map(|table| table.rows.iter_mut().flatten()) {
            cell.actions.retain(may);
        }
    }
}

/// The drawing of a part of a graph of `total` objects, whose large layers were folded.
fn drawing_of(mut part: Graph, total: usize) -> Drawing {
    let (width, height) = layout::place(&mut part.nodes, &part.edges);
    let drawn = part.nodes.iter().map(|node| node.members).sum();
    Drawing { width, height, nodes: part.nodes, edges: part.edges, drawn, total }
}

/// Nodes that are followed from a selected one: an initiator has a node for each of its sessions.
fn followed(graph: &Graph, id: &str) -> HashSet<String> {
    let selected = graph.nodes.iter().find(|node| node.id == id);
    let is_of_it = |node: &&Node| {
        let is_session = |one: &Node| one.kind == SESSION_KIND && one.name == node.name;
        node.id == id || node.kind == SESSION_KIND && selected.is_some_and(is_session)
    };
    graph.nodes.iter().filter(is_of_it).map(|node| node.id.clone()).collect()
}

fn view_of(status: StatusAnswer, state: &SystemState, journal: &[Event], query: Query) -> View {
    let whole = graph::build(state);
    let total = whole.nodes.len();
    let of_node = detail::detail(state, &whole, journal, &query.at);
    let of_node = of_node.map(|detail| (detail, followed(&whole, &query.at)));
    let selected = of_node.or_else(|| objects::find(state, journal, &query.at));
    let (detail, nodes) = selected.map_or((None, HashSet::new()), |(d, nodes)| (Some(d), nodes));
    let find = query.find.to_lowercase();
    let identified = search::nodes(state, &find);
    let is_found = |node: &Node| fold::matches(node, &find) || identified.contains(&node.id);
    let is_match = |node: &Node| match detail.is_some() {
        true => nodes.contains(&node.id),
        false => !find.is_empty() && is_found(node),
    };
    // Cores, listeners and webhooks have no nodes: the graph beside them is whole.
    let is_part = if detail.is_some() { !nodes.is_empty() } else { !find.is_empty() };
    let part = match is_part {
        true => fold::around(whole, Toward::Both, is_match),
        false => whole,
    };
    let unfolded = Unfolded::parse(&query.unfold);
    let graph = drawing_of(fold::folded(part, is_match, unfolded.as_ref()), total);
    let mut tables = tables::lists(state, &query.find);
    let newest = journal.len().saturating_sub(EVENTS_SHOWN);
    tables.push(tables::events(journal.get(newest..).unwrap_or(&[]), state.daemon.uptime_ns));
    View {
        schema_version: SCHEMA_VERSION,
        uptime_ns: state.daemon.uptime_ns,
        last_event: journal.last().map_or(0, |event| event.id),
        status,
        graph,
        detail,
        tables,
        query,
    }
}

/// The view that answers a query.
///
/// # Errors
/// Those of [`Control::state`].
pub fn view(control: &Control, query: Query) -> Result<View> {
    let state = control.state()?;
    let journal = control.journal(0, usize::MAX);
    let mut view = view_of(status_of(control, &state), &state, &journal, query);
    edge_rates::add(&mut view.graph, &state, |object| control.samples().latest(object));
    view.tables.push(tables::cores(&state, |core| control.samples().latest(core)));
    if let Some(detail) = &mut view.detail
        && let Ok(sampled) = find(&state, &detail.id)
    {
        detail.has_rates = true;
        charts::add(detail, &control.samples().of(&sampled));
    }
    Ok(view)
}

#[cfg(test)]
mod tests;
