//! Selection of the drawn part of a graph: objects above and below a match, and folded layers.
//!
//! A drawing of many thousand nodes is neither readable nor cheap. Matches of a search and objects
//! that are not healthy stay single; the others of one layer and kind are drawn as one node.

use super::graph::{Counters, Edge, Graph, Node};
use crate::api::Health;
use crate::text::count;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// Nodes of a drawing, at most, unless more kinds and layers than this exist.
pub const NODES_MAX: usize = 200;

/// Nodes that stay single in a folded drawing, at most.
const SINGLES_MAX: usize = 120;

/// Nodes that replace an unfolded one, at most.
const OPENED_MAX: usize = 64;

/// Direction from the selected objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Toward {
    /// To their users and to their disks.
    #[default]
    Both,
    /// To their users.
    Up,
    /// To their disks.
    Down,
}

/// Marks the nodes that are reached from `start` by the edges of `next`.
fn reach(start: &[usize], next: &[Vec<usize>], seen: &mut [bool]) {
    let mut own = vec![false; seen.len()];
    let mut queue: VecDeque<usize> = start.iter().copied().collect();
    while let Some(at) = queue.pop_front() {
        if let Some(is_new) = own.get_mut(at).filter(|is_known| !**is_known) {
            *is_new = true;
            queue.extend(next.get(at).into_iter().flatten());
        }
    }
    seen.iter_mut().zip(own).for_each(|(seen, own)| *seen |= own);
}

/// The nodes of `start` and everything in a direction from them.
fn follow(graph: Graph, toward: Toward, start: &[usize]) -> Graph {
    let mut up = vec![Vec::new(); graph.nodes.len()];
    let mut down = up.clone();
    for edge in &graph.edges {
        if let Some(list) = up.get_mut(edge.from) {
            list.push(edge.to);
        }
        if let Some(list) = down.get_mut(edge.to) {
            list.push(edge.from);
        }
    }
    let mut kept = vec![false; graph.nodes.len()];
    if toward != Toward::Down {
        reach(start, &up, &mut kept);
    }
    if toward != Toward::Up {
        reach(start, &down, &mut kept);
    }
    let mut places = Vec::with_capacity(kept.len());
    let mut nodes = Vec::new();
    for (node, is_kept) in graph.nodes.into_iter().zip(kept) {
        places.push(is_kept.then_some(nodes.len()));
        if is_kept {
            nodes.push(node);
        }
    }
    merged(nodes, graph.edges, &places)
}

/// The graph of these nodes, where `places` has the new index of each old node. Edges between the
/// same two nodes become one.
fn merged(nodes: Vec<Node>, edges: Vec<Edge>, places: &[Option<usize>]) -> Graph {
    let place = |old: usize| places.get(old).copied().flatten();
    let mut all: BTreeMap<(usize, usize), Edge> = BTreeMap::new();
    for edge in edges {
        let (Some(from), Some(to)) = (place(edge.from), place(edge.to)) else { continue };
        let edge = Edge { from, to, ..edge };
        match all.get_mut(&(from, to)) {
            None => drop(all.insert((from, to), edge)),
            Some(sum) => {
                sum.name.clear();
                sum.counters = match (sum.counters, edge.counters) {
                    (Some(a), Some(b)) => Some(a.plus(b)),
                    (a, b) => a.or(b),
                };
            }
        }
    }
    Graph { nodes, edges: all.into_values().collect() }
}

/// Whether a node has a text in its name, its kind or its further text, in any case.
pub fn matches(node: &Node, lower: &str) -> bool {
    [&node.name, &node.kind, &node.about].iter().any(|text| text.to_lowercase().contains(lower))
}

/// The nodes that `is_match` accepts, and everything in a direction from them.
pub fn around(graph: Graph, toward: Toward, is_match: impl Fn(&Node) -> bool) -> Graph {
    let matching = graph.nodes.iter().enumerate().filter(|(_, node)| is_match(node));
    let start: Vec<usize> = matching.map(|(at, _)| at).collect();
    follow(graph, toward, &start)
}

/// A folded node that is unfolded: nodes of one layer and kind, by their numbers among these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfolded {
    layer: u32,
    kind: String,
    from: usize,
    /// Number of the first node behind it.
    to: usize,
}

impl Unfolded {
    /// The folded node with that identifier: `fold:1:disk` is all of a layer and kind, and
    /// `fold:1:disk:64-128` a part of it.
    pub fn parse(id: &str) -> Option<Unfolded> {
        let (layer, rest) = id.strip_prefix("fold:")?.split_once(':')?;
        let (kind, range) = match rest.split_once(':') {
            Some((kind, range)) => (kind, range.split_once('-')?),
            None => return Some(Unfolded::all(layer.parse().ok()?, rest)),
        };
        let (from, to) = (range.0.parse().ok()?, range.1.parse().ok()?);
        Some(Unfolded { from, to, ..Unfolded::all(layer.parse().ok()?, kind) })
    }

    fn all(layer: u32, kind: &str) -> Unfolded {
        Unfolded { layer, kind: kind.to_owned(), from: 0, to: usize::MAX }
    }

    fn id(&self) -> String {
        let Unfolded { layer, kind, from, to } = self;
        match *to {
            usize::MAX => format!("fold:{layer}:{kind}"),
            _ => format!("fold:{layer}:{kind}:{from}-{to}"),
        }
    }

    fn has(&self, node: &Node, number: usize) -> bool {
        node.layer == self.layer && node.kind == self.kind && (self.from..self.to).contains(&number)
    }
}

/// Number of each node among those of its layer and kind.
fn numbers(graph: &Graph) -> Vec<usize> {
    let mut counts: BTreeMap<(u32, &str), usize> = BTreeMap::new();
    let mut out = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let count = counts.entry((node.layer, node.kind.as_str())).or_default();
        out.push(*count);
        *count += 1;
    }
    out
}

/// The graph with at most [`NODES_MAX`] nodes. Nodes that `is_match` accepts stay single first,
/// then those that are not healthy, then the smallest layers. `unfolded` is drawn as at most
/// [`OPENED_MAX`] nodes, each of which is a part of it.
pub fn folded(
    graph: Graph,
    is_match: impl Fn(&Node) -> bool,
    unfolded: Option<&Unfolded>,
) -> Graph {
    if graph.nodes.len() <= NODES_MAX {
        return graph;
    }
    let numbers = numbers(&graph);
    let number = |at: usize| numbers.get(at).copied().unwrap_or_default();
    let is_unfolded = |at: usize, node: &Node| unfolded.is_some_and(|u| u.has(node, number(at)));
    let mut singles: Vec<(bool, Health, usize)> = Vec::new();
    for (at, node) in graph.nodes.iter().enumerate() {
        let is_match = is_match(node);
        if is_match || node.health != Health::Ok {
            singles.push((is_match, node.health, at));
        }
    }
    singles.sort_by_key(|(is_match, health, at)| (Reverse((*is_match, *health)), *at));
    singles.truncate(SINGLES_MAX);
    let mut is_single = vec![false; graph.nodes.len()];
    let mut groups: BTreeMap<(u32, &str), usize> = BTreeMap::new();
    for (_, _, at) in &singles {
        if let Some(single) = is_single.get_mut(*at) {
            *single = true;
        }
    }
    let mut span = 0_usize;
    for (at, node) in graph.nodes.iter().enumerate() {
        match is_unfolded(at, node) {
            true => span += 1,
            false if is_single.get(at) == Some(&true) => {}
            false => *groups.entry((node.layer, node.kind.as_str())).or_default() += 1,
        }
    }
    let length = span.div_ceil(OPENED_MAX).max(1);
    let used = singles.len() + groups.len() + span.div_ceil(length);
    let mut left = NODES_MAX.saturating_sub(used);
    let mut by_size: Vec<(usize, (u32, &str))> = groups.into_iter().map(|(k, n)| (n, k)).collect();
    by_size.sort_unstable();
    let mut opened = Vec::new();
    for (members, group) in by_size {
        let more = members.saturating_sub(1);
        if more > left {
            break;
        }
        left -= more;
        opened.push((group.0, group.1.to_owned()));
    }
    let is_opened = |node: &Node| opened.iter().any(|o| o.0 == node.layer && o.1 == node.kind);
    let part = |at: usize, node: &Node| match is_unfolded(at, node) {
        _ if is_single.get(at) == Some(&true) => None,
        true if length == 1 => None,
        true => unfolded.map(|whole| part_of(whole, number(at), length)),
        false if is_opened(node) => None,
        false => Some(Unfolded::all(node.layer, &node.kind)),
    };
    let parts: Vec<Option<Unfolded>> =
        graph.nodes.iter().enumerate().map(|(at, node)| part(at, node)).collect();
    fold(graph, parts)
}

/// The part of an unfolded node, of `length` nodes, that has the node with a number.
fn part_of(whole: &Unfolded, number: usize, length: usize) -> Unfolded {
    let from = number - (number - whole.from) % length;
    Unfolded { from, to: from.saturating_add(length).min(whole.to), ..whole.clone() }
}

/// Replaces the nodes that have the same part by one; those without a part stay.
fn fold(graph: Graph, parts: Vec<Option<Unfolded>>) -> Graph {
    let mut nodes: Vec<Node> = Vec::new();
    let mut places = Vec::with_capacity(graph.nodes.len());
    let mut groups: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for (node, part) in graph.nodes.into_iter().zip(parts) {
        let Some(part) = part else {
            places.push(Some(nodes.len()));
            nodes.push(node);
            continue;
        };
        let (place, last) = groups.entry(part.id()).or_insert((nodes.len(), String::new()));
        places.push(Some(*place));
        last.clone_from(&node.name);
        match nodes.get_mut(*place) {
            None => {
                let about = "select to see them".to_owned();
                nodes.push(Node { id: part.id(), about, ..node });
            }
            Some(sum) => {
                sum.members += node.members;
                sum.health = sum.health.max(node.health);
                sum.counters = Counters::plus(sum.counters, node.counters);
            }
        }
    }
    for (id, (place, last)) in groups {
        let Some(node) = nodes.get_mut(place) else { continue };
        let number = count(node.members, &node.kind);
        if Unfolded::parse(&id).is_some_and(|part| part.to == usize::MAX) {
            node.name = number;
        } else {
            node.about = format!("{number}, {}", node.about);
            node.name = format!("{} ... {last}", node.name);
        }
    }
    merged(nodes, graph.edges, &places)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(kind: &str, name: &str, layer: u32) -> Node {
        Node {
            id: format!("{kind}:{name}"),
            kind: kind.into(),
            name: name.into(),
            layer,
            members: 1,
            ..Node::default()
        }
    }

    fn edge(from: usize, to: usize) -> Edge {
        let counters = Some(Counters { reads: 1, ..Counters::default() });
        Edge { from, to, name: "x".into(), counters, ..Edge::default() }
    }

    /// Disks with a LUN each.
    fn many(disks: usize) -> Graph {
        let below = (0..disks).map(|n| node("disk", &format!("d{n}"), 1));
        let above = (0..disks).map(|n| node("lun", &format!("l{n}"), 2));
        let edges = (0..disks).map(|n| edge(n, disks + n)).collect();
        Graph { nodes: below.chain(above).collect(), edges }
    }

    #[test]
    fn large_layers_are_folded_but_matches_and_failures_stay_single() {
        let mut graph = many(16_384);
        graph.nodes[7].health = Health::Failed;
        let small = folded(graph, |node| node.name == "l9", None);
        let names: Vec<&str> = small.nodes.iter().map(|n| n.name.as_str()).collect();
        assert_eq!(names, ["16383 disks", "d7", "16383 luns", "l9"]);
        assert_eq!(small.nodes[0].members, 16_383);
        let reads = |from: usize, to: usize| {
            let found = small.edges.iter().find(|e| (e.from, e.to) == (from, to));
            found.and_then(|e| e.counters).map(|c| c.reads)
        };
        assert_eq!((reads(0, 2), reads(1, 2), reads(0, 3)), (Some(16_382), Some(1), Some(1)));
    }

    #[test]
    fn drawing_has_a_limit_even_if_everything_matches() {
        let mut graph = many(5_000);
        graph.nodes.iter_mut().for_each(|n| n.health = Health::Degraded);
        assert!(folded(graph, |_| true, None).nodes.len() <= NODES_MAX);
        assert_eq!(folded(many(NODES_MAX / 2), |_| false, None), many(NODES_MAX / 2));
    }

    #[test]
    fn small_layers_of_a_large_graph_stay_single() {
        let mut graph = many(1_000);
        graph.nodes.extend((0..5).map(|n| node("session", &format!("s{n}"), 3)));
        let small = folded(graph, |_| false, None);
        assert_eq!(small.nodes.iter().filter(|n| n.kind == "session").count(), 5);
    }

    #[test]
    fn folded_node_is_unfolded_in_parts_down_to_its_objects() {
        let mut graph = many(16_384);
        graph.nodes[7].health = Health::Failed;
        let mut id = "fold:1:disk".to_owned();
        let mut sizes = Vec::new();
        loop {
            let unfolded = Unfolded::parse(&id).expect("a folded node");
            assert_eq!(unfolded.id(), id);
            let small = folded(graph.clone(), |_| false, Some(&unfolded));
            assert!(small.nodes.len() <= NODES_MAX, "{}", small.nodes.len());
            let drawn: usize = small.nodes.iter().map(|node| node.members).sum();
            assert_eq!(drawn, 32_768, "each object is drawn once");
            let is_part = |node: &&Node| node.id.starts_with("fold:1:disk:");
            let Some(last) = small.nodes.iter().rfind(is_part) else { break };
            sizes.push((last.members, last.name.clone()));
            id.clone_from(&last.id);
        }
        let expected = [(256, "d16128 ... d16383".to_owned()), (4, "d16380 ... d16383".to_owned())];
        assert_eq!(sizes, expected);
        let unfolded = Unfolded::parse(&id).expect("a part");
        let small = folded(graph, |_| false, Some(&unfolded));
        for name in ["d16380", "d16383", "d7"] {
            assert!(small.nodes.iter().any(|node| node.name == name), "{name}");
        }
        for wrong in ["", "disk:d0", "fold:", "fold:x:disk", "fold:1:disk:", "fold:1:disk:3"] {
            assert!(Unfolded::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn only_objects_above_and_below_a_match_are_kept() {
        // Two disks under a mirror, a third disk of its own, and two LUNs on the mirror.
        let nodes = vec![
            node("disk", "d0", 1),
            node("disk", "d1", 1),
            node("disk", "d2", 1),
            node("mirror", "m0", 2),
            node("lun", "a", 3),
            node("lun", "b", 3),
        ];
        let edges = vec![edge(0, 3), edge(1, 3), edge(3, 4), edge(3, 5)];
        let graph = Graph { nodes, edges };
        let names = |graph: Graph| -> Vec<String> {
            graph.nodes.into_iter().map(|node| node.name).collect()
        };
        let part = around(graph.clone(), Toward::Both, |n| matches(n, "d0"));
        assert_eq!(names(part), ["d0", "m0", "a", "b"]);
        let part = around(graph.clone(), Toward::Both, |n| n.id == "lun:b");
        assert_eq!(part.edges.len(), 3);
        assert_eq!(names(part), ["d0", "d1", "m0", "b"]);
        let part = |toward| names(around(graph.clone(), toward, |n| n.id == "mirror:m0"));
        assert_eq!(part(Toward::Up), ["m0", "a", "b"]);
        assert_eq!(part(Toward::Down), ["d0", "d1", "m0"]);
        let nothing = around(graph.clone(), Toward::Both, |n| matches(n, "nothing"));
        assert!(nothing.nodes.is_empty());
    }
}
