//! List of the source files: one table for each folder, in reading order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::rules::LEVELS;
use crate::source::{Source, Tree};

const HEAD: &str = "# Source files

Every product file, by folder and in reading order: the root of the folder is first, and each file
is after the files beside it that it imports. The text is the first sentence of the file's head.
Crates are listed from the lowest level to the highest one, then the tools.
`ASHLAR_WRITE_FILES=1 cargo test -p ashlar-tidy files` writes this page.
";

/// The document.
pub fn listed(tree: &Tree) -> String {
    let mut folders: BTreeMap<(usize, &str), Vec<&Source>> = BTreeMap::new();
    for source in tree.sources.iter().filter(|s| s.path.contains("/src/") && !s.is_test()) {
        let level = LEVELS.iter().position(|(name, _)| *name == source.krate());
        let (folder, _) = source.path.rsplit_once('/').unwrap_or_default();
        folders.entry((level.unwrap_or(LEVELS.len()), folder)).or_default().push(source);
    }
    let mut out = String::from(HEAD);
    for ((_, folder), files) in folders {
        let _ = write!(out, "\n## {folder}\n\n| file | contents |\n|---|---|\n");
        for file in in_reading_order(files) {
            let text = first_sentence(&file.text).replace('|', "\\|");
            let _ = writeln!(out, "| `{}` | {text} |", name(file));
        }
    }
    out
}

fn name(file: &Source) -> &str {
    file.path.rsplit('/').next().unwrap_or("")
}

/// The root of the folder, then each file after those that it imports. Files that import each other
/// are in the order of their names.
pub fn in_reading_order(mut files: Vec<&Source>) -> Vec<&Source> {
    let is_root = |file: &&Source| ["mod.rs", "lib.rs", "main.rs"].contains(&name(file));
    let mut out: Vec<&Source> = files.iter().copied().filter(is_root).collect();
    files.retain(|file| !is_root(file));
    while !files.is_empty() {
        let imports_none = |file: &&Source| {
            let words = imported(&file.text);
            let is_imported = |other: &&Source| words.contains(name(other).trim_end_matches(".rs"));
            !files.iter().any(|other| other.path != file.path && is_imported(other))
        };
        let next = files.iter().position(imports_none).unwrap_or(0);
        out.push(files.remove(next));
    }
    out
}

/// Words of the imports from the same crate.
fn imported(text: &str) -> BTreeSet<&str> {
    let mut words = BTreeSet::new();
    let mut is_inside = false;
    for line in text.lines() {
        is_inside |= line.starts_with("use super::") || line.starts_with("use crate::");
        if is_inside {
            words.extend(line.split(|c: char| !c.is_alphanumeric() && c != '_'));
            is_inside = !line.contains(';');
        }
    }
    words
}

/// The first sentence of a file's head.
pub fn first_sentence(text: &str) -> String {
    let head = text.lines().skip_while(|line| !line.starts_with("//!"));
    let lines = head.map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let paragraph: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    let text = paragraph.join(" ");
    let end = text.find(". ").map_or(text.len(), |at| at + 1);
    text[..end].to_owned()
}
