//! Owner, group and mode of the file of a Unix socket; clients of other users.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use rig::proc;
use serde_json::json;

use crate::nbd::server::{MEMORY_BYTES, Server, Shape};
use crate::nbd::tools::text;

const USER: u32 = 54_321;
const GROUP: u32 = 54_322;

/// The size that a client of that user and group reads.
fn size(path: &str, uid: u32, gid: u32) -> Result<String, String> {
    let url = format!("nbd+unix:///memory?socket={path}");
    let mut command = Command::new(proc::tool("setpriv").unwrap());
    let user = [format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".into()];
    command.args(user).arg(proc::tool("nbdinfo").unwrap()).args(["--size", &url]);
    command.current_dir("/");
    proc::run(&mut command).map_err(|e| format!("{e:#}"))
}

#[test]
fn a_client_of_the_socket_group_connects_and_others_do_not() {
    if !proc::is_root() {
        return eprintln!("not tested: only root runs clients of other users");
    }
    rig::packages::ensure_host().unwrap();
    // Other users may pass through it.
    let scratch = proc::Scratch::new("drivers-nbd-file").unwrap();
    let path = text(&scratch.path().join("s")).to_owned();
    let params = json!({ "socket_group": GROUP.to_string(), "socket_mode": "0660" });
    let server = Server::start(Shape { unix: Some(path.clone()), params, ..Shape::default() });
    let facts = || {
        let m = std::fs::metadata(&path).unwrap();
        (m.uid(), m.gid(), m.mode() & 0o7777)
    };
    assert_eq!(facts(), (0, GROUP, 0o660));
    let bytes = MEMORY_BYTES.to_string();
    assert_eq!(size(&path, USER, GROUP).map(|s| s.trim().to_owned()), Ok(bytes.clone()));
    let refused = size(&path, USER, USER).unwrap_err();
    assert!(refused.contains("Permission denied"), "{refused}");

    // A group of access rules knows the user; the file lets it through to them.
    server.allow(&[&format!("unix:uid={USER}")]);
    assert!(size(&path, USER, GROUP).is_ok());
    assert!(size(&path, USER + 9, GROUP).is_err());

    // Parameters that change while it listens change the file.
    server.allow(&["*"]);
    server.set(json!({ "socket_owner": USER.to_string(), "socket_mode": "0600" }));
    assert_eq!(facts(), (USER, GROUP, 0o600));
    assert!(size(&path, USER + 9, GROUP).is_err());
    assert_eq!(size(&path, USER, USER).map(|s| s.trim().to_owned()), Ok(bytes));
}

#[test]
fn targets_at_one_socket_must_agree_about_the_socket_mode() {
    let scratch = proc::Scratch::new("drivers-nbd-same").unwrap();
    let path = text(&scratch.path().join("s")).to_owned();
    let server = Server::start(Shape { unix: Some(path.clone()), ..Shape::default() });
    let other = drivers::TargetSpec {
        name: "other".into(),
        listen: vec![reactor::Address::Unix(path.into())],
        params: json!({ "socket_mode": "0600" }),
        ..drivers::TargetSpec::default()
    };
    let refused = server.driver.set_target(other).unwrap_err();
    assert!(refused.message.contains("socket_mode"), "{refused}");
}
