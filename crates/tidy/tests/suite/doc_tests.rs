//! Examples in documentation are run, and rustdoc reads no library that has none.

use std::path::Path;

use tidy::{Source, Tree, unrun_doc_tests};

#[test]
fn examples_in_documentation_are_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let found = unrun_doc_tests(&Tree::read(&root).expect("the checkout is readable"));
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

fn found(comment: &str, manifest: &str) -> Vec<String> {
    let source = Source { path: "crates/geom/src/a.rs".into(), text: comment.into() };
    let manifests = vec![("geom".into(), format!("[lib]\nname = \"geom\"\n{manifest}"))];
    unrun_doc_tests(&Tree { sources: vec![source], manifests })
}

#[test]
fn example_that_is_not_run_and_needless_run_are_found() {
    let (off, example) = ("doctest = false\n", "//! A.\n//!\n//! ```\n//! a();\n//! ```\n");
    let picture = example.replacen("```", "```text", 1);
    assert_eq!(found(example, ""), Vec::<String>::new());
    assert_eq!(found(&picture, off), Vec::<String>::new());
    let unrun = found(example, off);
    assert!(unrun.len() == 1 && unrun[0].starts_with("crates/geom/src/a.rs:3: "), "{unrun:?}");
    let needless = found(&picture, "");
    assert!(needless.len() == 1 && needless[0].contains("no example to run"), "{needless:?}");
}
