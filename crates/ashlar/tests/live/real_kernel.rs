//! A real Linux kernel with open-iscsi. A tree is copied with CHAP in both directions and CRC32C
//! over headers and data. The daemon is killed in the middle of writes, then stopped, then ended by
//! a panic of a core.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rig::guest::SharedGuest;
use rig::peer::wait_port;
use rig::scenarios::{self, From, Tree};
use rig::{Chap, Login, Target};

use crate::fixture::{Fixture, IQN, MAY_PANIC, array, file_disk};
use crate::guests::BOOT;

/// How long the killed daemon stays away: writes pile up in the guest meanwhile.
const DOWN: Duration = Duration::from_millis(500);
/// Size of each unit; the scenarios want 64 MiB.
const UNIT_BYTES: u64 = 128 << 20;

const EXPORTS: &str = r#"
[[target]]
driver = "iscsi"
name = "{iqn}"
listen = ["{portal}"]
chap = { user = "alice", secret = "file:{here}/secret" }
mutual_chap = { user = "target", secret = "target-passwd" }

[[target]]
driver = "iscsi"
name = "{iqn}.open"
listen = ["{portal}"]

[[access]]
target = "{iqn}"
group = "guest"
initiators = ["iqn.2026-11.test.ashlar:*"]
luns = { 0 = "tree" }

[[access]]
target = "{iqn}.open"
group = "guest"
initiators = ["iqn.2026-11.test.ashlar:*"]
luns = { 3 = "files" }
"#;

/// The initiator of Linux survives kill, stop and panic of the daemon.
pub fn check(guest: &mut SharedGuest) {
    let mut fixture = Fixture::alone("kernel");
    let (tree_image, files_image) =
        (fixture.image("tree.img", UNIT_BYTES), fixture.image("files.img", UNIT_BYTES));
    let disks = [file_disk("tree", "tree.img"), file_disk("files", "files.img")].concat();
    fixture.secret("secret", "initiator-pass");
    fixture.write("ashlar.toml", &format!("{disks}{EXPORTS}"));
    fixture.write(MAY_PANIC, "");
    fixture.start();

    let chap = Chap {
        user: "alice".into(),
        secret: "initiator-pass".into(),
        mutual: Some(("target".into(), "target-passwd".into())),
    };
    let open = Target { iqn: format!("{IQN}.open"), ..fixture.target(3) };
    let (first, second) = (Login::open(fixture.target(0)), Login::open(open).with_digests());
    let mut first = first.with_chap(chap).with_digests();
    // By default open-iscsi offers only MD5, which a target refuses unless it is configured.
    first.settings.push(("node.session.auth.chap_algs".into(), "SHA256".into()));
    let tree = Tree::documentation().unwrap();
    let mut script = scenarios::discover(&second);
    script.then(scenarios::copy_tree(&first, &tree)).then(scenarios::end_in_writes(&second, 3));

    let (mut seen, mut stopped, mut panicked) = (None, 0, None);
    let played = scenarios::play(From::Shared(guest), &script, BOOT, &mut || {
        fixture.assert_alive();
        if seen.is_none() {
            seen = Some(fixture.json(&["sessions"]));
            fixture.kill();
        } else if stopped == 0 {
            fixture.stop();
            stopped += 1;
        } else {
            panicked = Some(fixture.panic());
        }
        std::thread::sleep(DOWN);
        fixture.start();
        wait_port(fixture.portal())
    })
    .unwrap_or_else(|e| panic!("{e:#}\nthe daemon:\n{}", fixture.log()));
    println!("{:?} files and bytes\n{}", tree.size(), played.run.summary());
    let after = played.acknowledged.len() - played.acknowledged_before;
    println!("acknowledged {} + {after}", played.acknowledged_before);
    assert!(played.acknowledged_before >= 20 && after >= 60);
    assert_eq!(stopped, 1);
    // SIGABRT; the log has the thread, the task, the last request and the backtrace.
    let signal = panicked.and_then(|status: ExitStatus| status.signal());
    assert_eq!(signal, Some(6));
    let log = fixture.log();
    for words in ["ASHLAR PANIC: ashlar-core", "task: panic", "last request: ", "fail_stop.rs"] {
        assert!(log.contains(words), "no `{words}` in\n{log}");
    }

    let sessions = seen.expect("the daemon was killed");
    let live = array(&sessions["sessions"]);
    assert_eq!(live.len(), 1, "the first login has gone: {sessions:#}");
    let session = &live[0]["session"];
    assert_eq!(session["initiator"], Login::INITIATOR);
    assert_eq!(session["digests"]["header"], true, "{session:#}");
    assert_eq!(session["digests"]["data"], true, "{session:#}");
    let state = fixture.state();
    assert!(array(&state["denied"]).is_empty(), "{:#}", state["denied"]);

    fixture.stop();
    scenarios::check_image(&files_image, &played.acknowledged).unwrap();
    scenarios::check_clean(&tree_image).unwrap();
}
