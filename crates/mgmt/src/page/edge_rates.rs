//! Rates of the edges of a drawing in the last interval of the samples, for the page without a
//! script.
//!
//! The daemon samples objects, not their uses. An edge has the rate of one of its nodes if this
//! node has no other edge on that side.

use super::Drawing;
use super::graph::{Node, SESSION_KIND};
use crate::api::{RateSample, SystemState};
use crate::config::units::short;
use crate::object_id::{LUN_CLASS, geom_id};
use std::collections::HashMap;

/// Identifiers of the units that hold providers open, by provider.
fn units(state: &SystemState) -> HashMap<&str, String> {
    let mut out = HashMap::new();
    for geom in state.geoms.iter().filter(|geom| geom.class == LUN_CLASS) {
        let below = geom.consumers.iter().filter_map(|consumer| consumer.provider.as_deref());
        out.extend(below.map(|provider| (provider, geom_id(geom))));
    }
    out
}

/// A rate in a few words.
fn text(sample: &RateSample) -> String {
    let operations = sample.per_second(sample.read.ops + sample.write.ops);
    let bytes = sample.per_second(sample.read.bytes + sample.write.bytes);
    format!("{operations:.0}/s {}/s", short(bytes as u64))
}

/// Adds the rates. `latest` has the last sample of an object, if it had requests then.
pub fn add(
    drawing: &mut Drawing,
    state: &SystemState,
    latest: impl Fn(&str) -> Option<RateSample>,
) {
    let units = units(state);
    let (mut above, mut below) = (HashMap::new(), HashMap::new());
    let mut of_provider: HashMap<&str, usize> = HashMap::new();
    for edge in &drawing.edges {
        *above.entry(edge.from).or_insert(0_usize) += 1;
        *below.entry(edge.to).or_insert(0_usize) += 1;
    }
    for node in drawing.nodes.iter().filter(|node| node.kind == LUN_CLASS) {
        *of_provider.entry(&node.name).or_default() += 1;
    }
    let rate = |node: &Node| match node.kind.as_str() {
        _ if node.members != 1 => None,
        // LUNs of one unit have its sum together.
        LUN_CLASS if of_provider.get(node.name.as_str()).is_some_and(|luns| *luns > 1) => None,
        LUN_CLASS => latest(units.get(node.name.as_str())?),
        _ => latest(&node.id),
    };
    let texts: Vec<Option<String>> = drawing
        .edges
        .iter()
        .map(|edge| {
            let (from, to) = (drawing.nodes.get(edge.from)?, drawing.nodes.get(edge.to)?);
            let has_one = |counts: &HashMap<usize, usize>, at| counts.get(&at) == Some(&1);
            // A unit and a session use all of the provider below them; a geom may read only a part.
            let is_whole = [LUN_CLASS, SESSION_KIND].contains(&to.kind.as_str());
            let of_upper = || rate(to).filter(|_| is_whole && has_one(&below, edge.to));
            let of_lower = || rate(from).filter(|_| has_one(&above, edge.from));
            of_upper().or_else(of_lower).map(|sample| text(&sample))
        })
        .collect();
    for (edge, text) in drawing.edges.iter_mut().zip(texts) {
        edge.rate = text;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::OpSample;
    use crate::fake::geom_state;
    use crate::page::graph::Edge;

    fn node(kind: &str, name: &str) -> Node {
        let (id, members) = (format!("{kind}:{name}"), 1);
        Node { id, kind: kind.to_owned(), name: name.to_owned(), members, ..Node::default() }
    }

    #[test]
    fn edge_has_the_rate_of_a_node_without_other_edges() {
        // A disk with two users, one of which is a LUN with two sessions.
        let nodes = vec![
            node("disk", "d0"),
            node("part", "p0"),
            node("lun", "d0"),
            node("session", "a"),
            node("session", "b"),
            node("lun", "p0"),
            node("lun", "p0"),
        ];
        let uses = [(0, 1), (0, 2), (2, 3), (2, 4), (5, 4), (1, 5), (1, 6)];
        let edges = uses.map(|(from, to)| Edge { from, to, ..Edge::default() }).to_vec();
        let mut drawing = Drawing { nodes, edges, ..Drawing::default() };
        let geoms = vec![
            geom_state("lun", "d0", 3, &["d0"], "d0.lun"),
            geom_state("lun", "p0", 3, &["p0"], "p0.lun"),
        ];
        let state = SystemState { geoms, ..SystemState::default() };
        let sample = |ops: u64| {
            let read = OpSample { ops, bytes: ops << 20, ..OpSample::default() };
            RateSample { span_ns: 10_000_000_000, read, ..RateSample::default() }
        };
        add(&mut drawing, &state, |id| match id {
            "lun:d0" => Some(sample(100)),
            "session:a" => Some(sample(20)),
            "lun:p0" | "disk:d0" | "session:b" => Some(sample(900)),
            _ => None,
        });
        let rates: Vec<Option<&str>> = drawing.edges.iter().map(|e| e.rate.as_deref()).collect();
        let expected = [None, Some("10/s 10M/s"), Some("2/s 2.0M/s"), None, None, None, None];
        assert_eq!(rates, expected);
    }
}
