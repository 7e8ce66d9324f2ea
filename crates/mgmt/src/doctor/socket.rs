//! Check that the control socket is alive and private.

use super::{Check, CheckFinding, Facts, Severity, bad, ok};
use crate::api::Kind;
use std::os::unix::fs::MetadataExt;

/// See the module.
pub const CHECK: Check =
    Check { id: "socket", doc: "whether the control socket is alive and private", findings };

fn findings(facts: &Facts) -> Vec<CheckFinding> {
    let path = facts.socket.display();
    let about = std::fs::symlink_metadata(&facts.socket);
    let mode = about.as_ref().map_or(0, |m| m.mode());
    match (&facts.daemon, about.is_ok()) {
        (Ok(_), _) if mode & 0o077 != 0 => vec![bad(
            Severity::Warn,
            format!("{path} has mode {:04o}", mode & 0o7777),
            "other users can connect, though the daemon refuses each",
            format!("chmod 600 {path}"),
        )],
        (Ok(_), _) => ok(format!("a daemon answers on {path}")),
        (Err(e), true) if e.kind == Kind::Forbidden => vec![bad(
            Severity::Fail,
            format!("{path} belongs to another user"),
            "commands of this user are refused",
            "sudo ashlar status",
        )],
        (Err(e), true) if e.kind == Kind::Silent => vec![bad(
            Severity::Fail,
            format!("{path}: a daemon listens, but gives {}", e.source),
            "commands fail, and targets may not be served",
            "ashlar status; if that fails too, systemctl restart ashlar",
        )],
        (Err(_), true) => vec![bad(
            Severity::Warn,
            format!("{path} exists, but no daemon answers"),
            "the daemon was killed",
            "ashlar serve, which takes a stale socket over",
        )],
        (Err(_), false) => ok(format!("no daemon runs on {path}")),
    }
}
