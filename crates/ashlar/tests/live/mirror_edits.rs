//! A declared mirror whose section changes in ashlar.toml, by `apply` while a host writes and
//! verifies on it. No command of the host fails and it gets no unit attention. `plan`, `apply`,
//! `doctor` and a start refuse a wrong edit with the same words.

use std::time::Duration;

use crate::edits::Host;
use crate::fixture::{CommandOutput, Fixture, array, file_disk, text};

const BYTES: u64 = 8 << 20;
const LIMIT: Duration = Duration::from_secs(60);
/// Of a member: the rest is a sector with its record.
const HELD: usize = BYTES as usize - 512;

/// A configuration with these disks, and a mirror of these members and settings on LUN 0.
fn section(fixture: &Fixture, disks: &[u32], members: &[u32], settings: &str) {
    let name = |n: &u32| format!("\"d{n}\"");
    let disks: String =
        disks.iter().map(|n| file_disk(&format!("d{n}"), &format!("d{n}.img"))).collect();
    let members: Vec<String> = members.iter().map(name).collect();
    let mirror = format!(
        "[[geom]]\nclass = \"mirror\"\nname = \"m\"\nmembers = [{}]\n{settings}\n",
        members.join(", ")
    );
    fixture
        .configure(&format!("[daemon]\nstate = \"units\"\n{disks}\n{mirror}"), "0 = \"mirror/m\"");
}

fn fact(fixture: &Fixture, key: &str) -> String {
    let state = fixture.state();
    let geom = array(&state["geoms"]).iter().find(|g| g["class"] == "mirror");
    geom.map(|geom| text(&geom["config"][key])).unwrap_or_default()
}

/// The members, sorted, when all of them have everything.
fn complete(fixture: &Fixture) -> Option<Vec<String>> {
    let state = fixture.state();
    let geom = array(&state["geoms"]).iter().find(|g| g["class"] == "mirror")?;
    let mut on: Vec<String> =
        array(&geom["consumers"]).iter().map(|c| text(&c["provider"])).collect();
    on.sort();
    (text(&geom["config"]["State"]) == "COMPLETE").then_some(on)
}

fn build_fixture(name: &str) -> Fixture {
    let fixture = Fixture::new(name);
    (0..4).for_each(|n| drop(fixture.image(&format!("d{n}.img"), BYTES)));
    section(&fixture, &[0, 1], &[0, 1], "");
    fixture
}

/// `plan` lists the changes, `apply` makes them, and no change is left.
#[track_caller]
fn applied(fixture: &Fixture, host: &Host, what: &str) {
    host.wait_for_rounds(fixture, what);
    fixture.ashlar(&["plan"]).ends(6).prints(&["change geom m (mirror)"]);
    fixture.ashlar(&["doctor", "config"]).ends(0);
    fixture.ok(&["apply"]);
    fixture.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    host.wait_for_rounds(fixture, what);
}

#[track_caller]
fn wait_for_members(fixture: &Fixture, host: &Host, what: &str, members: &[&str]) {
    fixture.until(what, LIMIT, || complete(fixture).is_some_and(|now| now == members));
    host.wait_for_rounds(fixture, what);
}

#[test]
fn mirror_edits_cause_no_error_at_a_host() {
    let mut fixture = build_fixture("mirror-edits");
    fixture.start_whole();
    let host = Host::start(&fixture, 0, 1);
    section(&fixture, &[0, 1, 2], &[0, 1, 2], "");
    applied(&fixture, &host, "one is added");
    wait_for_members(&fixture, &host, "one is added", &["d0", "d1", "d2"]);
    section(&fixture, &[0, 1, 2], &[0, 1, 2], "balance = \"prefer\"\nno_failsync = true");
    applied(&fixture, &host, "settings");
    assert_eq!(
        (fact(&fixture, "Balance"), fact(&fixture, "Flags")),
        ("prefer".into(), "NOFAILSYNC".into())
    );
    section(&fixture, &[0, 2], &[0, 2], "balance = \"prefer\"");
    applied(&fixture, &host, "one is removed with its disk");
    wait_for_members(&fixture, &host, "one is removed with its disk", &["d0", "d2"]);
    assert_eq!(fact(&fixture, "Flags"), "NONE");
    section(&fixture, &[2, 3], &[2, 3], "");
    applied(&fixture, &host, "one is replaced");
    wait_for_members(&fixture, &host, "one is replaced", &["d2", "d3"]);
    assert_eq!(fact(&fixture, "Balance"), "load");
    host.stop();
    fixture.stop();
    // A disk is dead at a start: the mirror is degraded, and another disk takes its place.
    std::fs::remove_file(fixture.path("d3.img")).unwrap();
    fixture.start_whole();
    assert_eq!(fact(&fixture, "State"), "DEGRADED");
    let host = Host::start(&fixture, 0, 1);
    section(&fixture, &[2, 3], &[2, 3], "slice = 8192");
    fixture.ok(&["apply"]);
    host.wait_for_rounds(&fixture, "settings while one is away");
    assert_eq!(fact(&fixture, "Slice"), "8192");
    assert_eq!(fact(&fixture, "State"), "DEGRADED");
    fixture.image("d1.img", BYTES);
    section(&fixture, &[1, 2], &[2, 1], "");
    applied(&fixture, &host, "the one that is away is replaced");
    wait_for_members(&fixture, &host, "the one that is away is replaced", &["d1", "d2"]);
    host.stop();
    fixture.stop();
    let held = |name: &str| std::fs::read(fixture.path(name)).unwrap()[..HELD].to_vec();
    assert!(held("d1.img") == held("d2.img"), "the members differ");
    // A start with the same file has the same mirror, with nothing to do.
    fixture.start_whole();
    assert_eq!(fact(&fixture, "Slice"), "4096");
    fixture.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    fixture.stop();
}

/// The refusal: words that every verb has.
const REFUSED: &str = "no complete member would be left in m: keep one of d0, d1 until the new \
                       ones are rebuilt (`ashlar mirror list m` shows how far they are)";

#[track_caller]
fn refused(fixture: &Fixture) {
    let words = format!("change geom m (mirror): m: {REFUSED}");
    fixture.ashlar(&["plan"]).ends(1).prints(&[&words]);
    fixture.ashlar(&["apply"]).ends(1).complains(&[&words]);
    fixture.ashlar(&["apply", "--dry-run"]).ends(1).complains(&[&words]);
    fixture.ashlar(&["doctor", "config"]).ends(3).prints(&[&words]);
}

#[test]
fn an_edit_that_leaves_no_complete_member_is_refused_alike_by_every_verb() {
    let mut fixture = build_fixture("mirror-refused");
    fixture.start_whole();
    let host = Host::start(&fixture, 0, 1);
    section(&fixture, &[0, 1, 2], &[2], "");
    refused(&fixture);
    host.wait_for_rounds(&fixture, "refused");
    host.stop();
    fixture.stop();
    // The file is as it was when the daemon starts: the mirror is served as it is.
    fixture.start_whole();
    let status: CommandOutput = fixture.ashlar(&["status"]).ends(3);
    assert!(status.out.contains(REFUSED), "{status}");
    refused(&fixture);
    let host = Host::start(&fixture, 0, 1);
    host.wait_for_rounds(&fixture, "it is served");
    // An edit that keeps a member is accepted again.
    section(&fixture, &[0, 1, 2], &[0, 1], "");
    fixture.ok(&["apply"]);
    fixture.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    fixture.ashlar(&["status"]).ends(0);
    host.wait_for_rounds(&fixture, "mended");
    host.stop();
    fixture.stop();
    // A strict start ends with the same words.
    section(&fixture, &[0, 1, 2], &[2], "");
    let strict = fixture.ashlar(&["serve", "--strict"]).ends(1);
    assert!(strict.err.contains(REFUSED), "{strict}");
    // The old disks are not named at all: no empty mirror takes their place.
    section(&fixture, &[2], &[2], "");
    fixture.start();
    let status = fixture.ashlar(&["status"]).ends(3);
    assert!(status.out.contains("none of them is named: m would be empty"), "{status}");
    assert!(fixture.provider("mirror/m").is_none(), "an empty one is served");
    fixture.ashlar(&["apply"]).ends(4).complains(&["--yes-destroy m"]);
    fixture.ok(&["apply", "--yes-destroy", "m"]);
    fixture.until("a new one", LIMIT, || fixture.provider("mirror/m").is_some());
    fixture.stop();
}
