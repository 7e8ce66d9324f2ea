//! Graph as indented lines, as the verb `tree` prints them.

use crate::page::Drawing;
use crate::page::fold::Toward;
use crate::text::escape_line;
use crate::verbs::tree::{self, NODES_MAX};

/// Branches of a drawing: a node with several neighbours below it is repeated under each.
struct Branches<'g> {
    graph: &'g Drawing,
    /// The following nodes of each node.
    next: Vec<Vec<usize>>,
    nodes_left: usize,
}

impl Branches<'_> {
    fn branch(&mut self, at: usize) -> Option<tree::Node> {
        let node = self.graph.nodes.get(at)?;
        let next = self.next.get(at).cloned().unwrap_or_default();
        let mut out = tree::Node {
            kind: node.kind.clone(),
            name: escape_line(&node.name).into_owned(),
            about: escape_line(format!("{}  {}", node.kind, node.about).trim_end()).into_owned(),
            health: node.health,
            children: Vec::new(),
        };
        self.nodes_left = self.nodes_left.saturating_sub(1);
        if self.nodes_left == 0 && !next.is_empty() {
            out.children.push(tree::Node { name: "...".to_owned(), ..tree::Node::default() });
            return Some(out);
        }
        // The layers above are at most as deep as the graph, which has no cycle.
        out.children = next.into_iter().filter_map(|at| self.branch(at)).collect();
        Some(out)
    }
}

pub(super) fn written(graph: &Drawing, toward: Toward) -> String {
    let mut next = vec![Vec::new(); graph.nodes.len()];
    let mut is_root = vec![true; graph.nodes.len()];
    for edge in &graph.edges {
        let (from, to) = match toward {
            Toward::Down => (edge.to, edge.from),
            Toward::Both | Toward::Up => (edge.from, edge.to),
        };
        if let Some(list) = next.get_mut(from) {
            list.push(to);
        }
        if let Some(root) = is_root.get_mut(to) {
            *root = false;
        }
    }
    let mut branches = Branches { graph, next, nodes_left: NODES_MAX };
    let starts = is_root.into_iter().enumerate().filter(|(_, is_root)| *is_root);
    let roots: Vec<tree::Node> = starts.filter_map(|(at, _)| branches.branch(at)).collect();
    tree::text_of(&roots)
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn branches_begin_at_the_disks_or_at_the_selected_object() {
        let graph = sample("d\n0");
        assert_eq!(
            written(&graph, Toward::Both),
            "d\\n0  disk  64M  FAILED\n`- m0  mirror\n   `- m0  lun\n      `- iqn.h:one  session\n"
        );
        assert_eq!(
            written(&graph, Toward::Down),
            "iqn.h:one  session\n`- m0  lun\n   `- m0  mirror\n      `- d\\n0  disk  64M  FAILED\n"
        );
        assert_eq!(written(&Drawing::default(), Toward::Both), "nothing is configured\n");
    }
}
