//! Start of a daemon with missing disks: it serves the present ones, and the others when they
//! arrive. Hosts of a missing disk are requested to retry.

use std::net::TcpListener;
use std::time::Duration;

use crate::fixture::{Fixture, IQN, file_disk, tool};
use testkit::iscsi::initiator::{Client, Ended};

const BYTES: u64 = 4 << 20;
const HOST: &str = "iqn.2024-01.test:starts";
const LIMIT: Duration = Duration::from_secs(60);

/// Sense key, additional code and qualifier of a command that ended with CHECK CONDITION.
fn sense(ended: &Ended) -> Option<(u8, u8, u8)> {
    let at = |i: usize| ended.sense.get(i).copied().unwrap_or_default();
    (ended.status == 2).then(|| (at(2) & 0xf, at(12), at(13)))
}

/// TEST UNIT READY, after the pending unit attentions of the host.
fn ready(host: &mut Client) -> Option<(u8, u8, u8)> {
    loop {
        let output = sense(&host.scsi(&[0; 6], 0, &[]).unwrap());
        if !matches!(output, Some((6, ..))) {
            return output;
        }
    }
}

fn luns(host: &mut Client) -> Vec<u8> {
    host.lun = 0;
    let list = host.must(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256);
    list[8..].chunks(8).map(|lun| lun[1]).collect()
}

#[test]
fn missing_image_does_not_prevent_other_luns() {
    let mut fixture = Fixture::new("starts");
    fixture.image("d0.img", BYTES);
    let disks: String = (0..3).map(|n| file_disk(&format!("d{n}"), &format!("d{n}.img"))).collect();
    let stripe = "\n[[geom]]\nclass = \"concat\"\nname = \"c\"\nmembers = [\"d1\", \"d2\"]\n";
    fixture.configure(&format!("{disks}{stripe}"), "0 = \"d0\", 1 = \"concat/c\"");
    fixture.start();
    let status = fixture.ashlar(&["status"]).ends(3);
    status.prints(&["create disk d1", "d1.img", "create disk d2"]);
    let mut host = Client::session(fixture.portal(), HOST, IQN).unwrap();
    assert_eq!(ready(&mut host), None, "LUN 0 is served");
    host.lun = 1;
    assert_eq!(ready(&mut host), Some((2, 4, 1)), "the other becomes ready");
    let read = host.scsi(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], 512, &[]).unwrap();
    assert_eq!(sense(&read), Some((2, 4, 1)));
    assert_eq!(host.must(&[0x12, 0, 0, 0, 36, 0], 36)[0], 0x20, "it can be connected");
    host.lun = 2;
    assert_eq!(ready(&mut host), Some((5, 0x25, 0)), "this number is not configured");
    assert_eq!(luns(&mut host), [0]);
    fixture.ashlar(&["plan"]).ends(6).prints(&["create disk d1", "the daemon waits for it"]);
    // A change that is unrelated to the missing disks.
    fixture.image("d3.img", BYTES);
    let more = file_disk("d3", "d3.img");
    fixture
        .configure(&format!("{disks}{more}{stripe}"), "0 = \"d0\", 1 = \"concat/c\", 3 = \"d3\"");
    fixture.ok(&["apply"]);
    assert_eq!(luns(&mut host), [0, 3]);
    host.lun = 1;
    assert_eq!(ready(&mut host), Some((2, 4, 1)), "it is waited for still");
    fixture.image("d1.img", BYTES);
    fixture.image("d2.img", BYTES);
    fixture.until("the stripe has come", LIMIT, || luns(&mut host) == [0, 1, 3]);
    host.lun = 1;
    assert_eq!(ready(&mut host), None);
    fixture.until("all is well", LIMIT, || fixture.ashlar(&["status"]).code == 0);
    // The old behaviour, by name.
    fixture.stop();
    std::fs::remove_file(fixture.path("d1.img")).unwrap();
    let strict = fixture.ashlar(&["serve", "--strict"]).ends(1);
    strict.complains(&["create disk d1", "d1.img"]);
    fixture.start();
    let mut host = Client::session(fixture.portal(), HOST, IQN).unwrap();
    assert_eq!(ready(&mut host), None);
}

#[test]
fn lun_is_healthy_while_a_lun_of_another_group_is_awaited() {
    let mut fixture = Fixture::new("starts-groups");
    fixture.image("d0.img", BYTES);
    let group = |name: &str, host: &str, lun: &str| {
        format!(
            "[[access]]\ntarget = \"{{iqn}}\"\ngroup = \"{name}\"\n\
             initiators = [\"{host}\"]\nluns = {{ {lun} }}\n"
        )
    };
    let disks = file_disk("d0", "d0.img") + &file_disk("d1", "d1.img");
    let groups = group("a", HOST, "0 = \"d0\"") + &group("b", "iqn.x:*", "1 = \"d1\"");
    let target = "[[target]]\ndriver = \"iscsi\"\nname = \"{iqn}\"\nlisten = [\"{portal}\"]\n";
    fixture.write("ashlar.toml", &format!("{disks}{target}{groups}"));
    fixture.start();
    fixture.ashlar(&["status"]).ends(3).prints(&["d1"]).lacks(&["LUN 0"]);
    let tree = fixture.ashlar(&["tree"]).out;
    let line = tree.lines().find(|line| line.contains("LUN 0 ")).expect("LUN 0");
    assert!(!line.contains("DEGRADED") && !line.contains("FAILED"), "{tree}");
    let mut host = Client::session(fixture.portal(), HOST, IQN).unwrap();
    assert_eq!(ready(&mut host), None);
    fixture.stop();
}

#[test]
fn initiator_with_only_missing_luns_is_admitted() {
    let mut fixture = Fixture::new("starts-all");
    fixture.configure(&file_disk("d0", "d0.img"), "0 = \"d0\"");
    fixture.start();
    let mut host = Client::session(fixture.portal(), HOST, IQN).unwrap();
    assert_eq!(ready(&mut host), Some((2, 4, 1)));
    fixture.image("d0.img", BYTES);
    fixture.until("it has come", LIMIT, || ready(&mut host).is_none());
}

#[test]
fn target_with_a_taken_port_is_created_when_the_port_is_free() {
    let mut fixture = Fixture::new("starts-port");
    fixture.image("d0.img", BYTES);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    let nbd = format!(
        "\n[[target]]\ndriver = \"nbd\"\nname = \"n\"\nlisten = [\"{at}\"]\n\
         [[access]]\ntarget = \"n\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
         luns = {{ 0 = \"d0\", 1 = \"d1\" }}\n"
    );
    let d1 = file_disk("d1", "d1.img");
    fixture.configure(&format!("{}{d1}{nbd}", file_disk("d0", "d0.img")), "0 = \"d0\"");
    fixture.start();
    let mut host = Client::session(fixture.portal(), HOST, IQN).unwrap();
    assert_eq!(ready(&mut host), None, "the other target is served");
    fixture.ashlar(&["status"]).ends(3).prints(&["create target n", "in use"]);
    drop(taken);
    let listens = || std::net::TcpStream::connect(at).is_ok();
    fixture.until("the other one listens", LIMIT, listens);
    let uri = |name: &str| format!("nbd://{at}/{name}");
    fixture.until("its group is there", LIMIT, || {
        rig::proc::tool("nbdinfo").is_ok_and(|program| {
            let size = std::process::Command::new(program).args(["--size", &uri("d0")]).output();
            size.is_ok_and(|output| output.status.success())
        })
    });
    assert_eq!(tool("nbdinfo", &["--size", &uri("d0")], "").trim(), BYTES.to_string());
    let program = rig::proc::tool("nbdinfo").unwrap();
    let away = std::process::Command::new(program).args(["--size", &uri("1")]).output().unwrap();
    let output = String::from_utf8_lossy(&away.stderr).into_owned();
    // ERR_SHUTDOWN, which clients that try again take for "later"; ERR_UNKNOWN would be for good.
    assert!(!away.status.success() && output.contains("shutting down"), "{output}");
}

#[test]
fn read_only_disk_is_exported_read_only() {
    let mut fixture = Fixture::new("read-only");
    fixture.image("d0.img", BYTES);
    fixture.image("d1.img", BYTES);
    let only = format!("{}read_only = true\n", file_disk("d0", "d0.img"));
    let disks = format!("{only}{}", file_disk("d1", "d1.img"));
    fixture.configure(&disks, "0 = { provider = \"d0\", mode = \"ro\" }, 1 = \"d1\"");
    fixture.start();
    fixture.ashlar(&["status"]).ends(0);
    let mut host = Client::session(fixture.portal(), HOST, IQN).unwrap();
    assert_eq!(ready(&mut host), None);
    assert_eq!(host.must(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], 512), [0; 512]);
    let write = host.scsi(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], 0, &[1; 512]).unwrap();
    assert_eq!(sense(&write), Some((7, 0x27, 0)), "WRITE PROTECTED");
    // Without the word it is the same: the disk reports it.
    fixture.configure(&disks, "0 = \"d0\", 1 = \"d1\"");
    fixture.ok(&["apply"]);
    let write = host.scsi(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], 0, &[1; 512]).unwrap();
    assert_eq!(sense(&write), Some((7, 0x27, 0)), "WRITE PROTECTED");
    let luns = fixture.ok(&["list", "luns"]);
    let line = luns.lines().find(|l| l.contains(" d0 ")).expect("LUN 0");
    assert!(line.contains(" ro "), "{luns}");
    assert_eq!(host.must(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], 512), [0; 512]);
    fixture.stop();
    fixture.start();
    fixture.ashlar(&["status"]).ends(0);
    let mut host = Client::session(fixture.portal(), HOST, IQN).unwrap();
    assert_eq!(ready(&mut host), None);
    let write = host.scsi(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], 0, &[1; 512]).unwrap();
    assert_eq!(sense(&write), Some((7, 0x27, 0)), "WRITE PROTECTED after a start");
}

#[test]
fn apply_awaits_providers_of_a_bus_like_a_start() {
    let mut fixture = Fixture::new("starts-apply");
    fixture.configure("", "");
    fixture.start();
    // Nothing answers there.
    let bus = "[[bus]]\nname = \"far\"\nkind = \"iscsi\"\nportals = [\"127.0.0.1:9\"]\n\
               target = \"iqn.2026-11.test:far\"\ninitiator = \"iqn.2026-11.test:near\"\n";
    fixture.image("d0.img", BYTES);
    let disk = file_disk("d0", "d0.img");
    // A mistake is one all the same.
    fixture.configure(&format!("{disk}{bus}"), "0 = \"d0\", 1 = \"dsk7\"");
    fixture.ashlar(&["apply"]).ends(1).complains(&["dsk7", "no such provider"]);
    fixture.configure(&disk, "0 = \"d0\", 1 = \"multipath/store\"");
    fixture.ashlar(&["apply"]).ends(1).complains(&["multipath/store", "no such provider"]);
    fixture.configure(&format!("{disk}{bus}"), "0 = \"d0\", 1 = \"multipath/store\", 2 = \"da0\"");
    fixture.ok(&["apply"]);
    let mut host = Client::session(fixture.portal(), HOST, IQN).unwrap();
    assert_eq!(luns(&mut host), [0]);
    host.lun = 1;
    assert_eq!(ready(&mut host), Some((2, 4, 1)));
    fixture.ashlar(&["status"]).ends(3).prints(&["multipath/store", "not there yet"]);
}
