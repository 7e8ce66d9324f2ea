//! A daemon that is stopped and started again and again under load: QEMU's iSCSI and NBD clients,
//! which reconnect by themselves, do not notice it.

use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use rig::proc::{self, Proc};
use serde_json::Value;

use crate::fixture::{self, Fixture, IQN, file_disk};

const BYTES: u64 = 16 << 20;

/// Stops under each load. The period in which a target is absent and its sessions still exist is
/// short.
const STOPS: usize = 8;

/// Longest way back of a client.
const BACK: Duration = Duration::from_secs(30);

/// Between a stop and the start after it.
const DOWN: Duration = Duration::from_millis(100);

/// A configuration in which portals are there long before the last group is.
fn configuration(nbd: SocketAddr) -> String {
    let disks = [file_disk("d0", "d0.img"), file_disk("d1", "d1.img")].concat();
    let targets = format!(
        "[[target]]\ndriver = \"iscsi\"\nname = \"{{iqn}}\"\nlisten = [\"{{portal}}\"]\n\
         [[target]]\ndriver = \"nbd\"\nname = \"exports\"\nlisten = [\"{nbd}\"]\n\
         [[access]]\ntarget = \"{{iqn}}\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
         luns = {{ 0 = \"d0\" }}\n\
         [[access]]\ntarget = \"exports\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
         luns = {{ 0 = \"d1\" }}\n"
    );
    // More targets at the same portals make the way to the first group a long one.
    let more = |i: usize| {
        format!(
            "[[target]]\ndriver = \"iscsi\"\nname = \"{{iqn}}.{i}\"\nlisten = [\"{{portal}}\"]\n"
        )
    };
    [disks, targets, (0..60).map(more).collect()].concat()
}

/// `qemu-img bench`, reads or writes, until it is killed.
fn load(fixture: &Fixture, name: &str, image: &str, writes: bool) -> Proc {
    let mut command = Command::new(proc::tool("qemu-img").unwrap());
    command.args(["bench", "-c", "100000000", "-s", "4096", "-S", "12288", "-d", "16"]);
    command.args(["-t", "none", "--image-opts", image]);
    if writes {
        command.arg("-w");
    }
    Proc::start(name, &mut command, &fixture.path(&format!("{name}.log"))).unwrap()
}

#[test]
fn signals_reload_stop_cleanly_or_are_ignored() {
    let mut fixture = Fixture::new("signals");
    ["d0.img", "d1.img"].iter().for_each(|f| drop(fixture.image(f, BYTES)));
    let both = [file_disk("d0", "d0.img"), file_disk("d1", "d1.img")].concat();
    fixture.configure(&file_disk("d0", "d0.img"), "0 = \"d0\"");
    fixture.start();
    let send = |fixture: &Fixture, signal: &str| {
        let pid = fixture.pid().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    };
    let ignored = ["-USR1", "-USR2", "-ALRM", "-VTALRM", "-PROF", "-IO", "-PWR", "-PIPE"];
    for signal in ignored.into_iter().chain(["-XCPU", "-XFSZ", "-34", "-40", "-64"]) {
        send(&fixture, signal);
        // A fatal signal ends the process before it answers.
        fixture.ok(&["list", "disks"]);
        fixture.assert_alive();
    }
    // SIGHUP: a file that is wrong changes nothing, one that is right is applied.
    fixture.write("ashlar.toml", "[[disk]]\nname = 7\n");
    send(&fixture, "-HUP");
    fixture.until("the refusal is logged", BACK, || fixture.log().contains("was not reloaded"));
    fixture.ok(&["list", "disks"]);
    fixture.configure(&both, "0 = \"d0\", 1 = \"d1\"");
    send(&fixture, "-HUP");
    fixture.until("the new disk is served", BACK, || fixture.provider("d1").is_some());
    send(&fixture, "-QUIT");
    let status = fixture.end();
    assert!(status.success(), "{status}: {}", fixture.log());
    assert!(fixture.log().contains("stopping: SIGQUIT"), "{}", fixture.log());
}

/// An initiator that logs in again and again, whether the daemon is running or not.
struct LoginLoop {
    over: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl LoginLoop {
    fn begin(fixture: &Fixture) -> LoginLoop {
        let over = Arc::new(AtomicBool::new(false));
        let (mine, url) = (over.clone(), fixture.url(0));
        let thread = std::thread::spawn(move || {
            let mut logins = 0;
            while !mine.load(Ordering::Relaxed) {
                let mut inq = Command::new(proc::tool("iscsi-inq").unwrap());
                let done = inq.arg(&url).stdin(Stdio::null()).output().unwrap();
                logins += usize::from(done.status.success());
            }
            logins
        });
        LoginLoop { over, thread }
    }

    /// Returns the number of successful logins.
    fn end(self) -> usize {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

#[test]
fn restarts_under_load_cause_no_client_error() {
    let mut fixture = Fixture::new("restart");
    let nbd = SocketAddr::from(([127, 0, 0, 1], proc::free_port().unwrap()));
    fixture.image("d0.img", BYTES);
    fixture.image("d1.img", BYTES);
    fixture.write("ashlar.toml", &configuration(nbd));
    fixture.start();
    let iscsi =
        format!("driver=iscsi,transport=tcp,portal={},target={IQN},lun=0", fixture.portal());
    let nbd = format!(
        "driver=nbd,server.type=inet,server.host={},server.port={},export=exports/0,\
         reconnect-delay=30",
        nbd.ip(),
        nbd.port()
    );
    let mut loads = Vec::new();
    for (name, image) in [("iscsi", &iscsi), ("nbd", &nbd)] {
        for writes in [false, true] {
            let name = format!("{name}-{}", if writes { "writes" } else { "reads" });
            loads.push((name.clone(), load(&fixture, &name, image, writes)));
        }
    }
    let knocks = LoginLoop::begin(&fixture);
    for stop in 0..STOPS {
        // All of them are back, and at work.
        let busy = || {
            let sessions = fixture.json(&["sessions"]);
            let is_busy = |s: &&Value| fixture::operations(s) > 500;
            fixture::array(&sessions["sessions"]).iter().filter(is_busy).count()
        };
        fixture.until("all are back", BACK, || busy() == loads.len());
        // An initiator that logged in between a target and its groups was not refused.
        let state = fixture.state();
        assert!(fixture::array(&state["denied"]).is_empty(), "{:#}", state["denied"]);
        fixture.stop();
        sleep(DOWN);
        fixture.start();
        for (name, load) in &mut loads {
            let log = fixture.path(&format!("{name}.log"));
            let output = fs::read_to_string(&log).unwrap();
            assert!(load.ended().unwrap().is_none(), "stop {stop}: {name} ended:\n{output}");
            assert!(!output.contains("rror"), "stop {stop}: {name}:\n{output}");
        }
    }
    for (_, mut load) in loads {
        load.kill().unwrap();
    }
    assert!(knocks.end() > STOPS, "too few logins to meet one start");
    fixture.stop();
}
