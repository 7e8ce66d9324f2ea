//! The choice of current members: halves that were each used alone, and copies of members.

use std::time::Duration;

use serde_json::json;

use crate::class_mirror::{MIB, complete, mirror, read_all, write_all};
use crate::world::{Disk, MIRROR_START_NS, World};

/// Worlds in which one of two members was used without the other, from `both`.
fn alone(member: usize, disk: &Disk, seed: u64) -> (Disk, Vec<u8>) {
    let mut world = World::new();
    let copy = world.disk(&format!("d{member}"), disk.bytes(), 512);
    runs(&mut world);
    let bytes = write_all(&mut world, seed);
    world.verb("mirror", "stop", "m", json!({})).expect("stopped");
    (copy, bytes)
}

/// Waits until the mirror has started.
fn runs(world: &mut World) {
    let is_there = world
        .control
        .wait_until(Duration::from_secs(10), |c| c.topology.find("mirror/m").is_some());
    assert!(is_there, "{:?}", world.troubles("mirror", "m"));
    world.control.settle().expect("at rest");
}

#[test]
fn halves_that_were_each_used_alone_are_not_joined() {
    let (mut world, disks) = mirror(2, json!({}));
    write_all(&mut world, 30);
    world.verb("mirror", "stop", "m", json!({})).expect("stopped");
    let (first, had_first) = alone(0, &disks[0], 31);
    let (second, had_second) = alone(1, &disks[1], 32);
    // Once more, so that one counts higher than the other.
    let (second, had_second) = {
        let _ = had_second;
        alone(1, &second, 33)
    };
    for (order, keep, bytes) in [([0, 1], 0, &had_first), ([1, 0], 1, &had_second)] {
        let mut world = World::new();
        let mut add = |i: usize| world.disk(&format!("d{i}"), [&first, &second][i].bytes(), 512);
        let copies = order.map(|i| (i, add(i)));
        let contents = || copies.iter().map(|(_, disk)| disk.bytes()).collect::<Vec<_>>();
        let before = contents();
        // Longer than a mirror waits for its members.
        let wait = Duration::from_nanos(MIRROR_START_NS + MIRROR_START_NS / 4);
        world.control.wait_until(wait, |_| false);
        let answer = world.troubles("mirror", "m").join("\n");
        assert!(
            answer.contains("split brain") && answer.contains("last written 2027-01-15T08:00:00Z"),
            "{answer}"
        );
        assert!(answer.contains("d0 (") && answer.contains("d1 ("), "{answer}");
        assert!(!world.has("mirror/m"), "neither starts");
        assert!(before == contents(), "nothing was written");
        let keep = json!({ "keep": format!("d{keep}") });
        world.verb("mirror", "start", "m", keep).expect("chosen");
        complete(&mut world);
        assert!(read_all(&mut world) == *bytes, "{order:?}");
        let bytes = write_all(&mut world, 34);
        assert!(contents().iter().all(|c| c[..MIB - 512] == bytes));
    }
}

#[test]
fn a_half_that_was_used_alone_is_refused_by_a_running_mirror() {
    let (mut world, disks) = mirror(2, json!({}));
    write_all(&mut world, 40);
    world.verb("mirror", "stop", "m", json!({})).expect("stopped");
    let (first, _) = alone(0, &disks[0], 41);
    let (second, had_second) = alone(1, &disks[1], 42);
    let mut world = World::new();
    let _first = world.disk("d0", first.bytes(), 512);
    runs(&mut world);
    let kept = write_all(&mut world, 43);
    let late = world.disk("d1", second.bytes(), 512);
    world.control.settle().expect("at rest");
    assert!(world.taste_outcome("d1", "mirror").contains("split brain"));
    assert_eq!(world.show("mirror", "m", "State"), ["DEGRADED"]);
    assert!(late.bytes()[..MIB - 512] == had_second, "it is as it was");
    // The way that the message names.
    world.verb("mirror", "clear", "", json!({ "members": ["d1"] })).expect("cleared");
    world.verb("mirror", "forget", "m", json!({ "names": ["m"] })).expect("forgotten");
    world.verb("mirror", "insert", "m", json!({ "members": ["d1"] })).expect("inserted");
    complete(&mut world);
    assert!(late.bytes()[..MIB - 512] == kept);
}

/// L3 of mirror/lineage.rs.
#[test]
fn a_member_restored_from_its_own_older_clean_copy_is_rebuilt() {
    for restored in [0, 1] {
        let (mut world, disks) = mirror(2, json!({}));
        write_all(&mut world, 50);
        world.verb("mirror", "stop", "m", json!({})).expect("stopped");
        let old = disks[restored].bytes();
        world.verb("mirror", "start", "m", json!({})).expect("started");
        let bytes = write_all(&mut world, 51);
        world.verb("mirror", "stop", "m", json!({})).expect("stopped");
        let mut again = World::new();
        let contents = |i: usize| if i == restored { old.clone() } else { disks[i].bytes() };
        let copies: Vec<Disk> =
            (0..2).map(|i| again.disk(&format!("d{i}"), contents(i), 512)).collect();
        complete(&mut again);
        assert!(read_all(&mut again) == bytes, "member {restored} was restored");
        assert!(copies.iter().all(|d| d.bytes()[..MIB - 512] == bytes));
    }
}
