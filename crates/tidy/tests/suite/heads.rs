//! Source files begin with their subject, and names of tests are short.

use std::path::Path;

use tidy::{Source, Tree, bad_heads, long_test_names};

fn whole_tree() -> Tree {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Tree::read(&root).expect("the checkout is readable")
}

fn file(text: &str) -> Tree {
    let source = Source { path: "crates/geom/src/a.rs".into(), text: text.into() };
    Tree { sources: vec![source], manifests: Vec::new() }
}

#[test]
fn heads_of_the_source_files_name_their_subjects() {
    let found = bad_heads(&whole_tree());
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn names_of_the_tests_are_short() {
    let found = long_test_names(&whole_tree());
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn head_that_is_no_sentence_with_a_subject_is_found() {
    for (text, word) in [
        ("use x;\n", "no head"),
        ("#![forbid(unsafe_code)]\n//! Ranges, merged in order\n//!\n//! More.\n", "a.rs:2: "),
        ("//! Ranges, merged in order:\n//!\n//! 1. one.\n", "full stop"),
        ("//! Where ranges are.\n", "`Where`"),
        ("//! It merges ranges.\n", "`It`"),
    ] {
        let found = bad_heads(&file(text));
        assert!(found.len() == 1 && found[0].contains(word), "{text}: {found:?}");
    }
    for good in ["//! Ranges, merged\n//! in order. How fast: below\n", "//! `show`: a list.\n"] {
        assert_eq!(bad_heads(&file(good)), Vec::<String>::new());
    }
}

#[test]
fn long_name_of_a_test_is_found() {
    let text = |name: &str| {
        format!("//! A.\nfn {name}() {{}}\n#[test]\n#[cfg(unix)]\nfn {name}() {{\n}}\n")
    };
    let found = long_test_names(&file(&text(&"x".repeat(71))));
    let wanted = format!("crates/geom/src/a.rs:5: {}: 71 characters, at most 70", "x".repeat(71));
    assert_eq!(found, [wanted]);
    assert_eq!(long_test_names(&file(&text(&"x".repeat(70)))), Vec::<String>::new());
}
