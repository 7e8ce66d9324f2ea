//! The script `.ci/soak`: one that is stopped leaves a report, too.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A `cargo` that stops the script, which is the parent of `timeout`, and then hangs.
const CARGO: &str = "#!/bin/sh
read -r _ _ _ script _ </proc/$PPID/stat
kill -TERM \"$script\"
exec sleep 600
";

#[test]
fn stopped_soak_reports_the_unfinished_part() {
    let folder = std::env::temp_dir().join(format!("tidy-soak-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let (cargo, report) = (folder.join("cargo"), folder.join("REPORT.md"));
    fs::write(&cargo, CARGO).expect("a file");
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).expect("a program");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").expect("a path"));
    let mut soak = Command::new(Path::new(ROOT).join(".ci/soak"));
    soak.env("PATH", path).env("ASHLAR_SOAK_PARTS", "miri").env("ASHLAR_SOAK_REPORT", &report);
    let out = soak.stdin(Stdio::null()).output().expect("the script runs");
    let text = fs::read_to_string(&report).expect("a report");
    fs::remove_dir_all(&folder).expect("gone");
    assert_eq!(out.status.code(), Some(130), "{text}");
    assert!(text.contains("| miri-bio | | | | UNFINISHED: interrupted"), "{text}");
    let last = text.lines().last().expect("a line");
    assert!(last.starts_with("Ended ") && last.ends_with(": interrupted."), "{text}");
}
