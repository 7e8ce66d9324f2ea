//! Numbered invariants of the tree, collected from the files that keep them.
//!
//! ```text
//! //! Invariants
//! //!  D1  A layer's `start` runs only after
//! //!      access was checked.
//! ```
//!
//! [`listed`] writes them as `docs/invariants.md`, with the test files of the same crate that cite
//! each number.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::source::{Source, Tree};

/// First lines of the document.
const HEAD: &str = "# Invariants

Generated from the module documentation of the files that keep them:
`ASHLAR_WRITE_INVARIANTS=1 cargo test -p ashlar-tidy invariants`. The last column names the test
files of the crate that cite the number.
";

/// An invariant: its number and its text in one line.
#[derive(Debug, PartialEq, Eq)]
pub struct Invariant {
    /// `D1`.
    pub number: String,
    /// The condition that always holds.
    pub text: String,
}

/// The invariants in the documentation of a module.
pub fn of(text: &str) -> Vec<Invariant> {
    let docs = text.lines().filter_map(|line| line.strip_prefix("//!"));
    let mut found: Vec<Invariant> = Vec::new();
    let mut begun = false;
    for line in docs {
        let words = line.trim();
        if words.trim_start_matches('#').trim().starts_with("Invariants") {
            begun = true;
        } else if !begun {
        } else if let Some((number, rest)) = words.split_once("  ").filter(|(n, _)| is_number(n)) {
            found.push(Invariant { number: number.into(), text: rest.trim().into() });
        } else if words.is_empty() || !line.starts_with("    ") {
            begun = found.is_empty() && words.is_empty();
        } else if let Some(last) = found.last_mut() {
            last.text += " ";
            last.text += words;
        }
    }
    found
}

/// A capital letter and digits.
fn is_number(word: &str) -> bool {
    let digits = word.strip_prefix(|c: char| c.is_ascii_uppercase());
    digits.is_some_and(|d| !d.is_empty() && d.chars().all(|c| c.is_ascii_digit()))
}

/// The document.
pub fn listed(tree: &Tree) -> String {
    let tests: Vec<(&Source, BTreeSet<String>)> =
        tree.sources.iter().filter(|s| s.is_test()).map(|s| (s, cited(&s.text))).collect();
    let mut out = String::from(HEAD);
    for source in tree.sources.iter().filter(|source| !source.is_test()) {
        let all = of(&source.text);
        if all.is_empty() {
            continue;
        }
        let _ = write!(out, "\n## {}\n\n| | holds | cited by |\n|---|---|---|\n", source.path);
        for Invariant { number, text } in all {
            let cites = |(test, numbers): &&(&Source, BTreeSet<String>)| {
                test.krate() == source.krate() && numbers.contains(&number)
            };
            let name = |(test, _): &(&Source, _)| {
                let prefix = format!("crates/{}/", source.krate());
                format!("`{}`", test.path.strip_prefix(&prefix).unwrap_or(&test.path))
            };
            let files: Vec<String> = tests.iter().filter(cites).map(name).collect();
            let text = text.replace('|', "\\|");
            let _ = writeln!(out, "| {number} | {text} | {} |", files.join(", "));
        }
    }
    out
}

/// Numbers that a test file cites: in a comment, or as the first word of a test's name
/// (`j7_...`).
fn cited(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in text.lines() {
        let comment = line.split_once("//").map_or("", |(_, comment)| comment);
        let words = comment.split(|c: char| !c.is_ascii_alphanumeric());
        found.extend(words.filter(|word| is_number(word)).map(str::to_owned));
        let test = line.trim_start().strip_prefix("fn ").and_then(|rest| rest.split_once('_'));
        found.extend(test.map(|(word, _)| word.to_uppercase()).filter(|word| is_number(word)));
    }
    found
}
