//! Tests wait for conditions and never for time.

use std::path::Path;

use tidy::{Tree, bad_waits};

#[test]
fn tests_neither_sleep_nor_judge_measured_time() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let found = bad_waits(&Tree::read(&root).expect("the checkout is readable"));
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}
