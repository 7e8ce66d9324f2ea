//! `docs/internals/files.md` is the list of the source files.

use std::path::Path;

use tidy::{Source, Tree, first_sentence, in_reading_order, listed_files};

#[test]
fn files_document_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let list = listed_files(&Tree::read(&root).expect("the checkout is readable"));
    let path = root.join("docs/internals/files.md");
    if std::env::var_os("ASHLAR_WRITE_FILES").is_some() {
        std::fs::write(&path, &list).expect("docs/internals is writable");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = list.lines().zip(kept.lines()).find(|(now, then)| now != then);
    assert!(
        list == kept,
        "docs/internals/files.md is not current, first at {differs:?}; next: \
         ASHLAR_WRITE_FILES=1 cargo test -p ashlar-tidy files"
    );
}

#[test]
fn imported_files_are_read_first() {
    let file = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
    let files = [
        file("crates/x/src/a.rs", "//! A.\nuse super::{\n    b::B, c,\n};\n"),
        file("crates/x/src/b.rs", "//! B.\nuse crate::c::C;\n"),
        file("crates/x/src/c.rs", "//! C.\nuse std::a;\n"),
        file("crates/x/src/lib.rs", "//! X.\n"),
    ];
    let order = in_reading_order(files.iter().collect());
    let names: Vec<&str> = order.iter().map(|f| f.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["lib.rs", "c.rs", "b.rs", "a.rs"]);
}

#[test]
fn first_sentence_of_a_head_is_found() {
    let text = "#![forbid(unsafe_code)]\n//! Ranges, merged\n//! in order. More.\n//!\n//! Last.\n";
    assert_eq!(first_sentence(text), "Ranges, merged in order.");
    assert_eq!(first_sentence("//! No point at the end\n"), "No point at the end");
    assert_eq!(first_sentence("use x;\n"), "");
}
