//! Measure of the prose in comments and documents: how often unclear words appear in 10,000 words.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::links::documents_of;
use crate::source::Tree;

/// A word or phrase that is counted, and the most of it in 10,000 words of the whole tree.
pub const MEASURED: &[(&str, f64)] = &[
    ("clause as a noun", 3.0),
    ("nobody", 1.0),
    ("whoever", 1.0),
    ("somebody", 1.0),
    ("everybody", 1.0),
    ("stands", 1.0),
    ("told", 1.0),
];

/// Number of words in comments or documents, and the counts of measured words among them.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub words: usize,
    /// In the order of [`MEASURED`].
    pub found: [usize; MEASURED.len()],
}

impl Counts {
    /// How many of each in 10,000 words.
    pub fn rates(&self) -> [f64; MEASURED.len()] {
        self.found.map(|n| n as f64 * 10_000.0 / self.words.max(1) as f64)
    }

    fn add(&mut self, other: &Counts) {
        self.words += other.words;
        self.found.iter_mut().zip(other.found).for_each(|(to, n)| *to += n);
    }
}

/// Verbs that follow `what` or `who` in a clause that is used as a noun.
const CLAUSE_VERBS: &[&str] = &[
    "is", "are", "was", "were", "has", "have", "had", "comes", "came", "goes", "went", "stands",
    "lies", "waits", "it", "they", "a", "the", "he",
];

/// Counts the comments of a text.
pub fn count(text: &str) -> Counts {
    count_lines(text.lines().filter_map(|line| line.trim_start().strip_prefix("//")))
}

fn count_lines<'t>(lines: impl Iterator<Item = &'t str>) -> Counts {
    let words: Vec<String> = lines
        .flat_map(str::split_whitespace)
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase())
        .filter(|word| !word.is_empty())
        .collect();
    let mut counts = Counts { words: words.len(), ..Counts::default() };
    for (n, word) in words.iter().enumerate() {
        let next = words.get(n + 1).map(String::as_str).unwrap_or_default();
        let kind = match word.as_str() {
            "what" | "who" if CLAUSE_VERBS.contains(&next) => 0,
            "nobody" => 1,
            "whoever" => 2,
            "somebody" => 3,
            "everybody" => 4,
            "stand" | "stands" | "stood" => 5,
            "tell" | "tells" | "told" => 6,
            _ => continue,
        };
        counts.found[kind] += 1;
    }
    counts
}

/// Counts by crate, and `""` for the whole tree.
pub fn measure(tree: &Tree) -> BTreeMap<String, Counts> {
    let mut all = BTreeMap::<String, Counts>::new();
    for source in &tree.sources {
        let counts = count(&source.text);
        for name in ["", source.krate()] {
            all.entry(name.to_owned()).or_default().add(&counts);
        }
    }
    all
}

/// Counts the documents of the checkout.
pub fn measure_documents(root: &Path) -> io::Result<Counts> {
    let mut all = Counts::default();
    for page in documents_of(root)? {
        all.add(&count_lines(fs::read_to_string(&page)?.lines()));
    }
    Ok(all)
}
