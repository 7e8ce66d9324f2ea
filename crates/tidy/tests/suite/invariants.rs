//! `docs/invariants.md` is the list of the tree's invariants.

use std::path::Path;

use tidy::{Invariant, Source, Tree, invariants_of, listed_invariants};

#[test]
fn invariants_document_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let list = listed_invariants(&Tree::read(&root).expect("the checkout is readable"));
    let path = root.join("docs/invariants.md");
    if std::env::var_os("ASHLAR_WRITE_INVARIANTS").is_some() {
        std::fs::write(&path, &list).expect("docs/ is writable");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = list.lines().zip(kept.lines()).find(|(now, then)| now != then);
    assert!(
        list == kept,
        "docs/invariants.md is not current, first at {differs:?}; next: \
         ASHLAR_WRITE_INVARIANTS=1 cargo test -p ashlar-tidy invariants"
    );
}

#[test]
fn test_cites_its_own_file_a_named_file_or_any_file_of_its_crate() {
    let head = |numbers: &[&str]| {
        let lines: Vec<String> = numbers.iter().map(|n| format!("//!  {n}  Holds.\n")).collect();
        format!("//! Head.\n//!\n//! Invariants\n{}", lines.concat())
    };
    let tested = "#[cfg(all(test, not(miri)))]\nmod tests {\n    // B1 too.\n    #[test]\n    \
                  fn a1_x() {}\n}\n";
    let file = |path: &str, text: String| Source { path: path.to_owned(), text };
    let sources = vec![
        file("crates/x/src/a.rs", head(&["A1", "A2"]) + "// A2\n" + tested),
        file("crates/x/src/b.rs", head(&["A1", "B1", "C1", "C2"])),
        file("crates/x/src/c.rs", head(&["C1"])),
        file("crates/x/tests/suite/d.rs", "//! D.\n/// C1 of c.rs, A1 of `b.rs`.\n".to_owned()),
        file("crates/x/src/transcripts/f.rs", "//! F.\n// C2\n".to_owned()),
        file("crates/y/tests/suite/e.rs", "//! E.\n// A2, C1, B1 of x/src/b.rs\n".to_owned()),
    ];
    let text = listed_invariants(&Tree { sources, manifests: Vec::new() });
    let rows: Vec<&str> = text.lines().filter(|line| line.contains("Holds.")).collect();
    let wanted = [
        "| A1 | Holds. | `src/a.rs` |",
        "| A2 | Holds. |  |",
        "| A1 | Holds. | `tests/suite/d.rs` |",
        "| B1 | Holds. | `src/a.rs`, `crates/y/tests/suite/e.rs` |",
        "| C1 | Holds. |  |",
        "| C2 | Holds. | `src/transcripts/f.rs` |",
        "| C1 | Holds. | `tests/suite/d.rs` |",
    ];
    assert_eq!(rows, wanted);
}

#[test]
fn invariants_are_read_with_continuation_lines() {
    let text = "//! Module.\n//!\n//! Invariants\n//!  A1  One is\n//!      kept.\n//!  A2  Two.\n\
                //!\n//! A3  is no invariant.\nuse x;\n";
    let one = |number: &str, text: &str| Invariant { number: number.into(), text: text.into() };
    assert_eq!(invariants_of(text), [one("A1", "One is kept."), one("A2", "Two.")]);
    assert_eq!(invariants_of("//! A1  Not a list.\n"), []);
}
