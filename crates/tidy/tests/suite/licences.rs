//! Licences of the linked dependencies: each is compatible with ours.

use std::process::Command;

use serde_json::Value;
use tidy::is_compatible;

#[test]
fn licence_of_every_dependency_is_compatible() {
    // The lock file names crates of other systems too, which were never downloaded.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let words = ["metadata", "--offline", "--format-version", "1", "--filter-platform", &platform];
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let mut cargo = Command::new(env!("CARGO"));
    let output = cargo.args(words).args(["--manifest-path", manifest]).output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let all: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = all["packages"].as_array().expect("a list");
    assert!(packages.len() > 50, "only {} packages", packages.len());
    let wrong: Vec<String> = packages
        .iter()
        .filter(|p| !p["license"].as_str().is_some_and(is_compatible))
        .map(|p| format!("{} {}: {}", p["name"], p["version"], p["license"]))
        .collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn licence_expressions_are_evaluated() {
    for good in [
        "MIT",
        "MIT/Apache-2.0",
        "GPL-2.0-only OR MIT",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception OR GPL-3.0-only",
        "MIT AND (GPL-2.0-only OR Zlib)",
    ] {
        assert!(is_compatible(good), "{good}");
    }
    for bad in [
        "",
        "GPL-2.0-only",
        "AGPL-3.0-or-later",
        "MIT AND MPL-2.0",
        "MIT AND (GPL-2.0-only OR LGPL-2.1-only)",
        "GPL-2.0-only WITH Classpath-exception-2.0",
        "MIT OR",
        "(MIT",
        "MIT Apache-2.0",
    ] {
        assert!(!is_compatible(bad), "{bad}");
    }
}
