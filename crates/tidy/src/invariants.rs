//! Numbered invariants of the tree, collected from the files that keep them.
//!
//! ```text
//! //! Invariants
//! //!  D1  A layer's `start` runs only after
//! //!      access was checked.
//! ```
//!
//! [`listed`] writes them as `docs/invariants.md`, with the files whose tests cite each number.
//! Files of a crate may use the same number. A test module cites the invariants of its own file
//! first, and `A1 of split.rs` in a comment cites those of a file. A test of another crate cites
//! them with the name of the crate: `A1 of geom/src/core/split.rs`.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::source::{Source, Tree};

/// First lines of the document.
const HEAD: &str = "# Invariants

Generated from the module documentation of the files that keep them:
`ASHLAR_WRITE_INVARIANTS=1 cargo test -p ashlar-tidy invariants`. The last column names the files
whose tests cite the number, those of other crates by their whole path.
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

/// A cited number, and the end of the path of its file if the citation names it.
type Citation = (String, Option<String>);

/// The tests of a file.
struct Tests<'t> {
    source: &'t Source,
    cited: BTreeSet<Citation>,
    /// Numbers of the invariants that the file itself keeps.
    own: Vec<String>,
}

impl<'t> Tests<'t> {
    fn of(source: &'t Source) -> Tests<'t> {
        let own = if source.is_test() { Vec::new() } else { of(&source.text) };
        let own = own.into_iter().map(|invariant| invariant.number).collect();
        Tests { source, cited: cited(&source.test_text()), own }
    }

    /// Whether they cite an invariant of a file.
    fn cite(&self, keeper: &Source, number: &str) -> bool {
        let is_of_its_crate = self.source.krate() == keeper.krate();
        let is_meant = |file: &Option<String>| match file {
            Some(file) if is_of_its_crate => keeper.path.ends_with(&format!("/{file}")),
            Some(file) => keeper.path == format!("crates/{file}"),
            None if is_of_its_crate => {
                self.source.path == keeper.path || !self.own.iter().any(|own| own == number)
            }
            None => false,
        };
        let mut citations = self.cited.iter().filter(|(cited, _)| cited == number);
        citations.any(|(_, file)| is_meant(file))
    }
}

/// The document.
pub fn listed(tree: &Tree) -> String {
    let tests: Vec<Tests<'_>> = tree.sources.iter().map(Tests::of).collect();
    let mut out = String::from(HEAD);
    for source in tree.sources.iter().filter(|source| !source.is_test()) {
        let all = of(&source.text);
        if all.is_empty() {
            continue;
        }
        let _ = write!(out, "\n## {}\n\n| | holds | cited by |\n|---|---|---|\n", source.path);
        for Invariant { number, text } in all {
            let prefix = format!("crates/{}/", source.krate());
            let name = |path: &str| format!("`{}`", path.strip_prefix(&prefix).unwrap_or(path));
            let citing = tests.iter().filter(|tests| tests.cite(source, &number));
            let files: Vec<String> = citing.map(|tests| name(&tests.source.path)).collect();
            let text = text.replace('|', "\\|");
            let _ = writeln!(out, "| {number} | {text} | {} |", files.join(", "));
        }
    }
    out
}

/// Numbers that tests cite: in a comment, or as the first word of a test's name (`j7_...`).
fn cited(text: &str) -> BTreeSet<Citation> {
    let mut found = BTreeSet::new();
    for line in text.lines() {
        let comment = line.split_once("//").map_or("", |(_, comment)| comment);
        let words: Vec<&str> = comment.split_whitespace().collect();
        for (at, word) in words.iter().enumerate() {
            let file = match words[at..] {
                [_, "of", file, ..] => file.trim_matches(|c: char| !c.is_alphanumeric()),
                _ => "",
            };
            let file = file.ends_with(".rs").then(|| file.to_owned());
            let numbers = word.split(|c: char| !c.is_ascii_alphanumeric());
            let numbers = numbers.filter(|number| is_number(number));
            found.extend(numbers.map(|number| (number.to_owned(), file.clone())));
        }
        let test = line.trim_start().strip_prefix("fn ").and_then(|rest| rest.split_once('_'));
        let number = test.map(|(word, _)| word.to_uppercase()).filter(|word| is_number(word));
        found.extend(number.map(|number| (number, None)));
    }
    found
}
