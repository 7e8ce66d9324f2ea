//! The classes stripe and concat on disks in memory: FreeBSD's own tests of the two classes
//! (docs/reference/geom.md 6), and cases that these do not cover: members that are lost, doubled,
//! contradictory, or written by other systems.

use std::time::Duration;

use bio::Errno;
use geom::Access;
use serde_json::json;
use testkit::noise;

use crate::world::{Disk, World};

const MIB: usize = 1 << 20;

fn disks(world: &mut World, sizes: &[usize]) -> Vec<Disk> {
    let made = sizes.iter().enumerate();
    made.map(|(i, mib)| world.disk(&format!("d{i}"), vec![0; mib * MIB], 512)).collect()
}

fn names(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("d{i}")).collect()
}

fn span_world(
    class: &str,
    verb: &str,
    sizes: &[usize],
    extra: serde_json::Value,
) -> (World, Vec<Disk>) {
    let mut world = World::new();
    let disks = disks(&mut world, sizes);
    let mut params = json!({ "members": names(sizes.len()) });
    for (key, value) in extra.as_object().into_iter().flatten() {
        params[key] = value.clone();
    }
    world.verb(class, verb, "w", params).unwrap_or_else(|e| panic!("{class} {verb}: {e}"));
    (world, disks)
}

/// Writes all of it and reads it back, also in one request over every border.
fn holds(world: &mut World, name: &str) {
    let size = world.size(name) as usize;
    let bytes = noise(7, size);
    let open = world.open(name, Access::WRITE);
    for at in (0..size).step_by(MIB) {
        let part = &bytes[at..size.min(at + MIB)];
        world.write(&open, at as u64, part).expect("written");
    }
    let back = world.read(&open, 0, size).expect("read");
    assert!(back == bytes, "{name}: other bytes came back");
    world.close(open);
}

#[test]
fn concat_1_and_2_the_size_is_the_sum_and_data_reads_back() {
    let (mut world, disks) = span_world("concat", "create", &[1, 2, 3], json!({}));
    assert_eq!(world.size("concat/w"), 6_291_456);
    holds(&mut world, "concat/w");
    let joined: Vec<u8> = disks.iter().flat_map(Disk::bytes).collect();
    assert!(joined == noise(7, 6 * MIB), "the members hold it one behind the other");
}

#[test]
fn stripe_1_and_2_the_smallest_member_sets_the_size_and_data_reads_back() {
    let (mut world, disks) = span_world("stripe", "create", &[1, 2, 3], json!({ "strip": 16384 }));
    assert_eq!(world.size("stripe/w"), 3_145_728);
    holds(&mut world, "stripe/w");
    let bytes = noise(7, 3 * MIB);
    for (k, strip) in bytes.chunks(16384).enumerate() {
        let at = k / 3 * 16384;
        assert!(disks[k % 3].bytes()[at..at + 16384] == *strip, "strip {k}");
    }
}

#[test]
fn concat_append_1_and_2_size_grows_while_open_and_the_label_is_kept() {
    for verb in ["create", "label"] {
        let (mut world, _) = span_world("concat", verb, &[1, 1], json!({}));
        let open = world.open("concat/w", Access::WRITE);
        let before = world.size("concat/w");
        world.write(&open, 0, &noise(3, 4096)).expect("written");
        world.disk("d2", vec![0; MIB], 512);
        world.verb("concat", "append", "w", json!({ "member": "d2" })).expect("appended");
        let more = if verb == "label" { MIB - 512 } else { MIB };
        assert_eq!(world.size("concat/w"), before + more as u64);
        assert!(!open.orphaned());
        let last = world.size("concat/w") - 4096;
        world.write(&open, last, &noise(4, 4096)).expect("into the new one");
        assert_eq!(world.read(&open, 0, 4096).expect("read"), noise(3, 4096));
        world.close(open);
        if verb == "label" {
            world.verb("concat", "stop", "w", json!({})).expect("stopped");
            assert!(!world.has("concat/w"));
            world.verb("concat", "start", "w", json!({})).expect("started");
            let open = world.open("concat/w", Access::READ);
            assert_eq!(world.read(&open, last, 4096).expect("read"), noise(4, 4096));
            world.close(open);
        }
    }
}

/// S4 of span/mod.rs.
#[test]
fn labelled_members_are_assembled_in_any_order_of_arrival() {
    for class in ["stripe", "concat"] {
        let (mut world, made) = span_world(class, "label", &[1, 2, 2], json!({}));
        let name = format!("{class}/w");
        assert_eq!(world.show(class, "w", "State"), ["UP"]);
        let expected = match class {
            "stripe" => 15 * 65536 * 3,
            _ => 5 * MIB as u64 - 3 * 512,
        };
        assert_eq!(world.size(&name), expected);
        holds(&mut world, &name);
        let labelled: Vec<Vec<u8>> = made.iter().map(Disk::bytes).collect();
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let mut other = World::new();
            for (n, i) in order.into_iter().enumerate() {
                assert!(!other.has(&name), "not before the last");
                if n > 0 {
                    let state = other.show(class, "w", "State");
                    assert_eq!(state, [format!("DOWN ({n} of 3 members)")]);
                }
                other.attach(&format!("e{i}"), &made[i], 512, (0, 0));
            }
            let open = other.open(&name, Access::READ);
            let size = other.size(&name) as usize;
            assert!(other.read(&open, 0, size).expect("read") == noise(7, size), "{order:?}");
            let now: Vec<Vec<u8>> = made.iter().map(Disk::bytes).collect();
            assert!(now == labelled, "{order:?}: a member is written");
        }
    }
}

#[test]
fn a_stripe_is_lost_with_a_member_and_returns_with_it() {
    let (mut world, made) = span_world("stripe", "label", &[1, 1], json!({}));
    holds(&mut world, "stripe/w");
    let open = world.open("stripe/w", Access::WRITE);
    world.lose("d1");
    assert!(open.orphaned());
    assert!(world.read(&open, 0, 512).is_err());
    world.close(open);
    assert!(!world.has("stripe/w"));
    assert_eq!(world.show("stripe", "w", "State"), ["DOWN (1 of 2 members)"]);
    world.attach("d9", &made[1], 512, (0, 0));
    let open = world.open("stripe/w", Access::READ);
    let size = world.size("stripe/w") as usize;
    assert!(world.read(&open, 0, size).expect("read") == noise(7, size));
    world.close(open);
}

#[test]
fn a_second_disk_for_the_same_slot_is_refused_and_not_written() {
    let (mut world, made) = span_world("stripe", "label", &[1, 1], json!({}));
    let copy = world.disk("copy", made[0].bytes(), 512);
    assert!(
        world.taste_outcome("copy", "stripe").contains("d0 has slot 0"),
        "{}",
        world.taste_outcome("copy", "stripe")
    );
    assert!(copy.bytes() == made[0].bytes());
    let line = world.show("stripe", "w", "Refused").concat();
    assert!(line.starts_with("copy: d0 has slot 0"), "{line}");
    assert!(world.troubles("stripe", "w").is_empty(), "it is whole without the copy");
    world.lose("d1");
    let troubles = world.troubles("stripe", "w").concat();
    assert!(troubles.contains("member 1 of 2 is missing; copy is refused: d0 has"), "{troubles}");
    world.attach("d1", &made[1], 512, (0, 0));
    assert!(world.has("stripe/w"));
    // Another whole of the same name.
    let mut other = made[1].bytes();
    let at = other.len() - 512 + 36;
    other[at] ^= 0x55;
    world.disk("alien", other, 512);
    assert!(world.taste_outcome("alien", "stripe").contains("another stripe/w is there"));
    // A label copied to a disk of another size.
    let mut large = made[0].bytes();
    large.resize(2 * MIB, 0);
    let label = made[0].bytes()[MIB - 512..].to_vec();
    large[2 * MIB - 512..].copy_from_slice(&label);
    world.disk("large", large, 512);
    assert!(world.taste_outcome("large", "stripe").contains("for a provider of 1048576 bytes"));
    assert_eq!(world.show("stripe", "w", "State"), ["UP"]);
}

#[test]
fn labels_that_contradict_each_other_are_refused() {
    let (_, made) = span_world("stripe", "label", &[1, 1], json!({}));
    let mut strip = made[1].bytes();
    let at = MIB - 512 + 44;
    strip[at..at + 4].copy_from_slice(&131_072u32.to_le_bytes());
    let mut world = World::new();
    world.attach("d0", &made[0], 512, (0, 0));
    world.disk("d1", strip, 512);
    assert!(
        world.taste_outcome("d1", "stripe").contains("one of them was not written with the rest")
    );
    let mut newer = made[1].bytes();
    newer[MIB - 512 + 16] = 9;
    let disk = world.disk("d2", newer.clone(), 512);
    assert!(world.taste_outcome("d2", "stripe").contains("newer than 3"));
    assert!(disk.bytes() == newer, "nothing is written to what is not understood");
    assert!(!world.has("stripe/w"));
}

#[test]
fn a_table_of_a_stripe_is_not_found_on_its_member() {
    let (mut world, made) = span_world("stripe", "label", &[4, 4], json!({}));
    world.part("create", "stripe/w", json!({ "scheme": "gpt" }));
    world.part("add", "stripe/w", json!({ "kind": "linux-data" }));
    assert!(world.has("stripe/wp1"));
    for order in [[0, 1], [1, 0]] {
        let mut again = World::new();
        for i in order {
            again.attach(&format!("d{i}"), &made[i], 512, (0, 0));
        }
        assert!(again.has("stripe/wp1"), "{:?}", again.names());
        assert!(!again.names().iter().any(|n| n.starts_with("d0p")), "{:?}", again.names());
    }
}

#[test]
fn members_are_protected_until_the_geom_is_stopped() {
    let (mut world, _) = span_world("concat", "label", &[1, 1], json!({}));
    let refused = world.try_open("d0", Access::WRITE).err().expect("held");
    assert_eq!(refused.kind, Errno::Perm);
    let open = world.open("concat/w", Access::WRITE);
    let error = world.verb("concat", "stop", "w", json!({})).expect_err("open");
    assert_eq!(error.kind, Errno::Busy);
    let error = world.verb("concat", "clear", "", json!({ "members": ["d0"] })).expect_err("held");
    assert!(error.message.contains("in use"), "{}", error.message);
    world.close(open);
    world.verb("concat", "stop", "w", json!({})).expect("stopped");
    assert!(world.taste_outcome("d0", "concat").contains("ashlar concat start w"));
    let text = world.verb("concat", "dump", "", json!({ "members": ["d0", "d1"] })).expect("dump");
    assert!(text["text"].as_str().expect("text").contains("    name: w\n"));
    world.verb("concat", "clear", "", json!({ "members": ["d0", "d1"] })).expect("cleared");
    let error = world.verb("concat", "clear", "", json!({ "members": ["d0"] })).expect_err("none");
    assert_eq!(error.kind, Errno::NoEnt);
    let open = world.open("d0", Access::WRITE);
    world.close(open);
}

/// U1 of guard.rs, U2 of guard.rs.
#[test]
fn label_refuses_to_overwrite_data_and_rejects_bad_parameters() {
    let mut world = World::new();
    let made = disks(&mut world, &[1, 1]);
    made[1].put(MIB - 512, b"something of value");
    let before = made[1].bytes();
    let two = json!({ "members": ["d0", "d1"] });
    let error = world.verb("stripe", "label", "w", two.clone()).expect_err("something is there");
    assert!(error.message.contains("the last sector of d1 holds something"), "{}", error.message);
    assert!(made[1].bytes() == before && made[0].bytes().iter().all(|b| *b == 0));
    for (name, params, why) in [
        ("w", json!({ "members": ["d0"] }), "at least 2"),
        ("w", json!({ "members": ["d0", "d0"] }), "named twice"),
        ("w", json!({ "members": ["d0", "nothere"] }), "no provider is called nothere"),
        ("a/b", two.clone(), "cannot be a name"),
        ("much-too-long-a-name", two.clone(), "cannot be a name"),
        ("w", json!({ "members": ["d0", "d1"], "force": true, "strip": 1000 }), "power of two"),
    ] {
        let error = world.verb("stripe", "label", name, params).expect_err(why);
        assert!(error.message.contains(why), "{}", error.message);
        assert!(!world.has("stripe/w"));
    }
    let forced = json!({ "members": ["d0", "d1"], "force": true });
    world.verb("stripe", "label", "w", forced).expect("forced");
    assert!(world.has("stripe/w"));
    assert_eq!(world.show("stripe", "w", "Stripesize"), ["65536"]);
    let error = world.verb("stripe", "label", "w", two).expect_err("it is there");
    assert_eq!(error.kind, Errno::Exist);
}

#[test]
fn properties_are_reported() {
    let (world, _) = span_world("stripe", "label", &[1, 1], json!({ "strip": 131_072 }));
    assert_eq!(world.text("stripe/w", "GEOM::candelete").as_deref(), Some("0"));
    let ident = world.text("stripe/w", "GEOM::ident").expect("an identity");
    assert!(ident.starts_with("stripe-"), "{ident}");
    assert_eq!(world.text("stripe/w", "GEOM::physpath"), None, "it is in no bay");
    let view = world.control.topology.view(0);
    let found = view.iter().flat_map(|g| &g.providers).find(|p| p.name == "stripe/w");
    assert_eq!(found.expect("there").stripe_bytes, 131_072);
}

/// A power cut amid `append` leaves some labels that speak of two members and some of three.
/// S5 of span/mod.rs.
#[test]
fn concat_append_interrupted_by_a_power_cut_leaves_the_old_concat() {
    let mut world = World::new();
    let disks: Vec<Disk> =
        (0..3).map(|i| world.disk(&format!("d{i}"), vec![0; 64 << 10], 512)).collect();
    world.verb("concat", "label", "w", json!({ "members": ["d0", "d1"] })).expect("labelled");
    let old: Vec<Vec<u8>> = disks.iter().map(Disk::bytes).collect();
    world.verb("concat", "append", "w", json!({ "member": "d2" })).expect("appended");
    let new: Vec<Vec<u8>> = disks.iter().map(Disk::bytes).collect();
    let each = (64u64 << 10) - 512;
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for written in 0..8usize {
        if written & 4 == 0 && written != 0 {
            continue; // the new member's label is written first
        }
        for order in orders {
            let mut again = World::new();
            for i in order {
                let bytes = if written >> i & 1 == 1 { &new[i] } else { &old[i] };
                again.disk(&format!("d{i}"), bytes.clone(), 512);
            }
            again.control.settle().expect("at rest");
            let members = if written == 7 { 3 } else { 2 };
            assert!(again.has("concat/w"), "{written:03b} {order:?}");
            assert_eq!(again.size("concat/w"), members * each, "{written:03b} {order:?}");
            if written != 7 && written & 4 != 0 {
                let verdict = again.taste_outcome("d2", "concat");
                assert!(verdict.contains("append"), "{written:03b} {order:?}: {verdict}");
                let done = again.verb("concat", "append", "w", json!({ "member": "d2" }));
                done.expect("appended again");
                assert_eq!(again.size("concat/w"), 3 * each);
            }
        }
    }
}

/// S5 of span/mod.rs.
#[test]
fn concat_append_that_cannot_write_a_label_changes_nothing() {
    let mut world = World::new();
    let disks: Vec<Disk> =
        (0..3).map(|i| world.disk(&format!("d{i}"), vec![0; 64 << 10], 512)).collect();
    world.verb("concat", "label", "w", json!({ "members": ["d0", "d1"] })).expect("labelled");
    let (size, old) = (world.size("concat/w"), disks[1].bytes());
    let steps = disks[0].0.lock().expect("media").steps;
    disks[0].0.lock().expect("media").cut_at = Some(steps);
    let refused = world.verb("concat", "append", "w", json!({ "member": "d2" }));
    assert!(refused.expect_err("no label").message.contains("d0"));
    disks[0].0.lock().expect("media").cut_at = None;
    assert_eq!(world.size("concat/w"), size);
    assert!(disks[1].bytes() == old, "put back");
    assert!(disks[2].bytes().iter().all(|b| *b == 0), "put back");
    world.verb("concat", "append", "w", json!({ "member": "d2" })).expect("now");
    assert!(world.size("concat/w") > size);
}

#[test]
fn labels_move_to_the_new_end_of_members_that_grow() {
    let mut world = World::new();
    let disks: Vec<Disk> =
        (0..4).map(|i| world.disk(&format!("d{i}"), vec![0; 64 << 10], 512)).collect();
    let strips = json!({ "members": ["d0", "d1"], "strip": 1024 });
    world.verb("stripe", "label", "s", strips).expect("labelled");
    world.verb("concat", "label", "c", json!({ "members": ["d2", "d3"] })).expect("labelled");
    let (s, c) = (world.size("stripe/s"), world.size("concat/c"));
    for i in [0, 1, 3] {
        world.grow(&format!("d{i}"), &disks[i], 128 << 10);
        world.control.wait_until(Duration::from_millis(20), |_| false);
    }
    assert_eq!(world.size("stripe/s"), s + (128 << 10));
    assert_eq!(world.size("concat/c"), c + (64 << 10));
    let open = world.open("concat/c", Access::WRITE);
    world.write(&open, c + 4096, &[7; 512]).expect("in what was gained");
    world.close(open);
    let mut again = World::new();
    for (i, disk) in disks.iter().enumerate() {
        again.attach(&format!("d{i}"), disk, 512, (0, 0));
    }
    again.control.settle().expect("at rest");
    assert_eq!(again.size("stripe/s"), s + (128 << 10));
    let open = again.open("concat/c", Access::READ);
    assert_eq!(again.read(&open, c + 4096, 512).expect("read"), vec![7; 512]);
    // The first member of a concat is not the last: data behind it must not move.
    again.grow("d2", &disks[2], 128 << 10);
    assert_eq!(again.size("concat/c"), c + (64 << 10));
}
