//! A declared mirror whose section changes in ashlar.toml, by `apply` while a host writes and
//! verifies on it: no command of the host fails and it gets no unit attention. `plan`, `apply`,
//! `doctor` and a start refuse a wrong edit with the same words.

use std::time::Duration;

use crate::edits::Host;
use crate::fixture::{CommandOutput, Fixture, array, file_disk, text};

const BYTES: u64 = 8 << 20;
const LIMIT: Duration = Duration::from_secs(60);
/// Of a member: the rest is a sector with its record.
const HELD: usize = BYTES as usize - 512;

/// A configuration with these disks, and a mirror of these members and settings on LUN 0.
fn section(house: &Fixture, disks: &[u32], members: &[u32], settings: &str) {
    let name = |n: &u32| format!("\"d{n}\"");
    let disks: String =
        disks.iter().map(|n| file_disk(&format!("d{n}"), &format!("d{n}.img"))).collect();
    let members: Vec<String> = members.iter().map(name).collect();
    let mirror = format!(
        "[[geom]]\nclass = \"mirror\"\nname = \"m\"\nmembers = [{}]\n{settings}\n",
        members.join(", ")
    );
    house.configure(&format!("[daemon]\nstate = \"units\"\n{disks}\n{mirror}"), "0 = \"mirror/m\"");
}

/// A fact of the mirror.
fn fact(house: &Fixture, key: &str) -> String {
    let state = house.state();
    let geom = array(&state["geoms"]).iter().find(|g| g["class"] == "mirror");
    geom.map(|geom| text(&geom["config"][key])).unwrap_or_default()
}

/// The members, sorted, when all of them have everything.
fn complete(house: &Fixture) -> Option<Vec<String>> {
    let state = house.state();
    let geom = array(&state["geoms"]).iter().find(|g| g["class"] == "mirror")?;
    let mut on: Vec<String> =
        array(&geom["consumers"]).iter().map(|c| text(&c["provider"])).collect();
    on.sort();
    (text(&geom["config"]["State"]) == "COMPLETE").then_some(on)
}

fn fixture(name: &str) -> Fixture {
    let house = Fixture::new(name);
    (0..4).for_each(|n| drop(house.image(&format!("d{n}.img"), BYTES)));
    section(&house, &[0, 1], &[0, 1], "");
    house
}

/// `plan` lists the changes, `apply` makes them, and no change is left.
#[track_caller]
fn applied(house: &Fixture, host: &Host, what: &str) {
    host.wait_for_rounds(house, what);
    house.ashlar(&["plan"]).ends(6).prints(&["change geom m (mirror)"]);
    house.ashlar(&["doctor", "config"]).ends(0);
    house.ok(&["apply"]);
    house.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    host.wait_for_rounds(house, what);
}

#[track_caller]
fn whole(house: &Fixture, host: &Host, what: &str, members: &[&str]) {
    house.until(what, LIMIT, || complete(house).is_some_and(|now| now == members));
    host.wait_for_rounds(house, what);
}

#[test]
fn mirror_edits_cause_no_error_at_a_host() {
    let mut house = fixture("mirror-edits");
    house.start_whole();
    let host = Host::start(&house, 0, 1);
    section(&house, &[0, 1, 2], &[0, 1, 2], "");
    applied(&house, &host, "one is added");
    whole(&house, &host, "one is added", &["d0", "d1", "d2"]);
    section(&house, &[0, 1, 2], &[0, 1, 2], "balance = \"prefer\"\nno_failsync = true");
    applied(&house, &host, "settings");
    assert_eq!(
        (fact(&house, "Balance"), fact(&house, "Flags")),
        ("prefer".into(), "NOFAILSYNC".into())
    );
    section(&house, &[0, 2], &[0, 2], "balance = \"prefer\"");
    applied(&house, &host, "one is removed with its disk");
    whole(&house, &host, "one is removed with its disk", &["d0", "d2"]);
    assert_eq!(fact(&house, "Flags"), "NONE");
    section(&house, &[2, 3], &[2, 3], "");
    applied(&house, &host, "one is replaced");
    whole(&house, &host, "one is replaced", &["d2", "d3"]);
    assert_eq!(fact(&house, "Balance"), "load");
    host.stop();
    house.stop();
    // A disk is dead at a start: the mirror is degraded, and another disk takes its place.
    std::fs::remove_file(house.path("d3.img")).unwrap();
    house.start_whole();
    assert_eq!(fact(&house, "State"), "DEGRADED");
    let host = Host::start(&house, 0, 1);
    section(&house, &[2, 3], &[2, 3], "slice = 8192");
    house.ok(&["apply"]);
    host.wait_for_rounds(&house, "settings while one is away");
    assert_eq!(fact(&house, "Slice"), "8192");
    assert_eq!(fact(&house, "State"), "DEGRADED");
    house.image("d1.img", BYTES);
    section(&house, &[1, 2], &[2, 1], "");
    applied(&house, &host, "the one that is away is replaced");
    whole(&house, &host, "the one that is away is replaced", &["d1", "d2"]);
    host.stop();
    house.stop();
    let held = |name: &str| std::fs::read(house.path(name)).unwrap()[..HELD].to_vec();
    assert!(held("d1.img") == held("d2.img"), "the members differ");
    // A start with the same file has the same mirror, with nothing to do.
    house.start_whole();
    assert_eq!(fact(&house, "Slice"), "4096");
    house.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    house.stop();
}

/// The refusal: words that every verb has.
const REFUSED: &str = "no complete member would be left in m: keep one of d0, d1 until the new \
                       ones are rebuilt (`ashlar mirror list m` shows how far they are)";

#[track_caller]
fn refused(house: &Fixture) {
    let words = format!("change geom m (mirror): m: {REFUSED}");
    house.ashlar(&["plan"]).ends(1).prints(&[&words]);
    house.ashlar(&["apply"]).ends(1).complains(&[&words]);
    house.ashlar(&["apply", "--dry-run"]).ends(1).complains(&[&words]);
    house.ashlar(&["doctor", "config"]).ends(3).prints(&[&words]);
}

#[test]
fn an_edit_that_leaves_no_complete_member_is_refused_alike_by_every_verb() {
    let mut house = fixture("mirror-refused");
    house.start_whole();
    let host = Host::start(&house, 0, 1);
    section(&house, &[0, 1, 2], &[2], "");
    refused(&house);
    host.wait_for_rounds(&house, "refused");
    host.stop();
    house.stop();
    // The file is as it was when the daemon starts: the mirror is served as it is.
    house.start_whole();
    let status: CommandOutput = house.ashlar(&["status"]).ends(3);
    assert!(status.out.contains(REFUSED), "{status}");
    refused(&house);
    let host = Host::start(&house, 0, 1);
    host.wait_for_rounds(&house, "it is served");
    // An edit that keeps a member is accepted again.
    section(&house, &[0, 1, 2], &[0, 1], "");
    house.ok(&["apply"]);
    house.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    house.ashlar(&["status"]).ends(0);
    host.wait_for_rounds(&house, "mended");
    host.stop();
    house.stop();
    // A strict start ends with the same words.
    section(&house, &[0, 1, 2], &[2], "");
    let strict = house.ashlar(&["serve", "--strict"]).ends(1);
    assert!(strict.err.contains(REFUSED), "{strict}");
    // The old disks are not named at all: no empty mirror takes their place.
    section(&house, &[2], &[2], "");
    house.start();
    let status = house.ashlar(&["status"]).ends(3);
    assert!(status.out.contains("none of them is named: m would be empty"), "{status}");
    assert!(house.provider("mirror/m").is_none(), "an empty one is served");
    house.ashlar(&["apply"]).ends(4).complains(&["--yes-destroy m"]);
    house.ok(&["apply", "--yes-destroy", "m"]);
    house.until("a new one", LIMIT, || house.provider("mirror/m").is_some());
    house.stop();
}
