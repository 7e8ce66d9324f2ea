//! Graph as a Mermaid flowchart, from left to right.

use super::{Role, colours, edge_text};
use crate::api::Health;
use crate::page::Drawing;
use crate::page::drawing::about;
use crate::text::{escape_line, or_dash};

/// A text inside a quoted label. Other characters than these are written as their numbers, `#34;`,
/// so that none of them has a meaning of its own.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in escape_line(&or_dash(text)).chars() {
        match c.is_alphanumeric() || " ._:/@+,-".contains(c) {
            true => out.push(c),
            false => out.push_str(&format!("#{};", u32::from(c))),
        }
    }
    out
}

pub(super) fn written(graph: &Drawing) -> String {
    let mut out = "flowchart LR\n".to_owned();
    for (at, node) in graph.nodes.iter().enumerate() {
        let (open, close) = match Role::of(node) {
            Role::Disk => ("[(", ")]"),
            Role::Layer => ("[", "]"),
            Role::Lun => ("[[", "]]"),
            Role::Session => ("([", "])"),
        };
        let (name, about) = (escaped(&node.name), escaped(&about(node)));
        let class = node.health.label();
        out.push_str(&format!("  n{at}{open}\"{name}<br/>{about}\"{close}:::{class}\n"));
    }
    for edge in &graph.edges {
        let label = match edge_text(edge) {
            none if none.is_empty() => String::new(),
            text => format!("|\"{}\"|", escaped(&text)),
        };
        out.push_str(&format!("  n{} -->{label} n{}\n", edge.from, edge.to));
    }
    for health in [Health::Ok, Health::Degraded, Health::Failed] {
        let ((fill, border), class) = (colours(health), health.label());
        let line = match health {
            Health::Ok => "",
            Health::Degraded => ",stroke-dasharray:5 5",
            Health::Failed => ",stroke-width:3px",
        };
        out.push_str(&format!("  classDef {class} fill:{fill},stroke:{border}{line}\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    /// Whether a label has only plain characters and references by number.
    fn is_label(text: &str) -> bool {
        let mut parts = text.split('#');
        let is_plain =
            |part: &str| part.chars().all(|c| c.is_alphanumeric() || " ._:/@+,-".contains(c));
        parts.next().is_some_and(is_plain)
            && parts.all(|part| {
                part.split_once(';').is_some_and(|(number, rest)| {
                    number.parse::<u32>().is_ok_and(|n| char::from_u32(n).is_some())
                        && is_plain(rest)
                })
            })
    }

    #[test]
    fn labels_have_only_plain_characters_and_numbers() {
        for evil in ["a\"]b", "]; end", "#quot;", "`x`", "<br/>", "a\nb", "%% x", "", "ä|b", "n0"]
        {
            let text = written(&sample(evil));
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!((lines[0], lines.len()), ("flowchart LR", 1 + 4 + 3 + 3), "{text}");
            for line in &lines[1..8] {
                let parts: Vec<&str> = line.split('"').collect();
                assert!(matches!(parts.len(), 1 | 3), "{evil:?}: {line}");
                let label = parts.get(1).unwrap_or(&"");
                assert!(label.split("<br/>").all(is_label), "{evil:?}: {line}");
            }
        }
        assert_eq!(escaped("a\"#\n"), "a#34;#35;#92;n");
        assert!(is_label("a#34;b") && !is_label("a#b") && !is_label("a#99999999;"));
    }

    #[test]
    fn roles_have_shapes_and_states_have_classes() {
        let text = written(&sample("d0"));
        for line in [
            "  n0[(\"d0<br/>FAILED: disk  64M\")]:::failed\n",
            "  n1[\"m0<br/>mirror\"]:::ok\n",
            "  n2[[\"m0<br/>lun\"]]:::ok\n",
            "  n3([\"iqn.h:one<br/>session\"]):::ok\n",
            "  n0 -->|\"d0  2 in flight\"| n1\n",
            "  n2 --> n3\n",
            "  classDef failed fill:#fde7e9,stroke:#c62828,stroke-width:3px\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
