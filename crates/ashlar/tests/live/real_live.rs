//! fio, which checks its reads by its own checksums, on arrays whose members are pulled and
//! returned. Debian's fio has no iSCSI of its own; it uses NBD.

use std::process::Command;
use std::time::{Duration, Instant};

use rig::proc::{self, Proc};

use crate::fixture::{Fixture, array, file_disk, text};

const DISK_BYTES: u64 = 24 << 20;
/// Bytes that fio writes and checks, again and again.
const SIZE: &str = "--size=20M";
/// How long fio works, seconds; its last pass of checks is added.
const SECONDS: u32 = 12;
/// Longest rebuild, and longest end of fio.
const LIMIT: Duration = Duration::from_secs(40);

/// fio as a child: writes of mixed sizes, each read back and checked while others are written.
fn fio(fixture: &Fixture, export: &str) -> Proc {
    let socket = fixture.path("nbd.sock");
    let uri = format!("--uri=nbd+unix:///{export}?socket={}", socket.display());
    let time = format!("--runtime={SECONDS}");
    let words =
        ["--ioengine=nbd", "--rw=randrw", "--bsrange=4k-96k", "--iodepth=16", "--randseed=5"];
    let checks = ["--verify=crc32c", "--verify_fatal=1", "--verify_backlog=128", "--time_based"];
    let mut command = Command::new(proc::tool("fio").unwrap());
    command.arg(format!("--name={}", export.replace('/', "-"))).args(words).args(checks);
    command.args([SIZE, "--verify_state_save=0", "--verify_async=0", &uri, &time]);
    command.current_dir(fixture.path("."));
    let log = fixture.path(&format!("fio-{}", export.replace('/', "-")));
    Proc::start("fio", &mut command, &log).unwrap()
}

/// Waits until an array of a class is in a state.
#[track_caller]
fn becomes(fixture: &Fixture, class: &str, state: &str, fios: &mut [Proc]) {
    fixture.until(&format!("{class} is {state}"), LIMIT, || {
        for fio in fios.iter_mut() {
            let ended = fio.ended().unwrap().is_some_and(|status| !status.success());
            assert!(!ended, "{}", fio.output());
        }
        let geoms = fixture.state();
        let found = array(&geoms["geoms"]).iter().find(|g| text(&g["class"]) == class);
        found.is_some_and(|g| text(&g["state"]) == state)
    });
}

#[test]
fn fio_verifies_data_while_members_are_pulled_and_returned() {
    let mut fixture = Fixture::alone("fio");
    let mut disks = String::from("[daemon]\ncores = 2\n\n");
    for disk in ["m0", "m1", "v0", "v1", "v2"] {
        fixture.image(disk, DISK_BYTES);
        disks += &file_disk(disk, disk);
    }
    fixture.write("ashlar.toml", &disks);
    fixture.start();
    fixture.ok(&["mirror", "label", "m", "m0", "m1"]);
    let label = ["raid", "label", "Intel", "five", "RAID5", "v0", "v1", "v2", "-s", "64k"];
    let five = fixture.json(&label)["answer"]["provider"].as_str().unwrap().to_owned();
    let nbd = "[[target]]\ndriver = \"nbd\"\nname = \"shop\"\nlisten = [\"unix:{here}/nbd.sock\"]\n\
               [[access]]\ntarget = \"shop\"\ngroup = \"all\"\ninitiators = [\"unix:*\"]\n\
               luns = { 0 = \"mirror/m\", 1 = \"FIVE\" }\n";
    fixture.write("ashlar.toml", &format!("{disks}\n{}", nbd.replace("FIVE", &five)));
    fixture.ok(&["apply"]);
    let (begun, mut rounds) = (Instant::now(), 0);
    let mut fios = ["mirror/m", five.as_str()].map(|export| fio(&fixture, export));
    while begun.elapsed() < Duration::from_secs(u64::from(SECONDS) - 4) {
        becomes(&fixture, "mirror", "COMPLETE", &mut fios);
        becomes(&fixture, "raid", "OPTIMAL", &mut fios);
        let (m, v) = (["m0", "m1"][rounds % 2], ["v0", "v1", "v2"][rounds % 3]);
        if rounds % 2 == 0 {
            fixture.ok(&["mirror", "remove", "m", m]);
            fixture.ok(&["raid", "fail", "five", v]);
        } else {
            for disk in [m, v] {
                let (name, on) = (format!("name=bad-{disk}"), format!("provider={disk}"));
                let fails = ["read_fail_percent=100", "write_fail_percent=100"];
                fixture.ok(&[&["geom", "nop", "insert", &name, &on], &fails[..]].concat());
            }
        }
        let whole = if rounds % 2 == 0 { "COMPLETE" } else { "DEGRADED" };
        becomes(&fixture, "mirror", whole, &mut fios);
        becomes(&fixture, "raid", "DEGRADED", &mut fios);
        if rounds % 2 == 1 {
            for disk in [m, v] {
                fixture.ok(&["geom", "nop", "remove", &format!("name=bad-{disk}")]);
            }
            fixture.ok(&["mirror", "forget", "m"]);
        }
        // A member that returns with its record may be active already: then this is refused.
        fixture.ashlar(&["mirror", "insert", "--yes-destroy", m, "m", m]);
        fixture.ashlar(&["raid", "insert", "--yes-destroy", v, "five", v]);
        rounds += 1;
    }
    for mut fio in fios {
        fixture.until("fio ends", LIMIT, || fio.ended().unwrap().is_some());
        let status = fio.ended().unwrap().unwrap();
        let output = fio.output();
        assert!(status.success() && !output.contains("verify:"), "{output}");
    }
    println!("{rounds} rounds in {:?}", begun.elapsed());
    fixture.assert_alive();
    fixture.stop();
}
