//! Places of nodes in the drawing: a column for each layer, ordered so that few edges cross.

use super::graph::{Edge, Node};
use std::collections::BTreeMap;

/// Width of a node, in pixels.
pub const NODE_WIDTH: u32 = 184;
/// Height of a node, in pixels.
pub const NODE_HEIGHT: u32 = 44;
/// Distance of two columns, which has space for the text of an edge.
const GAP_X: u32 = 120;
/// Distance of two rows.
const GAP_Y: u32 = 16;
/// Distance of the outer nodes from the border.
const MARGIN: u32 = 8;
/// Passes over the columns that order their rows.
const PASSES: usize = 4;

fn to_u32(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Orders a column by the mean row of the neighbours of each node; a node without any keeps its
/// row.
fn order(column: &mut [usize], neighbours: &[Vec<usize>], rows: &mut [f64]) {
    let mean = |at: usize| {
        let near = neighbours.get(at).map_or(&[][..], Vec::as_slice);
        let sum: f64 = near.iter().filter_map(|n| rows.get(*n)).sum();
        match near.is_empty() {
            true => rows.get(at).copied().unwrap_or(0.0),
            false => sum / near.len() as f64,
        }
    };
    let mut keyed: Vec<(f64, usize)> = column.iter().map(|at| (mean(*at), *at)).collect();
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Rows count from the middle: columns of different lengths are centred.
    let middle = keyed.len() as f64 / 2.0;
    for (row, (place, (_, at))) in column.iter_mut().zip(keyed).enumerate() {
        *place = at;
        if let Some(own) = rows.get_mut(at) {
            *own = row as f64 - middle;
        }
    }
}

/// Gives every node its place; answers width and height of the drawing.
pub fn place(nodes: &mut [Node], edges: &[Edge]) -> (u32, u32) {
    let mut columns: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, node) in nodes.iter().enumerate() {
        columns.entry(node.layer).or_default().push(at);
    }
    let mut columns: Vec<Vec<usize>> = columns.into_values().collect();
    let mut below = vec![Vec::new(); nodes.len()];
    let mut above = below.clone();
    for edge in edges {
        if let Some(list) = below.get_mut(edge.to) {
            list.push(edge.from);
        }
        if let Some(list) = above.get_mut(edge.from) {
            list.push(edge.to);
        }
    }
    let mut rows = vec![0.0; nodes.len()];
    for column in &mut columns {
        order(column, &below, &mut rows);
    }
    for pass in 0..PASSES {
        if pass % 2 == 0 {
            columns.iter_mut().rev().for_each(|column| order(column, &above, &mut rows));
        } else {
            columns.iter_mut().for_each(|column| order(column, &below, &mut rows));
        }
    }
    let most = columns.iter().map(Vec::len).max().unwrap_or(0);
    let (step_x, step_y) = (NODE_WIDTH + GAP_X, NODE_HEIGHT + GAP_Y);
    for (n, column) in columns.iter().enumerate() {
        let spare = to_u32(most - column.len()) * step_y / 2;
        for (row, at) in column.iter().enumerate() {
            if let Some(node) = nodes.get_mut(*at) {
                node.x = MARGIN + to_u32(n) * step_x;
                node.y = MARGIN + spare + to_u32(row) * step_y;
            }
        }
    }
    let side = |count: usize, step: u32, gap: u32| (to_u32(count) * step + 2 * MARGIN) - gap;
    match most {
        0 => (0, 0),
        _ => (side(columns.len(), step_x, GAP_X), side(most, step_y, GAP_Y)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_columns_and_rows_follow_their_neighbours() {
        let node = |layer: u32| Node { layer, ..Node::default() };
        // Two disks, and above each a geom, given in the opposite order.
        let mut nodes = vec![node(1), node(1), node(4), node(4)];
        let edge = |from, to| Edge { from, to, ..Edge::default() };
        let edges = [edge(0, 3), edge(1, 2)];
        let (width, height) = place(&mut nodes, &edges);
        assert_eq!((nodes[0].x, nodes[2].x), (MARGIN, MARGIN + NODE_WIDTH + GAP_X));
        assert_eq!(nodes[0].y, nodes[3].y, "no edges cross");
        assert_eq!(nodes[1].y, nodes[2].y);
        assert_eq!(width, 2 * NODE_WIDTH + GAP_X + 2 * MARGIN);
        assert_eq!(height, 2 * NODE_HEIGHT + GAP_Y + 2 * MARGIN);
        assert_eq!(place(&mut [], &[]), (0, 0));
    }
}
