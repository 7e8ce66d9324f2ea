//! Graph of the page: disks, geoms, LUNs and sessions as nodes in layers, with counters.

use crate::api::{
    GeomState, GroupState, Health, LUN_COUNTERS_MAX, LunCounters, SessionState, Stats, SystemState,
    TargetState,
};
use crate::config::units::short;
use crate::object_id::{LUN_CLASS, geom_id, lun_id, session_id};
use crate::verbs::index::{ExportedLun, Index};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Kind of the sessions.
pub const SESSION_KIND: &str = "session";

/// Counters of a node or an edge since the start of the daemon. A rate is a difference of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ViewCounters")]
pub struct Counters {
    /// Completed reads.
    pub reads: u64,
    /// Completed writes.
    pub writes: u64,
    /// Bytes of the completed reads.
    pub read_bytes: u64,
    /// Bytes of the completed writes.
    pub write_bytes: u64,
    /// Requests that failed, of every kind.
    pub errors: u64,
    /// Requests that are started and not yet completed.
    pub in_flight: u64,
}

impl Counters {
    /// Counters of a provider, consumer or session.
    pub fn of(stats: &Stats) -> Counters {
        Counters {
            reads: stats.read.ops,
            writes: stats.write.ops,
            read_bytes: stats.read.bytes,
            write_bytes: stats.write.bytes,
            errors: stats.errors(),
            in_flight: stats.in_flight,
        }
    }

    /// Counters of a LUN of a session.
    fn of_lun(counters: &LunCounters) -> Counters {
        Counters {
            reads: counters.reads,
            writes: counters.writes,
            read_bytes: counters.read_bytes,
            write_bytes: counters.write_bytes,
            errors: counters.errors,
            in_flight: 0,
        }
    }

    /// The sum of both.
    pub fn plus(self, other: Counters) -> Counters {
        Counters {
            reads: self.reads.saturating_add(other.reads),
            writes: self.writes.saturating_add(other.writes),
            read_bytes: self.read_bytes.saturating_add(other.read_bytes),
            write_bytes: self.write_bytes.saturating_add(other.write_bytes),
            errors: self.errors.saturating_add(other.errors),
            in_flight: self.in_flight.saturating_add(other.in_flight),
        }
    }
}

/// An object of the graph, or several that are drawn as one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ViewNode")]
pub struct Node {
    /// Identifier: `disk:d0`, `mirror:m0`, `lun:TARGET/GROUP/NUMBER`.
    pub id: String,
    /// `disk`, a class, `lun` or `session`.
    pub kind: String,
    /// Name of the object, or the number of folded objects.
    pub name: String,
    /// Further text: size and state, or address and target.
    pub about: String,
    /// Layer: disks are in the lowest one, sessions in the highest one.
    pub layer: u32,
    /// Health of the object; of folded objects the worst one.
    pub health: Health,
    /// Number of folded objects; 1 for a single one.
    pub members: usize,
    /// Distance of the left side from that of the drawing.
    pub x: u32,
    /// Distance of the upper side from that of the drawing.
    pub y: u32,
    /// Counters of the object.
    pub counters: Counters,
}

/// A use of one node by another one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ViewEdge")]
pub struct Edge {
    /// Index of the lower node.
    pub from: usize,
    /// Index of the upper node.
    pub to: usize,
    /// Name of the used provider; empty if several uses are drawn as one.
    pub name: String,
    /// Counters of the use; absent if the daemon does not count it. Those of one of several LUNs of
    /// a session have no requests in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counters>,
    /// Rate in the last interval of the samples, for the document; a script measures it.
    #[serde(skip)]
    pub rate: Option<String>,
}

/// Nodes and edges.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// Nodes, from the lowest layer to the highest one.
    pub nodes: Vec<Node>,
    /// Edges.
    pub edges: Vec<Edge>,
}

struct Builder<'s> {
    index: Index<'s>,
    graph: Graph,
    /// Node of the geom that has a provider.
    providers: HashMap<&'s str, usize>,
    /// Counters of the units, by provider.
    units: HashMap<&'s str, Counters>,
    luns: HashMap<(&'s str, &'s str, u64), usize>,
    /// Counters of the LUNs, of all their sessions, by target, group and number.
    uses: HashMap<(&'s str, &'s str, u64), Counters>,
    /// Layer of the LUNs; sessions are in the next one.
    lun_layer: u32,
}

impl<'s> Builder<'s> {
    fn add(&mut self, node: Node) -> usize {
        self.graph.nodes.push(node);
        self.graph.nodes.len() - 1
    }

    fn connect(&mut self, from: usize, to: usize, name: &str, counters: Option<Counters>) {
        let name = name.to_owned();
        self.graph.edges.push(Edge { from, to, name, counters, ..Edge::default() });
    }

    /// Geoms that hold units of LUNs open are drawn as these LUNs.
    fn is_drawn(&self, geom: &GeomState) -> bool {
        let mut below = geom.consumers.iter().filter_map(|c| c.provider.as_deref());
        geom.class != LUN_CLASS || !below.any(|name| !self.index.luns(name).is_empty())
    }

    fn geoms(&mut self, state: &'s SystemState) {
        let drawn: Vec<&GeomState> = state.geoms.iter().filter(|g| self.is_drawn(g)).collect();
        let mut nodes = Vec::new();
        for geom in drawn {
            let sizes = geom.providers.iter().map(|p| p.size_bytes);
            let size = sizes.fold(0, u64::saturating_add);
            let counters = geom.providers.iter().map(|p| Counters::of(&p.stats));
            let node = self.add(Node {
                id: geom_id(geom),
                kind: geom.class.clone(),
                name: geom.name.clone(),
                about: format!("{}  {}", short(size), geom.state).trim_end().to_owned(),
                layer: geom.rank,
                health: geom.health,
                members: 1,
                counters: counters.fold(Counters::default(), Counters::plus),
                ..Node::default()
            });
            for provider in &geom.providers {
                self.providers.entry(&provider.name).or_insert(node);
            }
            nodes.push((node, geom));
        }
        for (node, geom) in nodes {
            for consumer in &geom.consumers {
                let Some(name) = consumer.provider.as_deref() else { continue };
                let Some(&below) = self.providers.get(name) else { continue };
                self.connect(below, node, name, Some(Counters::of(&consumer.stats)));
            }
        }
        for geom in state.geoms.iter().filter(|g| g.class == LUN_CLASS) {
            for consumer in &geom.consumers {
                if let Some(name) = consumer.provider.as_deref() {
                    self.units.insert(name, Counters::of(&consumer.stats));
                }
            }
        }
    }

    /// Counters of a LUN: those of its unit, or if other LUNs share the unit, those of its own
    /// sessions. `None`: they are not known, because a session has counters of other LUNs only.
    fn lun_counters(&self, (target, group, lun): ExportedLun<'s>) -> Option<Counters> {
        if self.index.luns(&lun.provider).len() <= 1 {
            return self.units.get(lun.provider.as_str()).copied();
        }
        let mut own = target.sessions.iter().filter(|s| s.group.as_ref() == Some(&group.name));
        let is_full = |s: &SessionState| s.lun_counters.len() >= LUN_COUNTERS_MAX;
        let is_counted = |s: &SessionState| s.lun_counters.iter().any(|of| of.lun == lun.lun);
        if own.any(|s| is_full(s) && !is_counted(s)) {
            return None;
        }
        let key = (target.name.as_str(), group.name.as_str(), lun.lun);
        Some(self.uses.get(&key).copied().unwrap_or_default())
    }

    fn group(&mut self, target: &'s TargetState, group: &'s GroupState) {
        let node = |number: u64, provider: &str, mode: &str| Node {
            id: lun_id(&target.name, &group.name, number),
            kind: LUN_CLASS.to_owned(),
            name: provider.to_owned(),
            about: format!("LUN {number} {mode}, {} of {}", group.name, target.name),
            members: 1,
            ..Node::default()
        };
        let layer = self.lun_layer;
        for lun in &group.luns {
            let mode = if lun.read_only { "ro" } else { "rw" };
            let counters = self.lun_counters((target, group, lun));
            let health = self.index.lun_health((target, group, lun));
            let shown = Node {
                layer,
                health,
                counters: counters.unwrap_or_default(),
                ..node(lun.lun, &lun.provider, mode)
            };
            let at = self.add(shown);
            self.luns.insert((target.name.as_str(), group.name.as_str(), lun.lun), at);
            if let Some(&below) = self.providers.get(lun.provider.as_str()) {
                self.connect(below, at, &lun.provider, counters);
            }
        }
        for awaited in &group.awaited {
            let health = Health::Failed;
            let lost = node(awaited.lun, &awaited.provider, "missing");
            self.add(Node { layer, health, ..lost });
        }
    }

    fn sessions(&mut self, target: &'s TargetState) {
        for session in &target.sessions {
            let counters = Counters::of(&session.stats);
            let at = self.add(Node {
                id: session_id(target, session),
                kind: SESSION_KIND.to_owned(),
                name: session.initiator.clone(),
                about: format!("{} at {}{}", session.address, target.name, session.by_portal()),
                layer: self.lun_layer + 1,
                members: 1,
                counters: Counters { in_flight: session.commands_outstanding, ..counters },
                ..Node::default()
            });
            let Some(group) = session.group.as_deref() else { continue };
            // LUNs beyond the listed ones have an edge if they are used.
            let used = || session.lun_counters.iter();
            let own: HashMap<u64, Counters> =
                used().map(|of| (of.lun, Counters::of_lun(of))).collect();
            let further = used().map(|of| of.lun).filter(|lun| !session.luns.contains(lun));
            for number in session.luns.iter().copied().chain(further) {
                let key = (target.name.as_str(), group, number);
                let uses = match session.luns_total <= 1 {
                    true => counters,
                    false => own.get(&number).copied().unwrap_or_default(),
                };
                if let Some(&lun) = self.luns.get(&key) {
                    self.connect(lun, at, "", Some(uses));
                }
            }
        }
    }
}

/// Counters of the LUNs, of all their sessions.
fn uses(state: &SystemState) -> HashMap<(&str, &str, u64), Counters> {
    let mut out: HashMap<(&str, &str, u64), Counters> = HashMap::new();
    for (target, session) in state.sessions() {
        let Some(group) = session.group.as_deref() else { continue };
        for of in &session.lun_counters {
            let sum = out.entry((target.name.as_str(), group, of.lun)).or_default();
            *sum = sum.plus(Counters::of_lun(of));
        }
    }
    out
}

/// The whole graph of a state.
pub fn build(state: &SystemState) -> Graph {
    let lun_layer = state.geoms.iter().map(|g| g.rank).max().unwrap_or(0) + 1;
    let mut builder = Builder {
        index: Index::new(state),
        graph: Graph::default(),
        providers: HashMap::new(),
        units: HashMap::new(),
        luns: HashMap::new(),
        uses: uses(state),
        lun_layer,
    };
    builder.geoms(state);
    for target in &state.targets {
        target.groups.iter().for_each(|group| builder.group(target, group));
    }
    state.targets.iter().for_each(|target| builder.sessions(target));
    builder.graph
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::LunState;
    use crate::fake::geom_state;

    /// One disk at LUN 0 of two groups; the session of the first one sees another disk too.
    fn state() -> SystemState {
        let lun = |lun: u64, provider: &str| LunState {
            lun,
            provider: provider.to_owned(),
            ..LunState::default()
        };
        let group = |name: &str, luns: Vec<LunState>| GroupState {
            name: name.to_owned(),
            luns,
            ..GroupState::default()
        };
        let session = |group: &str, lun_counters: Vec<LunCounters>| SessionState {
            initiator: format!("iqn.h:{group}"),
            group: Some(group.to_owned()),
            luns: vec![0, 1],
            luns_total: 2,
            lun_counters,
            ..SessionState::default()
        };
        let used = |lun: u64, reads: u64| LunCounters { lun, reads, ..LunCounters::default() };
        let mut unit = geom_state("lun", "d0", 2, &["d0"], "d0.lun");
        unit.consumers[0].stats.read.ops = 12;
        let geoms = ["d0", "d1"].map(|name| geom_state("disk", name, 1, &[], name));
        let target = TargetState {
            name: "iqn.a:t".to_owned(),
            groups: vec![
                group("a", vec![lun(0, "d0"), lun(1, "d1")]),
                group("b", vec![lun(0, "d0")]),
            ],
            sessions: vec![
                session("a", vec![used(0, 7), used(1, 3)]),
                session("b", vec![used(0, 5)]),
            ],
            ..TargetState::default()
        };
        SystemState {
            geoms: geoms.into_iter().chain([unit]).collect(),
            targets: vec![target],
            ..SystemState::default()
        }
    }

    fn reads(graph: &Graph, from: &str, to: &str) -> Option<u64> {
        let at = |id: &str| graph.nodes.iter().position(|node| node.id == id).expect("a node");
        let is_edge = |edge: &&Edge| (edge.from, edge.to) == (at(from), at(to));
        let edge = graph.edges.iter().find(is_edge).expect("an edge");
        edge.counters.map(|counters| counters.reads)
    }

    #[test]
    fn session_with_several_luns_has_counters_at_each() {
        let graph = build(&state());
        let session = "session:iqn.a:t/iqn.h:a/";
        assert_eq!(reads(&graph, "lun:iqn.a:t/a/0", session), Some(7));
        assert_eq!(reads(&graph, "lun:iqn.a:t/a/1", session), Some(3));
    }

    #[test]
    fn session_has_edges_to_used_luns_that_it_does_not_list() {
        let mut state = state();
        state.targets[0].sessions[0].luns = vec![0];
        let session = "session:iqn.a:t/iqn.h:a/";
        assert_eq!(reads(&build(&state), "lun:iqn.a:t/a/1", session), Some(3));
    }

    #[test]
    fn luns_of_one_provider_have_their_own_counters() {
        let mut state = state();
        let graph = build(&state);
        assert_eq!(reads(&graph, "disk:d0", "lun:iqn.a:t/a/0"), Some(7));
        assert_eq!(reads(&graph, "disk:d0", "lun:iqn.a:t/b/0"), Some(5));
        // Of a session with very many used LUNs, only the first ones have counters.
        let counters = |lun| LunCounters { lun, ..LunCounters::default() };
        state.targets[0].sessions[1].lun_counters =
            (1..).take(LUN_COUNTERS_MAX).map(counters).collect();
        assert_eq!(reads(&build(&state), "disk:d0", "lun:iqn.a:t/b/0"), None);
        state.targets[0].groups.pop();
        assert_eq!(reads(&build(&state), "disk:d0", "lun:iqn.a:t/a/0"), Some(12));
    }
}
