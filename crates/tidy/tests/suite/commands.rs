//! Commands of the README and the manual are run by a test, or marked.

use std::path::Path;

use tidy::{UnrunBlock, unmarked_commands, unrun_blocks};

#[test]
fn commands_of_the_manual_are_run_or_marked() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let unmarked = unmarked_commands(&root).expect("the checkout is readable");
    assert!(unmarked.is_empty(), "\n{}\n", unmarked.join("\n"));
}

#[test]
fn blocks_that_no_test_runs_are_found_with_their_reasons() {
    let text = "```console\n$ run\nout\n```\n```sh\nbare\n```\n<!-- not run: needs a kernel -->\n\
                ```sh\nmarked\n```\n   <!-- not run: of two\n        lines -->\n\n   \
                ```console\n   $ inside a list\n   ```\n```text\n$ prompt\n```\n\
                ```text\nno commands\n```\n\
                <!-- another comment -->\n```\n$ plain\n```\n<!-- not run: -->\n```sh\nempty\n```\n\
                <!-- not run: before a text -->\ntext\n```sh\nfar\n```\n```toml\n[daemon]\n```\n";
    let block =
        |line: usize, reason: Option<&str>| UnrunBlock { line, reason: reason.map(str::to_owned) };
    let wanted = [
        block(5, None),
        block(9, Some("needs a kernel")),
        block(15, Some("of two lines")),
        block(18, None),
        block(25, None),
        block(29, None),
        block(34, None),
    ];
    assert_eq!(unrun_blocks(text), wanted);
}

#[test]
fn mark_with_a_missing_file_is_reported() {
    let root = std::env::temp_dir().join(format!("ashlar-commands-{}", std::process::id()));
    for folder in ["docs", "bench", "fuzz", ".github"] {
        std::fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    let text = "<!-- not run: docs/a.md, docs/none.md; ci/none do it -->\n```sh\ncommand\n```\n";
    std::fs::write(root.join("docs/a.md"), text).expect("a page");
    let text = "```sh\nnot of the manual\n```\n";
    std::fs::write(root.join("bench/README.md"), text).expect("a page");
    let found = unmarked_commands(&root).expect("it is readable");
    std::fs::remove_dir_all(&root).expect("it is ours");
    let missing = |file: &str| format!("docs/a.md:2: {file} does not exist");
    assert_eq!(found, [missing("docs/none.md"), missing("ci/none")]);
}
