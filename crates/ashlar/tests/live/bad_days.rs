//! Disks that fail, hang, shrink or disappear; peers that flood, stall or are refused. In every
//! test another initiator writes and compares meanwhile, and must notice nothing.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rig::loop_device::LoopDevice;
use rig::peer;
use rig::proc::{self, Proc};
use serde_json::Value;

use crate::fixture::load::Load;
use crate::fixture::{Fixture, IQN, QEMU, array, file_disk, text, tool};
use testkit::iscsi::initiator::{self, Client, LoginOptions};
use testkit::noise;

const DISK_BYTES: u64 = 64 << 20;
/// Buffers that the daemon may use here.
const POOL_BYTES: u64 = 32 << 20;
/// Resident memory beyond the buffers that no test may need: code, tables, connections.
const RESIDENT_MORE: u64 = 96 << 20;
/// Longest load of greedy clients: 10 s on an otherwise idle machine; starved ones still run then.
const STARVED_LIMIT: Duration = Duration::from_secs(600);
/// Half-open connections; more with ASHLAR_CONNECTIONS.
const CONNECTIONS: usize = 2000;

/// A fixture with a good disk `good` as LUN 0 and the other given disks.
fn with(name: &str, disks: &str, luns: &str) -> Fixture {
    let mut fixture = Fixture::alone(name);
    fixture.image("good.img", DISK_BYTES);
    write(&fixture, disks, luns);
    fixture.start();
    fixture
}

fn write(fixture: &Fixture, disks: &str, luns: &str) {
    let daemon = format!("[daemon]\nmemory = {POOL_BYTES}\ncores = 2\n\n");
    let disks = format!("{daemon}{}{disks}", file_disk("good", "good.img"));
    fixture.configure(&disks, &format!("0 = \"good\"{luns}"));
}

/// The daemon answers, has not panicked and is as small as it should be.
#[track_caller]
fn assert_well(fixture: &mut Fixture) {
    fixture.assert_alive();
    fixture.json(&["list"]);
    fixture.json(&["sessions"]);
    let resident = proc::resident_bytes(fixture.pid()).unwrap();
    assert!(resident < POOL_BYTES + RESIDENT_MORE, "{} MiB resident", resident >> 20);
}

/// Checks that `qemu-io` fails with these words.
#[track_caller]
fn assert_fails(url: &str, commands: &[&str], words: &[&str]) {
    let error = match peer::qemu_io(url, commands) {
        Ok(text) => panic!("{commands:?} succeeded: {text}"),
        Err(e) => format!("{e:#}"),
    };
    words.iter().for_each(|w| assert!(error.contains(w), "no {w:?} in {error}"));
}

/// `qemu-io` as a child that may never end.
fn hanging(fixture: &Fixture, url: &str, command: &str) -> Proc {
    let mut qemu = Command::new(proc::tool("qemu-io").unwrap());
    qemu.args(["-f", "raw", "-c", command, url]);
    Proc::start("qemu-io", &mut qemu, &fixture.path("hanging")).unwrap()
}

/// Returns the finding of `ashlar status` about this object.
#[track_caller]
fn finding(fixture: &Fixture, at: &str) -> Value {
    let status = fixture.ashlar(&["status", "--json"]).ends(3).json();
    let mut found = array(&status["findings"]).iter();
    found.find(|f| text(&f["at"]).contains(at)).unwrap_or_else(|| panic!("{status:#}")).clone()
}

#[test]
fn disk_errors_are_reported_only_to_its_own_initiator() {
    let nop = "[[geom]]\nclass = \"nop\"\nname = \"bad\"\nprovider = \"d1\"\n";
    let disks = format!("[[disk]]\nname = \"d1\"\nkind = \"memory\"\nsize = \"16MiB\"\n{nop}");
    let mut fixture = with("errors", &disks, ", 1 = \"bad\"");
    let load = Load::start(&fixture.url(0), DISK_BYTES);
    let set = |words: &[&str]| {
        fixture.ok(&[&["geom", "nop", "configure", "name=bad"], words].concat());
    };
    let url = fixture.url(1);
    peer::qemu_io(&url, &["write -P 3 0 1M", "flush"]).unwrap();
    set(&["write_fail_percent=100"]);
    assert_fails(&url, &["write -P 4 0 64k"], &["Input/output error"]);
    peer::qemu_io(&url, &["read -P 3 0 1M"]).unwrap();
    set(&["write_fail_percent=0", "read_fail_percent=100"]);
    assert_fails(&url, &["read 0 64k"], &["Input/output error"]);
    peer::qemu_io(&url, &["write -P 5 0 64k"]).unwrap();
    set(&["read_fail_percent=0"]);
    peer::qemu_io(&url, &["read -P 5 0 64k", "read -P 3 64k 960k"]).unwrap();
    let (_, bad) = fixture.provider("bad").unwrap();
    let kinds = bad["stats"].as_object().unwrap().values();
    let errors: u64 = kinds.filter_map(|kind| kind["errors"].as_u64()).sum();
    assert!(errors >= 2, "errors are counted: {bad:#}");
    load.finish();
    assert_well(&mut fixture);
    fixture.stop();
}

#[test]
fn hanging_disk_does_not_stop_other_disks() {
    let model = "[[disk]]\nname = \"m\"\nkind = \"model\"\nsize = \"16MiB\"\nlatency = \"none\"\n";
    let mut fixture = with("hangs", model, ", 1 = \"m\"");
    let load = Load::start(&fixture.url(0), DISK_BYTES);
    let url = fixture.url(1);
    peer::qemu_io(&url, &["write -P 1 0 1M", "flush"]).unwrap();
    fixture.ok(&["geom", "disk", "hang", "name=m"]);
    let mut waits = hanging(&fixture, &url, "write -P 2 0 64k");
    let in_flight = || {
        let (_, m) = fixture.provider("m").unwrap();
        m["stats"]["in_flight"].as_u64() > Some(0)
    };
    fixture.until("the write hangs", Duration::from_secs(10), in_flight);
    // Queries are answered, and unrelated parts can be changed.
    fixture.json(&["list"]);
    fixture.ok(&["tree"]);
    load.wait_for_rounds();
    fixture.image("d2.img", DISK_BYTES);
    write(&fixture, &format!("{model}{}", file_disk("d2", "d2.img")), ", 1 = \"m\", 2 = \"d2\"");
    fixture.ok(&["apply"]);
    peer::qemu_io(&fixture.url(2), &["write -P 6 0 64k", "read -P 6 0 64k"]).unwrap();
    assert!(waits.ended().unwrap().is_none(), "it did not hang: {}", waits.output());
    fixture.ok(&["geom", "disk", "release", "name=m"]);
    waits.wait_ready(Duration::from_secs(10), || waits_done(&fixture)).unwrap();
    peer::qemu_io(&url, &["read -P 2 0 64k", "read -P 1 64k 960k"]).unwrap();

    // An initiator that dies on it: its session ends once the disk has answered.
    fixture.ok(&["geom", "disk", "hang", "name=m"]);
    let mut dies = hanging(&fixture, &url, "write -P 7 0 64k");
    fixture.until("the write hangs", Duration::from_secs(10), in_flight);
    dies.kill().unwrap();
    load.wait_for_rounds();
    fixture.ok(&["geom", "disk", "release", "name=m"]);
    let one = || array(&fixture.json(&["sessions"])["sessions"]).len() == 1;
    fixture.until("only the load is connected", Duration::from_secs(15), one);
    load.finish();

    // The write hangs while the daemon receives the request to stop.
    fixture.ok(&["geom", "disk", "hang", "name=m"]);
    let waits = hanging(&fixture, &url, "write -P 8 0 64k");
    fixture.until("the write hangs", Duration::from_secs(10), || {
        fixture.provider("m").unwrap().1["stats"]["in_flight"].as_u64() > Some(0)
    });
    assert_well(&mut fixture);
    fixture.stop();
    drop(waits);
}

/// Whether the hanging qemu-io has reported the end of its request.
fn waits_done(fixture: &Fixture) -> bool {
    std::fs::read_to_string(fixture.path("hanging")).is_ok_and(|text| text.contains(" ops;"))
}

fn cut(path: &Path, bytes: u64) {
    std::fs::File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

#[test]
fn shrunk_disk_is_withdrawn_and_returns_at_its_old_size() {
    let mut fixture = Fixture::alone("shrinks");
    let image = fixture.image("short.img", DISK_BYTES);
    fixture.image("good.img", DISK_BYTES);
    write(&fixture, &file_disk("short", "short.img"), ", 1 = \"short\"");
    fixture.start();
    let load = Load::start(&fixture.url(0), DISK_BYTES);
    let url = fixture.url(1);
    peer::qemu_io(&url, &["write -P 1 0 1M", "write -P 2 32M 1M", "flush"]).unwrap();
    fixture.ashlar(&["status"]).ends(0);
    cut(&image, 4 << 20);
    // It is not made long again by being written.
    assert_fails(&url, &["write -P 9 32M 64k"], &[]);
    assert_eq!(image.metadata().unwrap().len(), 4 << 20);
    assert_fails(&url, &["read 32M 64k"], &[]);
    let sizes = format!("has {} bytes and had {DISK_BYTES}", 4 << 20);
    let is_reported = || {
        let output = fixture.ok(&["journal"]);
        output.contains(&sizes) && output.contains("until it has that size again")
    };
    fixture.until("the event names both sizes", Duration::from_secs(20), is_reported);
    let found = finding(&fixture, "short");
    assert!(!text(&found["why"]).is_empty() && text(&found["action"]).contains("apply"), "{found}");
    fixture.ashlar(&["status"]).ends(3).prints(&["FAILED", "short"]);
    assert!(peer::qemu_io(&url, &["read 0 64k"]).is_err(), "a disk that is gone answers");
    load.wait_for_rounds();
    // Longer, but not whole: the operator must confirm the new size. When the second size is seen,
    // the daemon has decided about the first.
    for part in [8 << 20, 12 << 20] {
        cut(&image, part);
        let size = format!("has {part} bytes");
        let is_seen = || text(&finding(&fixture, "short")["why"]).contains(&size);
        fixture.until("the new size is shown", Duration::from_secs(20), is_seen);
        assert!(fixture.provider("short").is_none(), "a part of it came back");
    }
    cut(&image, DISK_BYTES);
    let is_well = || fixture.ashlar(&["status"]).code == 0;
    fixture.until("it is back by itself", Duration::from_secs(20), is_well);
    // The other repair that `status` advises.
    cut(&image, 4 << 20);
    assert_fails(&url, &["read 32M 64k"], &[]);
    std::fs::remove_file(&image).unwrap();
    fixture.image("short.img", DISK_BYTES);
    fixture.ok(&["apply"]);
    fixture.until("the new one is there", Duration::from_secs(20), is_well);
    peer::qemu_io(&url, &["write -P 1 0 1M"]).unwrap();
    peer::qemu_io(&url, &["read -P 1 0 1M", "write -P 3 32M 64k", "read -P 3 32M 64k"]).unwrap();
    load.finish();
    assert_well(&mut fixture);
    fixture.stop();
}

#[test]
fn file_that_is_removed_in_use_is_reported_and_can_be_saved() {
    let mut fixture = with("removed", "", "");
    fixture.image("d1.img", DISK_BYTES);
    write(&fixture, &file_disk("d1", "d1.img"), ", 1 = \"d1\"");
    fixture.ok(&["apply"]);
    let load = Load::start(&fixture.url(0), DISK_BYTES);
    let (url, image, aside) = (fixture.url(1), fixture.path("d1.img"), fixture.path("aside.img"));
    fixture.ashlar(&["status"]).ends(0);
    let noted = |words: &str| {
        let is_noted = || fixture.ok(&["journal"]).contains(words);
        fixture.until("it is in the journal", Duration::from_secs(10), is_noted);
    };
    // Renamed and back.
    std::fs::rename(&image, &aside).unwrap();
    let found = finding(&fixture, "disk d1");
    assert_eq!(found["health"], "degraded", "{found}");
    assert!(text(&found["action"]).contains("aside.img"), "{found}");
    noted("was renamed to");
    std::fs::rename(&aside, &image).unwrap();
    fixture.ashlar(&["status"]).ends(0);
    noted("no longer true");
    // Removed: the data can be saved by the command that `status` prints.
    std::fs::remove_file(&image).unwrap();
    peer::qemu_io(&url, &["write -P 6 32M 1M", "flush"]).unwrap();
    let found = finding(&fixture, "disk d1");
    assert_eq!(found["health"], "failed", "{found}");
    assert!(text(&found["why"]).contains("was removed while it is in use"), "{found}");
    noted("was removed while it is in use");
    fixture.ashlar(&["list", "disks", "d1"]).prints(&["failed", "was removed"]);
    let action = text(&found["action"]);
    let save = action.split('`').find(|words| words.starts_with("cp ")).unwrap();
    tool("sh", &["-c", save], "");
    load.finish();
    fixture.stop();
    fixture.start();
    fixture.ashlar(&["status"]).ends(0);
    peer::qemu_io(&url, &["read -P 6 32M 1M", "read -P 0 0 1M"]).unwrap();
    // Another program cannot write to an image that a host writes to.
    let path = image.display().to_string();
    assert_fails(&path, &["write 0 64k"], &["lock"]);
    assert_well(&mut fixture);
    fixture.stop();
    peer::qemu_io(&path, &["read -P 6 32M 1M", "write 0 64k"]).unwrap();
}

#[test]
fn layer_over_a_lost_disk_returns_with_the_disk() {
    let nop = "[[geom]]\nclass = \"nop\"\nname = \"top\"\nprovider = \"low\"\n";
    let mut fixture = Fixture::alone("stands");
    let image = fixture.image("low.img", DISK_BYTES);
    fixture.image("good.img", DISK_BYTES);
    write(&fixture, &format!("{}{nop}", file_disk("low", "low.img")), ", 1 = \"top\"");
    fixture.start();
    let load = Load::start(&fixture.url(0), DISK_BYTES);
    let url = fixture.url(1);
    peer::qemu_io(&url, &["write -P 1 0 1M", "flush"]).unwrap();
    let lose = || {
        cut(&image, 4 << 20);
        assert_fails(&url, &["write -P 2 32M 64k"], &[]);
        fixture.until("it is gone", Duration::from_secs(10), || fixture.provider("top").is_none());
    };
    lose();
    cut(&image, DISK_BYTES);
    let is_well = || fixture.ashlar(&["status"]).code == 0;
    fixture.until("all of it is back", Duration::from_secs(20), is_well);
    peer::qemu_io(&url, &["read -P 1 0 1M", "write -P 3 32M 64k", "read -P 3 32M 64k"]).unwrap();
    // Taken out of the configuration while it is absent, it stays out.
    lose();
    write(&fixture, "", "");
    fixture.ok(&["apply"]);
    cut(&image, DISK_BYTES);
    // A timer of the daemon must do nothing, and no command shows that it did: paths are examined
    // once a second.
    let looks = Instant::now();
    while looks.elapsed() < Duration::from_secs(4) {
        assert!(fixture.provider("low").is_none(), "nobody wants it");
        std::thread::sleep(Duration::from_millis(100));
    }
    fixture.ashlar(&["status"]).ends(0);
    load.finish();
    assert_well(&mut fixture);
    fixture.stop();
}

#[test]
fn block_device_without_medium_is_reported_and_returns() {
    let mut fixture = Fixture::alone("loop");
    fixture.image("good.img", DISK_BYTES);
    let image = fixture.image("medium.img", DISK_BYTES);
    // The same is tried with a file elsewhere.
    let Some(attached) = LoopDevice::over(&image, &[]) else { return };
    let device = attached.0.clone();
    let disk = format!("[[disk]]\nname = \"dev\"\nkind = \"blockdev\"\npath = \"{device}\"\n");
    write(&fixture, &disk, ", 1 = \"dev\"");
    fixture.start();
    let load = Load::start(&fixture.url(0), DISK_BYTES);
    let url = fixture.url(1);
    peer::qemu_io(&url, &["write -P 1 0 1M", "write -P 2 32M 1M", "flush"]).unwrap();
    let bytes = std::fs::read(&image).unwrap();
    assert!(bytes[32 << 20..33 << 20].iter().all(|b| *b == 2));
    cut(&image, 0);
    tool("losetup", &["-c", &device], "");
    assert_fails(&url, &["read 32M 64k"], &[]);
    finding(&fixture, "dev");
    // The device is back by itself, with its data as far as the image has it.
    cut(&image, DISK_BYTES);
    tool("losetup", &["-c", &device], "");
    let is_well = || fixture.ashlar(&["status"]).code == 0;
    fixture.until("the device is back", Duration::from_secs(20), is_well);
    peer::qemu_io(&url, &["read -P 0 0 1M", "write -P 4 32M 64k", "read -P 4 32M 64k"]).unwrap();
    load.finish();
    assert_well(&mut fixture);
    fixture.stop();
}

#[test]
fn exhausted_buffers_starve_no_client() {
    let null = "[[disk]]\nname = \"null\"\nkind = \"null\"\nsize = \"1GiB\"\n";
    let mut fixture = with("pool", &format!("{null}{}", slow("slow", "good")), ", 1 = \"null\"");
    let load = Load::start(&fixture.url(0), DISK_BYTES);
    let slow = ["geom", "nop", "insert", "name=late", "provider=null", "delay_ms=40"];
    fixture.ok(&[&slow[..], &["write_delay_percent=100", "read_delay_percent=100"]].concat());
    // 6 times 32 times 1 MiB want six times the memory there is.
    let bench = |words: &[&str]| {
        let mut command = Command::new(proc::tool("qemu-img").unwrap());
        let all = ["bench", "-f", "raw", "-t", "none", "-d", "32", "-s", "1M", "-c", "96"];
        command.args(all).args(words).arg(fixture.url(1));
        command
    };
    let mut greedy: Vec<Proc> = (0..6)
        .map(|n| {
            let words: &[&str] = if n % 2 == 0 { &["-w"] } else { &[] };
            let log = fixture.path(&format!("bench-{n}"));
            Proc::start("qemu-img bench", &mut bench(words), &log).unwrap()
        })
        .collect();
    let mut most = 0;
    let start = Instant::now();
    while greedy.iter_mut().any(|g| g.ended().unwrap().is_none()) {
        assert!(start.elapsed() < STARVED_LIMIT, "they starve");
        most = most.max(proc::resident_bytes(fixture.pid()).unwrap());
        std::thread::sleep(Duration::from_millis(20));
    }
    for g in &mut greedy {
        assert!(g.ended().unwrap().unwrap().success(), "{}", g.output());
    }
    assert!(most < POOL_BYTES + RESIDENT_MORE, "{} MiB resident", most >> 20);
    let rounds = load.finish();
    println!("{rounds} rounds, at most {} MiB resident, {:?}", most >> 20, start.elapsed());
    assert_well(&mut fixture);
    fixture.stop();
}

/// A layer that is there from the start.
fn slow(name: &str, provider: &str) -> String {
    format!("[[geom]]\nclass = \"nop\"\nname = \"{name}\"\nprovider = \"{provider}\"\n")
}

/// How many files this process may have open.
fn files_max() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|l| l.starts_with("Max open files")).unwrap();
    line.split_whitespace().nth(3).and_then(|n| n.parse().ok()).unwrap_or(1024)
}

fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

fn connect(fixture: &Fixture) -> TcpStream {
    let stream = TcpStream::connect_timeout(&fixture.portal(), Duration::from_secs(10)).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

#[test]
fn connection_floods_and_garbage_do_not_disturb_a_session() {
    let mut fixture = with("flood", "", "");
    let load = Load::start(&fixture.url(0), DISK_BYTES);
    let before = open_files(fixture.pid());
    let wanted = std::env::var("ASHLAR_CONNECTIONS").ok().and_then(|n| n.parse().ok());
    let count = wanted.unwrap_or(CONNECTIONS).min(files_max().saturating_sub(200));
    // Half-open: nothing sent, a part of a header, a header without its data, a part of the data.
    let login = |name, target| LoginOptions::named(name, target).request().unwrap();
    let bad = login("not a name", "neither");
    let login = login("iqn.2026-11.test:half", IQN);
    let starts = [0, 20, 48, 60];
    let mut half = Vec::new();
    for n in 0..count {
        let mut stream = connect(&fixture);
        // It may have been closed already to free a place.
        let _ = stream.write_all(&login[..starts[n % starts.len()]]);
        half.push(stream);
    }
    load.wait_for_rounds();
    peer::qemu_io(&fixture.url(0), &["read 0 64k"]).unwrap();
    assert_well(&mut fixture);

    let mut lengths = [0xff; 48];
    lengths[0] = 0x43;
    let mut kinds: Vec<Vec<u8>> = vec![
        vec![0; 4096],
        vec![0xff; 4096],
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        lengths.to_vec(),
        bad,
        [login.clone(), login.clone()].concat(),
    ];
    kinds.extend((0..150).map(|seed| noise(seed, 200 + seed as usize * 40)));
    // Almost right: a login with single bytes of its header changed.
    kinds.extend((0..192).map(|n| {
        let mut bytes = login.clone();
        bytes[n / 4] ^= [0x01, 0x80, 0x41, 0xff][n % 4];
        bytes
    }));
    for bytes in &kinds {
        let mut stream = connect(&fixture);
        // A reset in the middle is as good an answer as any.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
    // The same after a good login.
    for seed in 0..40 {
        let mut raw =
            Client::session(fixture.portal(), &format!("iqn.2026-11.test:n{seed}"), IQN).unwrap();
        let _ = raw.stream.write_all(&noise(seed, 3000));
    }
    load.wait_for_rounds();
    assert_well(&mut fixture);
    // A silent client is disconnected in the end, and no state of any client is kept.
    let mut last = half.pop().unwrap();
    let ended = last.read_to_end(&mut Vec::new());
    let is_open = ended.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
    assert!(!is_open, "one of {count} silent connections may stay");
    drop(half);
    let gone = || open_files(fixture.pid()) <= before + 4;
    fixture.until("all descriptors are given back", Duration::from_secs(20), gone);
    println!("{} rounds meanwhile", load.finish());
    assert_well(&mut fixture);
    fixture.stop();
}

#[test]
fn peers_that_read_no_responses_do_not_disturb_a_session() {
    let mut fixture = with("stalled", "", "");
    // The last MiB is left to the writer at the end.
    let load = Load::start(&fixture.url(0), DISK_BYTES - (1 << 20));
    let mut stalled = Vec::new();
    for n in 0..3 {
        let name = format!("iqn.2026-11.test:stalled-{n}");
        let mut raw = Client::session(fixture.portal(), &name, IQN).unwrap();
        // The window is smaller; commands beyond it must not affect other clients.
        for command in 0..100 {
            if raw.ask(command * 512, 512).is_err() {
                break;
            }
        }
        stalled.push(raw);
        load.wait_for_rounds();
    }
    let held = array(&fixture.json(&["sessions"])["sessions"]).len();
    assert!(held >= 2, "{held} sessions");
    assert_well(&mut fixture);
    peer::qemu_io(&fixture.url(0), &["write -P 1 63M 1M", "read -P 1 63M 1M"]).unwrap();
    load.wait_for_rounds();
    drop(stalled);
    let one = || array(&fixture.json(&["sessions"])["sessions"]).len() == 1;
    fixture.until("only the load is connected", Duration::from_secs(20), one);
    println!("{} rounds meanwhile", load.finish());
    assert_well(&mut fixture);
    fixture.stop();
}

const GROUPS: &str = r#"
[[target]]
driver = "iscsi"
name = "{iqn}"
listen = ["{portal}"]
chap_md5 = true

[[target]]
driver = "iscsi"
name = "{iqn}.secret"
listen = ["{portal}"]
chap_md5 = true
chap = { user = "alice", secret = "initiator-pass" }

[[access]]
target = "{iqn}"
group = "writers"
initiators = ["iqn.2026-11.test:writer-*"]
luns = { 0 = "good" }

[[access]]
target = "{iqn}"
group = "readers"
initiators = ["iqn.2026-11.test:reader-*"]
luns = { 5 = { provider = "good", mode = "ro" } }

[[access]]
target = "{iqn}.secret"
group = "all"
initiators = ["*"]
luns = { 0 = "good" }
"#;

#[test]
fn refused_initiator_is_reported_with_the_reason() {
    let mut fixture = Fixture::alone("denied");
    fixture.image("good.img", DISK_BYTES);
    fixture.write("ashlar.toml", &format!("{}{GROUPS}", file_disk("good", "good.img")));
    fixture.start();
    let (writer, reader) = ("iqn.2026-11.test:writer-1", "iqn.2026-11.test:reader-1");
    let load = Load::start(&fixture.url_as(writer, 0), DISK_BYTES / 2);
    // In no group: no LUN is visible, and `status` names the initiator and the next step.
    assert!(peer::qemu_io(&fixture.url(0), &["read 0 4k"]).is_err(), "a stranger was let in");
    let status = fixture.json(&["status"]);
    let access = array(&status["findings"]).iter().find(|f| f["at"] == "access").unwrap();
    assert!(text(&access["why"]).contains(QEMU), "{status:#}");
    assert!(text(&access["action"]).contains("ashlar access check"), "{status:#}");
    fixture.ashlar(&["sessions", "--denied"]).ends(0).prints(&[QEMU, "127.0.0.1", "group"]);
    fixture.ashlar(&["access", "check", QEMU]).ends(0).prints(&["no group matches", "deny"]);
    // Another group's LUN does not exist for this one.
    assert!(peer::qemu_io(&fixture.url_as(reader, 0), &["read 0 4k"]).is_err());
    assert!(peer::qemu_io(&fixture.url_as(writer, 5), &["read 0 4k"]).is_err());
    // A read-only LUN permits reads and no writes for every host that opens it.
    peer::qemu_io(&fixture.url_as(writer, 0), &["write -P 9 48M 64k", "flush"]).unwrap();
    let mut reads = Command::new(proc::tool("qemu-io").unwrap());
    reads.args(["-r", "-f", "raw", "-c", "read -P 9 48M 64k"]).arg(fixture.url_as(reader, 5));
    assert!(!proc::run(&mut reads).unwrap().contains("failed"));
    assert!(peer::qemu_io(&fixture.url_as(reader, 5), &["write -P 8 48M 64k"]).is_err());
    peer::qemu_io(&fixture.url_as(writer, 0), &["read -P 9 48M 64k"]).unwrap();

    // A wrong secret, none, and the right one.
    let secret = rig::Target { iqn: format!("{IQN}.secret"), ..fixture.target(0) };
    let chap =
        |secret: &str| rig::Chap { user: "alice".into(), secret: secret.into(), mutual: None };
    assert!(peer::iscsi_inq(&secret.url(), None).is_err());
    assert!(peer::iscsi_inq(&secret.url_with(&chap("wrong-password")), None).is_err());
    let denied = fixture.json(&["sessions", "--denied"]);
    let about: Vec<_> =
        array(&denied["denied"]).iter().filter(|d| d["target"] == secret.iqn).collect();
    assert!(!about.is_empty(), "{denied:#}");
    assert!(!denied.to_string().contains("wrong-password"), "a secret is shown");
    peer::iscsi_inq(&secret.url_with(&chap("initiator-pass")), None).unwrap();
    assert!(!fixture.log().contains("initiator-pass"), "a secret is logged");
    load.finish();
    fixture.assert_alive();
    fixture.stop();
}

/// Thousands of sessions begin and end, each with lines in the log, which is not read.
#[test]
fn unread_log_pipe_does_not_stop_the_daemon() {
    const LOGINS: usize = 1500;
    let fixture = Fixture::alone("unread");
    fixture.image("good.img", DISK_BYTES);
    write(&fixture, "", "");
    let mut serve = fixture.command(&["serve"]);
    serve.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
    let mut daemon = serve.spawn().unwrap();
    fixture.until("it serves", Duration::from_secs(30), || fixture.ashlar(&["status"]).code == 0);
    let load = Load::start(&fixture.url(0), DISK_BYTES);
    let start = Instant::now();
    let mut longest = Duration::ZERO;
    for n in 0..LOGINS {
        let at = Instant::now();
        let name = format!("iqn.2024-01.test:{n}-{}", "x".repeat(120));
        // One line a minute is logged about each peer.
        let peer = Ipv4Addr::from_bits(0x7f01_0001 + n as u32);
        let stream = initiator::dial_from(peer, fixture.portal()).unwrap();
        Client::log_in(stream, &LoginOptions::named(&name, IQN)).unwrap();
        longest = longest.max(at.elapsed());
    }
    println!("{LOGINS} sessions in {:?}, the longest login took {longest:?}", start.elapsed());
    load.wait_for_rounds();
    fixture.ok(&["status"]);
    load.finish();
    let resident = proc::resident_bytes(daemon.id()).unwrap();
    assert!(resident < POOL_BYTES + RESIDENT_MORE, "{} MiB resident", resident >> 20);
    // Now the log is read: its lines are there, and the number of missing ones.
    let mut log = daemon.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        log.read_to_string(&mut text).map(|_| text)
    });
    assert!(Command::new("kill").arg(daemon.id().to_string()).status().unwrap().success());
    assert!(daemon.wait().unwrap().success());
    let text = reader.join().unwrap().unwrap();
    let lines = text.lines().count();
    println!("{lines} lines, {} KiB", text.len() >> 10);
    assert!(!text.contains("panicked"), "{text}");
    assert!(text.contains("stopping: SIGTERM") && lines > LOGINS, "{lines} lines");
}
