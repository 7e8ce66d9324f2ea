//! The pages of `docs/reference` that are made from the program are as the program makes them.

use std::path::{Path, PathBuf};

use daemon::{catalog, class_verbs};

/// Set: the pages are written instead of compared.
const WRITE: &str = "ASHLAR_WRITE_REFERENCE";

fn is_current(path: &Path, text: &str) {
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(path, text).expect("the folder is there");
    }
    let current = std::fs::read_to_string(path).unwrap_or_default();
    let differ = current.lines().zip(text.lines()).find(|(current, made)| current != made);
    assert!(
        current == text,
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

/// Rows of keys have five cells; the fourth is the effect of an edit.
#[test]
fn configuration_reference_has_the_effect_of_an_edit_of_each_key() {
    let pages = mgmt::reference::pages(&catalog(), &class_verbs());
    let (_, page) = pages.iter().find(|(name, _)| *name == "configuration.md").expect("a page");
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    assert!(rows.len() > 200, "{}", rows.len());
    for row in &rows {
        assert!(row.len() == 5 && !row[3].is_empty(), "{row:?}");
    }
    let changes = |key: &str| -> Vec<&str> {
        let of_key = rows.iter().filter(|row| row[0].trim_matches('`') == key);
        of_key.map(|row| row[3]).collect()
    };
    for key in ["iops", "delay_ms", "balance", "failback", "algorithm", "batch", "timeout_s"] {
        assert!(changes(key).contains(&"live"), "{key}: {:?}", changes(key));
    }
    // Of the keys of a file server, the disks alone change while it is used.
    assert!(changes("disks").contains(&"live"), "{:?}", changes("disks"));
    for key in ["strip", "granule", "offset", "memory"] {
        assert!(!changes(key).contains(&"live"), "{key}: {:?}", changes(key));
    }
}

/// The first line of each example refers to it.
#[test]
fn editor_schema_is_current() {
    let schema = mgmt::reference::editor_schema(&catalog());
    is_current(&docs().join("ashlar.schema.json"), &format!("{schema:#}\n"));
}
