//! Files that the workspace's compiler does not read: no unfinished merges, a valid fuzz manifest,
//! and scripts that name packages and test binaries that exist.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidy::{Source, Tree};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Folders that hold no text of ours.
const PASSED_OVER: &[&str] = &["target", ".git", "corpus", "run", "node_modules"];

/// Files with a line that an unfinished merge left behind.
fn half_merged(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("the checkout is readable") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_symlink() || PASSED_OVER.contains(&name.as_str()) {
        } else if path.is_dir() {
            half_merged(&path, found);
        } else if fs::read_to_string(&path).is_ok_and(|text| text.lines().any(is_marker)) {
            found.push(path);
        }
    }
}

fn is_marker(line: &str) -> bool {
    ["<<<<<<< ", ">>>>>>> ", "||||||| "].iter().any(|marker| line.starts_with(marker))
}

#[test]
fn source_tree_has_no_conflict_markers() {
    let mut found = Vec::new();
    half_merged(Path::new(ROOT), &mut found);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn conflict_markers_are_detected() {
    let dir = std::env::temp_dir().join(format!("tidy-merged-{}", std::process::id()));
    fs::create_dir_all(dir.join("deep")).expect("a folder");
    fs::write(dir.join("deep/a.toml"), "x = 1\n<<<<<<< HEAD\ny = 2\n").expect("a file");
    let mut found = Vec::new();
    half_merged(&dir, &mut found);
    fs::remove_dir_all(&dir).expect("gone");
    assert_eq!(found, [dir.join("deep/a.toml")]);
}

#[test]
fn fuzz_manifest_is_readable_by_cargo() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let asked = ["metadata", "--no-deps", "--format-version=1", "--manifest-path=fuzz/Cargo.toml"];
    let out = Command::new(cargo).args(asked).current_dir(ROOT).output().expect("cargo runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// Files that call cargo, or contain a command that calls it.
const CALLERS: &[&str] = &[
    ".ci/check",
    ".ci/soak",
    ".ci/test",
    "ci/fuzz",
    "Makefile",
    "CONTRIBUTING.md",
    "docs/verification.md",
    "fuzz/README.md",
];

/// Packages and test binaries of a text that this workspace does not have. Words with variables,
/// patterns and placeholders in capitals are passed over.
fn missing_names(text: &str) -> Vec<String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
    let words: Vec<&str> =
        text.split_whitespace().map(|word| word.trim_matches(['`', ',', ';', '.', ')'])).collect();
    let crates = Path::new(ROOT).join("crates");
    let is_package = |name: &str| {
        let folder = name.strip_prefix("ashlar-").unwrap_or(name);
        crates.join(folder).join("Cargo.toml").exists()
    };
    let is_binary = |name: &str| {
        let entries = fs::read_dir(&crates).expect("the crates are readable");
        let mut tests = entries.map(|entry| entry.expect("an entry").path().join("tests"));
        tests.any(|dir| dir.join(name).is_dir() || dir.join(format!("{name}.rs")).exists())
    };
    let mut missing = Vec::new();
    let all = words.iter().copied();
    for (before, word) in std::iter::once("").chain(all.clone()).zip(all) {
        if word.is_empty() || !word.chars().all(plain) {
            continue;
        }
        let package = before == "-p" || word.starts_with("ashlar-");
        if (package && !is_package(word)) || (before == "--test" && !is_binary(word)) {
            missing.push(word.to_owned());
        }
    }
    missing
}

#[test]
fn scripts_and_documents_name_packages_and_tests_that_exist() {
    for name in CALLERS {
        let text = fs::read_to_string(Path::new(ROOT).join(name)).expect("a file of the checkout");
        assert_eq!(missing_names(&text), Vec::<String>::new(), "{name}");
    }
    let calls = "cargo test -p ashlar-space --test suite a::; -p \"ashlar-$crate\" --test 'l*'\n\
                 for package in ashlar-bio ashlar-gone; do `-p ashlar-NAME --test units`";
    assert_eq!(missing_names(calls), ["ashlar-space", "ashlar-gone", "units"]);
}

/// Written so that `.ci/soak`, which looks for it, does not find this file.
const PLAYS_SEEDS: &str = concat!("Seeds", "::of(");

/// `.ci/soak` runs the tests of the module of such a file.
#[test]
fn every_file_that_plays_seeds_has_tests() {
    let tree = Tree::read(Path::new(ROOT)).expect("the checkout is readable");
    let plays = tree.sources.iter().filter(|source| source.text.contains(PLAYS_SEEDS));
    let untested = plays.filter(|source| !source.text.contains("#[test]"));
    let paths: Vec<&str> = untested.map(|source| source.path.as_str()).collect();
    assert!(paths.is_empty(), "no part of `make soak`: {paths:?}");
}

/// A test binary of a program would link all libraries of the product once more.
#[test]
fn programs_have_no_tests_and_no_test_binary() {
    let tree = Tree::read(Path::new(ROOT)).expect("the checkout is readable");
    for program in tree.sources.iter().filter(|source| source.path.ends_with("/src/main.rs")) {
        assert!(!program.text.contains("#[test]"), "{}: tests that do not run", program.path);
        let manifest = tree.manifests.iter().find(|(krate, _)| krate == program.krate());
        let (_, manifest) = manifest.expect("a manifest");
        assert!(manifest.lines().any(|line| line == "test = false"), "{}", program.path);
    }
}

#[test]
fn lines_of_every_crate_are_counted_once() {
    let tree = Tree::read(Path::new(ROOT)).expect("the checkout is readable");
    let out = Command::new(Path::new(ROOT).join("ci/lines")).output().expect("the script runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("a table");
    let sum = |name: &str| {
        let row = text.lines().find_map(|line| line.strip_prefix(&format!("| {name} |")));
        let numbers = row.unwrap_or_else(|| panic!("no row of {name}:\n{text}")).split(" |");
        numbers.filter_map(|number| number.trim().parse::<usize>().ok()).sum::<usize>()
    };
    let of = |source: &Source| source.text.lines().count();
    assert_eq!(sum("all"), tree.sources.iter().map(of).sum::<usize>());
    for (krate, _) in tree.manifests.iter().filter(|(krate, _)| !krate.is_empty()) {
        let own = tree.sources.iter().filter(|source| source.krate() == krate);
        assert_eq!(sum(&format!("`{krate}`")), own.map(of).sum::<usize>(), "{krate}");
    }
}

#[test]
fn long_commit_titles_are_refused_by_the_hook() {
    let file = std::env::temp_dir().join(format!("tidy-title-{}", std::process::id()));
    for (length, is_accepted) in [(72, true), (73, false)] {
        fs::write(&file, format!("{}\n\nbody\n", "x".repeat(length))).expect("a file");
        let hook = Path::new(ROOT).join("ci/hooks/commit-msg");
        let out = Command::new(hook).arg(&file).output().expect("the hook runs");
        assert_eq!(out.status.success(), is_accepted, "{length}");
    }
    fs::remove_file(&file).expect("gone");
}
