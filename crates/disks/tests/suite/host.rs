//! Tools and file systems of the machine. A missing tool fails a test; where the user or the kernel
//! does not permit what a test needs, one sentence says so (`docs/verification.md` lists them).

use std::process::Command;

use rig::proc;

/// Runs a tool of a package in `ci/packages`; its output if it succeeded.
pub fn run(words: &[&str]) -> Option<String> {
    let tool = proc::tool(words[0]).unwrap();
    let done = Command::new(tool).args(&words[1..]).output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout).trim().to_owned();
    done.status.success().then_some(text)
}

/// Mounts a file system, by words for `mount`, if user and kernel permit it.
pub fn is_mounted(words: &[&str]) -> bool {
    let is_mounted = proc::is_root() && run(&[&["mount"], words].concat()).is_some();
    if !is_mounted {
        eprintln!("not tested: the user or the kernel refuses mount {}", words.join(" "));
    }
    is_mounted
}
