//! The pages of `docs/reference` that are made from the program are as the program makes them.

use std::path::{Path, PathBuf};

use daemon::{catalog, class_verbs};

/// Set: the pages are written instead of compared.
const WRITE: &str = "ASHLAR_WRITE_REFERENCE";

fn is_current(path: &Path, text: &str) {
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(path, text).expect("the folder is there");
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    let differ = there.lines().zip(text.lines()).find(|(there, made)| there != made);
    assert!(
        there == text,
        "{} is not current, first at {differ:?}; next: {WRITE}=1 cargo test -p ashlar-daemon \
         --test suite reference",
        path.display()
    );
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

#[test]
fn reference_pages_are_current() {
    for (name, text) in mgmt::reference::pages(&catalog(), &class_verbs()) {
        is_current(&docs().join("reference").join(name), &text);
    }
}

/// The first line of each example refers to it.
#[test]
fn editor_schema_is_current() {
    let schema = mgmt::reference::editor_schema(&catalog());
    is_current(&docs().join("ashlar.schema.json"), &format!("{schema:#}\n"));
}
