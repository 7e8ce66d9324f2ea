//! Clients of a scheduler, with third-party programs. They are initiators and their units over
//! iSCSI, and processes of this machine that work on the file mounted by FUSE, each with many
//! threads. The latter needs root, FUSE and loop devices; where they are not available the test
//! prints that and passes.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rig::proc;
use serde_json::Value;

use crate::fixture::{self, Fixture, array, file_disk, text};

/// So much that the two never meet: one that overlaps another waits for it at any share.
const DISK_BYTES: u64 = 512 << 20;

/// Longest wait for some thousand requests.
const LIMIT: Duration = Duration::from_secs(60);

/// Requests in flight of one program, so that it always waits for its turn.
const DEPTH: &str = "32";

/// Requests counted of both together.
const REQUESTS: u64 = 2000;

/// A program with many threads that reads or writes until it is stopped.
struct Program(Child);

impl Program {
    fn start(file: &str, writes: bool) -> Program {
        let mut command = Command::new(proc::tool("qemu-img").unwrap());
        // More requests than the test waits for.
        command.args(["bench", "-f", "raw", "-t", "none", "-s", "4096", "-c", "50000000"]);
        command.args(["-d", DEPTH, file]);
        if writes {
            command.args(["-w", "-o", &(DISK_BYTES / 2).to_string()]);
        }
        Program(command.stdout(Stdio::null()).spawn().unwrap())
    }

    fn client(&self) -> String {
        format!("process {}", self.0.id())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn configure(fixture: &Fixture) {
    fixture.configure(
        &format!(
            "{}\n[[target]]\ndriver = \"local\"\nname = \"t-procs\"\nby = \"fuse\"\n\
             [[access]]\ntarget = \"t-procs\"\ngroup = \"machine\"\n\
             initiators = [\"local:t-procs\"]\nluns = {{ 0 = \"d0\" }}\n",
            file_disk("d0", "d0.img")
        ),
        "",
    );
}

fn clients(fixture: &Fixture) -> Vec<Value> {
    let stats = fixture.json(&["sched", "stats", "d0.sched."]);
    array(&stats["answer"]["geoms"][0]["clients"]).to_vec()
}

fn requests(all: &[Value], client: &str) -> u64 {
    let found = all.iter().find(|c| c["client"] == client);
    found.and_then(|c| c["requests"].as_u64()).unwrap_or(0)
}

/// Requests of both from now on until they are enough.
fn race(fixture: &Fixture, both: &[&Program; 2]) -> [u64; 2] {
    race_of(fixture, &both.map(Program::client))
}

fn race_of(fixture: &Fixture, both: &[String; 2]) -> [u64; 2] {
    let waits = || {
        let all = clients(fixture);
        both.iter().all(|client| {
            let own = all.iter().find(|c| c["client"] == client.as_str());
            own.is_some_and(|c| c["inside"].as_u64() > Some(16))
        })
    };
    fixture.until("both wait for their turns", LIMIT, waits);
    fixture.ok(&["sched", "reset", "d0.sched."]);
    let mut got = [0; 2];
    fixture.until("some thousand requests", LIMIT, || {
        let all = clients(fixture);
        got = both.each_ref().map(|client| requests(&all, client));
        got.iter().sum::<u64>() >= REQUESTS
    });
    got
}

/// Makes the disk slower than its clients: all requests wait in the scheduler, above it.
fn slow_down(fixture: &Fixture) {
    let delays = ["read_delay_percent=100", "write_delay_percent=100", "delay_ms=2"];
    let slow = ["geom", "nop", "insert", "name=slow", "provider=d0"];
    fixture.ok(&[&slow[..], &delays].concat());
}

fn near(a: u64, b: u64) -> bool {
    a * 100 <= b * 110 && b * 100 <= a * 110
}

/// One process may do 300 requests a second, the other is unlimited: by its weight the first would
/// get four times as much.
fn limit_one(fixture: &Fixture, [held, free]: [&Program; 2]) {
    const IOPS: u64 = 300;
    // Its saved credit, and the requests counted before the limit took effect.
    const AHEAD: u64 = 100;
    let begun = Instant::now();
    let set = |iops: u64| {
        let (a, b) = (held.0.id(), free.0.id());
        let options = format!("{a}.iops={iops},{a}.weight=400,{b}.weight=100");
        fixture.ok(&["sched", "configure", "d0.sched.", "--options", &options]);
    };
    set(IOPS);
    fixture.ok(&["sched", "reset", "d0.sched."]);
    let mut got = [0; 2];
    fixture.until("the other has its requests, and it has some", LIMIT, || {
        let all = clients(fixture);
        got = [held, free].map(|p| requests(&all, &p.client()));
        got[0] >= IOPS && got[1] >= REQUESTS
    });
    let most = AHEAD + IOPS * u64::try_from(begun.elapsed().as_millis()).unwrap() / 1000;
    println!("300 a second and no limit: {got:?}, at most {most}");
    assert!(got[0] <= most, "{got:?}, at most {most}");
    set(0);
}

#[test]
fn process_with_many_threads_is_one_client_with_a_fair_share() {
    let mut fixture = Fixture::alone("processes");
    fixture.image("d0.img", DISK_BYTES);
    configure(&fixture);
    fixture.start();
    let output = fixture.ashlar(&["attach", "0"]);
    if output.code != 0 {
        let lacks = ["/dev/fuse", "losetup", "mount ", "/run/ashlar", "direct I/O"];
        assert!(lacks.iter().any(|w| output.err.contains(w)), "{output}");
        println!("not tested: nothing can be attached: {}", output.err);
        return fixture.stop();
    }
    let attached = fixture.json(&["attach", "--list"])["attached"][0].take();
    let (device, file) = (text(&attached["device"]), text(&attached["file"]));
    slow_down(&fixture);
    let how = ["--algorithm", "fair", "--classify", "process", "--options", "queue_depth=4"];
    fixture.ok(&[&["sched", "insert"], &how[..], &["d0"]].concat());

    let programs = [Program::start(&file, false), Program::start(&file, true)];
    let both = [&programs[0], &programs[1]];
    let set = |shares: [u64; 2]| {
        let [a, b] = both.map(|p| p.0.id());
        let options = format!("{a}.weight={},{b}.weight={}", shares[0], shares[1]);
        fixture.ok(&["sched", "configure", "d0.sched.", "--options", &options]);
    };
    let got = race(&fixture, &both);
    let all = clients(&fixture);
    assert_eq!(all.len(), 2, "threads are no clients: {all:?}");
    for client in &all {
        let reads = client["client"] == both[0].client().as_str();
        assert_eq!(client["read_bytes"] != 0, reads, "{client}");
        assert_eq!(client["written_bytes"] != 0, !reads, "{client}");
    }
    println!("equal: {got:?}");
    assert!(near(got[0], got[1]), "equal shares: {got:?}");
    set([300, 100]);
    let got = race(&fixture, &both);
    println!("3 to 1: {got:?}");
    assert!(near(got[0], 3 * got[1]), "three to one: {got:?}");
    set([100, 400]);
    let got = race(&fixture, &both);
    println!("1 to 4: {got:?}");
    assert!(near(4 * got[0], got[1]), "one to four: {got:?}");
    // It holds again after another algorithm, which shares nothing out.
    let configure = |algorithm: &str| {
        let how = ["-a", algorithm, "--options", "queue_depth=4", "d0.sched."];
        fixture.ok(&[&["sched", "configure"], &how[..]].concat());
    };
    configure("deadline");
    configure("fair");
    let got = race(&fixture, &both);
    println!("1 to 4 again: {got:?}");
    assert!(near(4 * got[0], got[1]), "one to four: {got:?}");
    limit_one(&fixture, both);
    drop(programs);

    // The loop device sends requests from threads of the kernel: they belong to no process.
    fixture.ok(&["sched", "reset", "d0.sched."]);
    let from = format!("if={device}");
    for how in ["iflag=direct", "iflag=nocache"] {
        let words = [from.as_str(), "of=/dev/null", "bs=64k", "count=8", how];
        fixture::tool("dd", &words, "");
    }
    let all: Vec<Value> = clients(&fixture).into_iter().filter(|c| c["requests"] != 0).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    let name = text(&all[0]["client"]);
    assert!(name.starts_with("local:t-procs session "), "{name}");
    fixture.assert_alive();
    fixture.stop();
}

/// One scans, the other writes; by its name, or its name and unit, each is a client.
#[test]
fn initiator_is_one_client_with_a_fair_share() {
    let mut fixture = Fixture::alone("initiators").with_disk(DISK_BYTES);
    // A wrong name inserts no scheduler.
    fixture.ashlar(&["sched", "insert", "d0", "d9"]).ends(1).complains(&["d9"]);
    fixture.ashlar(&["sched", "list", "d0.sched."]).ends(1);
    slow_down(&fixture);
    let how = ["-a", "fair", "-c", "initiator", "--options", "queue_depth=4"];
    fixture.ok(&[&["sched", "insert"], &how[..], &["d0"]].concat());
    let names = ["iqn.2026-11.test:scans", "iqn.2026-11.test:writes"];
    let programs = [
        Program::start(&fixture.url_as(names[0], 0), false),
        Program::start(&fixture.url_as(names[1], 0), true),
    ];
    let both = names.map(str::to_owned);
    let got = race_of(&fixture, &both);
    println!("equal: {got:?}");
    assert!(near(got[0], got[1]), "equal shares: {got:?}");
    let set = |options: &str| fixture.ok(&["sched", "configure", "d0", "--options", options]);
    set(&format!("{}.weight=300", names[0]));
    let got = race_of(&fixture, &both);
    println!("3 to 1: {got:?}");
    assert!(near(got[0], 3 * got[1]), "three to one: {got:?}");
    // The same by unit, and by no other name: settings of the initiator do not apply to its unit.
    fixture.ok(&["sched", "configure", "d0", "-c", "lun"]);
    set(&format!("{}/0.weight=400", names[1]));
    let units = names.map(|name| format!("{name} LUN 0"));
    let got = race_of(&fixture, &units);
    println!("1 to 4: {got:?}");
    assert!(near(4 * got[0], got[1]), "one to four: {got:?}");
    let stats = fixture.json(&["sched", "stats", "d0"]);
    let shares = &stats["answer"]["geoms"][0]["shares"];
    assert_eq!(shares[format!("{}/0", names[1])]["weight"], 400, "{shares}");
    assert_eq!(shares[names[0]]["weight"], 300, "{shares}");
    // No client is held back any more, and all of them are counted still.
    fixture.ok(&["sched", "configure", "-a", "fifo", "d0"]);
    fixture.ok(&["sched", "reset", "d0"]);
    fixture.until("both are counted", LIMIT, || {
        let all = clients(&fixture);
        units.iter().all(|unit| requests(&all, unit) > 200)
    });
    drop(programs);
    fixture.ok(&["sched", "destroy", "d0"]);
    fixture.assert_alive();
    fixture.stop();
}
