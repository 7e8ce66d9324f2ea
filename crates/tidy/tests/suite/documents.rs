//! Documents have the shape that their readers expect.

use std::path::Path;

use tidy::{long_documents, long_lines};

#[test]
fn documents_are_wrapped_and_within_their_lengths() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let long = long_documents(&root).expect("the checkout is readable");
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn tables_and_code_may_have_long_lines() {
    let long = "x".repeat(101);
    let text = format!("{long}\n| {long} |\n```\n{long}\n```\nshort\n{long}y\n");
    assert_eq!(long_lines(&text), [(1, 101), (7, 102)]);
}
