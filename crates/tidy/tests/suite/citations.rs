//! Source files cite documents that exist.

use std::path::Path;

use tidy::{Source, Tree, broken_citations, citations_of};

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn documents_that_the_sources_cite_exist() {
    let tree = Tree::read(&root()).expect("the checkout is readable");
    let broken = broken_citations(&root(), &tree).expect("the documents are readable");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn citations_are_read_with_their_sections() {
    let text = "//! Rules (docs/a.md 1.3 and 1.5), 3 of them; (docs/b.md\n//! 2.2, 5.2, 7)\n\
                /// See `docs/c.md` 4, [d](docs/d.md#e), a.md\nlet x = \"docs/f.json or g.md\";\n\
                let y = \"docs/{name}.md\";\n";
    let found = citations_of(text);
    let one = |line: usize, path: &str, sections: &[&str]| {
        (line, path.to_owned(), sections.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>())
    };
    let wanted = [
        one(1, "docs/a.md", &["1.3", "1.5"]),
        one(1, "docs/b.md", &["2.2", "5.2", "7"]),
        one(3, "docs/c.md", &[]),
        one(3, "docs/d.md#e", &[]),
        one(3, "a.md", &[]),
        one(4, "docs/f.json", &[]),
    ];
    assert_eq!(found, wanted);
}

#[test]
fn citation_of_a_missing_document_or_section_is_reported() {
    let lines = [
        "// See docs/reference/geom.md 2.2.",
        "// See docs/reference/geom.md 9.9.",
        "// See docs/reference/geom.md#2-classes and docs/reference/geom.md#none",
        "// See docs/reference/none.md",
        "// See geom.md 2.2.",
    ];
    let text = lines.join("\n");
    let sources = vec![Source { path: "crates/geom/src/x.rs".to_owned(), text }];
    let tree = Tree { sources, manifests: Vec::new() };
    let broken = broken_citations(&root(), &tree).expect("the documents are readable");
    let wanted = [
        "crates/geom/src/x.rs:2: docs/reference/geom.md has no section 9.9",
        "crates/geom/src/x.rs:3: docs/reference/geom.md has no heading #none",
        "crates/geom/src/x.rs:4: docs/reference/none.md does not exist",
        "crates/geom/src/x.rs:5: geom.md: cite docs/reference/geom.md",
    ];
    assert_eq!(broken, wanted);
}
