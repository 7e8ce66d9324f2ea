//! The daemon under a service manager: a passed control socket, and reports of its state.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Child, Command};
use std::time::Duration;

use rig::proc;

use crate::fixture::{Fixture, file_disk};

/// Longest wait for a report.
const LIMIT: Duration = Duration::from_secs(60);

/// Starts the daemon as systemd does: the listener, on standard input here, becomes descriptor 3.
const SCRIPT: &str = "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\" 3<&0 0</dev/null";

fn launch(fixture: &Fixture, listener: &UnixListener) -> Child {
    let serve = fixture.command(&["serve"]);
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT, "sh"]).arg(serve.get_program()).args(serve.get_args());
    command.env("ASHLAR_CONFIG", fixture.path("ashlar.toml")).env_remove("ASHLAR_SOCKET");
    command.env("NOTIFY_SOCKET", fixture.path("notify")).env("WATCHDOG_USEC", "3000000");
    let mut command = proc::ending_with_us(&command).unwrap();
    let log = File::create(fixture.path("log")).unwrap();
    command.stdin(OwnedFd::from(listener.try_clone().unwrap()));
    command.stdout(log.try_clone().unwrap()).stderr(log);
    proc::spawn(command).unwrap()
}

/// Receives reports up to one that begins so.
fn wait_for(reports: &UnixDatagram, begin: &str, fixture: &Fixture) {
    let mut buffer = [0; 1024];
    loop {
        let received = reports.recv(&mut buffer);
        let length = received.unwrap_or_else(|e| panic!("no {begin}: {e}\n{}", fixture.log()));
        if buffer[..length].starts_with(begin.as_bytes()) {
            return;
        }
    }
}

#[test]
fn passed_socket_is_served_and_start_life_and_stop_are_reported() {
    let fixture = Fixture::new("service-manager");
    fixture.image("d0.img", 4 << 20);
    fixture.configure(&file_disk("d0", "d0.img"), "0 = \"d0\"");
    let reports = UnixDatagram::bind(fixture.path("notify")).unwrap();
    reports.set_read_timeout(Some(LIMIT)).unwrap();
    let socket = fixture.path("ashlar.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    for start in 0..2 {
        let mut daemon = launch(&fixture, &listener);
        wait_for(&reports, "READY=1\nSTATUS=serving ", &fixture);
        wait_for(&reports, "WATCHDOG=1", &fixture);
        fixture.ashlar(&["list", "disks"]).ends(0).prints(&["d0"]);
        proc::signal("TERM", daemon.id()).unwrap();
        wait_for(&reports, "STOPPING=1\nSTATUS=stopping: SIGTERM", &fixture);
        assert!(daemon.wait().unwrap().success(), "start {start}: {}", fixture.log());
        assert!(socket.exists(), "start {start}: the service manager listens there");
    }
}
