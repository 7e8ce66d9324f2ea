#![forbid(unsafe_code)]
//! The rules of the source tree, as a test.
//!
//! [`check`] reads the source tree as text and returns every violation as `file:line: rule`. The
//! rules are in `rules.rs`; each has a test of its own in `tests/` that shows it failing.

mod citations;
mod commands;
mod doc_tests;
mod documents;
mod files;
mod heads;
mod invariants;
mod licences;
mod links;
mod prose;
mod rules;
mod snippets;
mod source;
mod waits;
mod words;

pub use citations::{broken_citations, citations_of};
pub use commands::{UnrunBlock, unmarked_commands, unrun_blocks};
pub use doc_tests::unrun_doc_tests;
pub use documents::{long_documents, long_lines};
pub use files::{first_sentence, in_reading_order, listed as listed_files};
pub use heads::{bad_heads, long_test_names};
pub use invariants::{Invariant, listed as listed_invariants, of as invariants_of};
pub use licences::{ALLOWED, is_compatible};
pub use links::{broken_links, links_of};
pub use prose::{
    Counts, MEASURED, count as count_prose, measure as measure_prose, measure_documents,
};
pub use rules::{LEVELS, check};
pub use snippets::{false_snippets, snippet_faults};
pub use source::{Source, Tree};
pub use waits::bad_waits;
pub use words::{
    FALLING, Falling, banned_in_document, banned_in_source, banned_words, falling_words,
};
