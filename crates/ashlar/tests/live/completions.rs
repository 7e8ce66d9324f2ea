//! Completion scripts in their shells, with names that a running daemon knows. fish is tested where
//! it is installed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rig::{packages, proc};

use crate::fixture::{Fixture, file_disk};

/// The shell that is not a part of every system.
const PACKAGES: &str = include_str!("../../../../ci/packages/completions.txt");

/// Completes the last of the words, which may be empty; prints a candidate on each line.
const BASH: &str = r#"
. ./completions.bash
COMP_WORDS=(ashlar "$@") COMP_CWORD=$#
COMP_LINE="ashlar $*" COMP_POINT=${#COMP_LINE} COMPREPLY=()
_ashlar_live ashlar "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// As [`BASH`], without the line editor: its functions are replaced by ones that print.
const ZSH: &str = r#"
compdef() { : }
compadd() { shift; print -rl -- "${(@P)1}" }
_default() { print -r -- "(files)" }
. ./completions.zsh
LBUFFER="ashlar $*"
_ashlar_live
"#;

const FISH: &str = "source completions.fish; complete -C \"ashlar $argv\"";

/// Output of a script with the daemon at a socket of the fixture; `None` without the shell.
fn run(fixture: &Fixture, socket: &str, shell: &[&str], words: &[&str]) -> Option<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_ashlar")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(shell[0]);
    command.args(&shell[1..]).args(words).current_dir(fixture.path(""));
    command.env("PATH", path).env("ASHLAR_SOCKET", fixture.path(socket));
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
    let port = proc::free_port().unwrap();
    let api = format!("[api]\nlisten = [\"127.0.0.1:{port}\"]\n");
    let disks = file_disk("d0", "d0.img") + &file_disk("d1", "d1.img");
    fixture.configure(&(api + &disks), "0 = \"d0\"");
    fixture.start();
    packages::ensure_installed(PACKAGES).unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = fixture.ok(&["completions", shell]);
        std::fs::write(fixture.path(&format!("completions.{shell}")), script).unwrap();
    }
    let bash_at = |socket: &str, words: &[&str]| {
        run(&fixture, socket, &["bash", "--norc", "-c", BASH, "bash"], words).expect("bash")
    };
    let bash = |words: &[&str]| bash_at("ashlar.sock", words);
    let lines = |output: &str, name: &str| output.lines().any(|line| line == name);
    let candidates = bash(&["mirror", "label", "data", "d"]);
    assert!(lines(&candidates, "d0") && lines(&candidates, "d1"), "{candidates}");
    let candidates = bash(&["inspect", ""]);
    assert!(lines(&candidates, "d1") && !candidates.contains('<'), "{candidates}");
    assert!(lines(&bash(&["stat"]), "status"));
    let zsh = |words: &[&str]| {
        run(&fixture, "ashlar.sock", &["zsh", "-f", "-c", ZSH, "zsh"], words).expect("zsh")
    };
    let candidates = zsh(&["mirror", "label", "data", "d"]);
    assert!(lines(&candidates, "d0") && lines(&candidates, "d1"), "{candidates}");
    assert_eq!(zsh(&["part", ""]), "(files)\n", "a command follows");
    let fish = ["fish", "--no-config", "-c", FISH];
    let fish = run(&fixture, "ashlar.sock", &fish, &["inspect", "d"]);
    assert!(fish.is_none_or(|candidates| lines(&candidates, "d0")));

    // The names of a remote daemon, by its options.
    let token = fixture.ok(&["token", "create", "tab", "--role", "viewer"]);
    fixture.secret("tab.token", &token);
    let token = fixture.path("tab.token").to_str().unwrap().to_owned();
    let url = format!("http://127.0.0.1:{port}");
    let typed = ["--remote", &url, "--token-file", &token, "inspect", ""];
    let is_listed = || lines(&bash_at("none.sock", &typed), "d1");
    fixture.until("the names of the remote daemon", Duration::from_secs(20), is_listed);
    fixture.stop();
}
