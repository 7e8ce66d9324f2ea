//! Files that the workspace's compiler does not read: no unfinished merges, and a valid fuzz
//! manifest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Folders that hold no text of ours.
const PASSED_OVER: &[&str] = &["target", ".git", "corpus", "run"];

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
