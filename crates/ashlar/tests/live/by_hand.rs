//! Changes by hand that a restart would take back, and sections that were edited while the daemon
//! was off. `status` and `plan` print the difference and the command that helps.

use std::time::Duration;

use crate::edits::Host;
use crate::fixture::{Fixture, array, file_disk, text};

const BYTES: u64 = 8 << 20;
const LIMIT: Duration = Duration::from_secs(60);

/// A configuration with these disks and layers, and LUN 0 on one of them.
fn section(fixture: &Fixture, disks: &[&str], geoms: &str, lun: &str) {
    let disks: String = disks.iter().map(|name| file_disk(name, &format!("{name}.img"))).collect();
    fixture.configure(&format!("[daemon]\nstate = \"units\"\n{disks}\n{geoms}"), lun);
}

fn geom(class: &str, name: &str, rest: &str) -> String {
    format!("[[geom]]\nclass = \"{class}\"\nname = \"{name}\"\n{rest}\n")
}

/// A fact of a geom, as lists have it.
fn fact(fixture: &Fixture, name: &str, key: &str) -> String {
    let state = fixture.state();
    let geom = array(&state["geoms"]).iter().find(|g| g["name"] == name);
    geom.map(|geom| text(&geom["config"][key])).unwrap_or_default()
}

#[test]
fn setting_changed_at_run_time_is_reported_until_apply_resets_it() {
    let mut fixture = Fixture::new("by-hand");
    ["d0", "d1", "d2"].iter().for_each(|name| drop(fixture.image(&format!("{name}.img"), BYTES)));
    let layers = geom("sched", "s", "provider = \"d0\"\noptions = \"quantum_kb=64\"")
        + &geom("trim", "t", "provider = \"s\"")
        + &geom("concat", "c", "members = [\"d1\", \"d2\"]");
    section(&fixture, &["d0", "d1", "d2"], &layers, "0 = \"t\"");
    fixture.start_whole();
    let host = Host::start(&fixture, 0, 1);
    fixture.ok(&["sched", "configure", "s", "-a", "fair"]);
    fixture.ok(&["trim", "configure", "t", "--share", "20"]);
    host.wait_for_rounds(&fixture, "configured");
    fixture.ashlar(&["status"]).ends(0).prints(&[
        "changed by hand: runs with algorithm = \"fair\", no options, and from the next start with \
         algorithm = \"rr\", options = \"quantum_kb=64\"",
        "To keep that, in ashlar.toml: share = 20. To undo it: `ashlar apply`.",
    ]);
    fixture.ashlar(&["export"]).ends(0).prints(&["algorithm = \"fair\"", "share = 20"]);
    fixture.ashlar(&["plan"]).ends(6).prints(&[
        "change geom s (sched)",
        "changed by hand, set back to ashlar.toml: share 20 -> default",
    ]);
    // The file may describe the change that was made by hand: then nothing is left to do.
    let same = layers.replace("options = \"quantum_kb=64\"", "algorithm = \"fair\"");
    let same = same.replace("provider = \"s\"", "provider = \"s\"\nshare = 20");
    section(&fixture, &["d0", "d1", "d2"], &same, "0 = \"t\"");
    fixture.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    section(&fixture, &["d0", "d1", "d2"], &layers, "0 = \"t\"");
    fixture.ok(&["apply"]);
    fixture.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    host.wait_for_rounds(&fixture, "set back");
    assert_eq!(fact(&fixture, "s", "algorithm"), "rr");
    assert_eq!(fact(&fixture, "t", "share"), "5 %");
    host.stop();
    fixture.stop();
}

#[test]
fn appended_member_is_reported_and_no_start_omits_it() {
    let mut fixture = Fixture::new("appended");
    ["d0", "d1", "d2"].iter().for_each(|name| drop(fixture.image(&format!("{name}.img"), BYTES)));
    let with = |members: &str| geom("concat", "c", &format!("members = [{members}]"));
    section(&fixture, &["d0", "d1", "d2"], &with("\"d0\", \"d1\""), "0 = \"concat/c\"");
    fixture.start_whole();
    fixture.ok(&["concat", "append", "c", "d2"]);
    let expected = "In ashlar.toml: members = [\"d0\", \"d1\", \"d2\"].";
    fixture.ashlar(&["status"]).ends(0).prints(&[expected]);
    fixture.ashlar(&["plan"]).ends(0).prints(&[expected, "no changes"]);
    fixture.stop();
    fixture.start();
    fixture
        .ashlar(&["status"])
        .ends(3)
        .prints(&["layout changes from members of", "create geom c (concat)"]);
    assert!(fixture.provider("concat/c").is_none(), "the smaller one is served");
    section(&fixture, &["d0", "d1", "d2"], &with("\"d0\", \"d1\", \"d2\""), "0 = \"concat/c\"");
    fixture.ok(&["apply"]);
    fixture.ashlar(&["status"]).ends(0);
    fixture.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    fixture.stop();
}

fn members(fixture: &Fixture) -> Vec<String> {
    let state = fixture.state();
    let geom = array(&state["geoms"]).iter().find(|g| g["class"] == "mirror");
    let consumers = geom.map(|geom| array(&geom["consumers"]).to_vec()).unwrap_or_default();
    let mut on: Vec<String> = consumers.iter().map(|c| text(&c["provider"])).collect();
    on.sort();
    on
}

#[test]
fn members_edited_while_stopped_wait_for_apply_with_consent() {
    let mut fixture = Fixture::new("edited-off");
    let all = ["d0", "d1", "d2"];
    all.iter().for_each(|name| drop(fixture.image(&format!("{name}.img"), BYTES)));
    let with = |members: &str| geom("mirror", "m", &format!("members = [{members}]"));
    section(&fixture, &all, &with("\"d0\", \"d1\""), "0 = \"mirror/m\"");
    fixture.start_whole();
    let complete = |fixture: &Fixture| fact(fixture, "m", "State") == "COMPLETE";
    fixture.until("complete", LIMIT, || complete(&fixture));
    fixture.stop();
    // The new member holds an ext4 file system.
    let status =
        std::process::Command::new("mkfs.ext4").arg("-q").arg(fixture.path("d2.img")).status();
    assert!(status.expect("mkfs.ext4").success());
    let held = std::fs::read(fixture.path("d2.img")).expect("d2");
    section(&fixture, &all, &with("\"d0\", \"d2\""), "0 = \"mirror/m\"");
    for start in ["first", "second"] {
        fixture.start();
        fixture.until("served", LIMIT, || fixture.provider("mirror/m").is_some());
        fixture.ashlar(&["status"]).ends(3).prints(&[
            "section edited while the daemon was stopped: members d0, d1 -> d0, d2",
            "`ashlar apply` carries it out",
        ]);
        assert_eq!(members(&fixture), ["d0", "d1"], "{start}");
        if start == "first" {
            fixture.stop();
        }
    }
    assert!(std::fs::read(fixture.path("d2.img")).expect("d2") == held, "d2 was written");
    fixture.ashlar(&["plan"]).ends(6).prints(&[
        "change geom m (mirror)",
        "destroys",
        "one copy until the rebuild ends (ashlar mirror status m)",
    ]);
    fixture.ashlar(&["apply"]).ends(4).complains(&["--yes-destroy m"]);
    assert_eq!(members(&fixture), ["d0", "d1"]);
    fixture.ok(&["apply", "--yes-destroy", "m"]);
    fixture.until("rebuilt", LIMIT, || complete(&fixture) && members(&fixture) == ["d0", "d2"]);
    fixture.ashlar(&["status"]).ends(0);
    fixture.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    fixture.stop();
    fixture.start_whole();
    fixture.ashlar(&["status"]).ends(0);
    assert_eq!(members(&fixture), ["d0", "d2"]);
    fixture.stop();
}
