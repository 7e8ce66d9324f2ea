//! A file server in the daemon: typed verbs, restarts, the config string of the first one over AoE
//! shelves, a standby that takes over, a file as a LUN.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use bio::Segs;
use reactor::{Config, PortChoice, Reactor};
use rig::proc::{self, Proc};

use crate::fixture::{Fixture, ip, ninep, tool};
use crate::foreign_targets::wait_for_status;

/// Longest way of a change from a server to where it is looked for.
const SOON: Duration = Duration::from_secs(20);

const DISKS: &str = r#"
[[disk]]
name = "ssd"
kind = "file"
path = "{here}/ssd.img"
[[disk]]
name = "near"
kind = "file"
path = "{here}/near.img"
[[disk]]
name = "far"
kind = "file"
path = "{here}/far.img"
"#;

const SERVER: &str = r#"
[[geom]]
class = "fs"
name = "main"
members = ["ssd", "near", "far"]
create = true
linux = ["127.0.0.1:0"]
console = ["unix:{here}/cons"]
everybody = "glenda"
dump_at = "never"
"#;

fn images(fixture: &Fixture) {
    for (name, mib) in [("ssd", 48), ("near", 128), ("far", 128)] {
        fixture.image(&format!("{name}.img"), mib << 20);
    }
}

/// The path of the dump that is taken.
fn dump(fixture: &Fixture, name: &str) -> String {
    let output = fixture.json(&["fs", "dump", name, "--wait"]);
    output["answer"]["path"].as_str().expect("a path").to_owned()
}

/// It is refused with this text.
#[track_caller]
fn refuses(fixture: &Fixture, words: &[&str], text: &str) {
    let output = fixture.ashlar(words);
    assert!(output.code != 0, "{output}");
    output.complains(&[text]);
}

#[test]
fn copy_to_the_worm_is_listed_until_every_device_has_the_dump() {
    let mut fixture = Fixture::alone("fs-copies");
    images(&fixture);
    fixture.configure(&format!("{DISKS}{SERVER}"), "");
    fixture.start();
    fixture.ashlar(&["fs", "copying", "main", "off"]).ends(0);
    fixture.ashlar(&["fs", "dump", "main"]).ends(0);
    let paused = "far (COPYING 4 blocks, 0%, paused)";
    fixture
        .ashlar(&["fs", "status", "main"])
        .ends(0)
        .prints(&["near (COPYING 4 blocks, 0%", paused]);
    refuses(&fixture, &["fs", "status", "main", "--wait"], "fs copying main on");
    let status = fixture.ashlar(&["status"]);
    assert!(status.out.contains("rebuild: fs main: far 0%, paused"), "{status}");
    fixture.ashlar(&["fs", "copying", "main", "on"]).ends(0);
    let waited = fixture.ashlar(&["fs", "status", "main", "--wait"]);
    assert!(waited.out.contains("near (ACTIVE)"), "{waited}");
    assert!(waited.out.contains("far (ACTIVE)"), "{waited}");
}

#[test]
fn verbs_take_effect_and_their_results_survive_a_restart() {
    let mut fixture = Fixture::alone("fs-verbs");
    images(&fixture);
    fixture.configure(&format!("{DISKS}{SERVER}"), "");
    fixture.start();
    fixture.ashlar(&["fs", "status"]).ends(0).prints(&["main  SERVING", "far (ACTIVE)"]);
    fixture.ashlar(&["fs", "ls", "main", "/"]).ends(0).prints(&["adm"]);
    fixture.ashlar(&["fs", "newuser", "main", "rob"]).ends(0).prints(&["rob:rob"]);
    fixture.ashlar(&["fs", "create", "main", "/lib", "sys", "sys", "775", "d"]).ends(0);
    // A dump, a change, the difference, and back.
    let first = dump(&fixture, "main");
    fixture.ashlar(&["fs", "newuser", "main", "ken"]).ends(0);
    fixture.ashlar(&["fs", "diff", "main", "/adm/users"]).ends(0).prints(&["+1", "ken:ken"]);
    let old = format!("{first}/adm/users");
    fixture.ashlar(&["fs", "history", "main", "/adm/users"]).ends(0).prints(&[&old, "/adm/users "]);
    fixture.ashlar(&["fs", "history", "main", "/adm/users", "-D"]).ends(0).prints(&["ken:ken"]);
    let late = ["fs", "history", "main", "/adm/users", "--since", "29991231"];
    let late = fixture.ashlar(&late).ends(0);
    assert!(late.out.contains("/adm/users ") && !late.out.contains(&old), "{late}");
    let back = ["fs", "yesterday", "main", "/adm/users", "--date", "last", "--copy"];
    fixture.ashlar(&back).ends(0).prints(&[&old, "as it was then"]);
    fixture.ashlar(&["fs", "diff", "main", "/adm/users"]).ends(0).prints(&["no difference"]);
    refuses(&fixture, &["fs", "yesterday", "main", "/adm/users"], "no dump is that old");
    fixture.ashlar(&["fs", "users", "main"]).ends(0).prints(&["rob"]);
    let second = dump(&fixture, "main");
    assert_eq!(second, format!("{first}1"), "the second dump of a day");
    for words in
        [&["fs", "check", "main", "--rdall"][..], &["fs", "check", "main", "--dump", "all"]]
    {
        let found = fixture.json(words);
        assert_eq!(found["answer"]["faults"], 0, "{found}");
    }
    fixture
        .ashlar(&["fs", "statw", "main"])
        .ends(0)
        .prints(&["near", "far", "lag", "read ms", " dump,"]);
    fixture.ashlar(&["fs", "stats", "main"]).ends(0).prints(&["1000 s", "requests/s"]);
    fixture.ashlar(&["fs", "copying", "main", "off"]).ends(0).prints(&["nothing is copied"]);
    fixture.ashlar(&["fs", "statw", "main"]).ends(0).prints(&["fs copying main on"]);
    fixture.ashlar(&["fs", "copying", "main", "on"]).ends(0);
    fixture.ashlar(&["fs", "allow", "main", "rob"]).ends(0).prints(&["rob may do everything"]);
    refuses(&fixture, &["fs", "allow", "main", "nobody"], "there is no user nobody");
    fixture.ashlar(&["fs", "disallow", "main"]).ends(0);
    fixture.ashlar(&["fs", "create", "main", "/lib/t", "sys", "sys", "644", "t"]).ends(0);
    fixture
        .ashlar(&["fs", "check", "main", "--pfile", "--pdir"])
        .ends(0)
        .prints(&["/lib/t\n", "/adm\n"]);
    fixture.ashlar(&["fs", "check", "main", "--rtmp"]).ends(0).prints(&["/lib/t is removed"]);
    // A cache device that grew is used without a restart.
    let cache = fs::File::options().write(true).open(fixture.path("ssd.img")).unwrap();
    cache.set_len(96 << 20).unwrap();
    fixture.ok(&["geom", "disk", "resize", "name=ssd"]);
    fixture.until("the cache device is larger", SOON, || {
        fixture.json(&["fs", "grow", "main"])["answer"]["slots"].as_u64() > Some(5000)
    });
    fixture.ashlar(&["fs", "printconf", "main"]).ends(0).prints(&["c\"ssd\"{\"near\"\"far\"}"]);
    // Each refusal names the problem and the command to type.
    refuses(
        &fixture,
        &["fs", "remove", "main", &format!("{first}/adm/users")],
        "dumps cannot be changed",
    );
    refuses(&fixture, &["fs", "remove", "main", "/adm"], "not empty");
    refuses(&fixture, &["fs", "cat", "main", "/nowhere"], "file not found");
    refuses(&fixture, &["fs", "check", "main", "--dump", "1999/0101"], "fs dumps main");
    refuses(&fixture, &["fs", "ream", "main"], "fs halt main");
    refuses(&fixture, &["fs", "dump", "other"], "fs status");
    // The same words on the console's socket.
    let mut console = UnixStream::connect(fixture.path("cons")).unwrap();
    console.set_read_timeout(Some(SOON)).unwrap();
    console.write_all(b"ls /\nsync\nfrob\ncreate '/lib/a b' sys sys 644\n").unwrap();
    let mut received = String::new();
    while received.matches("main: ").count() < 5 {
        let mut some = [0; 4096];
        let n = console.read(&mut some).unwrap();
        received += &String::from_utf8_lossy(&some[..n]);
    }
    for text in ["lib\n", "all is durable", "no command `frob`", "/lib/a b created"] {
        assert!(received.contains(text), "{text} in {received}");
    }
    drop(console);
    // Killed, and stopped in order: nothing that was durable is lost, no dump changes.
    fixture.ashlar(&["fs", "sync", "main"]).ends(0);
    let users = fixture.ok(&["fs", "cat", "main", &old]);
    for kill in [true, false] {
        match kill {
            true => fixture.kill(),
            false => fixture.stop(),
        }
        fixture.start();
        fixture.ashlar(&["fs", "ls", "main", "/lib"]).ends(0).prints(&["a b"]);
        assert_eq!(fixture.ok(&["fs", "cat", "main", &old]), users);
        let found = fixture.json(&["fs", "check", "main", "--rdall"]);
        assert_eq!(found["answer"]["faults"], 0, "{found}");
    }
    // Halted: it reports that, refuses, and starts again.
    fixture.ashlar(&["fs", "halt", "main"]).ends(0).prints(&["all is durable"]);
    fixture.ashlar(&["status"]).ends(3).prints(&["fs start main"]);
    refuses(&fixture, &["fs", "ls", "main", "/"], "fs start main");
    let asks = ["near holds device of a file server's WORM", "--yes-destroy near"];
    fixture.ashlar(&["fs", "ream", "main"]).ends(4).complains(&asks);
    fixture.ashlar(&["fs", "start", "main"]).ends(0);
    // Changed by a plan it is made again over its data; removed from the configuration it releases
    // its disks.
    fixture.configure(&format!("{DISKS}{}", SERVER.replace("never", "03:00")), "");
    fixture.ashlar(&["apply"]).ends(0);
    fixture.ashlar(&["fs", "list", "main"]).ends(0).prints(&["03:00:00"]);
    fixture.ashlar(&["fs", "ls", "main", "/lib"]).ends(0).prints(&["a b"]);
    fixture.configure(DISKS, "");
    fixture.ashlar(&["apply"]).ends(0);
    refuses(&fixture, &["fs", "ls", "main", "/lib"], "there is no file server main");
    let settings = "settings = \"\"\"\nfilsys main c'ssd'{'near''far'}\ndumpctl no\n\"\"\"\n";
    let lines = SERVER.replace("members = [\"ssd\", \"near\", \"far\"]\n", settings);
    let lines = lines.replace("dump_at = \"never\"\n", "");
    fixture.configure(&format!("{DISKS}{lines}"), "");
    fixture.ashlar(&["apply"]).ends(0);
    fixture.ashlar(&["fs", "ls", "main", "/lib"]).ends(0).prints(&["a b"]);
    fixture.configure(&format!("{DISKS}{SERVER}"), "");
    fixture.ashlar(&["apply"]).ends(0);
    // The cache device is lost: the WORM has everything except the changes after the last dump.
    fixture.ashlar(&["fs", "create", "main", "/later", "sys", "sys", "644"]).ends(0);
    fixture.stop();
    fixture.image("ssd.img", 48 << 20);
    fs::File::options().write(true).open(fixture.path("ssd.img")).unwrap().set_len(0).unwrap();
    fixture.image("ssd.img", 48 << 20);
    fixture.start();
    fixture.ashlar(&["status"]).ends(3).prints(&["blank", "fs recover main"]);
    fixture.ashlar(&["fs", "recover", "main"]).ends(0).prints(&[&second]);
    assert_eq!(fixture.ok(&["fs", "cat", "main", &old]), users);
    refuses(&fixture, &["fs", "cat", "main", "/later"], "file not found");
    let found = fixture.json(&["fs", "check", "main", "--rdall", "--dump", "all"]);
    assert_eq!(found["answer"]["faults"], 0, "{found}");
    assert_eq!(found["answer"]["checked"].as_array().map(Vec::len), Some(2));
    // Back to the first dump; the second one stays.
    fixture.ashlar(&["fs", "halt", "main"]).ends(0);
    let back = ["fs", "recover", "main", "--force", "--dump"];
    refuses(&fixture, &[&back[..], &["1999/0101"]].concat(), "the WORM has 2, from");
    let date = first.trim_start_matches("/dump/");
    fixture.ashlar(&[&back[..], &[date]].concat()).ends(0).prints(&[&first]);
    assert_eq!(fixture.ok(&["fs", "cat", "main", "/adm/users"]), users);
    let later = second.trim_start_matches("/dump/");
    fixture.ashlar(&["fs", "dumps", "main"]).ends(0).prints(&[date, later]);
    fixture.stop();
}

/// `create` makes no other file system where one was served; on disks that forget it makes one at
/// every start.
#[test]
fn create_makes_a_second_file_system_only_on_volatile_disks() {
    let mut fixture = Fixture::alone("fs-created");
    images(&fixture);
    fixture.configure(&format!("{DISKS}{SERVER}"), "");
    fixture.start();
    fixture.ashlar(&["fs", "status"]).ends(0).prints(&["main  SERVING"]);
    fixture.stop();
    for name in ["ssd", "near", "far"] {
        fs::remove_file(fixture.path(&format!("{name}.img"))).expect("removed");
    }
    images(&fixture);
    fixture.start();
    fixture.ashlar(&["status"]).prints(&["was served here before", "ashlar fs ream main"]);
    fixture.stop();
    // One fixture at a time.
    drop(fixture);

    let mut fixture = Fixture::alone("fs-forgets");
    let memory =
        |name: &str| format!("[[disk]]\nname = \"{name}\"\nkind = \"memory\"\nsize = \"64MiB\"\n");
    let disks: String = ["ssd", "near", "far"].map(memory).concat();
    fixture.configure(&format!("{disks}{SERVER}"), "");
    for _ in 0..2 {
        fixture.start();
        fixture.ashlar(&["fs", "status"]).ends(0).prints(&["main  SERVING"]);
        fixture.stop();
    }
}

#[test]
fn check_repairs_damage_and_changes_no_dump() {
    let mut fixture = Fixture::alone("fs-mend");
    images(&fixture);
    fixture.configure(&format!("{DISKS}{SERVER}"), "");
    fixture.start();
    for (path, more) in [("/tmp", &["d"][..]), ("/tmp/x", &[])] {
        let words = ["fs", "create", "main", path, "sys", "sys", "775"];
        fixture.ashlar(&[&words[..], more].concat()).ends(0);
    }
    dump(&fixture, "main");
    let faults = || fixture.json(&["fs", "check", "main"])["answer"]["faults"].take();
    assert_eq!(faults(), 0);
    // A directory is forgotten: its files are in no directory.
    fixture.ashlar(&["fs", "clri", "main", "/tmp"]).ends(0).prints(&["1 removed"]);
    refuses(&fixture, &["fs", "ls", "main", "/tmp"], "file not found");
    assert_ne!(faults(), 0);
    let mended = fixture.ashlar(&["fs", "check", "main", "--fix"]).ends(0);
    mended.prints(&["repaired: file ", "/lost+found/file.", "no faults"]);
    fixture.ashlar(&["fs", "ls", "main", "/lost+found"]).ends(0).prints(&["file."]);
    assert_eq!(faults(), 0);
    // A block becomes a hole, and is a block again.
    let users = fixture.ok(&["fs", "cat", "main", "/adm/users"]);
    let list = fixture.json(&["fs", "clean", "main", "/adm/users"]);
    let addr = list["answer"]["blocks"][0][1].to_string();
    let clean = ["fs", "clean", "main", "/adm/users", "--block", "0"];
    fixture.ashlar(&clean).ends(0).prints(&["block 0 is 0, was", &addr]);
    assert_ne!(fixture.ok(&["fs", "cat", "main", "/adm/users"]), users);
    fixture.ashlar(&[&clean[..], &["--address", &addr]].concat()).ends(0);
    assert_eq!(fixture.ok(&["fs", "cat", "main", "/adm/users"]), users);
    refuses(&fixture, &[&clean[..], &["--address", "99999999"]].concat(), "never written");
    refuses(&fixture, &["fs", "clean", "main", "/adm/users", "--block", "9"], "no such block");
    refuses(&fixture, &["fs", "check", "main", "--fix", "--dump", "last"], "never changed");
    fixture.ashlar(&["fs", "duallow", "main", "glenda"]).ends(0).prints(&["glenda may read"]);
    refuses(&fixture, &["fs", "duallow", "main", "nobody"], "there is no user nobody");
    fixture.ashlar(&["fs", "duallow", "main", "none"]).ends(0);
    let all = fixture.json(&["fs", "check", "main", "--rdall", "--dump", "all"]);
    assert_eq!(all["answer"]["faults"], 0, "{all}");
    assert_eq!(faults(), 0);
    fixture.stop();
}

#[test]
fn file_and_its_dumped_version_are_exported_as_luns() {
    let mut fixture = Fixture::alone("fs-lun");
    images(&fixture);
    fixture.configure(&format!("{DISKS}{SERVER}"), "");
    fixture.start();
    fixture.ashlar(&["fs", "create", "main", "/images", "sys", "sys", "775", "d"]).ends(0);
    fixture.ashlar(&["fs", "disk", "main", "/images/vm0", "--size", "12MiB"]).ends(0);
    let server = SERVER.replace("dump_at", "disks = { vm0 = \"/images/vm0\" }\ndump_at");
    fixture.configure(&format!("{DISKS}{server}"), "0 = \"vm0\"");
    fixture.ashlar(&["apply"]).ends(0);
    let bytes = |seed: u64| -> Vec<u8> {
        let mut value = seed;
        let words = (0..(12 << 20) / 8).map(|_| {
            value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_041);
            value
        });
        words.flat_map(u64::to_le_bytes).collect()
    };
    let raw = ["-f", "raw", "-O", "raw"];
    let write = |fixture: &Fixture, seed: u64| {
        let from = fixture.path(&format!("{seed}.img"));
        fs::write(&from, bytes(seed)).unwrap();
        let (from, url) = (from.to_str().unwrap().to_owned(), fixture.url(0));
        tool("qemu-img", &[&["convert", "-n"][..], &raw, &[&from, &url]].concat(), "");
    };
    let holds = |fixture: &Fixture, lun: u64, seed: u64| {
        let from = fixture.path(&format!("{seed}.img"));
        let url = fixture.url(lun);
        tool("qemu-img", &["compare", "-f", "raw", "-F", "raw", from.to_str().unwrap(), &url], "");
    };
    write(&fixture, 1);
    let then = dump(&fixture, "main");
    write(&fixture, 2);
    holds(&fixture, 0, 2);
    let old = format!("old = \"{then}/images/vm0\"");
    let both = server.replace("/images/vm0\" }", &format!("/images/vm0\", {old} }}"));
    let unit = "[[unit]]\nprovider = \"old\"\nread_only = true\n";
    fixture.configure(&format!("{DISKS}{both}{unit}"), "0 = \"vm0\", 1 = \"old\"");
    fixture.ashlar(&["plan"]).prints(&["change geom main (fs)"]).lacks(&["remove", "disruptive"]);
    fixture.ashlar(&["apply"]).ends(0);
    fixture.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    holds(&fixture, 0, 2);
    holds(&fixture, 1, 1);
    fixture.stop();
    fixture.start();
    holds(&fixture, 0, 2);
    holds(&fixture, 1, 1);
    fixture.kill();
    fixture.start();
    holds(&fixture, 0, 2);
    holds(&fixture, 1, 1);
    fixture.stop();
}

/// D1 of fileserver/src/service/file_disks.rs, D2 of fileserver/src/service/file_disks.rs.
#[test]
fn missing_file_of_a_disk_is_awaited_and_its_removal_is_reported() {
    let mut fixture = Fixture::alone("fs-disk");
    images(&fixture);
    let server = SERVER.replace("dump_at", "disks = { vm0 = \"/images/vm0\" }\ndump_at");
    fixture.configure(&format!("{DISKS}{server}"), "0 = \"vm0\"");
    fixture.start();
    wait_for_status(&fixture, &["disk vm0 is missing: /images/vm0: file not found"]);
    fixture.ashlar(&["fs", "create", "main", "/images", "sys", "sys", "775", "d"]).ends(0);
    let advised = ["fs", "disk", "main", "/images/vm0", "--as", "vm0", "--size", "12MiB"];
    wait_for_status(&fixture, &[&format!("`ashlar {} SIZE`", advised[..7].join(" "))]);
    fixture.ashlar(&advised).ends(0);
    wait_for_status(&fixture, &["state: OK"]);
    fixture.ok(&["list", "luns", "vm0"]);
    dump(&fixture, "main");
    fixture.ashlar(&["fs", "undisk", "main", "vm0"]).ends(0);
    fixture.ashlar(&["fs", "remove", "main", "/images/vm0"]).ends(0);
    fixture.ashlar(&advised).ends(0);
    let back = ["fs", "yesterday", "main", "/images/vm0", "--date", "last", "--copy"];
    refuses(&fixture, &back, "it is the disk vm0");
    fixture.ashlar(&["fs", "remove", "main", "/images/vm0"]).ends(0);
    let removed = "disk vm0: /images/vm0 was removed while it is used";
    wait_for_status(&fixture, &["state: FAILED", removed]);
    fixture.stop();
}

/// A pair of interfaces with shelves at the far end, in a namespace.
struct Shelves {
    near: String,
    far: String,
    space: String,
}

impl Shelves {
    fn new() -> Shelves {
        let id = std::process::id() % 100_000;
        let (here, there) = (format!("fh{id}"), format!("ft{id}"));
        let space = format!("ashlar-fs-{id}");
        ip(&format!("netns add {space}"));
        ip(&format!("link add {here} type veth peer name {there} netns {space}"));
        // vblade ends at an error of a send, which a veth without a queue has now and then.
        tool("tc", &["-n", &space, "qdisc", "replace", "dev", &there, "root", "pfifo"], "");
        ip(&format!("link set {here} up mtu 9000"));
        ip(&format!("-n {space} link set {there} up mtu 9000"));
        Shelves { near: here, far: there, space }
    }

    fn shelf(&self, fixture: &Fixture, shelf: &str, slot: &str) -> Proc {
        let file: PathBuf = fixture.path(&format!("e{shelf}.{slot}"));
        let mut command = Command::new(proc::tool("ip").unwrap());
        command.args(["netns", "exec", &self.space]).arg(proc::tool("vblade").unwrap());
        command.args(["-b", "16", shelf, slot, &self.far]).arg(&file);
        Proc::start("vblade", &mut command, &fixture.path("vblade.log")).unwrap()
    }
}

impl Drop for Shelves {
    fn drop(&mut self) {
        for line in [format!("link del {}", self.near), format!("netns del {}", self.space)] {
            let _ = Command::new("ip").args(line.split(' ')).status();
        }
    }
}

/// A pair of interfaces of this machine.
struct Wire(String, String);

impl Wire {
    fn new() -> Wire {
        let id = std::process::id() % 100_000;
        let wire = Wire(format!("ca{id}"), format!("cb{id}"));
        ip(&format!("link add {} type veth peer name {}", wire.0, wire.1));
        ip(&format!("link set {} up", wire.0));
        ip(&format!("link set {} up", wire.1));
        wire
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", &self.0]).status();
    }
}

#[test]
fn console_is_used_over_ethernet() {
    const DATA: u8 = 3;
    let mut fixture = Fixture::alone("fs-cec");
    images(&fixture);
    let wire = Wire::new();
    let console = format!("console = [\"ether:{}\"]", wire.0);
    let server = SERVER.replace("console = [\"unix:{here}/cons\"]", &console);
    fixture.configure(&format!("{DISKS}{server}"), "");
    fixture.start();
    fixture.until("it listens on the wire", SOON, || {
        fixture.ashlar(&["fs", "list", "main"]).out.contains(&format!("ether:{}", wire.0))
    });
    let config = Config { port: PortChoice::Poll, ..Config::default() };
    let reactor = Reactor::start(config).unwrap();
    let link = reactor.link(&wire.1, 0xbcbc).unwrap();
    let mac = link.facts().unwrap().mac;
    let send = |to: [u8; 6], kind: u8, seq: u8, data: &[u8]| {
        let tail = [0xbc, 0xbc, kind, 5, seq, data.len() as u8];
        let frame = [&to[..], &mac, &tail, data].concat();
        link.send(&frame, &Segs::new()).unwrap();
        link.flush().unwrap();
    };
    // Frames of a kind; data is acknowledged and put together.
    let mut output = String::new();
    let mut hear = |kind: u8, text: &str| -> [u8; 6] {
        let end = Instant::now() + SOON;
        loop {
            let mut came = Vec::new();
            let _ = link.receive(64, &mut |frame| came.push(frame.to_vec()));
            for f in came.iter().filter(|f| f.len() >= 18 && f[6..12] != mac) {
                let from: [u8; 6] = f[6..12].try_into().unwrap();
                if f[14] == DATA {
                    send(from, 4, f[16], b"");
                }
                if f[14] == kind {
                    output += &String::from_utf8_lossy(&f[18..18 + usize::from(f[17])]);
                }
                if f[14] == kind && output.contains(text) {
                    output.clear();
                    return from;
                }
            }
            assert!(Instant::now() < end, "no `{text}` in `{output}`");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    send([0xff; 6], 5, 0, b"");
    let server = hear(6, "-1 main");
    send(server, 0, 0, b"");
    hear(1, "");
    send(server, 2, 0, b"");
    hear(DATA, "main: ");
    send(server, DATA, 1, b"newuser rob\r");
    hear(DATA, "rob:rob");
    send(server, DATA, 2, b"frob\r");
    hear(DATA, "no command `frob`");
    fixture.ashlar(&["fs", "users", "main"]).ends(0).prints(&["rob"]);
    // Halted, it does not listen; started, it requests a new start from a client that types.
    fixture.ashlar(&["fs", "halt", "main"]).ends(0);
    fixture.ashlar(&["fs", "start", "main"]).ends(0);
    send(server, DATA, 3, b"who\r");
    hear(6, "-1 main");
    fixture.stop();
    let gone = DISKS.to_owned() + &SERVER.replace("unix:{here}/cons", "ether:nowhere0");
    fixture.configure(&gone, "");
    fixture.start();
    fixture.ashlar(&["status"]).ends(3).prints(&["nowhere0", "ip link"]);
    fixture.stop();
}

/// The section of a server on shelves, with these lines of its own.
fn on_shelves(shelves: &Shelves, name: &str, lines: &str) -> String {
    format!(
        "[[bus]]\nname = \"aoe0\"\nkind = \"aoe\"\ninterfaces = [\"{}\"]\ndeadline_s = 5\n\
         frame_life_ms = 500\nask_s = 1\n\
         [[geom]]\nclass = \"fs\"\nname = \"{name}\"\n{lines}\n",
        shelves.near
    )
}

/// A client attaches as `rob`; why it may not.
fn attach(at: SocketAddr) -> Result<(), String> {
    ninep::attach(at, "rob").unwrap().map(drop)
}

#[test]
fn config_string_with_shelves_works_and_a_standby_takes_over() {
    let mut main = Fixture::alone("fs-shelves");
    let shelves = Shelves::new();
    for (name, mib) in [("e565.0", 32), ("e565.1", 96), ("e545.1", 96), ("e545.0", 32)] {
        main.image(name, mib << 20);
    }
    let start = |shelf, slot| shelves.shelf(&main, shelf, slot);
    let _cache = start("565", "0");
    let _near = start("565", "1");
    let mut far = start("545", "1");
    let lines = "device = \"ce565.0{e565.1e545.1}\"\ncreate = true\nlinux = [\"127.0.0.1:0\"]\n\
                 dump_at = \"never\"";
    main.configure(&on_shelves(&shelves, "main", lines), "");
    main.start();
    main.until("all shelves have answered", SOON, || {
        main.ashlar(&["fs", "status"]).out.contains("main  SERVING")
    });
    main.ashlar(&["fs", "list", "main"]).ends(0).prints(&["ce565.0{e565.1e545.1}"]);
    main.ashlar(&["fs", "newuser", "main", "rob"]).ends(0);
    let first = dump(&main, "main");
    // A shelf fails: the server does not wait for it and reports it, and later copies the missed
    // blocks.
    far.kill().unwrap();
    main.ashlar(&["fs", "newuser", "main", "ken"]).ends(0);
    let second = dump(&main, "main");
    let behind = |main: &Fixture| {
        let legs = main.json(&["fs", "statw", "main"]);
        let legs = legs["answer"]["legs"].as_array().expect("legs").clone();
        legs.iter().map(|l| l["behind"].as_u64().unwrap()).max().unwrap()
    };
    assert!(behind(&main) > 0, "the far one lacks a dump");
    main.until("a word about the shelf", SOON, || {
        main.ashlar(&["status"]).out.contains("blocks behind")
    });
    let _far = shelves.shelf(&main, "545", "1");
    main.until("the shelf has all", Duration::from_secs(90), || behind(&main) == 0);
    // Another daemon with another cache device takes the WORM.
    let at = SocketAddr::from(([127, 0, 0, 1], proc::free_port().unwrap()));
    let lines = format!(
        "settings = \"filsys main ce545.0{{e565.1e545.1}}\\ndumpctl no\\nnoattach\"\n\
         plan9 = [\"{at}\"]"
    );
    let text = on_shelves(&shelves, "standby", &lines);
    let mut standby = main.sibling("standby", &text);
    // A standby waits for a shelf that starts later than the daemon.
    standby.ashlar(&["status"]).ends(3).prints(&["fs standby"]);
    standby.ashlar(&["journal"]).ends(0).prints(&["waits for e545.0, which is missing"]);
    let _other = shelves.shelf(&main, "545", "0");
    standby.until("it looks at its cache device", SOON, || {
        let output = standby.ashlar(&["status"]).out;
        output.contains("blank") && output.contains("fs recover standby")
    });
    refuses(&standby, &["fs", "attaches", "standby", "on"], "fs recover standby");
    standby.ashlar(&["fs", "recover", "standby"]).ends(0).prints(&[&second]);
    // It has the WORM; clients and scheduled dumps stay off until they are switched on.
    assert_eq!(attach(at), Err("system maintenance".into()));
    let clock = "no dumps by the clock";
    standby.ashlar(&["fs", "dumpctl", "standby"]).ends(0).prints(&[clock]);
    standby.ashlar(&["fs", "list", "standby"]).ends(0).prints(&["fs dumpctl standby on"]);
    let by_the_clock = "dumps are taken by the clock";
    standby.ashlar(&["fs", "dumpctl", "standby", "on"]).ends(0).prints(&[by_the_clock]);
    // Permissions are another matter.
    standby.ashlar(&["fs", "allow", "standby"]).ends(0).prints(&["all users may do everything"]);
    assert!(attach(at).is_err());
    let looked_at = "permissions are checked";
    standby.ashlar(&["fs", "disallow", "standby"]).ends(0).prints(&[looked_at]);
    standby.ashlar(&["fs", "attaches", "standby", "on"]).ends(0).prints(&["clients can attach"]);
    assert_eq!(attach(at), Ok(()));
    standby.ashlar(&["fs", "ls", "standby", "/usr"]).ends(0).prints(&["rob", "ken"]);
    // The main server is there still, and changes nothing more.
    refuses(&main, &["fs", "newuser", "main", "late"], "taken over by another server: standby");
    main.until("the main server says who has it", SOON, || {
        main.ashlar(&["status"]).out.contains("taken over by another server: standby")
    });
    standby.ashlar(&["fs", "newuser", "standby", "dmr"]).ends(0);
    let wait = ["fs", "dump", "standby", "--wait"];
    standby.ashlar(&wait).ends(0);
    // Started again it is a standby again, as its configuration requires.
    standby.ashlar(&["fs", "halt", "standby"]).ends(0);
    standby.ashlar(&["fs", "start", "standby"]).ends(0);
    assert_eq!(attach(at), Err("system maintenance".into()));
    standby.ashlar(&["fs", "dumpctl", "standby"]).ends(0).prints(&[clock]);
    // And back.
    main.ashlar(&["fs", "halt", "main"]).ends(0).prints(&["taken over"]);
    refuses(&main, &["fs", "start", "main"], "fs recover main");
    main.ashlar(&["fs", "recover", "main", "--force"]).ends(0);
    main.ashlar(&["fs", "ls", "main", "/usr"]).ends(0).prints(&["rob", "ken", "dmr"]);
    refuses(&standby, &["fs", "newuser", "standby", "late"], "taken over by another server: main");
    let found = main.json(&["fs", "check", "main", "--rdall", "--dump", "all"]);
    assert_eq!(found["answer"]["faults"], 0, "{found}");
    let cat = |dump: &str| main.ok(&["fs", "cat", "main", &format!("{dump}/adm/users")]);
    assert!(!cat(&first).contains("ken") && cat(&second).contains("ken"));
    standby.stop();
    main.stop();
}
