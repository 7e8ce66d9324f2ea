//! `ashlar cam` as a new user types it. An HBA is attached, its disks are listed and used like any
//! others, and it is detached when it is unused.

use std::net::TcpListener;
use std::time::Duration;

use crate::fixture::{Fixture, file_disk, text};

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

#[test]
fn disks_of_a_virtual_hba_are_used_like_any_others() {
    let mut fixture = Fixture::new("cam");
    fixture.configure("", "");
    fixture.start();
    let says = |line: &str, wanted: &[&str]| {
        fixture.ashlar(&words(line)).ends(0).prints(wanted);
    };
    says("cam attach mps0 disks=2 size=64MiB", &["scbus0: da0, da1"]);
    says("cam attach ahcich0 kind=virtual transport=sata", &["scbus1: ada0"]);
    says("cam attach mps1 disks=2 size=1MiB enclosure=21", &["scbus2: da2, da3"]);
    says(
        "cam devlist",
        &["<LSILOGIC SASX28 A.0 9>            at scbus2 target 21 lun 0 (pass5,ses0)"],
    );
    says("cam smpphylist ses0", &["PHY  Attached SAS Address", "(pass3,da2)"]);
    says("cam locate da3", &["da3: the light of element 1 of ses0 is on"]);
    says("cam enclosure ses0", &["\t\tDevice Names: pass4,da3", "- LED=locate"]);
    fixture.ashlar(&words("cam locate da0")).complains(&["there is no enclosure on its bus"]);
    says("cam detach mps1", &["mps1 is gone"]);
    says("cam attach ahcich1 transport=sata disks=2 multiplier=true size=1MiB", &["ada1, ada2"]);
    says("cam inquiry pmp0", &["pmp0: 2 fan-out ports", "pmp0: port 1: 3.0 Gb/s"]);
    says("cam reset pmp0 -p 1", &["port 1 of pmp0 was reset"]);
    fixture.ashlar(&words("cam reset pmp0 -p 2")).complains(&["out of range (2 ports"]);
    says("cam fault ada2 --pull", &["ada2: quiet    0 of 100"]);
    let gone = || !fixture.ok(&["cam", "devlist"]).contains("ada2");
    fixture.until("the port's disk to go", Duration::from_secs(20), gone);
    says("cam inquiry pmp0", &["pmp0: port 1: empty"]);
    says("cam detach ahcich1", &["ahcich1 is gone"]);
    says(
        "cam devlist -v",
        &["scbus0 on mps0 bus 0:", "at scbus0 target 1 lun 0 (pass1,da1)", "(ada0,pass2)"],
    );
    says("cam inquiry da0", &["Fixed Direct Access SPC-4", "Serial Number mps0-0"]);
    says("cam identify ada0", &["serial number         ahcich0-0"]);
    says("cam readcap da0", &["Last Block: 131071, Block Length: 512 bytes"]);
    says("cam reportluns da0", &["1 LUN found"]);
    says("cam tags da0 -N 8", &["(pass0:mps0:0:0:0): device openings: 8"]);
    says("cam modepage da0 -m 8", &["WCE:  1 "]);
    says("cam modepage da0 -l", &["0x08,0x00\tCaching Page"]);
    says("cam modepage da0 WCE=0 -m 8 -S", &["WCE:  0 "]);
    says("cam defects da0 -G", &["Got 0 defects."]);
    fixture.ashlar(&["cam", "cmd", "da1", "-c", "12 0 0 0 24 0", "-i", "36"]).ends(0).prints(&[
        "00000000",
        "41 53 48 4c",
        "ASHLAR",
    ]);
    let typed = ["cam", "cmd", "da1", "-c", "12 0 0 0 v:i1 0", "36", "-i", "36", "s8 z8 z16"];
    fixture.ashlar(&typed).ends(0).prints(&["ASHLAR virtual disk\n"]);
    fixture
        .ashlar(&["cam", "cmd", "da1", "-c", "fe 0 0 0 0 0"])
        .complains(&["cam cmd: da1: INVALID COMMAND"]);
    fixture.ashlar(&words("cam modepage ada0 -m 8")).complains(&["cam identify ada0"]);
    says("cam tags da0 -v", &["(pass0:mps0:0:0:0): maxtags       8"]);
    says("cam rescan 0", &["Re-scan of bus 0 was successful"]);
    let list = fixture.ashlar(&words("--json cam devlist")).ends(0).json();
    assert_eq!(list["answer"]["buses"][0]["devices"][1]["periph"], "da1");
    says("mirror label m da0 da1", &[]);
    says("mirror status", &["mirror/m", "da0", "da1"]);
    says("cam reset da0", &["Reset of 0:0:0 was successful"]);
    fixture.ashlar(&words("cam detach mps0")).complains(&["is open"]);
    fixture.ashlar(&words("cam inquiry da7")).complains(&["devlist"]);
    says("cam detach ahcich0", &["ahcich0 is gone"]);
}

/// The command that hangs waits; another command to the same daemon ends its wait.
#[test]
fn other_commands_are_served_while_one_hangs() {
    let mut fixture = Fixture::new("cam-hangs");
    fixture.configure("", "");
    fixture.start();
    let says = |line: &str, wanted: &[&str]| {
        fixture.ashlar(&words(line)).ends(0).prints(wanted);
    };
    says("cam attach mps0 disks=2 size=1MiB", &["da0, da1"]);
    says("cam fault da0 --hangs 100", &["da0: hangs  100 of 100"]);
    let hangs = ["cam", "cmd", "da0", "-c", "12 0 0 0 24 0", "-i", "36", "--timeout", "3600000"];
    let mut waits = fixture.command(&hangs).spawn().unwrap();
    let active = || fixture.json(&words("cam tags da0"))["answer"]["active"] == 1;
    fixture.until("the command to hang", Duration::from_secs(30), active);
    fixture.ashlar(&["cam", "cmd", "da1", "-c", "0 0 0 0 0 0"]).ends(0);
    says("cam devlist", &["da0"]);
    assert!(waits.try_wait().unwrap().is_none(), "it waits for an hour");
    says("cam fault da0 --clear", &["da0: hangs    0 of 100"]);
    says("cam reset da0", &["Reset of 0:0:0 was successful"]);
    // A raw command is not sent again: it ends with the reset.
    let ended = waits.wait_with_output().unwrap();
    assert!(!ended.status.success(), "{ended:?}");
}

/// As above, for a portal that accepts connections and sends nothing.
#[test]
fn other_commands_are_served_while_a_portal_is_silent() {
    let mut fixture = Fixture::new("cam-silent");
    fixture.configure("", "");
    fixture.start();
    let portal = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = portal.local_addr().unwrap().to_string();
    let mut waits = fixture.command(&["cam", "discover", &at]).spawn().unwrap();
    let (connection, _) = portal.accept().unwrap();
    fixture.ashlar(&words("cam devlist")).ends(0);
    assert!(waits.try_wait().unwrap().is_none(), "it waits for the portal");
    drop(connection);
    assert!(!waits.wait().unwrap().success());
}

#[test]
fn bus_parameters_of_commands_are_checked_like_configured_ones() {
    let mut fixture = Fixture::new("cam-words");
    fixture.configure("", "");
    fixture.start();
    let refuses = |line: &str, wanted: &[&str]| {
        fixture.ashlar(&words(line)).complains(wanted);
    };
    refuses("cam attach mps0 disk=2", &["unknown key `disk`", "did you mean `disks`?"]);
    refuses("cam attach mps0 kind=virtul", &["did you mean `virtual`?"]);
    refuses("cam attach mps0 disks=65", &["65 is too much: at most 64"]);
    refuses("cam attach mps0 request_deadline_s=0", &["0 is too little: at least 1"]);
    refuses("cam attach mps0 timeout_s=601", &["601 is too much: at most 600"]);
    refuses("cam attach mps0 retries=101", &["101 is too much: at most 100"]);
    refuses("cam attach mps0 size=1000", &["whole sectors of 512 bytes"]);
    refuses("cam attach mps0 disks", &["is not KEY=VALUE"]);
    refuses("cam detach mps0", &["no bus mps0", "devlist -v"]);
}

/// Disks of a bus with a mirror of two of them, and one with a name of its own.
fn bus(disks: u32) -> String {
    format!(
        "[[bus]]\nname = \"mps0\"\nkind = \"virtual\"\ndisks = {disks}\nsize = \"64MiB\"\n\
         names = {{ journal = \"0:0\", data = \"mps0-2\" }}\n"
    )
}

#[test]
fn configured_bus_exists_after_a_restart() {
    let mut fixture = Fixture::new("cam-config");
    fixture.configure(&bus(3), "0 = \"data\"");
    fixture.start();
    let says = |fixture: &Fixture, line: &str, wanted: &[&str]| {
        fixture.ashlar(&words(line)).ends(0).prints(wanted);
    };
    // By place, by serial number, and the one without a configured name.
    let list = [
        "target 0 lun 0 (pass0,journal)",
        "target 1 lun 0 (pass1,da0)",
        "target 2 lun 0 (pass2,data)",
    ];
    says(&fixture, "cam devlist", &list);
    let state = fixture.state();
    assert_eq!(state["buses"][0]["configured"], true);
    assert_eq!(state["buses"][0]["devices"][2]["name"], "data");
    says(&fixture, "plan", &["no changes"]);

    fixture.stop();
    fixture.start();
    says(&fixture, "cam devlist", &list);

    // Losses are reported before anything is done, and a disk in use is kept.
    fixture.configure(&bus(4), "0 = \"data\"");
    fixture.ashlar(&words("plan")).prints(&["remove bus mps0", "destroys", "create bus mps0"]);
    fixture.ashlar(&words("apply")).complains(&["mps0"]);
    says(&fixture, "cam devlist", &list);
    says(&fixture, "apply --yes-destroy mps0", &[]);
    says(&fixture, "cam devlist", &["target 3 lun 0 (pass3,da1)", ",data)"]);

    // A bus that was detached by hand is created again by the next plan.
    fixture.configure(&bus(4), "");
    says(&fixture, "apply", &[]);
    says(&fixture, "cam detach mps0", &["mps0 is gone"]);
    fixture.ashlar(&words("plan")).prints(&["create bus mps0"]);
    says(&fixture, "apply", &[]);
    says(&fixture, "cam devlist", &[",journal)", ",data)"]);
    fixture.configure("", "");
    fixture.ashlar(&words("plan")).prints(&["remove bus mps0", "no longer in the configuration"]);
    says(&fixture, "apply --yes-destroy mps0", &[]);
    assert!(!fixture.ok(&["cam", "devlist", "-v"]).contains("mps0"));
}

#[test]
fn disks_of_a_bus_are_listed_and_counted_like_configured_ones() {
    let mut fixture = Fixture::new("cam-counts");
    fixture.image("d0.img", 16 << 20);
    fixture.configure(&format!("{}{}", bus(3), file_disk("d0", "d0.img")), "0 = \"data\"");
    fixture.start_whole();
    let list = fixture.ok(&["list", "disks"]);
    let named = |name: &str| list.lines().filter(|l| l.split(' ').next() == Some(name)).count();
    assert_eq!(["d0", "journal", "da0", "data"].map(named), [1; 4], "{list}");
    let row = list.lines().find(|line| line.starts_with("data ")).expect("a disk of the bus");
    assert!(row.contains("64M") && row.contains("found on mps0"), "{row}");
    let serves = text(&fixture.ashlar(&["status", "--json"]).json()["serves"]);
    assert!(serves.starts_with("4 disks, "), "{serves}");
    fixture.stop();
}

#[test]
fn missing_bus_disk_is_reported_and_the_rest_starts() {
    let mut fixture = Fixture::new("cam-missing");
    fixture.configure(&bus(1), "0 = \"data\", 1 = \"journal\"");
    fixture.start();
    fixture.ashlar(&words("status")).prints(&["data"]);
    fixture.ashlar(&words("cam devlist")).ends(0).prints(&[",journal)"]);
}
