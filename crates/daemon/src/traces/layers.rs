//! Parts of a slow request as a tree of layers, with the time that each needed itself.

use std::collections::BTreeMap;

use geom::{Edge, EdgeNames, TracePart};
use mgmt::api::{SlowRequest, TracedLayer};

/// The part that contains another one: of the same request the layer just above, else the layer
/// that made the piece. Parts of pieces whose layer is not known belong to the whole request.
fn container(parts: &[TracePart], at: usize) -> Option<usize> {
    let part = parts.get(at).filter(|_| at > 0)?;
    let is_above = |other: &TracePart| match other.request == part.request {
        true => other.depth < part.depth,
        false => part.parent == Some(other.request),
    };
    let holds = |(number, other): &(usize, &TracePart)| {
        let is_inside = other.start_ns <= part.start_ns && part.end_ns <= other.end_ns;
        *number != at && is_above(other) && is_inside
    };
    let all = parts.iter().enumerate().filter(holds);
    let nearest = all.max_by_key(|(_, other)| (other.request == part.request, other.depth));
    Some(nearest.map_or(0, |(number, _)| number))
}

/// Time of a part that none of these parts covers.
fn own_ns(part: &TracePart, below: &[&TracePart]) -> u64 {
    let mut spans: Vec<(u64, u64)> = below.iter().map(|p| (p.start_ns, p.end_ns)).collect();
    spans.sort_unstable();
    let (mut covered, mut seen_ns) = (0, part.start_ns);
    for (start_ns, end_ns) in spans {
        covered += end_ns.saturating_sub(start_ns.max(seen_ns));
        seen_ns = seen_ns.max(end_ns);
    }
    part.took_ns().saturating_sub(covered)
}

/// A tree of parts.
struct Tree<'p> {
    parts: &'p [TracePart],
    /// Numbers of the parts that each part contains, by their start.
    below: Vec<Vec<usize>>,
    names: &'p BTreeMap<Edge, EdgeNames>,
}

impl Tree<'_> {
    fn layer(&self, at: usize, begin_ns: u64) -> TracedLayer {
        let Some(part) = self.parts.get(at) else { return TracedLayer::default() };
        let numbers = self.below.get(at).map_or(&[][..], Vec::as_slice);
        let below: Vec<&TracePart> = numbers.iter().filter_map(|n| self.parts.get(*n)).collect();
        let names = self.names.get(&part.edge);
        let geom = match names {
            _ if part.is_cut => "cut".to_owned(),
            Some(EdgeNames { geom: (class, name), .. }) => format!("{class}:{name}"),
            None => "gone".to_owned(),
        };
        TracedLayer {
            geom,
            provider: names.map(|names| names.provider.clone()).unwrap_or_default(),
            start_ns: part.start_ns.saturating_sub(begin_ns),
            took_ns: part.took_ns(),
            own_ns: own_ns(part, &below),
            offset_bytes: part.offset,
            length_bytes: part.length,
            error: part.status.err().map(|e| e.to_string()),
            below: numbers.iter().map(|n| self.layer(*n, begin_ns)).collect(),
        }
    }
}

/// A request of a core for clients, without the names of its client.
pub fn shown(
    core: u32,
    slow: &geom::SlowRequest,
    names: &BTreeMap<Edge, EdgeNames>,
    started_ns: u64,
) -> SlowRequest {
    let parts = slow.parts.as_slice();
    let Some(root) = parts.first() else { return SlowRequest::default() };
    let mut below = vec![Vec::new(); parts.len()];
    for at in 0..parts.len() {
        if let Some(list) = container(parts, at).and_then(|above| below.get_mut(above)) {
            list.push(at);
        }
    }
    let start_ns = |at: &usize| parts.get(*at).map_or(0, |part| part.start_ns);
    below.iter_mut().for_each(|list| list.sort_by_key(start_ns));
    let user = names.get(&root.edge).map(|names| format!("{}:{}", names.user.0, names.user.1));
    SlowRequest {
        core,
        user: user.unwrap_or_default(),
        operation: root.op.name().to_owned(),
        start_ns: root.start_ns.saturating_sub(started_ns),
        is_complete: slow.is_complete,
        layer: Tree { parts, below, names }.layer(0, root.start_ns),
        ..SlowRequest::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bio::{Errno, Op, Origin};

    fn part(edge: u32, request: u64, parent: Option<u64>, depth: u8, at: (u64, u64)) -> TracePart {
        TracePart {
            request,
            parent,
            depth,
            edge: Edge(edge),
            is_cut: false,
            op: Op::Write,
            origin: Origin(0),
            offset: 0,
            length: 512,
            start_ns: at.0,
            end_ns: at.1,
            status: Ok(()),
        }
    }

    fn names() -> BTreeMap<Edge, EdgeNames> {
        let of = |class: &'static str, name: &str| EdgeNames {
            user: ("lun", "m0".to_owned()),
            provider: name.to_owned(),
            geom: (class, name.to_owned()),
        };
        let all = [of("limit", "l0"), of("mirror", "m0"), of("disk", "a"), of("disk", "b")];
        (0..).map(Edge).zip(all).collect()
    }

    /// Lines `GEOM start took itself`, indented.
    fn lines(layer: &TracedLayer, depth: usize, out: &mut Vec<String>) {
        let TracedLayer { geom, start_ns, took_ns, own_ns, .. } = layer;
        out.push(format!("{}{geom} {start_ns} {took_ns} {own_ns}", " ".repeat(depth)));
        layer.below.iter().for_each(|below| lines(below, depth + 1, out));
    }

    #[test]
    fn parts_become_layers_with_the_time_of_each_itself() {
        let failed = TracePart { status: Err(Errno::Io), ..part(3, 9, Some(7), 0, (112, 120)) };
        // The uppermost layer held the request for 10, and another one between two tries for 2.
        let parts = vec![
            part(0, 7, None, 0, (100, 126)),
            part(1, 7, None, 1, (122, 126)),
            part(2, 10, Some(7), 0, (122, 125)),
            part(1, 7, None, 1, (110, 120)),
            failed,
            part(2, 8, Some(7), 0, (110, 114)),
        ];
        let slow = geom::SlowRequest { parts, is_complete: true };
        let request = shown(3, &slow, &names(), 40);
        let mut all = Vec::new();
        lines(&request.layer, 0, &mut all);
        assert_eq!(
            all,
            [
                "limit:l0 0 26 12",
                " mirror:m0 10 10 0",
                "  disk:a 10 4 4",
                "  disk:b 12 8 8",
                " mirror:m0 22 4 1",
                "  disk:a 22 3 3",
            ]
        );
        let error = request.layer.below[0].below[1].error.as_deref();
        assert_eq!(error, Some(Errno::Io.to_string().as_str()));
        assert_eq!((request.core, request.start_ns, request.is_complete), (3, 60, true));
        assert_eq!((request.user.as_str(), request.operation.as_str()), ("lun:m0", "write"));
    }

    #[test]
    fn pieces_of_a_cut_request_and_gone_layers_are_shown() {
        let cut = TracePart { is_cut: true, ..part(0, 7, None, 0, (0, 9)) };
        let parts = vec![cut, part(9, 8, Some(7), 0, (0, 9)), part(2, 6, Some(5), 0, (1, 2))];
        let slow = geom::SlowRequest { parts, is_complete: false };
        let layer = shown(0, &slow, &names(), 0).layer;
        assert_eq!((layer.geom.as_str(), layer.provider.as_str()), ("cut", "l0"));
        let below: Vec<&str> = layer.below.iter().map(|below| below.geom.as_str()).collect();
        assert_eq!(below, ["gone", "disk:a"], "a part without its layer belongs to the request");
    }
}
