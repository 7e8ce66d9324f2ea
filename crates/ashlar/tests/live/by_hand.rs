//! Changes by hand that a restart would take back, and sections that were edited while the daemon
//! was off: `status` and `plan` print the difference and the command that helps.

use std::time::Duration;

use crate::edits::Host;
use crate::fixture::{Fixture, array, file_disk, text};

const BYTES: u64 = 8 << 20;
const LIMIT: Duration = Duration::from_secs(60);

/// A configuration with these disks and layers, and LUN 0 on one of them.
fn section(house: &Fixture, disks: &[&str], geoms: &str, lun: &str) {
    let disks: String = disks.iter().map(|name| file_disk(name, &format!("{name}.img"))).collect();
    house.configure(&format!("[daemon]\nstate = \"units\"\n{disks}\n{geoms}"), lun);
}

fn geom(class: &str, name: &str, rest: &str) -> String {
    format!("[[geom]]\nclass = \"{class}\"\nname = \"{name}\"\n{rest}\n")
}

/// A fact of a geom, as lists have it.
fn fact(house: &Fixture, name: &str, key: &str) -> String {
    let state = house.state();
    let geom = array(&state["geoms"]).iter().find(|g| g["name"] == name);
    geom.map(|geom| text(&geom["config"][key])).unwrap_or_default()
}

#[test]
fn setting_changed_at_run_time_is_reported_until_apply_resets_it() {
    let mut house = Fixture::new("by-hand");
    ["d0", "d1", "d2"].iter().for_each(|name| drop(house.image(&format!("{name}.img"), BYTES)));
    let layers = geom("sched", "s", "provider = \"d0\"\noptions = \"quantum_kb=64\"")
        + &geom("trim", "t", "provider = \"s\"")
        + &geom("concat", "c", "members = [\"d1\", \"d2\"]");
    section(&house, &["d0", "d1", "d2"], &layers, "0 = \"t\"");
    house.start_whole();
    let host = Host::start(&house, 0, 1);
    house.ok(&["sched", "configure", "s", "-a", "fair"]);
    house.ok(&["trim", "configure", "t", "--share", "20"]);
    host.wait_for_rounds(&house, "configured");
    house.ashlar(&["status"]).ends(0).prints(&[
        "changed by hand: runs with algorithm = \"fair\", no options, and from the next start with \
         algorithm = \"rr\", options = \"quantum_kb=64\"",
        "To keep that, in ashlar.toml: share = 20. To undo it: `ashlar apply`.",
    ]);
    house.ashlar(&["export"]).ends(0).prints(&["algorithm = \"fair\"", "share = 20"]);
    house.ashlar(&["plan"]).ends(6).prints(&[
        "change geom s (sched)",
        "changed by hand, set back to ashlar.toml: share 20 -> default",
    ]);
    // The file may describe the change that was made by hand: then nothing is left to do.
    let same = layers.replace("options = \"quantum_kb=64\"", "algorithm = \"fair\"");
    let same = same.replace("provider = \"s\"", "provider = \"s\"\nshare = 20");
    section(&house, &["d0", "d1", "d2"], &same, "0 = \"t\"");
    house.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    section(&house, &["d0", "d1", "d2"], &layers, "0 = \"t\"");
    house.ok(&["apply"]);
    house.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    host.wait_for_rounds(&house, "set back");
    assert_eq!(fact(&house, "s", "algorithm"), "rr");
    assert_eq!(fact(&house, "t", "share"), "5 %");
    host.stop();
    house.stop();
}

#[test]
fn appended_member_is_reported_and_no_start_omits_it() {
    let mut house = Fixture::new("appended");
    ["d0", "d1", "d2"].iter().for_each(|name| drop(house.image(&format!("{name}.img"), BYTES)));
    let with = |members: &str| geom("concat", "c", &format!("members = [{members}]"));
    section(&house, &["d0", "d1", "d2"], &with("\"d0\", \"d1\""), "0 = \"concat/c\"");
    house.start_whole();
    house.ok(&["concat", "append", "c", "d2"]);
    let told = "In ashlar.toml: members = [\"d0\", \"d1\", \"d2\"].";
    house.ashlar(&["status"]).ends(0).prints(&[told]);
    house.ashlar(&["plan"]).ends(0).prints(&[told, "no changes"]);
    house.stop();
    house.start();
    house
        .ashlar(&["status"])
        .ends(3)
        .prints(&["layout changes from members of", "create geom c (concat)"]);
    assert!(house.provider("concat/c").is_none(), "the smaller one is served");
    section(&house, &["d0", "d1", "d2"], &with("\"d0\", \"d1\", \"d2\""), "0 = \"concat/c\"");
    house.ok(&["apply"]);
    house.ashlar(&["status"]).ends(0);
    house.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    house.stop();
}

fn members(house: &Fixture) -> Vec<String> {
    let state = house.state();
    let geom = array(&state["geoms"]).iter().find(|g| g["class"] == "mirror");
    let consumers = geom.map(|geom| array(&geom["consumers"]).to_vec()).unwrap_or_default();
    let mut on: Vec<String> = consumers.iter().map(|c| text(&c["provider"])).collect();
    on.sort();
    on
}

#[test]
fn members_edited_while_stopped_wait_for_apply_with_consent() {
    let mut house = Fixture::new("edited-off");
    let all = ["d0", "d1", "d2"];
    all.iter().for_each(|name| drop(house.image(&format!("{name}.img"), BYTES)));
    let with = |members: &str| geom("mirror", "m", &format!("members = [{members}]"));
    section(&house, &all, &with("\"d0\", \"d1\""), "0 = \"mirror/m\"");
    house.start_whole();
    let complete = |house: &Fixture| fact(house, "m", "State") == "COMPLETE";
    house.until("complete", LIMIT, || complete(&house));
    house.stop();
    // The new member holds an ext4 file system.
    let made = std::process::Command::new("mkfs.ext4").arg("-q").arg(house.path("d2.img")).status();
    assert!(made.expect("mkfs.ext4").success());
    let held = std::fs::read(house.path("d2.img")).expect("d2");
    section(&house, &all, &with("\"d0\", \"d2\""), "0 = \"mirror/m\"");
    for start in ["first", "second"] {
        house.start();
        house.until("served", LIMIT, || house.provider("mirror/m").is_some());
        house.ashlar(&["status"]).ends(3).prints(&[
            "section edited while the daemon was stopped: members d0, d1 -> d0, d2",
            "`ashlar apply` carries it out",
        ]);
        assert_eq!(members(&house), ["d0", "d1"], "{start}");
        if start == "first" {
            house.stop();
        }
    }
    assert!(std::fs::read(house.path("d2.img")).expect("d2") == held, "d2 was written");
    house.ashlar(&["plan"]).ends(6).prints(&[
        "change geom m (mirror)",
        "destroys",
        "one copy until the rebuild ends (ashlar mirror status m)",
    ]);
    house.ashlar(&["apply"]).ends(4).complains(&["--yes-destroy m"]);
    assert_eq!(members(&house), ["d0", "d1"]);
    house.ok(&["apply", "--yes-destroy", "m"]);
    house.until("rebuilt", LIMIT, || complete(&house) && members(&house) == ["d0", "d2"]);
    house.ashlar(&["status"]).ends(0);
    house.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    house.stop();
    house.start_whole();
    house.ashlar(&["status"]).ends(0);
    assert_eq!(members(&house), ["d0", "d2"]);
    house.stop();
}
