//! The graph as SVG: edges with their counters, and nodes that link to their detail.

use super::Drawing;
use super::formats::colours;
use super::graph::{Counters, Edge, Node};
use super::html::Html;
use super::layout::{NODE_HEIGHT, NODE_WIDTH};
use super::query::{Query, link};
use crate::api::Health;
use crate::config::units::short;

/// Characters of a name that fit in a node.
const NAME_CHARS_MAX: usize = 24;
/// Characters of the smaller second line.
const ABOUT_CHARS_MAX: usize = 31;

/// The start of a text that is too long for its node.
fn cut(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// Counters of an edge in a few words.
fn words(counters: &Counters) -> String {
    let (read, written) = (short(counters.read_bytes), short(counters.write_bytes));
    format!("{read} read, {written} written, {} in flight", counters.in_flight)
}

fn edge(html: &mut Html, edge: &Edge, (from, to): (&Node, &Node)) {
    let (x1, y1) = (from.x + NODE_WIDTH, from.y + NODE_HEIGHT / 2);
    let (x2, y2) = (to.x, to.y + NODE_HEIGHT / 2);
    let middle = x1.midpoint(x2);
    let path = format!("M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}");
    html.open("g", &[("class", "edge")]);
    let text = edge.counters.as_ref().map(words).unwrap_or_default();
    html.element("title", &[], format!("{}  {text}", edge.name).trim());
    html.void("path", &[("d", &path)]);
    let in_flight = edge.counters.map_or(0, |counters| counters.in_flight);
    let queue = (in_flight > 0).then(|| format!("q{in_flight}"));
    let texts: Vec<&str> = edge.rate.as_deref().into_iter().chain(queue.as_deref()).collect();
    if !texts.is_empty() {
        let (x, y) = (middle.to_string(), y1.midpoint(y2).saturating_sub(4).to_string());
        html.element("text", &[("x", &x), ("y", &y)], &texts.join(" "));
    }
    html.close();
}

/// The second line of a node. Colour alone does not show a problem.
pub(super) fn about(node: &Node) -> String {
    let text = match node.health {
        Health::Ok => format!("{}  {}", node.kind, node.about),
        bad => format!("{}: {}  {}", bad.label().to_uppercase(), node.kind, node.about),
    };
    text.trim().to_owned()
}

fn shape(html: &mut Html, node: &Node) {
    let (x, y) = (node.x.to_string(), node.y.to_string());
    let (width, height) = (NODE_WIDTH.to_string(), NODE_HEIGHT.to_string());
    let text_x = (node.x + 10).to_string();
    html.void("rect", &[("x", &x), ("y", &y), ("width", &width), ("height", &height), ("rx", "4")]);
    let name_y = (node.y + 18).to_string();
    let name = cut(&node.name, NAME_CHARS_MAX);
    html.element("text", &[("class", "name"), ("x", &text_x), ("y", &name_y)], &name);
    let about_y = (node.y + 35).to_string();
    let about = cut(&about(node), ABOUT_CHARS_MAX);
    html.element("text", &[("class", "about"), ("x", &text_x), ("y", &about_y)], &about);
}

/// Draws a node. In the page it is a link: to its detail, or to the objects of a folded one.
fn node(html: &mut Html, node: &Node, page: Option<&Query>) {
    let class = format!("node {}", node.health.label());
    let label = format!("{} {}, {}, {}", node.kind, node.name, node.health.label(), node.about);
    match page {
        Some(query) => {
            let is_folded = node.members != 1;
            let href = if is_folded { query.unfolding(&node.id) } else { link(&node.id) };
            // Its own text names a link; a label would hide the text that is seen.
            html.open("a", &[("href", &href), ("class", &class)]);
        }
        None => html.open("g", &[("class", &class), ("role", "img"), ("aria-label", &label)]),
    }
    html.element("title", &[], &format!("{label}; {}", words(&node.counters)));
    shape(html, node);
    html.close();
}

/// Where a graph is drawn.
enum DrawnIn<'p> {
    /// In the page that a query selects, which has the style sheet.
    Page(&'p Query),
    /// In a file of its own, with this style sheet.
    File(&'p str),
}

/// Draws the graph. `head` is added to the attributes.
fn svg(html: &mut Html, graph: &Drawing, head: &[(&'static str, &str)], drawn_in: &DrawnIn<'_>) {
    let (width, height) = (graph.width.to_string(), graph.height.to_string());
    let whole = format!("0 0 {width} {height}");
    let mut attributes = head.to_vec();
    attributes.extend([
        ("viewBox", whole.as_str()),
        ("width", width.as_str()),
        ("height", height.as_str()),
        ("role", "group"),
        ("aria-label", "Graph from disks to sessions"),
    ]);
    html.open("svg", &attributes);
    let page = match drawn_in {
        DrawnIn::Page(query) => Some(*query),
        DrawnIn::File(style) => {
            html.element("style", &[], style);
            None
        }
    };
    for one in &graph.edges {
        if let (Some(from), Some(to)) = (graph.nodes.get(one.from), graph.nodes.get(one.to)) {
            edge(html, one, (from, to));
        }
    }
    graph.nodes.iter().for_each(|one| node(html, one, page));
    html.close();
}

/// Draws the graph in the page that a query selects.
pub fn draw(html: &mut Html, graph: &Drawing, query: &Query) {
    svg(html, graph, &[], &DrawnIn::Page(query));
}

/// The graph as a file of its own.
pub(super) fn document(graph: &Drawing) -> String {
    let mut style = "text{font:12px sans-serif}.about,.edge text{font-size:10px}\
                     .edge path{fill:none;stroke:#888}"
        .to_owned();
    for (health, line) in [
        (Health::Ok, ""),
        (Health::Degraded, ";stroke-dasharray:5 3"),
        (Health::Failed, ";stroke-width:3"),
    ] {
        let ((fill, border), class) = (colours(health), health.label());
        style.push_str(&format!(".{class} rect{{fill:{fill};stroke:{border}{line}}}"));
    }
    let mut html = Html::default();
    svg(&mut html, graph, &[("xmlns", "http://www.w3.org/2000/svg")], &DrawnIn::File(&style));
    html.finish() + "\n"
}
