//! Heads of source files, and names of tests.

use crate::files::first_sentence;
use crate::source::Tree;

/// First words of a sentence that does not begin with a noun phrase.
const NO_NOUNS: &[&str] = &[
    "How", "Where", "What", "Who", "When", "Whether", "Which", "Why", "It", "This", "That",
    "There", "These", "Those", "If", "See",
];

/// Longest name of a test, characters.
const TEST_NAME_MAX: usize = 70;

/// Every file without a head, and every head whose first sentence is not a noun phrase with a full
/// stop, as `FILE:LINE: fault`.
pub fn bad_heads(tree: &Tree) -> Vec<String> {
    let mut out = Vec::new();
    for source in &tree.sources {
        let sentence = first_sentence(&source.text);
        let first = sentence.split_whitespace().next().unwrap_or("");
        let line = source.text.lines().position(|line| line.starts_with("//!")).unwrap_or(0) + 1;
        let fault = if sentence.is_empty() {
            "no head: name the subject of the file in a comment `//!`".to_owned()
        } else if !sentence.ends_with('.') {
            "the first sentence of the head has no full stop".to_owned()
        } else if NO_NOUNS.contains(&first) {
            format!("the head begins with `{first}`: begin with the subject of the file, a noun")
        } else {
            continue;
        };
        out.push(format!("{}:{line}: {fault}", source.path));
    }
    out
}

/// Every test whose name is too long, as `FILE:LINE: fault`.
pub fn long_test_names(tree: &Tree) -> Vec<String> {
    let mut out = Vec::new();
    for source in &tree.sources {
        let mut is_test = false;
        for (line, text) in (1..).zip(source.text.lines().map(str::trim)) {
            is_test |= text.starts_with("#[test]");
            let Some((_, name)) = text.split_once("fn ").filter(|_| is_test) else { continue };
            is_test = false;
            let name = name.split('(').next().unwrap_or(name);
            let length = name.chars().count();
            if length > TEST_NAME_MAX {
                let fault = format!("{length} characters, at most {TEST_NAME_MAX}");
                out.push(format!("{}:{line}: {name}: {fault}", source.path));
            }
        }
    }
    out
}
