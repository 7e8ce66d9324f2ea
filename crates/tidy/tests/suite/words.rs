//! Comments, messages and documents use the words of the field.

use std::path::Path;

use tidy::{
    FALLING, Source, Tree, banned_in_document, banned_in_source, banned_words, falling_words,
};

#[test]
fn prose_has_no_banned_words() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tree = Tree::read(&root).expect("the checkout is readable");
    let found = banned_words(&tree, &root).expect("the checkout is readable");
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn words_that_are_being_replaced_become_fewer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tree = Tree::read(&root).expect("the checkout is readable");
    let found = falling_words(&tree, FALLING);
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn falling_words_are_counted_over_the_tree() {
    let file = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
    let sources = vec![
        file("crates/geom/src/a.rs", "// It says: `says`, says().\nfn f() { g(\"a Said b\"); }\n"),
        file("crates/geom/src/b.rs", "//! Said.\nlet said = 1;\n"),
    ];
    let tree = Tree { sources, manifests: Vec::new() };
    let count = |most: usize| falling_words(&tree, &[(&["says", "said"], "reports", most)]);
    assert_eq!(count(3), Vec::<String>::new());
    assert_eq!(count(2), ["says, said: 3 in comments and messages, at most 2: reports"]);
}

/// Lines of a file that have banned words.
fn lines_of(path: &str, text: &str) -> Vec<usize> {
    let source = Source { path: path.into(), text: text.into() };
    let number = |breach: String| breach.split(':').nth(1).and_then(|n| n.parse().ok());
    banned_in_source(&source).into_iter().filter_map(number).collect()
}

#[test]
fn banned_words_of_comments_and_messages_are_found() {
    let text = "//! Nobody waits.\nfn f() {\n    g(\"it stands\n     on a disk\", '\"');\n    \
                g(r#\"a \"door\" is told\"#); // brings\n}\n";
    assert_eq!(lines_of("crates/geom/src/a.rs", text), [1, 3, 5, 5]);
    assert_eq!(lines_of("crates/geom/tests/suite/a.rs", text), [1, 5]);
    assert_eq!(lines_of("crates/geom/src/a.rs", "// The disk went away.\n// It went.\n"), [1]);
    let tested = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    f(\"it stands there\");\n");
    assert_eq!(lines_of("crates/geom/src/a.rs", &tested), [0_usize; 0]);
}

#[test]
fn code_in_prose_is_not_searched() {
    let text = "// `nobody` and `Verdict::Left`, Verdict::Left, told() and stand-in\n\
                fn f() { g(\"told\"); g('\\''); g(\"the key everybody = x\"); }\n";
    assert_eq!(lines_of("crates/geom/src/a.rs", text), [0_usize; 0]);
    assert_eq!(lines_of("crates/wire/src/scsi/ses.rs", "f(\"Door Lock\");\n"), [0_usize; 0]);
}

#[test]
fn banned_word_of_a_document_is_reported_with_its_line() {
    let text = "# Disks\n```\nnobody\n```\nThe disk lies there.\n";
    let found = banned_in_document("docs/a.md", text);
    assert_eq!(found, ["docs/a.md:5: `lies` is not used: is, is stored, waits"]);
}
