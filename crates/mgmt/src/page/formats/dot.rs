//! Graph in DOT, the language of Graphviz, from left to right.

use super::{Role, colours, edge_text};
use crate::api::Health;
use crate::page::Drawing;
use crate::page::drawing::about;
use crate::text::escape_line;
use std::collections::BTreeMap;

/// A text inside a quoted string, where Graphviz reads `\n`, `\"` and `&amp;` as it does `\N`.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in escape_line(text).chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '&' => out.push_str("&amp;"),
            plain => out.push(plain),
        }
    }
    out
}

pub(super) fn written(graph: &Drawing) -> String {
    let mut out = "digraph ashlar {\n  rankdir=LR;\n  node [fontname=\"sans-serif\"];\n".to_owned();
    let mut layers: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (at, node) in graph.nodes.iter().enumerate() {
        let (fill, border) = colours(node.health);
        let shape = match Role::of(node) {
            Role::Disk => "cylinder",
            Role::Layer => "box",
            Role::Lun => "box3d",
            Role::Session => "ellipse",
        };
        let style = match node.health {
            Health::Ok => "filled",
            Health::Degraded => "filled,dashed",
            Health::Failed => "filled,bold",
        };
        let (name, about) = (escaped(&node.name), escaped(&about(node)));
        out.push_str(&format!(
            "  n{at} [label=\"{name}\\n{about}\", shape={shape}, style=\"{style}\", \
             fillcolor=\"{fill}\", color=\"{border}\"];\n"
        ));
        layers.entry(node.layer).or_default().push(format!("n{at};"));
    }
    for nodes in layers.values() {
        out.push_str(&format!("  {{ rank=same; {} }}\n", nodes.join(" ")));
    }
    for edge in &graph.edges {
        let label = escaped(&edge_text(edge));
        out.push_str(&format!("  n{} -> n{} [label=\"{label}\"];\n", edge.from, edge.to));
    }
    out.push_str("}\n");
    out
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    /// The text after a quoted string that begins a text, by the rule of the language. A quote ends
    /// it unless an odd number of backslashes is before it.
    fn after_quoted(text: &str) -> &str {
        let mut is_escaped = false;
        let end = text.find(|c: char| {
            let ends = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends
        });
        &text[end.expect("the string ends") + 1..]
    }

    #[test]
    fn names_of_any_content_stay_inside_their_strings() {
        for evil in ["a\"b", "a\\", "\\\"]; x [", "&lt;", "a\nb\u{1b}", "\\N", "ä {|}<b>", ""] {
            let text = written(&sample(evil));
            for line in text.lines() {
                let mut rest = line;
                while let Some((plain, quoted)) = rest.split_once('"') {
                    assert!(!plain.contains('\\'), "{evil:?}: {line}");
                    rest = after_quoted(quoted);
                }
                let ends = [";", "{", "}"].iter().any(|end| rest.ends_with(end));
                assert!(ends && !rest.contains('\\'), "{evil:?}: {line}");
            }
            assert_eq!(text.lines().count(), 3 + 4 + 4 + 3 + 1, "{text}");
        }
        assert_eq!(escaped("a\"\\&\n"), "a\\\"\\\\&amp;\\\\n");
    }

    #[test]
    fn state_is_shown_by_colour_style_and_word() {
        let text = written(&sample("d0"));
        let disk = "  n0 [label=\"d0\\nFAILED: disk  64M\", shape=cylinder, \
                    style=\"filled,bold\", fillcolor=\"#fde7e9\", color=\"#c62828\"];\n";
        assert!(text.contains(disk), "{text}");
        assert!(text.contains("  { rank=same; n1; }\n"), "{text}");
        assert!(text.contains("  n0 -> n1 [label=\"d0  2 in flight\"];\n"), "{text}");
        assert!(text.contains("  n2 -> n3 [label=\"\"];\n"), "{text}");
    }
}
