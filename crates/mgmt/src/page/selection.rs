//! Part of the graph that a command selects: an object by its name, and a direction from it.

use super::fold::{self, Toward};
use super::graph::{self, Graph, Node};
use super::{Drawing, drawing_of};
use crate::api::SystemState;
use crate::object_id::geom_id;
use std::collections::HashSet;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Selection<'s> {
    /// Name or identifier of an object; `None`: the whole graph.
    pub name: Option<&'s str>,
    /// Direction from the object.
    pub toward: Toward,
    /// Draw each object, however many there are.
    pub is_unfolded: bool,
}

/// Identifiers of the nodes with a name. An identifier is more exact than the name of a provider.
/// That is more exact than the name of a geom, a LUN's provider, an initiator or a target.
fn named(state: &SystemState, graph: &Graph, name: &str) -> HashSet<String> {
    let owner = state.provider(name).map(|(geom, _)| geom_id(geom));
    let in_target = [format!("lun:{name}/"), format!("session:{name}/")];
    let of = |accepts: &dyn Fn(&Node) -> bool| -> HashSet<String> {
        graph.nodes.iter().filter(|node| accepts(node)).map(|node| node.id.clone()).collect()
    };
    let all = [
        of(&|node: &Node| node.id == name),
        of(&|node: &Node| owner.as_ref() == Some(&node.id)),
        of(&|node: &Node| node.name == name),
        of(&|node: &Node| in_target.iter().any(|prefix| node.id.starts_with(prefix.as_str()))),
    ];
    all.into_iter().find(|ids| !ids.is_empty()).unwrap_or_default()
}

/// The drawing of the selected part; `None`: no object has that name.
pub(crate) fn select(state: &SystemState, selection: &Selection<'_>) -> Option<Drawing> {
    let whole = graph::build(state);
    let total = whole.nodes.len();
    let folded = |part: Graph, is_match: &dyn Fn(&Node) -> bool| match selection.is_unfolded {
        true => part,
        false => fold::folded(part, is_match, None),
    };
    let Some(name) = selection.name else {
        return Some(drawing_of(folded(whole, &|_| false), total));
    };
    let ids = named(state, &whole, name);
    if ids.is_empty() {
        return None;
    }
    let is_match = |node: &Node| ids.contains(&node.id);
    let part = fold::around(whole, selection.toward, is_match);
    Some(drawing_of(folded(part, &is_match), total))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{GroupState, LunState, SessionState, TargetState};
    use crate::fake::geom_state;

    /// Two disks under a mirror with a LUN and a session, and a third disk with a table.
    fn state() -> SystemState {
        let lun = LunState { lun: 0, provider: "m0".into(), ..LunState::default() };
        let session = SessionState {
            initiator: "iqn.h:one".into(),
            group: Some("hosts".into()),
            luns: vec![0],
            ..SessionState::default()
        };
        let groups =
            vec![GroupState { name: "hosts".into(), luns: vec![lun], ..GroupState::default() }];
        let target = TargetState {
            name: "iqn.a:t".into(),
            groups,
            sessions: vec![session],
            ..TargetState::default()
        };
        SystemState {
            geoms: vec![
                geom_state("disk", "d0", 1, &[], "d0"),
                geom_state("disk", "d1", 1, &[], "d1"),
                geom_state("disk", "d2", 1, &[], "d2"),
                geom_state("part", "d2", 2, &["d2"], "d2p1"),
                geom_state("mirror", "m0", 2, &["d0", "d1"], "m0"),
            ],
            targets: vec![target],
            ..SystemState::default()
        }
    }

    fn kinds(name: &str, toward: Toward) -> Vec<String> {
        let selection = Selection { name: Some(name), toward, is_unfolded: false };
        let drawing = select(&state(), &selection).expect("a drawing");
        drawing.nodes.into_iter().map(|node| node.kind).collect()
    }

    #[test]
    fn objects_are_selected_by_every_name_that_they_have() {
        for (name, toward, expected) in [
            ("d0", Toward::Up, &["disk", "mirror", "lun", "session"][..]),
            ("m0", Toward::Down, &["disk", "disk", "mirror"]),
            ("d2", Toward::Both, &["disk", "part"]),
            ("d2p1", Toward::Down, &["disk", "part"]),
            ("part:d2", Toward::Up, &["part"]),
            ("lun:iqn.a:t/hosts/0", Toward::Up, &["lun", "session"]),
            ("iqn.h:one", Toward::Down, &["disk", "disk", "mirror", "lun", "session"]),
            ("iqn.a:t", Toward::Both, &["disk", "disk", "mirror", "lun", "session"]),
        ] {
            assert_eq!(kinds(name, toward), expected, "{name} {toward:?}");
        }
        let unknown = Selection { name: Some("d9"), ..Selection::default() };
        assert!(select(&state(), &unknown).is_none());
    }

    #[test]
    fn large_graph_is_folded_unless_all_of_it_is_asked_for() {
        let names: Vec<String> = (0..1000).map(|n| format!("d{n}")).collect();
        let geoms = names.iter().map(|name| geom_state("disk", name, 1, &[], name)).collect();
        let state = SystemState { geoms, ..SystemState::default() };
        let drawn = |is_unfolded: bool| {
            let selection = Selection { is_unfolded, ..Selection::default() };
            let drawing = select(&state, &selection).expect("a drawing");
            (drawing.nodes.len(), drawing.drawn, drawing.total)
        };
        assert_eq!((drawn(false), drawn(true)), ((1, 1000, 1000), (1000, 1000, 1000)));
    }
}
