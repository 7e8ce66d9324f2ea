//! Citations of documents in source files: the document exists, and so does the cited section.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::links::{anchors_of, documents_of};
use crate::source::Tree;

/// Folder of the documents that source files cite, from the root of the checkout.
const FOLDER: &str = "docs/";

/// Endings of cited files. A word that continues behind another one is no citation.
const ENDINGS: [&str; 3] = [".md", ".json", ".svg"];

/// A cited document: number of the line, path with its anchor, sections behind the path.
type Citation = (usize, String, Vec<String>);

/// Every citation of a document or section that does not exist, as `FILE:LINE: fault`.
/// Source files cite a document by its path from the root, so that it is found from any folder.
pub fn broken_citations(root: &Path, tree: &Tree) -> io::Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    for page in documents_of(root)? {
        let name = page.strip_prefix(root).unwrap_or(&page).to_string_lossy().into_owned();
        pages.insert(name, fs::read_to_string(&page)?);
    }
    let mut out = Vec::new();
    for source in tree.sources.iter().filter(|source| source.krate() != "tidy") {
        for (line, path, sections) in citations_of(&source.text) {
            let faults = faults(root, &pages, &path, &sections);
            out.extend(faults.into_iter().map(|fault| format!("{}:{line}: {fault}", source.path)));
        }
    }
    Ok(out)
}

fn faults(
    root: &Path,
    pages: &BTreeMap<String, String>,
    cited: &str,
    sections: &[String],
) -> Vec<String> {
    let (path, anchor) = cited.split_once('#').unwrap_or((cited, ""));
    if !path.starts_with(FOLDER) {
        let ending = format!("/{path}");
        let found = pages.keys().find(|name| name.starts_with(FOLDER) && name.ends_with(&ending));
        return found.map(|name| format!("{path}: cite {name}")).into_iter().collect();
    }
    let Some(text) = pages.get(path) else {
        let is_there = root.join(path).exists();
        return (!is_there).then(|| format!("{path} does not exist")).into_iter().collect();
    };
    let heads = text.lines().filter(|line| line.starts_with('#'));
    let titles = heads.map(|line| line.trim_start_matches('#'));
    let numbers: Vec<&str> = titles.filter_map(|t| t.split_whitespace().next()).collect();
    let missing = sections.iter().filter(|section| !numbers.contains(&section.as_str()));
    let mut out: Vec<String> =
        missing.map(|section| format!("{path} has no section {section}")).collect();
    if !anchor.is_empty() && !anchors_of(text).any(|known| known == anchor) {
        out.push(format!("{path} has no heading #{anchor}"));
    }
    out
}

/// The documents that a source file cites: paths below `docs/` anywhere, and the names of Markdown
/// files in comments. Numbers behind a path are sections: `docs/a.md 2.2, 5.2`.
pub fn citations_of(text: &str) -> Vec<Citation> {
    let mut words = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let is_comment = line.starts_with("//");
        let spoken = line.trim_start_matches(['/', '!']);
        words.extend(spoken.split_whitespace().map(|word| (i + 1, is_comment, word)));
    }
    let mut out = Vec::new();
    for (at, &(line, is_comment, word)) in words.iter().enumerate() {
        for part in word.split(['(', '[', ']', '<', '>', '"', '`']) {
            let path = part.trim_end_matches(|c: char| !c.is_alphanumeric());
            let file = path.split('#').next().unwrap_or(path);
            let is_document = match path.starts_with(FOLDER) {
                true => ENDINGS.iter().any(|ending| file.ends_with(ending)),
                false => is_comment && file.ends_with(".md") && !file.contains('/'),
            };
            let is_name = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
            if is_document && file.chars().all(is_name) {
                let behind = words.iter().skip(at + 1).map(|(_, _, word)| *word);
                let ends_here = part != path || !word.ends_with(part);
                let sections = if ends_here { Vec::new() } else { numbers_of(behind) };
                out.push((line, path.to_owned(), sections));
            }
        }
    }
    out
}

/// The numbers at the beginning of a text: `2.2, 5.2 and 7`.
fn numbers_of<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut out = Vec::new();
    for word in words {
        let number = word.trim_end_matches(|c: char| !c.is_ascii_digit());
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        if word == "and" && !out.is_empty() {
            continue;
        }
        if number.is_empty() || !number.chars().all(is_number) {
            break;
        }
        out.push(number.to_owned());
        if word != number && word != format!("{number},") {
            break;
        }
    }
    out
}
