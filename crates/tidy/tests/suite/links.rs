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
