//! Completion scripts in their shells, with names that a running daemon knows. A shell that is not
//! installed is not tested, except bash.

use std::path::Path;
use std::process::Command;

use crate::fixture::{Fixture, file_disk};

/// Completes the last of the words, which may be empty; prints a candidate on each line.
const BASH: &str = r#"
. ./completions.bash
COMP_WORDS=(ashlar "$@") COMP_CWORD=$#
COMP_LINE="ashlar $*" COMP_POINT=${#COMP_LINE} COMPREPLY=()
_ashlar_live ashlar "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

const FISH: &str = "source completions.fish; complete -C \"ashlar $argv\"";

/// Output of a script with the fixture's daemon; `None` without the shell.
fn run(fixture: &Fixture, shell: &[&str], words: &[&str]) -> Option<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_ashlar")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(shell[0]);
    command.args(&shell[1..]).args(words).current_dir(fixture.path(""));
    command.env("PATH", path).env("ASHLAR_SOCKET", fixture.path("ashlar.sock"));
    let out = command.output().ok()?;
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(error.is_empty(), "{shell:?} {words:?}: {error}");
    Some(String::from_utf8(out.stdout).unwrap())
}

#[test]
fn shells_complete_names_of_the_running_daemon() {
    let mut fixture = Fixture::new("completions");
    for disk in ["d0.img", "d1.img"] {
        fixture.image(disk, 4 << 20);
    }
    let disks = file_disk("d0", "d0.img") + &file_disk("d1", "d1.img");
    fixture.configure(&disks, "0 = \"d0\"");
    fixture.start();
    for shell in ["bash", "fish"] {
        let script = fixture.ok(&["completions", shell]);
        std::fs::write(fixture.path(&format!("completions.{shell}")), script).unwrap();
    }
    let bash = |words: &[&str]| {
        run(&fixture, &["bash", "--norc", "-c", BASH, "bash"], words).expect("bash")
    };
    let lines = |output: &str, name: &str| output.lines().any(|line| line == name);
    let candidates = bash(&["mirror", "label", "data", "d"]);
    assert!(lines(&candidates, "d0") && lines(&candidates, "d1"), "{candidates}");
    let candidates = bash(&["inspect", ""]);
    assert!(lines(&candidates, "d1") && !candidates.contains('<'), "{candidates}");
    assert!(lines(&bash(&["stat"]), "status"));
    let fish = run(&fixture, &["fish", "--no-config", "-c", FISH], &["inspect", "d"]);
    assert!(fish.is_none_or(|candidates| lines(&candidates, "d0")));
    fixture.stop();
}
