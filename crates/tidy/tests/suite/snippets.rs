//! Code in the documents is that of the files that it quotes.

use std::path::Path;

use tidy::{false_snippets, snippet_faults};

#[test]
fn code_of_the_documents_is_that_of_the_quoted_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let found = false_snippets(&root).expect("the checkout is readable");
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

/// Lines of the false snippets of a document beside one file, `a.rs`.
fn lines_of(text: &str) -> Vec<usize> {
    let file = "fn f() -> u8 {\n    g(1); // one\n    h(2)\n}\nmod b;\n";
    let read = |name: &str| (name == "a.rs").then(|| file.to_owned());
    snippet_faults(text, &read).into_iter().map(|(line, _)| line).collect()
}

#[test]
fn snippet_that_its_file_does_not_have_is_found() {
    let code = |code: &str| format!("<!-- from: a.rs -->\n```rust\n{code}\n```\n");
    let none = [0_usize; 0];
    assert_eq!(lines_of(&code("fn f() -> u8 { ... }")), none);
    assert_eq!(lines_of(&code("g(1);\n    h(2)     // two")), none);
    assert_eq!(lines_of(&code("fn f() -> u16 { ... }")), [2]);
    assert_eq!(lines_of(&code("h(2)\n...\ng(1);")), [2], "the order differs");
    assert_eq!(lines_of("<!-- from: b.rs -->\n```rust\ng(1);\n```\n"), [2], "no such file");
    assert_eq!(lines_of("```rust\ng(1);\n```\n"), [1], "no mark");
    assert_eq!(lines_of("<!-- no file: to be typed -->\n```rust\nx();\n```\n"), none);
}

#[test]
fn change_that_its_file_does_not_have_is_found() {
    let change = |lines: &str| format!("```diff\n{lines}\n```\n");
    let none = [0_usize; 0];
    assert_eq!(lines_of(&change("--- a/a.rs\n@@ fn f\n     h(2)\n+mod b;\n-mod a;")), none);
    assert_eq!(lines_of(&change("--- a/a.rs\n+mod c;")), [1]);
    assert_eq!(lines_of(&change("--- a/a.rs\n@@ fn g\n+mod b;")), [1]);
    assert_eq!(lines_of(&change("@@\n+mod b;")), [1], "no file is named");
}
