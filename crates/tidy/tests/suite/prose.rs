//! Measure of the prose: `cargo test -p ashlar-tidy --test suite prose -- --nocapture`.

use std::path::Path;

use tidy::{MEASURED, Tree, count_prose, measure_documents, measure_prose};

#[test]
fn prose_is_within_its_limits() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = measure_prose(&Tree::read(&root).expect("the checkout is readable"));
    all.insert("documents".into(), measure_documents(&root).expect("the checkout is readable"));
    let columns: Vec<&str> = MEASURED.iter().map(|(name, _)| *name).collect();
    println!("in 10,000 words of comments and documents: {}", columns.join(", "));
    for (name, counts) in &all {
        let rates = counts.rates().map(|rate| format!("{rate:6.1}")).join(" ");
        println!(
            "{:12} {:7} words {rates}",
            if name.is_empty() { "all" } else { name },
            counts.words
        );
    }
    for of in ["", "documents"] {
        for ((name, most), rate) in MEASURED.iter().zip(all[of].rates()) {
            assert!(rate <= *most, "{of} {name}: {rate:.1} in 10,000 words, at most {most}");
        }
    }
}

#[test]
fn words_of_comments_are_counted() {
    let counts = count_prose("let x = nobody; // not here\n/// What is there. Nobody was told\n");
    assert_eq!((counts.words, counts.found), (6, [1, 1, 0, 0, 0, 0, 1]));
}
