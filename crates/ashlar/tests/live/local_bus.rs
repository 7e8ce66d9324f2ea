//! Disks on a bus of our own target (`[[bus]] kind = "local"`). This machine's commands to a disk
//! that it exports meet the same reservations, masks and unit attentions as those of others, in
//! both directions. The local nexus uses `ashlar cam cmd`, the remote one is an iSCSI session.

use std::time::Duration;

use crate::fixture;
use crate::fixture::load::Load;
use crate::fixture::{CommandOutput, Fixture, IQN, file_disk};
use testkit::iscsi::initiator::Client;

const DISK_BYTES: u64 = 16 << 20;
const REMOTE: &str = "iqn.2024-01.test:remote";
/// Name of the bus in access groups.
const LOCAL: &str = "local:loop0";
const CONFLICT: u8 = 0x18;
/// Until the bus has looked for its target, which it does by itself.
const WATCHED: Duration = Duration::from_secs(1);
/// Longest wait for events that the bus detects by itself.
const SOON: Duration = Duration::from_secs(20);

const BUS: &str = "[[bus]]\nname = \"loop0\"\nkind = \"local\"\ntarget = \"{iqn}\"\n\
    names = { here = \"0:0\" }\n";
const TARGET: &str = "[[target]]\ndriver = \"iscsi\"\nname = \"{iqn}\"\nlisten = [\"{portal}\"]\n";

/// A group of the fixture's target.
fn group(name: &str, who: &str, luns: &str) -> String {
    format!(
        "[[access]]\ntarget = \"{{iqn}}\"\ngroup = \"{name}\"\ninitiators = [\"{who}\"]\n\
         luns = {{ {luns} }}\n"
    )
}

/// A daemon with a bus on its own target; the groups are given.
fn configure(fixture: &Fixture, disks: &[&str], more: &str) {
    let disks: String = disks.iter().map(|d| file_disk(d, &format!("{d}.img"))).collect();
    fixture.write("ashlar.toml", &format!("{disks}{BUS}{TARGET}{more}"));
}

fn build_fixture(name: &str, groups: &str) -> Fixture {
    let mut fixture = Fixture::alone(name);
    for disk in ["d0", "d1", "d2"] {
        fixture.image(&format!("{disk}.img"), DISK_BYTES);
    }
    configure(&fixture, &["d0", "d1", "d2"], groups);
    fixture.start();
    // The bus looks for its target twice a second and scans the new one. Such a scan would receive
    // unit attentions that are meant for a test. No command shows that it has ended.
    std::thread::sleep(WATCHED);
    fixture.ok(&["cam", "rescan"]);
    fixture
}

/// A remote nexus that has no unit attention pending.
pub fn remote(fixture: &Fixture) -> Client {
    let mut raw = Client::session(fixture.portal(), REMOTE, IQN).unwrap();
    raw.must(&[0; 6], 0);
    raw
}

/// Response to the local nexus; `cam cmd` prints it on standard error.
fn local(fixture: &Fixture, cdb: &str, send: &[u8]) -> CommandOutput {
    let bytes: Vec<String> = send.iter().map(|b| format!("{b:x}")).collect();
    let bytes = bytes.join(" ");
    let mut words = vec!["cam", "cmd", "here", "-c", cdb];
    if !send.is_empty() {
        words.extend(["--send", &bytes]);
    }
    fixture.ashlar(&words)
}

/// A command of the local nexus that must succeed.
#[track_caller]
fn good(fixture: &Fixture, cdb: &str, send: &[u8]) {
    local(fixture, cdb, send).ends(0);
}

/// A command of the local nexus that another one's reservation stops.
#[track_caller]
fn stopped(fixture: &Fixture, cdb: &str, send: &[u8]) {
    local(fixture, cdb, send).complains(&["RESERVATION CONFLICT (SCSI status 18)"]);
}

#[track_caller]
fn reads(fixture: &Fixture, cdb: &str, bytes: &str) -> String {
    let output = fixture.json(&["cam", "cmd", "here", "-c", cdb, "-i", bytes]);
    fixture::text(&output["answer"]["data"])
}

const READ: &str = "28 0 0 0 0 8 0 0 1 0";
const WRITE: &str = "2a 0 0 0 0 8 0 0 1 0";
const READ_CDB: [u8; 10] = [0x28, 0, 0, 0, 0, 8, 0, 0, 1, 0];
const WRITE_CDB: [u8; 10] = [0x2A, 0, 0, 0, 0, 8, 0, 0, 1, 0];

fn list(key: u64, action_key: u64) -> [u8; 24] {
    let mut list = [0; 24];
    list[..8].copy_from_slice(&key.to_be_bytes());
    list[8..16].copy_from_slice(&action_key.to_be_bytes());
    list
}

/// PERSISTENT RESERVE OUT of the local nexus.
fn out(fixture: &Fixture, action: u8, kind: u8, keys: (u64, u64)) -> CommandOutput {
    let cdb = format!("5f {action:x} {kind:x} 0 0 0 0 0 18 0");
    local(fixture, &cdb, &list(keys.0, keys.1))
}

/// PERSISTENT RESERVE OUT of the remote nexus: its status.
fn out_remote(raw: &mut Client, action: u8, kind: u8, keys: (u64, u64)) -> u8 {
    let cdb = [0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0];
    raw.scsi(&cdb, 0, &list(keys.0, keys.1)).unwrap().status
}

fn status(raw: &mut Client, cdb: &[u8], read: u32, data: &[u8]) -> u8 {
    raw.scsi(cdb, read, data).unwrap().status
}

/// L1 of drivers/src/bus/mod.rs.
#[test]
fn reservations_hold_between_a_local_and_a_remote_nexus() {
    let mut fixture = build_fixture("local-reserve", &group("all", "*", "0 = \"d0\""));
    fixture.ashlar(&["cam", "devlist"]).ends(0).prints(&["target 0 lun 0", ",here)"]);
    let mut raw = remote(&fixture);
    let block = [7; 512];

    // SPC-2, held here and held there.
    good(&fixture, "16 0 0 0 0 0", &[]);
    assert_eq!(status(&mut raw, &[0; 6], 0, &[]), CONFLICT);
    assert_eq!(status(&mut raw, &WRITE_CDB, 0, &block), CONFLICT);
    assert_eq!(status(&mut raw, &[0x16, 0, 0, 0, 0, 0], 0, &[]), CONFLICT);
    good(&fixture, WRITE, &block);
    good(&fixture, "17 0 0 0 0 0", &[]);
    assert_eq!(status(&mut raw, &[0x16, 0, 0, 0, 0, 0], 0, &[]), 0);
    stopped(&fixture, "0 0 0 0 0 0", &[]);
    stopped(&fixture, WRITE, &block);
    stopped(&fixture, "16 0 0 0 0 0", &[]);
    // A reset of the unit by the other nexus ends it (SPC-2 7.21).
    fixture.ashlar(&["cam", "reset", "here"]).ends(0);
    local(&fixture, "0 0 0 0 0 0", &[]);
    good(&fixture, WRITE, &block);
    raw.must(&[0; 6], 0);

    // Persistent: six types, the holder once on each side.
    let stops = [(1, false, true), (3, true, true), (5, false, true), (6, true, true)];
    for (kind, read_stops, write_stops) in stops {
        out(&fixture, 0, 0, (0, 0xa)).ends(0);
        out(&fixture, 1, kind, (0xa, 0)).ends(0);
        let stop = |is: bool| if is { CONFLICT } else { 0 };
        assert_eq!(status(&mut raw, &READ_CDB, 512, &[]), stop(read_stops), "type {kind}");
        assert_eq!(status(&mut raw, &WRITE_CDB, 0, &block), stop(write_stops), "type {kind}");
        good(&fixture, WRITE, &block);
        // A registrant may, where the type allows it.
        assert_eq!(out_remote(&mut raw, 0, 0, (0, 0xb)), 0);
        let lets = kind >= 5;
        assert_eq!(status(&mut raw, &WRITE_CDB, 0, &block), stop(!lets), "type {kind}");
        // It takes the reservation over, and throws the holder out.
        assert_eq!(out_remote(&mut raw, 4, kind, (0xb, 0xa)), 0);
        local(&fixture, "0 0 0 0 0 0", &[]).complains(&["REGISTRATIONS PREEMPTED"]);
        stopped(&fixture, WRITE, &block);
        out(&fixture, 1, kind, (0xa, 0)).complains(&["RESERVATION CONFLICT (SCSI status 18)"]);
        if !read_stops {
            fixture.ok(&["cam", "cmd", "here", "-c", READ, "-i", "512"]);
        }
        // CLEAR by the local nexus, once it has registered again.
        out(&fixture, 0, 0, (0, 0xc)).ends(0);
        out(&fixture, 3, 0, (0xc, 0)).ends(0);
        let response = raw.scsi(&[0; 6], 0, &[]).unwrap();
        assert_eq!(
            (response.status, &response.sense[12..14]),
            (2, &[0x2A, 0x03][..]),
            "type {kind}"
        );
        assert_eq!(status(&mut raw, &WRITE_CDB, 0, &block), 0);
        good(&fixture, WRITE, &block);
    }

    // All registrants: both hold it; a nexus that unregisters loses access, and the last one
    // releases it.
    out(&fixture, 0, 0, (0, 0xa)).ends(0);
    assert_eq!(out_remote(&mut raw, 0, 0, (0, 0xb)), 0);
    out(&fixture, 1, 8, (0xa, 0)).ends(0);
    assert_eq!(status(&mut raw, &WRITE_CDB, 0, &block), 0);
    out(&fixture, 0, 0, (0xa, 0)).ends(0);
    stopped(&fixture, WRITE, &block);
    stopped(&fixture, READ, &[]);
    let output = fixture.json(&["reservations"]);
    assert_eq!(output["units"][0]["reservation"]["registrants"][0]["connected"], true, "{output}");
    assert_eq!(out_remote(&mut raw, 0, 0, (0xb, 0)), 0);
    good(&fixture, WRITE, &block);

    // The disk in the graph is the same nexus as its raw commands: it writes in spite of its own.
    out(&fixture, 0, 0, (0, 0xa)).ends(0);
    out(&fixture, 1, 3, (0xa, 0)).ends(0);
    fixture.ashlar(&["mirror", "label", "m", "here"]).ends(0);
    fixture.ashlar(&["mirror", "destroy", "m"]);
    assert_eq!(status(&mut raw, &READ_CDB, 512, &[]), CONFLICT);
    out(&fixture, 3, 0, (0xa, 0)).ends(0);
    fixture.assert_alive();
    fixture.stop();
}

#[test]
fn masks_attentions_and_sizes_reach_the_local_nexus() {
    let mine = |luns: &str| group("here", LOCAL, luns) + &group("all", "iqn.*", "7 = \"d0\"");
    let mut fixture = build_fixture("local-masks", &mine("0 = \"d0\""));
    let list = |fixture: &Fixture| fixture.ok(&["cam", "devlist"]);
    assert!(list(&fixture).contains("target 0 lun 0"), "{}", list(&fixture));
    let mut raw = Client::session(fixture.portal(), REMOTE, IQN).unwrap();
    raw.lun = 7;
    raw.must(&[0; 6], 0);

    // The same blocks by both ways.
    assert_eq!(status(&mut raw, &WRITE_CDB, 0, &[0x5a; 512]), 0);
    assert_eq!(reads(&fixture, READ, "512"), "5a".repeat(512));
    good(&fixture, WRITE, &[0xa5; 512]);
    assert_eq!(raw.must(&READ_CDB, 512), [0xa5; 512]);

    // The other nexus changes a mode page, then resets the unit: each is reported once.
    let mut page = raw.must(&[0x1A, 0x08, 0x08, 0, 24, 0], 24);
    (page[0], page[2]) = (0, 0);
    page[4] &= 0x3f;
    // WCE
    page[6] ^= 4;
    assert_eq!(status(&mut raw, &[0x15, 0x10, 0, 0, 24, 0], 0, &page), 0);
    local(&fixture, "0 0 0 0 0 0", &[]).complains(&["MODE PARAMETERS CHANGED"]);
    good(&fixture, "0 0 0 0 0 0", &[]);

    // LUNs are added, exchanged and removed while the bus is in use.
    let apply = |fixture: &Fixture, groups: &str| {
        configure(fixture, &["d0", "d1", "d2"], groups);
        // A number is given to another disk for this machine.
        fixture.ashlar(&["apply", "--yes-destroy", &format!("{IQN}/here")]).ends(0);
    };
    apply(&fixture, &mine("0 = \"d0\", 3 = \"d1\""));
    assert!(list(&fixture).contains("target 0 lun 3"), "{}", list(&fixture));
    apply(&fixture, &mine("0 = { provider = \"d0\", mode = \"ro\" }"));
    assert!(!list(&fixture).contains("lun 3"), "{}", list(&fixture));
    fixture.until("the mask says read-only", SOON, || {
        local(&fixture, WRITE, &[1; 512]).err.contains("WRITE PROTECTED")
    });
    assert_eq!(raw.must(&READ_CDB, 512), [0xa5; 512]);
    // Another disk under the same number, and nothing at all.
    apply(&fixture, &mine("0 = \"d2\""));
    // It is not taken in under the name of the first before that is requested.
    fixture.until("the exchange is told", SOON, || {
        let output = fixture.ashlar(&["status"]).out;
        output.contains("a different disk answers") && output.contains("ashlar cam rescan 0")
    });
    assert_ne!(local(&fixture, READ, &[]).code, 0, "requests for the first fail");
    fixture.ok(&["cam", "rescan", "0"]);
    fixture.until("another disk has the number", SOON, || {
        local(&fixture, READ, &[]).code == 0
            && fixture.ok(&["cam", "devlist"]).contains("lun 0")
            && reads(&fixture, READ, "512") == "00".repeat(512)
    });
    apply(&fixture, &group("all", "iqn.*", "7 = \"d0\""));
    fixture.until("nothing is granted", SOON, || !list(&fixture).contains("lun 0"));
    apply(&fixture, &mine("0 = \"d0\""));
    fixture.until("it is granted again", SOON, || list(&fixture).contains("lun 0"));
    assert_eq!(reads(&fixture, READ, "512"), "a5".repeat(512));
    fixture.assert_alive();
    fixture.stop();
}

/// Another target, which exports providers of the bus.
fn second(luns: &str) -> String {
    format!(
        "[[target]]\ndriver = \"iscsi\"\nname = \"{{iqn}}-2\"\nlisten = [\"{{portal}}\"]\n\
         [[access]]\ntarget = \"{{iqn}}-2\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
         luns = {{ {luns} }}\n"
    )
}

#[test]
fn a_mirror_over_a_local_disk_survives_a_restart_and_loops_are_refused() {
    let first = group("all", "*", "0 = \"d0\"");
    let mut fixture = build_fixture("local-mirror", &first);
    fixture.ok(&["mirror", "label", "--hardcode", "m", "here", "d1"]);
    configure(&fixture, &["d0", "d1", "d2"], &(first.clone() + &second("0 = \"mirror/m\"")));
    fixture.ashlar(&["apply"]).ends(0);
    let deep = format!("{IQN}-2");
    let write = |fixture: &Fixture, fill: u8| {
        let mut raw = Client::session(fixture.portal(), REMOTE, &deep).unwrap();
        raw.must(&[0; 6], 0);
        for block in 0..64u8 {
            let cdb = [0x2A, 0, 0, 0, 0, block, 0, 0, 1, 0];
            let ended = raw.scsi(&cdb, 0, &[fill ^ block; 512]).unwrap();
            assert_eq!(ended.status, 0, "block {block}: {:02x?}\n{}", ended.sense, fixture.log());
        }
        raw.must(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0);
    };
    let is = |fixture: &Fixture, fill: u8| {
        let mut raw = Client::session(fixture.portal(), REMOTE, &deep).unwrap();
        raw.must(&[0; 6], 0);
        // The data is at the same place on the disk below the bus.
        let mut below = remote(fixture);
        for block in 0..64u8 {
            let cdb = [0x28, 0, 0, 0, 0, block, 0, 0, 1, 0];
            assert_eq!(raw.must(&cdb, 512), [fill ^ block; 512]);
            assert_eq!(below.must(&cdb, 512), [fill ^ block; 512]);
        }
    };
    write(&fixture, 0x11);
    is(&fixture, 0x11);

    // A provider above the bus is no LUN of the target that the bus shows.
    for luns in ["0 = \"d0\", 1 = \"here\"", "0 = \"d0\", 1 = \"mirror/m\""] {
        let loops = group("all", "*", luns) + &second("0 = \"mirror/m\"");
        configure(&fixture, &["d0", "d1", "d2"], &loops);
        fixture.ashlar(&["apply"]).complains(&["(cycle)", "another target"]);
    }
    configure(&fixture, &["d0", "d1", "d2"], &(first.clone() + &second("0 = \"mirror/m\"")));
    fixture.ashlar(&["apply"]).ends(0);
    is(&fixture, 0x11);

    for fill in [0x22, 0x33] {
        fixture.stop();
        fixture.start();
        // It was in use when the daemon ended: the blocks written last are compared again.
        fixture.until("the mirror is whole", SOON, || {
            let output = fixture.ok(&["mirror", "status"]);
            output.contains("COMPLETE") && output.contains("here (ACTIVE)")
        });
        write(&fixture, fill);
        is(&fixture, fill);
    }
    // A daemon that dies at once leaves nothing that hinders the next one.
    fixture.kill();
    fixture.start();
    is(&fixture, 0x33);
    fixture.assert_alive();
    fixture.stop();
}

#[test]
fn a_bus_without_its_target_waits_for_it() {
    let mut fixture = Fixture::alone("local-early");
    fixture.image("d0.img", DISK_BYTES);
    fixture.write("ashlar.toml", &(file_disk("d0", "d0.img") + BUS));
    fixture.start();
    assert!(!fixture.ok(&["cam", "devlist"]).contains("lun"));
    configure(&fixture, &["d0"], &group("all", "*", "0 = \"d0\""));
    fixture.ashlar(&["apply"]).ends(0);
    fixture.ashlar(&["cam", "devlist"]).ends(0).prints(&[",here)"]);
    let again = ["cam", "attach", "loop1", "kind=local", "initiator=local:loop0"];
    let target = format!("target={IQN}");
    fixture.ashlar(&[&again[..], &[&target]].concat()).complains(&["bus loop0 is local:loop0"]);
    // The target is removed under the bus, and returns.
    fixture.write("ashlar.toml", &(file_disk("d0", "d0.img") + BUS));
    fixture.ashlar(&["apply"]).ends(0);
    fixture.until("the disk has gone", SOON, || !fixture.ok(&["cam", "devlist"]).contains("lun 0"));
    configure(&fixture, &["d0"], &group("all", "*", "0 = \"d0\""));
    fixture.ashlar(&["apply"]).ends(0);
    fixture.until("it is back", SOON, || fixture.ok(&["cam", "devlist"]).contains(",here)"));
    fixture.assert_alive();
    fixture.stop();
}

/// Patterns of both hosts, as [`group`] takes them.
const BOTH: &str = "iqn.2024-01.test:*\", \"local:loop0";

/// The target of the bus with these groups, on a disk of this name, and the disk of the bus behind
/// another target.
fn edited(fixture: &Fixture, disk: &str, groups: &str) {
    let disks = file_disk(disk, "d0.img") + &file_disk("d1", "d1.img");
    let state = "[daemon]\nstate = \"units\"\n";
    let second = second("0 = \"here\"");
    fixture.write("ashlar.toml", &format!("{state}{disks}{BUS}{TARGET}{groups}{second}"));
}

/// No command of the disk of the bus fails, and what the local nexus has registered and reserved
/// stays.
#[test]
fn edits_cost_a_local_nexus_no_command_and_no_reservation() {
    let luns = "0 = \"d0\"";
    let plain = group("all", BOTH, luns);
    let mut fixture = Fixture::alone("local-edits");
    ["d0", "d1"].iter().for_each(|d| drop(fixture.image(&format!("{d}.img"), DISK_BYTES)));
    edited(&fixture, "d0", &plain);
    fixture.start_whole();
    fixture.until("the disk is there", SOON, || local(&fixture, "0 0 0 0 0 0", &[]).code == 0);
    out(&fixture, 0, 0, (0, 0xa)).ends(0);
    out(&fixture, 1, 1, (0xa, 0)).ends(0);
    let mut raw = remote(&fixture);
    let front = rig::Target { iqn: format!("{IQN}-2"), ..fixture.target(0) };
    let load = Load::start(&front.url(), DISK_BYTES / 2);
    let limit = "[[geom]]\nclass = \"limit\"\nname = \"l\"\nprovider = \"d1\"\n";
    for (what, disk, groups) in [
        ("a group's name", "d0", group("most", BOTH, luns)),
        ("a pattern", "d0", group("all", "*", luns)),
        (
            "a group of its own",
            "d0",
            group("mine", LOCAL, luns) + &group("all", "iqn.2024-01.test:*", luns),
        ),
        ("a LUN in full", "d0", group("all", BOTH, "0 = { provider = \"d0\", mode = \"rw\" }")),
        ("thresholds", "d0", format!("{plain}[[unit]]\nprovider = \"d0\"\nthresholds = [50]\n")),
        ("a disk's name", "data", group("all", BOTH, "0 = \"data\"")),
        ("a layer on another disk", "d0", format!("{plain}{limit}")),
    ] {
        for (way, disk, groups) in [("there", disk, &groups), ("back", "d0", &plain)] {
            edited(&fixture, disk, groups);
            fixture.ok(&["apply"]);
            load.wait_for_rounds();
            let keys = reads(&fixture, "5e 0 0 0 0 0 0 1 0 0", "256");
            assert!(keys.contains("00000008000000000000000a"), "{what}, {way}: {keys}");
            assert_eq!(status(&mut raw, &WRITE_CDB, 0, &[1; 512]), CONFLICT, "{what}, {way}");
            assert_eq!(status(&mut raw, &READ_CDB, 512, &[]), 0, "{what}, {way}");
        }
    }
    println!("{} rounds meanwhile", load.finish());
    fixture.assert_alive();
    fixture.stop();
}
