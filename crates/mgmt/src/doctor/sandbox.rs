//! Check that the kernel enforces the sandbox, and that its folders are those that the daemon found
//! at its start. Landlock permits inodes, and another file system or folder at the same path is
//! forbidden.

use super::{Check, CheckFinding, Facts, Severity, bad, ok};
use crate::api::SandboxFolder;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// See the module.
pub const CHECK: Check = Check {
    id: "sandbox",
    doc: "whether the sandbox is enforced, and its folders are those of the start",
    findings,
};

const RESTART: &str = "restart the daemon, so that its sandbox has the folder as it is now: \
                       `systemctl restart ashlar` where systemd runs it";

fn findings(facts: &Facts) -> Vec<CheckFinding> {
    let Ok(state) = &facts.daemon else { return ok("no daemon answers: not checked") };
    let folders = &state.daemon.sandbox;
    if let Some(why) = &state.daemon.sandbox_problem {
        return vec![bad(
            Severity::Warn,
            format!("`sandbox = true` in [daemon] is not enforced: {why}"),
            "the daemon may change all files of its user, or make every system call",
            "use a kernel with Landlock (`lsm=landlock,...`) and seccomp, then restart the daemon",
        )];
    }
    if folders.is_empty() {
        return ok("off: `sandbox = true` in [daemon] restricts the daemon to its folders");
    }
    // The daemon may have a mount namespace of its own.
    let root = facts.proc.join(state.daemon.pid.to_string()).join("root");
    let found: Vec<CheckFinding> = folders.iter().filter_map(|of| folder(&root, of)).collect();
    match found.is_empty() {
        true => ok(format!("{} folders of the sandbox checked", folders.len())),
        false => found,
    }
}

fn folder(root: &Path, of: &SandboxFolder) -> Option<CheckFinding> {
    let path = &of.path;
    let seen = std::fs::metadata(root.join(path.trim_start_matches('/')));
    let why = match seen {
        Ok(about) if (about.dev(), about.ino()) == (of.device, of.inode) => return None,
        Ok(about) if about.dev() != of.device => {
            "another file system was mounted over it after the start of the daemon".to_owned()
        }
        Ok(_) => "the folder was replaced after the start of the daemon".to_owned(),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            return Some(bad(
                Severity::Warn,
                format!("{path} is not checked: {e}"),
                "a file system that is mounted over the folder is not found",
                "repeat the check as root: ashlar doctor sandbox",
            ));
        }
        Err(e) => e.to_string(),
    };
    Some(bad(
        Severity::Fail,
        format!("{path}: {why}"),
        "the sandbox forbids the daemon to use files there: EACCES, permission denied",
        RESTART,
    ))
}
