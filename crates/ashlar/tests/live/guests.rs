//! Scripts that guests run: their limit, the functions of a daemon in a guest, and the images.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rig::guest::{Boot, Script, SharedGuest};
use rig::scenarios::{self, From, Tree};

/// Each guest may use every core; the deadline is that of its whole script.
pub const BOOT: Boot = Boot { deadline: Duration::from_secs(900), core: None };

/// Functions for a daemon in the guest and for a writer beside it.
const DAEMON_FUNCTIONS: &str = r#"
export ASHLAR_SOCKET=/run/ashlar.sock
begin() {
    ashlar serve >>/tmp/log 2>&1 &
    echo $! >/tmp/pid
    within 30 ashlar status
}
over() { while kill -0 "$(cat "$1")" 2>/dev/null; do sleep 0.1; done; }
killed() { kill -9 "$(cat /tmp/pid)"; over /tmp/pid; }
ended() { kill "$(cat /tmp/pid)"; over /tmp/pid; }
more() { wait_lines /tmp/list $(($(lines /tmp/list) + $1)) "$(cat /tmp/writer)"; }
"#;

/// A script with a tree of at most `files_max` files. Its steps, which [`add`] adds, have these
/// functions.
pub fn daemon_script(files_max: usize, functions: &str) -> Script {
    let mut script = Script::new();
    script.files = Tree::some(files_max).unwrap().guest_files();
    script.file("rig/tools.sh", format!("{DAEMON_FUNCTIONS}{functions}"));
    script
}

/// Adds a step to a [`daemon_script`]; one that fails shows the logs of the daemon and the kernel.
pub fn add(script: &mut Script, name: &str, shell: &str) {
    let shell = format!(
        ". /rig/tools.sh\ntrap '[ $? = 0 ] || {{ echo the daemon:; tail -n 30 /tmp/log; \
         dmesg | tail -n 15; }}' EXIT\n{shell}"
    );
    script.step(name, shell);
}

/// Runs a script that requests nothing of the host.
pub fn run(guest: &mut SharedGuest, script: &Script) {
    let conversed = scenarios::converse(From::Shared(guest), script, BOOT, &mut |request| {
        panic!("the guest requested {request:?}")
    });
    let conversed = conversed.unwrap_or_else(|e| panic!("{e:#}"));
    println!("{}", conversed.run.summary());
    assert!(conversed.acknowledged.is_empty());
}

/// Bytes that are stored for a file.
pub fn stored_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}
