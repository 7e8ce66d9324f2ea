//! Settings and members of a mirror that change while it is used, also while a member is away.

use std::time::Duration;

use bio::Errno;
use geom::{Access, Create, Redeclare};
use serde_json::{Value, json};
use testkit::noise;

use crate::class_mirror::{MIB, complete, dump, mirror, read_all, write_all};
use crate::world::World;

/// `configure -h` and `-d`, and the output of `create -n`.
#[test]
fn hardcoded_names_can_be_stored_and_removed_without_a_rebuild() {
    let (mut world, _) = mirror(2, json!({}));
    let home = |world: &mut World, disk: &str| dump(world, disk)["hardcoded"].clone();
    assert_eq!(home(&mut world, "d1"), json!(""));
    world.verb("mirror", "configure", "m", json!({ "hardcode": true })).expect("stored");
    assert_eq!((home(&mut world, "d0"), home(&mut world, "d1")), (json!("d0"), json!("d1")));
    let both = json!({ "hardcode": true, "dynamic": true });
    world.verb("mirror", "configure", "m", both).expect_err("one of them");
    world.verb("mirror", "configure", "m", json!({ "dynamic": true })).expect("forgotten");
    assert_eq!((home(&mut world, "d0"), home(&mut world, "d1")), (json!(""), json!("")));
    world.verb("mirror", "destroy", "", json!({ "names": ["m"] })).expect("stopped");
    let by_hand = json!({ "members": ["d0", "d1"], "no_autosync": true });
    world.verb("mirror", "create", "h", by_hand).expect("made");
    assert_eq!(world.show("mirror", "h", "State"), ["DEGRADED"]);
    assert_eq!(world.show("mirror", "h", "Flags"), ["NOAUTOSYNC"]);
    let stored = world.verb("mirror", "configure", "h", json!({ "hardcode": true }));
    assert!(stored.expect_err("no records").message.contains("made by hand"));
    let two = json!({ "names": ["h", "n"] });
    let error = world.verb("mirror", "stop", "", two).expect_err("no n");
    assert!(
        error.message.contains("no mirror n") && error.message.contains("h stopped"),
        "{error}"
    );
}

/// S1: the one that was away returns with the record of before, in either order.
#[test]
fn changed_settings_persist_when_an_absent_member_returns() {
    for order in [[0, 1], [1, 0]] {
        let (mut world, disks) = mirror(2, json!({ "balance": "load" }));
        let bytes = write_all(&mut world, 1);
        world.lose("d1");
        let prefers = json!({ "balance": "prefer", "slice": 8192, "no_failsync": true });
        world.verb("mirror", "configure", "m", prefers).expect("taken while one is away");
        assert_eq!(world.show("mirror", "m", "Balance"), ["prefer"]);
        world.verb("mirror", "stop", "m", json!({})).expect("stopped");
        let mut again = World::new();
        for i in order {
            again.attach(&format!("d{i}"), &disks[i], 512, (0, 0));
        }
        again.control.wait_until(Duration::from_secs(6), |c| c.topology.find("mirror/m").is_some());
        complete(&mut again);
        assert_eq!(again.show("mirror", "m", "Balance"), ["prefer"], "{order:?}");
        assert_eq!(again.show("mirror", "m", "Flags"), ["NOFAILSYNC"], "{order:?}");
        for disk in ["d0", "d1"] {
            assert_eq!(dump(&mut again, disk)["slice"], 8192, "{order:?} {disk}");
        }
        assert!(read_all(&mut again) == bytes, "{order:?}");
    }
}

#[test]
fn changes_that_absent_members_would_lack_are_refused() {
    let (mut world, _) = mirror(2, json!({}));
    world.lose("d1");
    for params in [
        json!({ "hardcode": true }),
        json!({ "dynamic": true }),
        json!({ "bitmap": true }),
        json!({ "no_bitmap": true }),
    ] {
        let error =
            world.verb("mirror", "configure", "m", params.clone()).expect_err("one is away");
        assert_eq!(error.kind, Errno::Busy, "{params}: {error}");
        assert!(error.message.contains("not all members of m are in use"), "{params}: {error}");
    }
    assert_eq!(world.show("mirror", "m", "State"), ["DEGRADED"]);
}

/// A start of the daemon with a section that differs from the records, and a member away.
#[test]
fn declared_settings_apply_when_a_mirror_starts_after_waiting() {
    let (mut world, disks) = mirror(2, json!({ "balance": "load" }));
    world.verb("mirror", "stop", "m", json!({})).expect("stopped");
    let mut again = World::new();
    again.attach("d0", &disks[0], 512, (0, 0));
    let class = again.control.topology.class("mirror").expect("the class");
    let (members, params) = ([again.find("d0")], json!({ "balance": "prefer" }));
    let declared = Create { name: "m", members: &members, params: &params };
    class.declare(&mut again.control, &declared, &[]).expect("it waits");
    assert!(!again.has("mirror/m"), "for d1");
    again.control.wait_until(Duration::from_secs(6), |c| c.topology.find("mirror/m").is_some());
    again.control.settle().expect("at rest");
    assert_eq!(again.show("mirror", "m", "Balance"), ["prefer"]);
    assert_eq!(dump(&mut again, "d0")["balance"], "prefer");
}

/// Of a mirror without a section, `configure` changes the rate until the next start.
#[test]
fn declared_rate_of_rebuilds_applies_at_a_start_and_at_a_change() {
    let (mut world, _) = mirror(2, json!({}));
    let rate = |world: &World| {
        let view = world.control.topology.class_view("mirror", 0);
        let geom = view.iter().find(|geom| geom.name == "m").expect("the mirror");
        (geom.settings["sync_rate"].clone(), geom.transients.len())
    };
    assert_eq!(rate(&world), (json!(0), 0));
    world.verb("mirror", "configure", "m", json!({ "sync_rate": 9 })).expect("limited");
    assert_eq!(rate(&world), (json!(9), 1));
    let class = world.control.topology.class("mirror").expect("the class");
    let (members, params) = ([world.find("d0"), world.find("d1")], json!({ "sync_rate": 7 }));
    let declared = Create { name: "m", members: &members, params: &params };
    class.declare(&mut world.control, &declared, &[]).expect("declared");
    assert_eq!(rate(&world), (json!(7), 0));
    let same: &[&str] = &["d0", "d1"];
    redeclare(&mut world, (same, same), &json!({ "sync_rate": 5 }), &[]).expect("changed");
    assert_eq!(rate(&world), (json!(5), 0));
    redeclare(&mut world, (same, same), &json!({}), &[]).expect("changed");
    assert_eq!(rate(&world), (json!(0), 0));
}

/// T3 of `members/throttle.rs`.
#[test]
fn t3_pause_and_rate_outlast_a_stop_and_the_loss_of_all_disks() {
    let (mut world, disks) = mirror(2, json!({}));
    let settings = |world: &World| {
        let view = world.control.topology.class_view("mirror", 0);
        let geom = view.iter().find(|geom| geom.name == "m").expect("the mirror");
        (geom.settings["sync_rate"].clone(), geom.transients.len())
    };
    world.verb("mirror", "configure", "m", json!({ "sync_rate": 9 })).expect("limited");
    world.verb("mirror", "pause", "m", json!({})).expect("paused");
    world.verb("mirror", "stop", "m", json!({})).expect("stopped");
    world.verb("mirror", "start", "m", json!({})).expect("started");
    assert_eq!(settings(&world), (json!(9), 2));
    let most = Duration::from_secs(6);
    world.lose("d0");
    world.lose("d1");
    assert!(world.control.wait_until(most, |c| c.topology.find("mirror/m").is_none()));
    world.attach("d0", &disks[0], 512, (0, 0));
    world.attach("d1", &disks[1], 512, (0, 0));
    assert!(world.control.wait_until(most, |c| c.topology.find("mirror/m").is_some()));
    assert_eq!(settings(&world), (json!(9), 2));
    world.verb("mirror", "stop", "m", json!({})).expect("stopped");
    let anew = json!({ "members": ["d0", "d1"], "force": true });
    world.verb("mirror", "label", "m", anew).expect("labelled");
    assert_eq!(settings(&world), (json!(0), 0), "a new mirror of the name");
}

/// Requests the preview of a change, then makes the change: both report the same.
fn redeclare(
    world: &mut World,
    (from, to): (&[&str], &[&str]),
    params: &Value,
    consent: &[&str],
) -> Result<(), geom::Error> {
    let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let (from, to) = (own(from), own(to));
    let request = Redeclare { name: "m", from: &from, to: &to, params };
    let class = world.control.topology.class("mirror").expect("the class");
    let foreseen = class.check_redeclare(&mut world.control, &request);
    let done = class.redeclare(&mut world.control, &request, &own(consent));
    match (&foreseen, &done) {
        (Err(foreseen), Err(done)) => assert_eq!(foreseen.message, done.message),
        (Err(foreseen), Ok(())) => panic!("foreseen, and done: {foreseen}"),
        (Ok(()), Err(done)) if done.destroys.is_empty() => panic!("not foreseen: {done}"),
        (Ok(()), _) => {}
    }
    done
}

#[test]
fn an_absent_member_can_be_replaced_while_the_mirror_is_open() {
    let (mut world, _) = mirror(2, json!({}));
    let new = world.disk("d2", vec![0; MIB], 512);
    let open = world.open("mirror/m", Access { r: 1, w: 1, e: 0 });
    let bytes = noise(2, MIB - 512);
    world.write(&open, 0, &bytes).expect("written");
    world.lose("d1");
    let prefers = json!({ "balance": "prefer" });
    redeclare(&mut world, (&["d0", "d1"], &["d0", "d2"]), &prefers, &[]).expect("replaced");
    complete(&mut world);
    assert!(new.bytes()[..MIB - 512] == bytes);
    assert_eq!(world.show("mirror", "m", "Balance"), ["prefer"]);
    assert_eq!(dump(&mut world, "d2")["all"], 2);
    world.write(&open, 0, &[3; 512]).expect("it is used still");
    assert_eq!(new.bytes()[..512], [3; 512]);
    world.close(open);
    // Another key has been removed from the section, another member is added and one is removed.
    let third = world.disk("d3", vec![0; MIB], 512);
    redeclare(&mut world, (&["d0", "d2"], &["d2", "d3"]), &json!({}), &[]).expect("changed");
    complete(&mut world);
    assert_eq!(world.show("mirror", "m", "Balance"), ["load"]);
    assert!(third.bytes()[..MIB - 512] == new.bytes()[..MIB - 512]);
    let gone = world.verb("mirror", "dump", "", json!({ "members": ["d0"] }));
    assert!(gone.is_err(), "its record is cleared");
}

#[test]
fn foresee_and_redeclare_refuse_member_changes_that_would_lose_data() {
    let (mut world, _) = mirror(2, json!({}));
    write_all(&mut world, 3);
    let mut held = vec![0; MIB];
    held[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
    held[MIB - 512..].fill(7);
    let full = world.disk("full", held.clone(), 512);
    world.disk("d2", vec![0; MIB], 512);
    world.disk("small", vec![0; MIB / 2], 512);
    let none = json!({});
    let both = ["d0", "d1"];
    let refused = |world: &mut World, from: &[&str], to: &[&str], why: &str| {
        let error = redeclare(world, (from, to), &none, &[]).expect_err(why);
        assert!(error.message.contains(why), "{error}");
        error
    };
    refused(&mut world, &both, &["d2"], "no complete member would be left");
    refused(&mut world, &both, &["d0", "d1", "small"], "too few");
    let error = refused(&mut world, &both, &["d0", "d1", "full"], "full holds");
    assert_eq!(error.destroys, ["full"]);
    assert!(full.bytes() == held, "nothing is written to it");
    world.lose("d1");
    // It is named still, and so expected.
    let error = refused(&mut world, &both, &["d0", "d1", "d2"], "not all members of m are in use");
    assert_eq!(error.kind, Errno::Busy);
    assert_eq!(world.show("mirror", "m", "State"), ["DEGRADED"]);
    // Consent may name the mirror.
    redeclare(&mut world, (&both, &["d0", "full"]), &none, &["m"]).expect("it may be lost");
    complete(&mut world);
}

/// How far the writes of a new member's disk get before it fails: its old label is cleared, then
/// its record is written.
#[test]
fn an_absent_member_is_expected_until_its_replacement_is_inserted() {
    for writes in [0, 1, 2] {
        let (mut world, disks) = mirror(2, json!({}));
        let bytes = write_all(&mut world, 4);
        let new = world.disk("d2", vec![0; MIB], 512);
        world.lose("d1");
        new.0.lock().expect("media").cut_at = Some(writes);
        let change = (&["d0", "d1"][..], &["d0", "d2"][..]);
        redeclare_badly(&mut world, change);
        assert_eq!(dump(&mut world, "d0")["all"], 2, "after {writes}: d1 is expected");
        assert_eq!(world.show("mirror", "m", "State"), ["DEGRADED"], "after {writes}");
        // It returns: the mirror is whole again, and the next change finds it so.
        world.attach("d1", &disks[1], 512, (0, 0));
        complete(&mut world);
        assert!(read_all(&mut world) == bytes && disks[1].bytes()[..MIB - 512] == bytes);
        new.0.lock().expect("media").cut_at = None;
        redeclare(&mut world, change, &json!({}), &["m"]).expect("the disk takes writes");
        complete(&mut world);
        assert_eq!(dump(&mut world, "d2")["all"], 2, "after {writes}");
        assert!(new.bytes()[..MIB - 512] == bytes, "after {writes}");
    }
}

#[test]
fn failed_insertion_of_a_member_undoes_the_insertions_before_it() {
    let (mut world, _) = mirror(2, json!({}));
    let bytes = write_all(&mut world, 5);
    world.disk("d2", vec![0; MIB], 512);
    let bad = world.disk("d3", vec![0; MIB], 512);
    bad.0.lock().expect("media").cut_at = Some(0);
    redeclare_badly(&mut world, (&["d0", "d1"], &["d0", "d1", "d2", "d3"]));
    assert_eq!(dump(&mut world, "d0")["all"], 2);
    let left = world.verb("mirror", "dump", "", json!({ "members": ["d2"] }));
    assert!(left.is_err(), "its record is cleared");
    complete(&mut world);
    assert!(read_all(&mut world) == bytes);
}

/// A disk fails that is named as a new member: that shows only when it is written to.
fn redeclare_badly(world: &mut World, (from, to): (&[&str], &[&str])) {
    let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let (from, to, params) = (own(from), own(to), json!({}));
    let request = Redeclare { name: "m", from: &from, to: &to, params: &params };
    let class = world.control.topology.class("mirror").expect("the class");
    let done = class.redeclare(&mut world.control, &request, &["m".to_owned()]);
    assert_eq!(done.expect_err("the disk takes no writes").kind, Errno::Io);
}

/// S2: a section that changed while the mirror was off has the same effect as one that changed
/// while it was in use.
#[test]
fn a_section_has_the_same_effect_at_a_start_and_as_a_change() {
    let all = [
        json!({}),
        json!({ "no_failsync": true }),
        json!({ "no_autosync": true, "slice": 8192 }),
        json!({ "no_autosync": true, "no_failsync": true, "balance": "prefer" }),
    ];
    let text = |world: &World| {
        ["Balance", "Slice", "Flags"].map(|key| world.show("mirror", "m", key).concat())
    };
    for (from, to) in all.iter().flat_map(|from| all.iter().map(move |to| (from, to))) {
        let (mut used, disks) = mirror(2, from.clone());
        let before = text(&used);
        used.verb("mirror", "stop", "m", json!({})).expect("stopped");
        // All members are there; once the first waits for the other.
        let waits = from == &all[3] && to == &all[0];
        for there in [2, 1].into_iter().take(1 + usize::from(waits)) {
            let mut off = World::new();
            for (i, disk) in disks.iter().enumerate().take(there) {
                off.attach(&format!("d{i}"), disk, 512, (0, 0));
            }
            let class = off.control.topology.class("mirror").expect("the class");
            let members: Vec<_> = (0..there).map(|i| off.find(&format!("d{i}"))).collect();
            let declared = Create { name: "m", members: &members, params: to };
            class.declare(&mut off.control, &declared, &[]).expect("it is there");
            let starts = Duration::from_secs(6);
            off.control.wait_until(starts, |c| c.topology.find("mirror/m").is_some());
            off.control.settle().expect("at rest");
            let at_start = text(&off);
            let both: &[&str] = &["d0", "d1"];
            redeclare(&mut off, (both, both), from, &[]).expect("back");
            assert_eq!(text(&off), before, "{to} to {from}, {there} there");
            redeclare(&mut off, (both, both), to, &[]).expect("changed");
            assert_eq!(text(&off), at_start, "{from} to {to}, {there} there");
            let flag = |key: &str| to.get(key).is_some();
            let word = match (flag("no_autosync"), flag("no_failsync")) {
                (true, true) => "NOAUTOSYNC, NOFAILSYNC",
                (true, false) => "NOAUTOSYNC",
                (false, true) => "NOFAILSYNC",
                (false, false) => "NONE",
            };
            assert_eq!(at_start[2], word, "{from} to {to}, {there} there");
            redeclare(&mut off, (both, both), from, &[]).expect("back");
            off.verb("mirror", "stop", "m", json!({})).expect("stopped");
        }
    }
}
