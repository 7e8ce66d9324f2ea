//! Passes in the background are clients of a scheduler, each mirror's and each array's by itself.

use std::time::Duration;

use geom::DELETES;
use serde_json::{Value, json};

use crate::raids;
use crate::world::World;

const MIB: usize = 1 << 20;

/// Requests of a client of the scheduler on `disk`; none: it is not known.
fn requests(world: &mut World, disk: &str, client: &str) -> Option<u64> {
    let stats = world.verb("sched", "stats", &format!("{disk}.sched."), Value::Null);
    let stats = stats.expect("stats");
    let clients = stats["geoms"][0]["clients"].as_array().expect("clients").clone();
    clients.iter().find(|c| c["client"] == client)?["requests"].as_u64()
}

fn until(world: &mut World, what: &str, mut done: impl FnMut(&mut World) -> bool) {
    for _ in 0..4000 {
        if done(world) {
            return;
        }
        world.control.wait_until(Duration::from_millis(2), |_| false);
    }
    panic!("never: {what}");
}

fn insert(world: &mut World, disk: &str) {
    let params = json!({ "disks": [disk], "algorithm": "fair", "classify": "task" });
    world.verb("sched", "insert", "", params).expect("inserted");
}

#[test]
fn two_mirrors_on_one_disk_are_separate_clients() {
    let (mut world, _) = World::with("d0", vec![0; 4 * MIB], 512);
    for name in ["d1", "d2"] {
        world.disk(name, vec![0; MIB], 512);
    }
    world.part("create", "d0", json!({ "scheme": "GPT" }));
    for _ in 0..2 {
        world.part("add", "d0", json!({ "kind": "freebsd-ufs", "size": { "bytes": MIB } }));
    }
    insert(&mut world, "d0");
    for (name, members) in [("a", ["d0p1", "d1"]), ("b", ["d0p2", "d2"])] {
        world.verb("mirror", "label", name, json!({ "members": members })).expect("labelled");
        until(&mut world, "complete", |w| w.show("mirror", name, "State") == ["COMPLETE"]);
    }
    for (name, other) in [("a", "b"), ("b", "a")] {
        world.verb("sched", "reset", "d0.sched.", Value::Null).expect("reset");
        world.verb("mirror", "verify", name, json!({})).expect("begun");
        let (own, others) = (format!("mirror verify {name}"), format!("mirror verify {other}"));
        until(&mut world, &own, |w| requests(w, "d0", &own).is_some_and(|n| n >= 8));
        assert_eq!(requests(&mut world, "d0", &others).unwrap_or(0), 0, "it is not {other}'s");
    }
    // Writes that fill a member are counted for the rebuild of that mirror.
    world.verb("mirror", "rebuild", "b", json!({ "members": ["d0p2"] })).expect("begun");
    until(&mut world, "rebuilt", |w| w.show("mirror", "b", "State") == ["COMPLETE"]);
    let rebuilt = |w: &mut World, name: &str| requests(w, "d0", &format!("mirror rebuild {name}"));
    assert!(rebuilt(&mut world, "b").is_some_and(|n| n >= 8));
    assert_eq!(rebuilt(&mut world, "a"), Some(0), "from when it was made, before the reset");
    // A name of several words can be typed, and has a share of its own.
    let options = json!({ "options": "mirror rebuild b.weight=7, mirror verify a.iops=3" });
    world.verb("sched", "configure", "d0.sched.", options).expect("configured");
    let stats = world.verb("sched", "stats", "d0.sched.", Value::Null).expect("stats");
    let clients = stats["geoms"][0]["clients"].as_array().expect("clients");
    let of = |name: &str| clients.iter().find(|c| c["client"] == name).expect("there");
    assert_eq!(
        (&of("mirror rebuild b")["weight"], &of("mirror verify a")["iops"]),
        (&json!(7), &json!(3))
    );
}

#[test]
fn layers_above_learn_that_a_scheduler_shares_the_disk() {
    let (mut world, _) = World::with("d0", vec![0; 4 * MIB], 512);
    world.disk("d1", vec![0; MIB], 512);
    world.part("create", "d0", json!({ "scheme": "GPT" }));
    world.part("add", "d0", json!({ "kind": "freebsd-ufs", "size": { "bytes": MIB } }));
    world.verb("mirror", "label", "a", json!({ "members": ["d0p1", "d1"] })).expect("labelled");
    let shares =
        |w: &World| ["d0", "d0p1", "mirror/a"].map(|name| w.control.topology.shares(w.find(name)));
    assert_eq!(shares(&world), [false; 3]);
    let user = world.watch("mirror/a");
    let is_notified = |w: &mut World| w.take_notifications(&user).contains(&DELETES.to_owned());
    insert(&mut world, "d0");
    assert!(is_notified(&mut world));
    assert_eq!(shares(&world), [true, true, false], "not of the other half");
    insert(&mut world, "d1");
    assert_eq!(shares(&world), [true; 3]);
    for (algorithm, does) in [("deadline", false), ("rr", true), ("fifo", false), ("as", false)] {
        let params = json!({ "algorithm": algorithm });
        world.verb("sched", "configure", "d0.sched.", params).expect("configured");
        assert_eq!(shares(&world), [does; 3], "{algorithm}");
        assert!(is_notified(&mut world), "{algorithm}");
    }
    world.verb("sched", "destroy", "d0.sched.", Value::Null).expect("destroyed");
    assert_eq!(shares(&world), [false; 3]);
}

#[test]
fn verify_and_rebuild_of_an_array_are_clients_with_its_name() {
    let mut raid = raids::Raid::label(raids::INTEL, "RAID5", 3, json!({}));
    let (volume, set) = (raid.volume(), raid.set.clone());
    insert(&mut raid.world, "d0");
    raid.world.verb("raid", "verify", &set, json!({})).expect("begun");
    let own = format!("raid verify {volume}");
    until(&mut raid.world, &own, |w| requests(w, "d0", &own).is_some_and(|n| n >= 4));
    // Another disk is filled, from this one too.
    raid.lose(2);
    raid.insert_new("new");
    raid.complete();
    let rebuild = format!("raid rebuild {volume}");
    assert!(requests(&mut raid.world, "d0", &rebuild).is_some_and(|n| n >= 4));
}
