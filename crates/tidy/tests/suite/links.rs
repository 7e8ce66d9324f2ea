//! Links of the documents lead somewhere.

use std::path::Path;

use tidy::{broken_links, links_of};

#[test]
fn links_of_the_documents_resolve() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    assert_eq!(broken_links(&root).expect("the checkout is readable"), Vec::<String>::new());
}

#[test]
fn links_are_found_outside_of_code() {
    let text = "[a](b.md) and [c](d.md#e)\n```\n[no](link.md)\n```\n| [t](u/v.md) |\n";
    assert_eq!(links_of(text), ["b.md", "d.md#e", "u/v.md"]);
}

#[test]
fn a_broken_link_is_found() {
    let root = std::env::temp_dir().join(format!("ashlar-links-{}", std::process::id()));
    for folder in ["docs", "bench", "fuzz", ".github"] {
        std::fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    std::fs::write(root.join("docs/a.md"), "# Here it is\n[x](#here-it-is) [y](b.md) [z](#no)\n")
        .expect("a page");
    let broken = broken_links(&root).expect("it is readable");
    std::fs::remove_dir_all(&root).expect("it is ours");
    assert_eq!(broken, ["docs/a.md: b.md", "docs/a.md: #no"]);
}

#[test]
fn link_that_leaves_the_book_is_found() {
    let root = std::env::temp_dir().join(format!("ashlar-book-{}", std::process::id()));
    for folder in ["docs/deep", "bench", "fuzz", ".github"] {
        std::fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    let page = "[a](../b.md) [b](c.svg) [c](../../A.md) [d](../../A.md#none) [e](other.md)\n\
                [f](../README.md) [g](../../bench) [h](..) [i](https://ashlar.example/A.md)\n";
    for (name, text) in [
        ("A.md", "[in the checkout](docs/deep/other.md)\n"),
        ("docs/README.md", ""),
        ("docs/SUMMARY.md", "[m](README.md)\n[b](b.md)\n[p](deep/page.md)\n"),
        ("docs/b.md", ""),
        ("docs/deep/c.svg", ""),
        ("docs/deep/other.md", ""),
        ("docs/deep/page.md", page),
    ] {
        std::fs::write(root.join(name), text).expect("a file");
    }
    let broken = broken_links(&root).expect("it is readable");
    std::fs::remove_dir_all(&root).expect("it is ours");
    let away =
        |link: &str| format!("docs/deep/page.md: {link} is not in the book: name the file instead");
    let wanted = [
        away("../../A.md"),
        "docs/deep/page.md: ../../A.md#none".to_owned(),
        away("other.md"),
        away("../README.md"),
        away("../../bench"),
        away(".."),
    ];
    assert_eq!(broken, wanted);
}
