//! The daemon in its sandbox. Without Landlock in the kernel only its report is tested.

use std::time::Duration;

use rig::proc::Scratch;

use crate::fixture::{Fixture, file_disk};

const LIMIT: Duration = Duration::from_secs(60);

/// `/proc/PID/task/TID/status` of each thread that still exists.
fn statuses(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let status = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("status")).ok()
    };
    tasks.filter_map(status).collect()
}

/// X1 of daemon/src/sandbox.rs, X5 of daemon/src/sandbox.rs.
#[test]
fn sandboxed_daemon_serves_its_folders_and_plan_refuses_others() {
    let fixture = Fixture::new("sandbox");
    fixture.image("d0.img", 4 << 20);
    let more = Scratch::new("sandbox-more").unwrap();
    let folder = more.path().to_str().unwrap();
    let own = format!(
        "[daemon]\nsandbox = true\nsandbox_folders = [\"{folder}\"]\n{}",
        file_disk("d0", "d0.img")
    );
    fixture.configure(&own, "0 = \"d0\"");
    let mut daemon = fixture.launch();
    let ready = || matches!(fixture.ashlar(&["status"]).code, 0 | 3);
    daemon.wait_ready(LIMIT, ready).unwrap_or_else(|e| panic!("{e}"));
    if fixture.log().contains("no Landlock") {
        let status = fixture.ashlar(&["status", "--json"]).ends(3);
        status.prints(&["is not enforced: the kernel has no Landlock"]);
        println!("not tested: the kernel has no Landlock");
        return;
    }
    let threads = statuses(daemon.pid());
    assert!(threads.len() > 2, "cores and the control thread: {threads:?}");
    for status in &threads {
        for line in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
            assert!(status.lines().any(|l| l == line), "no {line:?} in\n{status}");
        }
    }
    let with_disk = |path: &str| {
        let second = format!(
            "[[disk]]\nname = \"d1\"\nkind = \"file\"\npath = \"{path}\"\ncreate = true\n\
             size = \"1MiB\"\n"
        );
        fixture.configure(&format!("{own}{second}"), "0 = \"d0\"");
    };
    let elsewhere = Scratch::new("sandbox-elsewhere").unwrap();
    with_disk(elsewhere.path().join("d1.img").to_str().unwrap());
    let refused = fixture.ashlar(&["plan"]).ends(1).to_string();
    assert!(refused.contains("changes there are not permitted"), "{refused}");
    fixture.ashlar(&["apply"]).ends(1);
    with_disk("{here}/d1.img");
    fixture.ashlar(&["plan"]).ends(6);
    fixture.ok(&["apply"]);
    // A folder of the list needs no restart.
    with_disk(&format!("{folder}/d1.img"));
    fixture.ok(&["apply", "--yes-destroy", "d1"]);
    fixture.ashlar(&["status"]).prints(&["in a sandbox"]);
    assert!(daemon.terminate(LIMIT).unwrap(), "{}", fixture.log());
    assert!(!fixture.path("ashlar.sock").exists(), "its socket is in a folder of its own");
}
