//! Documents of a drawing: text, DOT, Mermaid, SVG and JSON.
//!
//! Colours, shapes and words of a state are defined once, here, for all of them.

mod dot;
mod mermaid;
mod text;

use super::Drawing;
use super::drawing;
use super::fold::Toward;
use super::graph::{Edge, Node, SESSION_KIND};
use crate::api::{Error, Health, Kind, Result};
use crate::object_id::LUN_CLASS;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Format of the document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GraphFormat {
    /// Lines for people, indented by layer.
    #[default]
    Text,
    /// DOT, the language of Graphviz.
    Dot,
    /// Mermaid flowchart, which Markdown can contain.
    Mermaid,
    /// Image, with the layout of the page.
    Svg,
    /// Nodes with their places, and edges.
    Json,
}

/// Role of a node: each has a shape.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Disk,
    Layer,
    Lun,
    Session,
}

impl Role {
    fn of(node: &Node) -> Role {
        match node.kind.as_str() {
            "disk" => Role::Disk,
            LUN_CLASS => Role::Lun,
            SESSION_KIND => Role::Session,
            _ => Role::Layer,
        }
    }
}

/// Colours of a node: of its area and of its border.
pub(super) const fn colours(health: Health) -> (&'static str, &'static str) {
    match health {
        Health::Ok => ("#e6f4ea", "#2e7d32"),
        Health::Degraded => ("#fff4d6", "#b26a00"),
        Health::Failed => ("#fde7e9", "#c62828"),
    }
}

/// Text of an edge: the used provider, and the requests in flight.
fn edge_text(edge: &Edge) -> String {
    let in_flight = edge.counters.map_or(0, |counters| counters.in_flight);
    match in_flight {
        0 => edge.name.clone(),
        n => format!("{}  {n} in flight", edge.name).trim_start().to_owned(),
    }
}

/// Writes a drawing. `toward` decides where the branches of a text begin: at the disks, or with
/// [`Toward::Down`] at the selected object.
///
/// # Errors
/// [`Kind::Internal`]: the drawing could not be written as JSON.
pub(crate) fn written(graph: &Drawing, format: GraphFormat, toward: Toward) -> Result<String> {
    Ok(match format {
        GraphFormat::Text => text::written(graph, toward),
        GraphFormat::Dot => dot::written(graph),
        GraphFormat::Mermaid => mermaid::written(graph),
        GraphFormat::Svg => drawing::document(graph),
        GraphFormat::Json => {
            let json = serde_json::to_string_pretty(graph);
            json.map_err(|e| Error::new(Kind::Internal, "graph", e))? + "\n"
        }
    })
}

/// A failed disk with a name of any content under a healthy mirror, with a LUN and a session.
#[cfg(test)]
fn sample(evil: &str) -> Drawing {
    use super::graph::Counters;
    let node = |kind: &str, name: &str, layer: u32| Node {
        id: format!("{kind}:{name}"),
        kind: kind.to_owned(),
        name: name.to_owned(),
        layer,
        members: 1,
        ..Node::default()
    };
    let disk = Node { health: Health::Failed, about: "64M".to_owned(), ..node("disk", evil, 1) };
    let nodes =
        vec![disk, node("mirror", "m0", 2), node("lun", "m0", 3), node("session", "iqn.h:one", 4)];
    let counters = Some(Counters { in_flight: 2, ..Counters::default() });
    let edges = vec![
        Edge { from: 0, to: 1, name: evil.to_owned(), counters, ..Edge::default() },
        Edge { from: 1, to: 2, name: "m0".to_owned(), ..Edge::default() },
        Edge { from: 2, to: 3, ..Edge::default() },
    ];
    Drawing { width: 10, height: 10, drawn: nodes.len(), total: nodes.len(), nodes, edges }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_of_a_drawing_is_read_back() {
        let graph = sample("d0");
        let text = written(&graph, GraphFormat::Json, Toward::Both).expect("JSON");
        assert_eq!(serde_json::from_str::<Drawing>(&text).expect("a drawing"), graph);
    }

    #[test]
    fn svg_needs_no_other_file_and_escapes_names() {
        let graph = sample("</text><script>\u{1b}");
        let text = written(&graph, GraphFormat::Svg, Toward::Both).expect("SVG");
        assert!(text.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""), "{text}");
        assert!(text.ends_with("</svg>\n"), "{text}");
        assert!(!text.contains("<script") && !text.contains('\u{1b}'), "{text}");
        assert!(!text.contains("href"), "a link leads nowhere outside the page: {text}");
        assert!(text.contains("FAILED: disk  64M"), "not by colour alone: {text}");
        assert_eq!(text.matches("<g ").count(), text.matches("</g>").count());
    }
}
