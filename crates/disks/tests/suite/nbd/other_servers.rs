//! Servers that we did not write: nbdkit, qemu-nbd, nbd-server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bio::{Errno, Op, Segs};
use reactor::PortChoice;
use rig::papers::{Good, Papers};
use rig::proc::{self, Proc, Scratch};
use serde_json::{Value, json};

use super::{MIB, Shape, ends, load, wait_for_progress};
use crate::world::{World, exercise, range};

const USERS: Shape = Shape { users: 8, part: MIB, rounds: u64::MAX };

const START_LIMIT: Duration = Duration::from_secs(20);

/// A server at a Unix socket.
struct Server {
    program: PathBuf,
    words: Vec<String>,
    socket: PathBuf,
    running: Option<Proc>,
    scratch: Scratch,
}

impl Server {
    /// `words` with `SOCKET` and `FOLDER` put in.
    fn start(program: &str, words: &[&str]) -> Server {
        rig::packages::ensure_host().unwrap();
        Server::at(proc::tool(program).unwrap(), words, |_| {})
    }

    fn at(program: PathBuf, words: &[&str], prepare: impl FnOnce(&Path)) -> Server {
        let scratch = Scratch::new("disks-nbd").unwrap();
        let folder = scratch.path().to_path_buf();
        prepare(&folder);
        let socket = folder.join("socket");
        let put = |word: &&str| {
            let word = word.replace("SOCKET", socket.to_str().unwrap());
            word.replace("FOLDER", folder.to_str().unwrap())
        };
        let words = words.iter().map(put).collect();
        let mut server = Server { program, words, socket, running: None, scratch };
        server.boot();
        server
    }

    fn boot(&mut self) {
        let _gone = std::fs::remove_file(&self.socket);
        let mut command = Command::new(&self.program);
        command.args(&self.words);
        let log = self.scratch.path().join("log");
        let mut running = Proc::start("server", &mut command, &log).unwrap();
        running.wait_ready(START_LIMIT, || listens(&self.socket)).unwrap();
        self.running = Some(running);
    }

    fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.kill().unwrap();
        }
    }

    fn address(&self) -> String {
        format!("unix:{}", self.socket.display())
    }
}

/// Whether a socket listens at a path, seen without a connection to it: some servers end with
/// their first client.
fn listens(path: &Path) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    let path = path.to_str().unwrap();
    sockets.lines().any(|l| l.ends_with(path) && l.split(' ').nth(3) == Some("00010000"))
}

/// A world with the server's export as disk `n0`.
fn world(address: &str, more: Value) -> World {
    let mut w = World::new(PortChoice::Auto);
    let mut params = json!({ "address": address });
    let more = more.as_object().cloned().unwrap_or_default();
    params.as_object_mut().unwrap().extend(more);
    w.disk("nbd", "n0", params).unwrap();
    w
}

#[test]
fn nbdkit_memory_disk_matches_an_array_of_bytes() {
    let server = Server::start("nbdkit", &["-f", "-U", "SOCKET", "memory", "16M"]);
    let mut w = world(&server.address(), Value::Null);
    exercise(&mut w, "n0", 1, 300);
    assert_eq!(w.line_of("n0", "connections"), "1");
    assert_eq!(w.line_of("n0", "connections made"), "1", "that by which it was opened is used");
}

#[test]
fn map_reports_the_allocated_extents_of_nbdkit() {
    let server = Server::start("nbdkit", &["-f", "-U", "SOCKET", "memory", "16M"]);
    let mut w = world(&server.address(), Value::Null);
    let edge = w.open("n0");
    w.write(edge, MIB, &[7; 65_536]).unwrap();
    let mut map = |at: u64| {
        let done = w.io(edge, move |bio| range(bio, Op::Map, at, 4 * MIB, Segs::new()));
        (done.status, done.value, done.completed)
    };
    assert_eq!(map(0), (Ok(()), Some(bio::Attr::Int(bio::HOLE)), MIB));
    assert_eq!(map(MIB), (Ok(()), Some(bio::Attr::Int(bio::MAPPED)), 65_536));
}

#[test]
fn server_error_fails_only_its_request() {
    let words = "-f -U SOCKET --filter=error memory 16M error-pread=ENOSPC error-pread-rate=1";
    let words: Vec<&str> = words.split(' ').collect();
    let server = Server::start("nbdkit", &words);
    let mut w = world(&server.address(), Value::Null);
    let edge = w.open("n0");
    assert_eq!(w.read(edge, 0, 512), Err(Errno::NoSpc));
    assert_eq!(w.write(edge, 0, &[1; 512]), Ok(()));
    assert_eq!(w.line_of("n0", "connections lost"), "0");
}

#[test]
fn a_read_only_export_refuses_writers() {
    let server = Server::start("nbdkit", &["-r", "-f", "-U", "SOCKET", "memory", "16M"]);
    let mut w = world(&server.address(), Value::Null);
    assert_eq!(w.user("n0", geom::Access::WRITE).err(), Some(Errno::RoFs));
    assert!(w.user("n0", geom::Access::READ).is_ok());
}

#[test]
fn server_without_fixed_newstyle_is_usable() {
    let words = ["-f", "-U", "SOCKET", "--mask-handshake=0", "--no-sr", "memory", "16M"];
    let server = Server::start("nbdkit", &words);
    let mut w = world(&server.address(), Value::Null);
    exercise(&mut w, "n0", 2, 100);
}

#[test]
fn refusals_report_the_server_and_the_export() {
    let mut server =
        Server::start("nbdkit", &["-f", "-U", "SOCKET", "-e", "here", "memory", "16M"]);
    let mut w = World::new(PortChoice::Auto);
    let address = server.address();
    let mut refused = |export: &str, more: Value| {
        let mut params = json!({ "address": address, "export": export });
        params.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        w.disk("nbd", "n0", params).err().map(|e| e.message).unwrap_or_default()
    };
    let none = json!({});
    server.kill();
    let what = refused("here", none.clone());
    for part in ["nbd disk n0", &server.address(), "\"here\"", "nbdinfo --list"] {
        assert!(what.contains(part), "{what}");
    }
    assert!(refused("", json!({ "uri": "nbd://x" })).contains("one of `address`"));
    assert!(refused("", json!({ "tls_key": "/x" })).contains("tls_ca"));
}

#[test]
fn restarted_server_fails_no_request() {
    let words = ["-f", "-U", "SOCKET", "file", "FOLDER/disk"];
    let program = proc::tool("nbdkit").unwrap();
    let mut server = Server::at(program, &words, |folder| {
        std::fs::File::create(folder.join("disk")).unwrap().set_len(16 * MIB).unwrap();
    });
    let mut w = world(&server.address(), Value::Null);
    let edge = w.open("n0");
    let p = load(&mut w, edge, USERS);
    for _ in 0..4 {
        wait_for_progress(&mut w, &p, 200);
        server.kill();
        w.turn(20_000_000);
        server.boot();
    }
    wait_for_progress(&mut w, &p, 200);
    ends(&mut w, &p);
    assert_eq!(w.line_of("n0", "connections lost"), "4");
    assert_ne!(w.line_of("n0", "requests sent again"), "0");
}

#[test]
fn qemu_nbd_serves_qcow2_and_restarts_in_order() {
    let words = ["-t", "--shared=8", "-f", "qcow2", "-k", "SOCKET", "FOLDER/disk.qcow2"];
    rig::packages::ensure_host().unwrap();
    let program = proc::tool("qemu-nbd").unwrap();
    let mut server = Server::at(program, &words, |folder| {
        let image = folder.join("disk.qcow2");
        rig::peer::qemu_img(&["create", "-q", "-f", "qcow2", image.to_str().unwrap(), "16M"])
            .unwrap();
    });
    let mut w = world(&server.address(), Value::Null);
    let edge = w.open("n0");
    let p = load(&mut w, edge, USERS);
    for _ in 0..3 {
        wait_for_progress(&mut w, &p, 200);
        // An orderly stop: acknowledged data that are not in the image yet are kept. The client
        // takes its replies meanwhile, for which the server waits.
        let mut running = server.running.take().unwrap();
        proc::signal("TERM", running.pid()).unwrap();
        w.until("the server ends in order", |_| running.ended().unwrap().is_some());
        server.boot();
    }
    wait_for_progress(&mut w, &p, 200);
    ends(&mut w, &p);
    assert_eq!(w.line_of("n0", "connections lost"), "3");
}

#[test]
fn replies_of_a_slow_server_are_matched_in_any_order() {
    let words = "-f -U SOCKET --filter=delay memory 16M delay-read=20ms delay-write=1ms";
    let words: Vec<&str> = words.split(' ').collect();
    let server = Server::start("nbdkit", &words);
    let mut w = world(&server.address(), Value::Null);
    let edge = w.open("n0");
    let p = load(&mut w, edge, USERS);
    wait_for_progress(&mut w, &p, 100);
    ends(&mut w, &p);
    assert_eq!(w.line_of("n0", "connections lost"), "0");
}

#[test]
fn request_past_its_timeout_fails_and_the_next_connection_works() {
    let words = "-f -U SOCKET --filter=delay memory 16M delay-write=60";
    let words: Vec<&str> = words.split(' ').collect();
    let server = Server::start("nbdkit", &words);
    let mut w = world(&server.address(), json!({ "timeout_s": 1, "retries": 0 }));
    let edge = w.open("n0");
    assert_eq!(w.write(edge, 0, &[1; 512]), Err(Errno::RemoteIo));
    assert_eq!(w.read(edge, 0, 512), Ok(vec![0; 512]), "the server has not written");
    assert_eq!(w.line_of("n0", "connections lost"), "1");
}

#[test]
fn server_that_waits_for_its_last_client_serves_until_the_disk_is_gone() {
    let words = "-f -U SOCKET --filter=exitwhen memory 16M exit-when-file-created=FOLDER/stop";
    let words: Vec<&str> = words.split(' ').collect();
    let mut server = Server::start("nbdkit", &words);
    let mut w = world(&server.address(), Value::Null);
    let edge = w.open("n0");
    let p = load(&mut w, edge, USERS);
    wait_for_progress(&mut w, &p, 100);
    std::fs::write(server.scratch.path().join("stop"), "").unwrap();
    // The server refuses a further connection, and keeps the present one.
    w.verb("resize", "n0", Value::Null).unwrap();
    wait_for_progress(&mut w, &p, 100);
    ends(&mut w, &p);
    assert_eq!(w.line_of("n0", "connections lost"), "0");
    withered(&mut w);
    let mut running = server.running.take().unwrap();
    w.until("the server ends by itself", |_| running.ended().unwrap().is_some());
}

#[test]
fn server_of_the_nbd_project_is_usable() {
    const LIST: &str = include_str!("../../../../../ci/packages/nbd.txt");
    let root = rig::packages::ensure_unpacked("nbd", LIST).unwrap();
    let words = ["-d", "-C", "FOLDER/config"];
    let mut server = Server::at(root.join("bin/nbd-server"), &words, |folder| {
        std::fs::File::create(folder.join("disk")).unwrap().set_len(16 * MIB).unwrap();
        let text = format!(
            "[generic]\nunixsock = {0}/socket\nlistenaddr = 127.0.0.1\nport = {1}\n\
             [disk]\nexportname = {0}/disk\nflush = true\nfua = true\n",
            folder.display(),
            proc::free_port().unwrap()
        );
        std::fs::write(folder.join("config"), text).unwrap();
    });
    let mut w = world(&server.address(), json!({ "export": "disk" }));
    let edge = w.open("n0");
    let p = load(&mut w, edge, USERS);
    wait_for_progress(&mut w, &p, 200);
    server.kill();
    server.boot();
    wait_for_progress(&mut w, &p, 200);
    ends(&mut w, &p);
}

#[test]
fn tls_works_with_certificates_on_both_sides() {
    rig::packages::ensure_host().unwrap();
    let papers = Papers::new("disks-nbd-tls").unwrap();
    papers.authority("ca").unwrap();
    let names = "subjectAltName=DNS:localhost,IP:127.0.0.1";
    papers.sign("ca", "server", "localhost", names, Good::Now).unwrap();
    papers.sign("ca", "alice", "alice", "subjectAltName=DNS:alice.example", Good::Now).unwrap();
    let text = |name: &str| papers.file(name).to_str().unwrap().to_owned();
    let certificates = format!("--tls-certificates={}", text("server"));
    let words = ["-f", "-U", "SOCKET", "--tls=require", "--tls-verify-peer", &certificates];
    let words = [&words[..], &["memory", "16M"]].concat();
    let server = Server::start("nbdkit", &words);
    let keys = json!({
        "tls_ca": text("ca.pem"),
        "tls_certificate": text("alice/client-cert.pem"),
        "tls_key": text("alice/client-key.pem"),
    });
    let mut w = world(&server.address(), keys.clone());
    exercise(&mut w, "n0", 3, 200);
    let mut refused = |more: Value| {
        let mut params = json!({ "address": server.address() });
        params.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        w.disk("nbd", "n1", params).err().map(|e| e.message).unwrap_or_default()
    };
    assert!(refused(json!({})).contains("requires TLS"));
    let mut wrong = keys;
    wrong["tls_name"] = json!("other.example");
    assert!(refused(wrong).contains("TLS: "));
}

#[test]
fn renewed_ca_is_used_by_the_next_connection() {
    rig::packages::ensure_host().unwrap();
    let papers = Papers::new("disks-nbd-renewed").unwrap();
    let names = "subjectAltName=DNS:localhost,IP:127.0.0.1";
    for (authority, server) in [("ca", "server"), ("next", "renewed")] {
        papers.authority(authority).unwrap();
        papers.sign(authority, server, "localhost", names, Good::Now).unwrap();
    }
    let trusted = papers.file("trusted.pem");
    std::fs::copy(papers.file("ca.pem"), &trusted).unwrap();
    let certificates = format!("--tls-certificates={}", papers.file("server").display());
    let words = ["-f", "-U", "SOCKET", "--tls=require", &certificates, "memory", "16M"];
    let mut server = Server::start("nbdkit", &words);
    let keys = json!({ "tls_ca": trusted.to_str().unwrap(), "tls_name": "localhost" });
    let mut w = world(&server.address(), keys.clone());
    exercise(&mut w, "n0", 3, 200);
    let reload = |w: &mut World| {
        disks::DiskClass::update_params(&mut w.control.topology, "n0", &keys).map_err(|e| e.message)
    };
    std::fs::write(&trusted, "nothing\n").unwrap();
    assert!(reload(&mut w).unwrap_err().contains("the file contains no certificate"));
    std::fs::copy(papers.file("next.pem"), &trusted).unwrap();
    assert_eq!(reload(&mut w), Ok(()));
    for part in ["cert.pem", "key.pem"] {
        let from = papers.file("renewed").join(format!("client-{part}"));
        let to = papers.file("server").join(format!("server-{part}"));
        std::fs::copy(from, to).unwrap();
    }
    server.kill();
    server.boot();
    exercise(&mut w, "n0", 3, 200);
}

#[test]
fn resize_detects_a_grown_export() {
    let words = ["-f", "-U", "SOCKET", "file", "FOLDER/disk"];
    rig::packages::ensure_host().unwrap();
    let program = proc::tool("nbdkit").unwrap();
    let server = Server::at(program, &words, |folder| {
        std::fs::File::create(folder.join("disk")).unwrap().set_len(16 * MIB).unwrap();
    });
    let mut w = world(&server.address(), Value::Null);
    let edge = w.open("n0");
    w.write(edge, 0, &[1; 512]).unwrap();
    let image = server.scratch.path().join("disk");
    std::fs::OpenOptions::new().write(true).open(image).unwrap().set_len(32 * MIB).unwrap();
    w.verb("resize", "n0", Value::Null).unwrap();
    w.until("the new size", |w| {
        let provider = w.control.topology.find("n0").unwrap();
        w.control.topology.limits(provider).unwrap().media_bytes == 32 * MIB
    });
    w.write(edge, 31 * MIB, &[9; 512]).unwrap();
    assert_eq!(w.read(edge, 31 * MIB, 512), Ok(vec![9; 512]));
}

#[test]
fn disk_is_lost_after_its_server_is_down_past_the_deadline() {
    let mut server = Server::start("nbdkit", &["-f", "-U", "SOCKET", "memory", "16M"]);
    let mut w = world(&server.address(), json!({ "deadline_s": 1 }));
    let edge = w.open("n0");
    w.write(edge, 0, &[1; 512]).unwrap();
    server.kill();
    let failed = w.write(edge, 0, &[2; 512]);
    assert_eq!(failed, Err(Errno::NxIo));
    w.until("the loss of the disk", |w| w.control.topology.find("n0").is_none());
}

/// A disk whose server is started by itself.
fn commanded(words: &[&str]) -> World {
    rig::packages::ensure_host().unwrap();
    let mut w = World::new(PortChoice::Auto);
    w.disk("nbd", "n0", json!({ "command": words })).unwrap();
    w
}

fn process(w: &mut World) -> Option<u32> {
    w.line_of("n0", "process").parse().ok()
}

/// Takes the disk out of the graph.
fn withered(w: &mut World) {
    let geom = w.control.topology.find_geom(disks::DISK_CLASS, "n0").unwrap();
    let gone = w.control.call(|t| {
        t.wither_geom(geom, Errno::NxIo);
        Ok(())
    });
    gone.unwrap();
}

/// Removes the disk: its server ends, and its socket's folder is removed.
fn removed(w: &mut World) {
    let folder = PathBuf::from(w.line_of("n0", "server").strip_prefix("unix:").unwrap());
    let folder = folder.parent().unwrap().to_owned();
    assert!(folder.exists());
    withered(w);
    w.until("the end of the server", |_| !folder.exists());
}

#[test]
fn command_server_is_restarted_after_a_crash() {
    let scratch = Scratch::new("disks-nbd-command").unwrap();
    let image = scratch.path().join("disk");
    std::fs::File::create(&image).unwrap().set_len(16 * MIB).unwrap();
    let mut w = commanded(&["nbdkit", "file", image.to_str().unwrap()]);
    let edge = w.open("n0");
    assert_eq!(w.plain(edge, Op::Flush, 0, 0), Ok(()));
    let p = load(&mut w, edge, Shape { users: 8, part: MIB, rounds: 400 });
    w.until("some work", |_| p.rounds.get() > 200);
    let first = process(&mut w).unwrap();
    proc::signal("KILL", first).unwrap();
    w.until("another server", |w| process(w).is_some_and(|pid| pid != first));
    w.until("the end of the users", |_| p.ended.get() == 8);
    // The first FLUSH after the server's end fails: data that it had not stored may be lost.
    let failed = p.failed.borrow();
    assert!(failed.iter().all(|f| f.starts_with("Flush")), "{failed:?}");
    assert!(w.line_of("n0", "path").starts_with("nbdkit file "), "as `list disks` shows it");
    drop(failed);
    removed(&mut w);
}

/// N4 of nbd/layer.rs.
#[test]
fn flush_fails_once_after_the_server_was_killed() {
    let mut w = commanded(&["nbdkit", "memory", "16M"]);
    let edge = w.open("n0");
    w.write(edge, 0, &[7; 512]).unwrap();
    let first = process(&mut w).unwrap();
    proc::signal("KILL", first).unwrap();
    w.until("another server", |w| process(w).is_some_and(|pid| pid != first));
    assert_eq!(w.plain(edge, Op::Flush, 0, 0), Err(Errno::Io));
    assert_eq!(w.plain(edge, Op::Flush, 0, 0), Ok(()));
    removed(&mut w);
}

/// As the daemon does before a stop, and when a disk is closed.
fn made_durable(w: &mut World) {
    let late = w.control.clean_records(geom::CLEAN_RECORDS_DEADLINE, |_, _| true);
    assert_eq!(late, Vec::<String>::new());
}

/// N6 of nbd/layer.rs.
#[test]
fn command_server_is_flushed_before_it_is_ended() {
    let scratch = Scratch::new("disks-nbd-command").unwrap();
    let log = scratch.path().join("log");
    let logfile = format!("logfile={}", log.display());
    let mut w = commanded(&["nbdkit", "--filter=log", "memory", "16M", &logfile]);
    let edge = w.open("n0");
    w.write(edge, 0, &[7; 512]).unwrap();
    let flushes = || std::fs::read_to_string(&log).unwrap().matches(" Flush id=").count();
    assert_eq!(flushes(), 0);
    made_durable(&mut w);
    assert_eq!(flushes(), 1);
    made_durable(&mut w);
    assert_eq!(flushes(), 1, "nothing was written since");
    removed(&mut w);
}

/// N6 of nbd/layer.rs.
#[test]
fn failed_flush_of_the_disk_itself_is_reported_by_the_next_flush() {
    let scratch = Scratch::new("disks-nbd-command").unwrap();
    let failed = scratch.path().join("failed");
    let failed = failed.display();
    let flush =
        format!("flush=test -e {failed} && exit 0; touch {failed}; echo EIO disk >&2; exit 1");
    let words = ["nbdkit", "eval", "get_size=echo 1048576", "pread=head -c $3 /dev/zero"];
    let writes = ["can_write=exit 0", "pwrite=cat >/dev/null", "can_flush=exit 0", &flush];
    let mut w = commanded(&[&words[..], &writes[..]].concat());
    let edge = w.open("n0");
    w.write(edge, 0, &[7; 512]).unwrap();
    made_durable(&mut w);
    assert_eq!(w.plain(edge, Op::Flush, 0, 0), Err(Errno::Io));
    assert_eq!(w.plain(edge, Op::Flush, 0, 0), Ok(()));
    removed(&mut w);
}

#[test]
fn command_server_ends_with_its_disk() {
    let scratch = Scratch::new("disks-nbd-command").unwrap();
    let image = scratch.path().join("disk");
    std::fs::File::create(&image).unwrap().set_len(16 * MIB).unwrap();
    let mut w = commanded(&["qemu-nbd", "-t", "-f", "raw", image.to_str().unwrap()]);
    let pid = process(&mut w).unwrap();
    removed(&mut w);
    let process = PathBuf::from(format!("/proc/{pid}"));
    assert!(!process.exists());
}

#[test]
fn failed_command_is_reported_with_its_output() {
    rig::packages::ensure_host().unwrap();
    let mut w = World::new(PortChoice::Auto);
    let mut refused = |params: Value| w.disk("nbd", "n0", params).err().unwrap().message;
    let what = refused(json!({ "command": ["nbdkit", "no-such-plugin"] }));
    assert!(what.contains("`nbdkit no-such-plugin`"), "{what}");
    assert!(what.contains("its output: nbdkit: error: cannot open plugin"), "{what}");
    assert!(refused(json!({ "command": [] })).contains("command is empty"));
    let both = refused(json!({ "command": ["nbdkit"], "address": "/x" }));
    assert!(both.contains("without `address`"), "{both}");
}
