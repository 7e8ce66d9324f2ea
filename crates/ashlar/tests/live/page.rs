//! Page of the daemon in headless Chromium, and its files as their sources build them. Both need
//! node and npm, which are installed where they are missing. ASHLAR_SCREENSHOTS names a folder for
//! the pictures of the manual.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use rig::{packages, proc};
use testkit::iscsi::initiator::Client;

use crate::fixture::{Fixture, IQN};
use crate::reservations::out;

/// Longest installation of the packages of npm, and longest build.
const BUILD: Duration = Duration::from_secs(300);
/// Longest wait for the listener of the API.
const OPEN: Duration = Duration::from_secs(20);
/// Longest run of the browser, on a machine that is busy.
const RUN: Duration = Duration::from_secs(600);

/// A disk whose medium can be ejected, a file server `main`, a bus, and a webhook that reaches no
/// server.
const DISKS: &str = "
    [[disk]]\nname = 'd0'\nkind = 'memory'\nsize = '8MiB'
    [[unit]]\nprovider = 'd0'\nremovable = true
    [[disk]]\nname = 'cache'\nkind = 'memory'\nsize = '32MiB'
    [[disk]]\nname = 'worm'\nkind = 'memory'\nsize = '64MiB'
    [[geom]]\nclass = 'fs'\nname = 'main'\nmembers = ['cache', 'worm']\ncreate = true
    [[bus]]\nname = 'mps0'\nkind = 'virtual'\ndisks = 1\nsize = '1MiB'
    [[webhook]]\nname = 'pager'\nurl = 'http://127.0.0.1:1/'
";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web")
}

fn modified(name: &str) -> Option<SystemTime> {
    std::fs::metadata(folder().join(name)).and_then(|about| about.modified()).ok()
}

/// Node, with the packages of the page in place.
fn node() -> &'static Path {
    static NODE: OnceLock<PathBuf> = OnceLock::new();
    NODE.get_or_init(|| {
        if proc::tool("node").is_err() || proc::tool("npm").is_err() {
            packages::ensure_installed(packages::NODE_LIST).unwrap();
        }
        if modified("node_modules/.package-lock.json") < modified("package-lock.json") {
            let mut install = Command::new(proc::tool("npm").unwrap());
            install.args(["ci", "--no-audit", "--no-fund"]).current_dir(folder());
            let ran = proc::run_limited(&mut install, BUILD).unwrap();
            assert!(ran.ok(), "{ran:?}");
        }
        proc::tool("node").unwrap()
    })
}

#[test]
fn embedded_files_of_the_page_are_those_that_the_sources_build() {
    let mut check = Command::new(node());
    let ran = proc::run_limited(check.args(["build.mjs", "--check"]).current_dir(folder()), BUILD);
    let ran = ran.unwrap();
    assert!(ran.ok(), "{ran:?}");
}

#[test]
fn page_shows_and_changes_the_daemon_in_a_browser() {
    let node = node();
    packages::ensure_installed(packages::WEB_LIST).unwrap();
    let mut fixture = Fixture::new("page");
    let port = proc::free_port().unwrap();
    let api = format!("[api]\nlisten = [\"127.0.0.1:{port}\"]\n");
    fixture.configure(&format!("{DISKS}\n{api}"), "0 = \"d0\"");
    // The host answers no pings while the browser works.
    let config = std::fs::read_to_string(fixture.path("ashlar.toml")).unwrap();
    let config = config.replace("driver = \"iscsi\"", "driver = \"iscsi\"\nnop_interval = 0");
    assert!(config.contains("nop_interval"), "{config}");
    fixture.write("ashlar.toml", &config);
    fixture.start();
    let token = fixture.ok(&["token", "create", "page", "--role", "admin"]);
    let is_open = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    fixture.until("the API is served", OPEN, is_open);
    let mut client =
        Client::session(fixture.portal(), "iqn.2026-11.test:page", IQN).expect("a session");
    client.ready(0);
    assert_eq!(out(&mut client, 6, 0, 0, 1).status, 0, "a registration");
    let mut test = Command::new(node);
    test.args(["test/page.mjs", "--socket"]).arg(fixture.path("ashlar.sock"));
    test.args(["--network", &format!("http://127.0.0.1:{port}/"), "--token", token.trim()]);
    if let Some(folder) = std::env::var_os("ASHLAR_SCREENSHOTS") {
        std::fs::create_dir_all(&folder).expect("the folder of the pictures");
        test.arg("--screenshots").arg(folder);
    }
    let ran = proc::run_limited(test.current_dir(folder()), RUN).unwrap();
    assert!(ran.ok(), "{ran:?}");
    let done = ran.output.lines().filter(|line| line.starts_with("ok ")).count();
    assert!(done > 15, "{ran:?}");
    fixture.stop();
}
