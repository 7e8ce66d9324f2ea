//! `docs/invariants.md` is the list of the tree's invariants.

use std::path::Path;

use tidy::{Invariant, Tree, invariants_of, listed_invariants};

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
fn invariants_are_read_with_continuation_lines() {
    let text = "//! Module.\n//!\n//! Invariants\n//!  A1  One is\n//!      kept.\n//!  A2  Two.\n\
                //!\n//! A3  is no invariant.\nuse x;\n";
    let one = |number: &str, text: &str| Invariant { number: number.into(), text: text.into() };
    assert_eq!(invariants_of(text), [one("A1", "One is kept."), one("A2", "Two.")]);
    assert_eq!(invariants_of("//! A1  Not a list.\n"), []);
}
