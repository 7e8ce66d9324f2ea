//! Checks of the whole tree, and tests of the checks, in one binary.
//!
//! One module of them: `cargo test -p ashlar-tidy --test suite tree_rules::`.

mod citations;
mod commands;
mod doc_tests;
mod documents;
mod files;
mod heads;
mod invariants;
mod licences;
mod links;
mod packaging;
mod prose;
mod snippets;
mod soak;
mod tree_rules;
mod waits;
mod whole;
mod words;
