//! Examples in documentation that rustdoc would run as tests.

use std::collections::BTreeSet;

use crate::source::Tree;

/// Line of a manifest that keeps rustdoc from reading the crate for tests.
const OFF: &str = "doctest = false";

/// Words behind a fence with which rustdoc compiles the block.
const COMPILED: &[&str] = &["", "rust", "no_run", "should_panic", "compile_fail"];

/// Every example of a crate whose examples are not run, as `FILE:LINE: fault`, and every library
/// without examples that rustdoc is run for.
pub fn unrun_doc_tests(tree: &Tree) -> Vec<String> {
    let (mut out, mut documented) = (Vec::new(), BTreeSet::new());
    let is_off =
        |name: &str| tree.manifests.iter().any(|(krate, text)| krate == name && text.contains(OFF));
    for source in tree.sources.iter().filter(|source| !source.is_test()) {
        for line in examples(&source.text) {
            documented.insert(source.krate());
            if is_off(source.krate()) {
                let fault = format!("no test runs this example: remove `{OFF}` from Cargo.toml");
                out.push(format!("{}:{line}: {fault}", source.path));
            }
        }
    }
    for (krate, text) in &tree.manifests {
        let is_library = text.lines().any(|line| line == "[lib]");
        if is_library && !text.contains(OFF) && !documented.contains(krate.as_str()) {
            out.push(format!("crates/{krate}/Cargo.toml: no example to run: add `{OFF}` to [lib]"));
        }
    }
    out
}

/// Lines on which the examples of a text begin.
fn examples(text: &str) -> Vec<usize> {
    let (mut out, mut is_open) = (Vec::new(), false);
    for (line, text) in (1..).zip(text.lines().map(str::trim_start)) {
        let comment = text.strip_prefix("///").or(text.strip_prefix("//!"));
        let Some(words) = comment.and_then(|c| c.trim().strip_prefix("```")) else { continue };
        if !is_open && words.split(',').all(|word| COMPILED.contains(&word)) {
            out.push(line);
        }
        is_open = !is_open;
    }
    out
}
