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

/// The parts that a page marks; the rest of it is written by hand.
#[test]
fn marked_parts_of_reference_pages_are_current() {
    for name in mgmt::reference::MARKED_PAGES {
        let path = docs().join("reference").join(name);
        let page = std::fs::read_to_string(&path).expect("a page of the manual");
        let filled = mgmt::reference::filled(name, &page, &catalog(), &class_verbs());
        is_current(&path, &filled.unwrap_or_else(|fault| panic!("{fault}")));
    }
}

/// Product sources of the daemon's crates, with strings that continue in the next line joined.
fn sources() -> String {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders: Vec<PathBuf> = std::fs::read_dir(crates)
        .expect("the crates")
        .map(|entry| entry.expect("an entry").path().join("src"))
        .filter(|folder| folder.is_dir())
        .collect();
    let mut out = String::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with(KINDS) {
                let text = std::fs::read_to_string(&path).expect("a source");
                for line in text.lines() {
                    match line.strip_suffix('\\') {
                        Some(begun) => out.push_str(begun.trim_start()),
                        None => {
                            out.push_str(line.trim_start());
                            out.push('\n');
                        }
                    }
                }
            }
        }
    }
    out
}

/// The list of the kinds, which would find itself.
const KINDS: &str = "api/event_kinds.rs";

/// The fixed words of the texts in code quotes: without values in capitals and omitted text.
fn fixed_words(texts: &str) -> Vec<String> {
    let mut out = Vec::new();
    for text in texts.split('`').skip(1).step_by(2) {
        let mut fixed = String::new();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        for piece in text.split_inclusive(|c: char| !is_word(c)) {
            let word = piece.trim_end_matches(|c: char| !is_word(c));
            let is_value = !word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase());
            fixed.push_str(if is_value { "\n" } else { word });
            fixed.push_str(&piece[word.len()..]);
        }
        let fixed = fixed.replace("...", "\n");
        let edge = [' ', ';', ':', ',', '.', '(', ')', '/'];
        let parts = fixed.lines().map(|part| part.trim_matches(edge));
        let has_words = |part: &&str| part.chars().filter(char::is_ascii_lowercase).count() >= 3;
        out.extend(parts.filter(has_words).map(str::to_owned));
    }
    out
}

#[test]
fn texts_of_event_kinds_are_in_the_sources() {
    let wanted = ["records are not clean after", "cannot be read", "io_uring"];
    let texts = "`GEOM: records are not clean after ...: ...`, `...: cannot be read (N)`, or \
                 `io_uring`";
    assert_eq!(fixed_words(texts), wanted);
    let sources = sources();
    let mut found = 0;
    for kind in mgmt::api::EVENT_GROUPS.iter().flat_map(|group| group.kinds) {
        for words in fixed_words(kind.text) {
            let text = kind.text;
            assert!(sources.contains(&words), "event_kinds.rs: {text}: no source has `{words}`");
            found += 1;
        }
    }
    assert!(found > 80, "{found}");
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
    for key in
        ["iops", "delay_ms", "balance", "failback", "algorithm", "batch", "timeout_s", "disks"]
    {
        assert!(changes(key).contains(&"live"), "{key}: {:?}", changes(key));
    }
    // `memory` of the daemon, and that of a file server.
    assert_eq!(changes("memory"), ["at the next start", "live"]);
    for key in ["strip", "granule", "offset", "memory_max"] {
        assert!(!changes(key).contains(&"live"), "{key}: {:?}", changes(key));
    }
}

/// The first line of each example refers to it.
#[test]
fn editor_schema_is_current() {
    let schema = mgmt::reference::editor_schema(&catalog());
    is_current(&docs().join("ashlar.schema.json"), &format!("{schema:#}\n"));
}
