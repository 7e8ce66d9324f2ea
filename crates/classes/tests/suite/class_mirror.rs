//! The class mirror on disks in memory: FreeBSD's own tests of the class (docs/reference/geom.md
//! 6), corrected where they could not fail.

use std::time::Duration;

use bio::{Errno, Op};
use geom::Access;
use serde_json::{Value, json};
use testkit::noise;

use crate::world::{Disk, World};

pub(crate) const MIB: usize = 1 << 20;

/// A labelled mirror of `n` disks of a MiB.
pub(crate) fn mirror(n: usize, extra: Value) -> (World, Vec<Disk>) {
    let mut world = World::new();
    let made = (0..n).map(|i| world.disk(&format!("d{i}"), vec![0; MIB], 512)).collect();
    let names: Vec<String> = (0..n).map(|i| format!("d{i}")).collect();
    let mut params = json!({ "members": names });
    for (key, value) in extra.as_object().into_iter().flatten() {
        params[key] = value.clone();
    }
    world.verb("mirror", "label", "m", params).expect("labelled");
    complete(&mut world);
    (world, made)
}

/// Waits until no member is being rebuilt.
pub(crate) fn complete(world: &mut World) {
    let state = |w: &World| w.show("mirror", "m", "State") == ["COMPLETE"];
    for _ in 0..2000 {
        if state(world) {
            world.control.settle().expect("at rest");
            return;
        }
        world.control.wait_until(Duration::from_millis(5), |_| false);
    }
    panic!(
        "not complete: {:?}",
        world.control.topology.view(0).iter().map(|g| &g.show).collect::<Vec<_>>()
    );
}

pub(crate) fn write_all(world: &mut World, seed: u64) -> Vec<u8> {
    let bytes = noise(seed, MIB - 512);
    let open = world.open("mirror/m", Access::WRITE);
    world.write(&open, 0, &bytes).expect("written");
    world.close(open);
    bytes
}

pub(crate) fn read_all(world: &mut World) -> Vec<u8> {
    let open = world.open("mirror/m", Access::READ);
    let bytes = world.read(&open, 0, MIB - 512).expect("read");
    world.close(open);
    bytes
}

pub(crate) fn dump(world: &mut World, disk: &str) -> Value {
    let answer = world.verb("mirror", "dump", "", json!({ "members": [disk] })).expect("a record");
    answer["records"][0].clone()
}

/// The record on a disk, read past everything.
fn flags_of(disk: &Disk) -> u64 {
    let at = MIB - 512 + 87;
    u64::from_le_bytes(disk.bytes()[at..at + 8].try_into().expect("eight"))
}

#[test]
fn mirror_1_the_size_is_the_smallest_less_a_sector() {
    let mut world = World::new();
    for (i, mib) in [1, 2, 3].into_iter().enumerate() {
        world.disk(&format!("d{i}"), vec![0; mib * MIB], 512);
    }
    let members = json!({ "members": ["d0", "d1", "d2"], "assume_same": true });
    world.verb("mirror", "label", "m", members).expect("labelled");
    assert_eq!(world.size("mirror/m"), (MIB - 512) as u64);
}

/// Properties that FreeBSD loses.
#[test]
fn properties_of_the_members_are_reported() {
    let mut bench = World::new();
    let mut world = World::new();
    for (name, takes) in [("d0", false), ("d1", true)] {
        let disk = bench.disk(name, vec![0; MIB], 512);
        disk.0.lock().expect("media").zeroes = takes;
        world.attach(name, &disk, 512, (4096, 512));
    }
    world.verb("mirror", "label", "m", json!({ "members": ["d0", "d1"] })).expect("labelled");
    complete(&mut world);
    assert_eq!(world.control.topology.stripe(world.find("mirror/m")), (4096, 512));
    let text = |name| world.text("mirror/m", name);
    assert!(text("GEOM::ident").expect("an identity").starts_with("mirror-"));
    assert_eq!(text("GEOM::candelete").as_deref(), Some("1"), "one of them can");
    assert_eq!(text("GEOM::deletereadszero").as_deref(), Some("0"), "and the other cannot");
    assert_eq!(text("GEOM::physpath"), None, "it is in two bays");
}

#[test]
fn mirror_2_data_is_on_every_member() {
    for balance in ["round-robin", "load", "split", "prefer", "none"] {
        let (mut world, disks) = mirror(3, json!({ "balance": balance, "slice": 8192 }));
        let bytes = write_all(&mut world, 1);
        for disk in &disks {
            assert!(disk.bytes()[..MIB - 512] == bytes, "{balance}");
        }
        for _ in 0..4 {
            assert!(read_all(&mut world) == bytes, "{balance}");
        }
    }
}

#[test]
fn mirror_3_to_7_data_stays_correct_as_members_are_removed_one_by_one() {
    for balance in ["round-robin", "load", "split", "prefer"] {
        let (mut world, _) = mirror(3, json!({ "balance": balance }));
        let bytes = write_all(&mut world, 2);
        world.verb("mirror", "remove", "m", json!({ "members": ["d2"] })).expect("one");
        assert!(read_all(&mut world) == bytes);
        world.verb("mirror", "remove", "m", json!({ "members": ["d0"] })).expect("two");
        assert!(read_all(&mut world) == bytes);
        let error = world.verb("mirror", "remove", "m", json!({ "members": ["d1"] }));
        assert_eq!(error.expect_err("the last").kind, Errno::Busy);
        assert!(read_all(&mut world) == bytes);
        let error = world.verb("mirror", "dump", "", json!({ "members": ["d0"] }));
        assert!(error.expect_err("cleared").message.contains("no metadata"));
        world.verb("mirror", "stop", "m", json!({})).expect("stopped");
        assert!(!world.has("mirror/m"), "and it is gone");
    }
}

#[test]
fn mirror_6_an_inserted_third_member_receives_all_data() {
    let (mut world, _) = mirror(2, json!({ "balance": "split" }));
    let bytes = write_all(&mut world, 3);
    let new = world.disk("d2", noise(9, MIB - 512).into_iter().chain([0; 512]).collect(), 512);
    world.verb("mirror", "insert", "m", json!({ "members": ["d2"] })).expect("inserted");
    complete(&mut world);
    assert!(new.bytes()[..MIB - 512] == bytes);
    assert_eq!(world.show("mirror", "m", "Components"), ["3"]);
}

#[test]
fn label_keeps_the_data_of_the_first_provider() {
    let mut world = World::new();
    let bytes: Vec<u8> = noise(4, MIB - 512).into_iter().chain([0; 512]).collect();
    world.disk("d0", bytes.clone(), 512);
    let other = world.disk("d1", vec![0; MIB], 512);
    world.verb("mirror", "label", "m", json!({ "members": ["d0", "d1"] })).expect("labelled");
    complete(&mut world);
    assert!(read_all(&mut world) == bytes[..MIB - 512]);
    assert!(other.bytes()[..MIB - 512] == bytes[..MIB - 512]);
}

#[test]
fn members_are_dirty_from_the_first_write_to_the_last_close() {
    let (mut world, disks) = mirror(2, json!({}));
    assert!(disks.iter().all(|d| flags_of(d) & 1 == 0), "clean");
    let open = world.open("mirror/m", Access::WRITE);
    world.write(&open, 0, &[1; 512]).expect("written");
    assert!(disks.iter().all(|d| flags_of(d) & 1 == 1), "dirty");
    world.close(open);
    world.control.wait_until(Duration::from_millis(50), |_| false);
    assert!(disks.iter().all(|d| flags_of(d) & 1 == 0), "clean again");
}

/// B2 of members::load: a member that still looked busy after its reads had ended would lose the
/// sequential reads that continue there.
#[test]
fn sequential_reads_stay_with_one_member() {
    let (mut world, disks) = mirror(2, json!({ "balance": "load" }));
    // The bytes of each member identify it.
    for (disk, byte) in disks.iter().zip([1, 2]) {
        disk.put(0, &[byte; MIB - 512]);
    }
    let open = world.open("mirror/m", Access::READ);
    let whose = |world: &mut World, at: u64| world.read(&open, at, 4096).expect("read")[0];
    for from in [0, 512 << 10] {
        let first = whose(&mut world, from);
        let rest: Vec<u8> = (1..100).map(|n| whose(&mut world, from + n * 4096)).collect();
        assert_eq!(rest, vec![first; 99], "from {from}");
    }
    world.close(open);
}

/// L3 of mirror/layer.rs.
#[test]
fn mirror_10_eio_on_read_is_retried_elsewhere_and_drops_the_member() {
    let (mut world, disks) = mirror(2, json!({ "balance": "prefer" }));
    let bytes = write_all(&mut world, 5);
    let before = dump(&mut world, "d0")["genid"].as_u64().expect("a number");
    // The last has the highest priority: it is read first.
    disks[1].0.lock().expect("media").unreadable = true;
    assert!(read_all(&mut world) == bytes, "from the other");
    world.control.settle().expect("at rest");
    assert_eq!(world.show("mirror", "m", "State"), ["DEGRADED"]);
    assert_eq!(dump(&mut world, "d0")["genid"], before + 1);
    disks[1].0.lock().expect("media").unreadable = false;
    let on = world.find("d1");
    let look = |t: &mut geom::Topology| {
        t.retaste(on);
        Ok(())
    };
    world.control.call(look).expect("looked at");
    assert_eq!(world.show("mirror", "m", "State"), ["DEGRADED"], "it failed once");
    assert!(world.taste_outcome("d1", "mirror").contains("this member failed once"));
    world.verb("mirror", "forget", "m", json!({})).expect("forgotten");
    world.verb("mirror", "insert", "m", json!({ "members": ["d1"] })).expect("taken in anew");
    complete(&mut world);
    assert!(disks[1].bytes()[..MIB - 512] == bytes);
}

/// J3 of mirror/geom/mod.rs.
#[test]
fn mirror_12_eio_on_write_drops_the_member_before_the_acknowledgement() {
    let (mut world, disks) = mirror(2, json!({}));
    write_all(&mut world, 6);
    let before = dump(&mut world, "d0")["genid"].as_u64().expect("a number");
    let open = world.open("mirror/m", Access::WRITE);
    world.write(&open, 0, &[7; 512]).expect("both");
    disks[1].0.lock().expect("media").cut_at = Some(0);
    world.write(&open, 512, &[8; 512]).expect("one of them did it");
    let genid = u32::from_le_bytes(
        disks[0].bytes()[MIB - 512 + 45..MIB - 512 + 49].try_into().expect("four"),
    );
    assert_eq!(u64::from(genid), before + 1, "on disk already");
    world.close(open);
    world.control.settle().expect("at rest");
    assert_eq!(world.show("mirror", "m", "State"), ["DEGRADED"]);
    // After a restart the failed member is not trusted, whichever is found first.
    disks[1].0.lock().expect("media").cut_at = None;
    for order in [[0, 1], [1, 0]] {
        let mut again = World::new();
        for i in order {
            again.attach(&format!("d{i}"), &disks[i], 512, (0, 0));
        }
        // It waits a while: with a stale one there, the newest of all might be missing.
        again.control.wait_until(Duration::from_secs(6), |c| c.topology.find("mirror/m").is_some());
        let open = again.open("mirror/m", Access::READ);
        assert_eq!(again.read(&open, 512, 512).expect("read"), vec![8; 512], "{order:?}");
        again.close(open);
    }
}

#[test]
fn mirror_11_and_13_an_absent_member_is_rebuilt_when_it_returns() {
    let (mut world, disks) = mirror(2, json!({}));
    write_all(&mut world, 7);
    let genid = dump(&mut world, "d0")["genid"].clone();
    world.lose("d1");
    let bytes = write_all(&mut world, 8);
    assert_eq!(dump(&mut world, "d0")["genid"], genid, "nobody failed");
    assert!(disks[1].bytes()[..MIB - 512] != bytes);
    world.attach("d9", &disks[1], 512, (0, 0));
    complete(&mut world);
    assert!(disks[1].bytes()[..MIB - 512] == bytes);
}

/// M1 of mirror/state/mod.rs.
#[test]
fn component_selection_uses_the_newest_members_in_any_order() {
    let (mut world, disks) = mirror(3, json!({}));
    write_all(&mut world, 9);
    world.lose("d2");
    let bytes = write_all(&mut world, 10);
    world.verb("mirror", "stop", "m", json!({})).expect("stopped");
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        // Copies: each order begins with the same disks.
        let mut again = World::new();
        let copies: Vec<Disk> = order
            .into_iter()
            .map(|i| again.disk(&format!("d{i}"), disks[i].bytes(), 512))
            .collect();
        complete(&mut again);
        assert!(read_all(&mut again) == bytes, "{order:?}");
        assert!(copies.iter().all(|d| d.bytes()[..MIB - 512] == bytes), "{order:?}");
    }
}

#[test]
fn deactivated_members_wait_and_activated_ones_are_rebuilt() {
    let (mut world, disks) = mirror(2, json!({}));
    world.verb("mirror", "deactivate", "m", json!({ "members": ["d1"] })).expect("out");
    assert_eq!(world.show("mirror", "m", "State"), ["DEGRADED"]);
    assert!(
        world.taste_outcome("d1", "mirror").contains("deactivated"),
        "{}",
        world.taste_outcome("d1", "mirror")
    );
    let bytes = write_all(&mut world, 11);
    world.verb("mirror", "activate", "m", json!({ "members": ["d1"] })).expect("in");
    complete(&mut world);
    assert!(disks[1].bytes()[..MIB - 512] == bytes);
}

#[test]
fn refusals_give_the_reason() {
    let (mut world, disks) = mirror(2, json!({}));
    let as_it_was = disks[0].bytes();
    let copy = world.disk("copy", as_it_was.clone(), 512);
    assert!(world.taste_outcome("copy", "mirror").contains("there already"));
    assert!(copy.bytes() == as_it_was, "nothing is written to it");
    world.disk("d5", vec![0; MIB / 2], 512);
    let error = world.verb("mirror", "insert", "m", json!({ "members": ["d5"] }));
    assert!(error.expect_err("small").message.contains("1048576 needed"));
    let error = world.verb("mirror", "configure", "m", json!({ "balance": "best" }));
    let answer = error.expect_err("no such").message;
    assert!(answer.contains("`balance`") && answer.contains("`best`"), "{answer}");
    world.lose("d1");
    let error = world.verb("mirror", "remove", "m", json!({ "members": ["d0"] }));
    assert!(error.expect_err("missing").message.contains("ashlar mirror forget m"));
    let held = world.try_open("d0", Access::WRITE).err().expect("held");
    assert_eq!(held.kind, Errno::Perm);
}

/// Waits for the end of a comparison; its line.
pub(crate) fn verified(world: &mut World) -> String {
    for _ in 0..2000 {
        world.control.wait_until(Duration::from_millis(5), |_| false);
        let line = world.show("mirror", "m", "Verify").concat();
        if !line.contains('%') {
            return line;
        }
    }
    panic!("never done");
}

/// V2 of mirror/verify.rs.
#[test]
fn verify_counts_differences_and_writes_only_with_repair() {
    let (mut world, disks) = mirror(3, json!({}));
    let bytes = write_all(&mut world, 12);
    world.verb("mirror", "verify", "m", json!({})).expect("begun");
    assert_eq!(verified(&mut world), "done; 0 sectors differ, 0 cannot be read");
    disks[0].put(512, &[1; 1024]);
    disks[1].put(4096, &[2; 100]);
    let spoiled = disks[0].bytes();
    world.verb("mirror", "verify", "m", json!({})).expect("begun");
    assert_eq!(verified(&mut world), "done; 3 sectors differ, 0 cannot be read");
    let mut places = world.show("mirror", "m", "Difference");
    places.sort();
    assert_eq!(places, ["d0, bytes 512 to 1536: differs", "d1, bytes 4096 to 4608: differs"]);
    assert!(disks[0].bytes()[..MIB - 512] == spoiled[..MIB - 512], "nothing was written");
    // The last has the highest priority.
    world.verb("mirror", "verify", "m", json!({ "repair": true })).expect("begun");
    let line = verified(&mut world);
    assert_eq!(line, "done; 3 sectors differ, 0 cannot be read, 3 written anew");
    assert!(disks.iter().all(|d| d.bytes()[..MIB - 512] == bytes));
    // From the member that is named, regardless of its priority.
    disks[0].put(0, &[3; 512]);
    let with = json!({ "repair": true, "member": "d0" });
    world.verb("mirror", "verify", "m", with).expect("begun");
    assert!(verified(&mut world).ends_with("2 written anew"));
    assert!(disks.iter().all(|d| d.bytes()[..512] == [3; 512]));
}

#[test]
fn verify_runs_during_writes_and_can_be_ended() {
    let (mut world, disks) = mirror(2, json!({}));
    world.verb("mirror", "verify", "m", json!({ "rate": 1 << 20 })).expect("begun");
    let again = world.verb("mirror", "verify", "m", json!({}));
    assert!(again.expect_err("one at a time").message.contains("--end"));
    let open = world.open("mirror/m", Access::WRITE);
    world.write(&open, 4096, &[5; 4096]).expect("written");
    assert!(disks.iter().all(|d| d.bytes()[4096..8192] == [5; 4096]));
    world.close(open);
    world.verb("mirror", "verify", "m", json!({ "end": true })).expect("ended");
    world.verb("mirror", "verify", "m", json!({})).expect("anew");
    assert_eq!(verified(&mut world), "done; 0 sectors differ, 0 cannot be read");
    world.lose("d1");
    let alone = world.verb("mirror", "verify", "m", json!({}));
    assert!(alone.expect_err("alone").message.contains("two complete members"));
}

#[test]
fn a_bitmap_reduces_the_size_and_raises_the_metadata_version() {
    let (mut world, disks) = mirror(2, json!({ "bitmap": true }));
    assert_eq!(world.size("mirror/m"), (MIB - 512 - 512) as u64);
    let version = |d: &Disk| d.bytes()[MIB - 512 + 16];
    assert!(disks.iter().all(|d| version(d) == 5));
    assert_eq!(world.show("mirror", "m", "Bitmap"), ["0 of 1 regions of 1048576 bytes"]);
    let bit = |d: &Disk| d.bytes()[MIB - 1024];
    let open = world.open("mirror/m", Access::WRITE);
    world.write(&open, 0, &[1; 512]).expect("written");
    assert!(disks.iter().all(|d| bit(d) == 1), "before the write");
    world.close(open);
    world.control.wait_until(Duration::from_millis(50), |_| false);
    assert!(disks.iter().all(|d| bit(d) == 0), "clean again");
    let off = json!({ "no_bitmap": true });
    world.verb("mirror", "configure", "m", off).expect("no longer");
    assert!(disks.iter().all(|d| version(d) == 4), "as FreeBSD has it");
    assert!(world.show("mirror", "m", "Bitmap").is_empty());
    let on = json!({ "bitmap": true, "region": 65536 });
    let open = world.open("mirror/m", Access::WRITE);
    world.write(&open, 0, &[2; 512]).expect("written");
    world.verb("mirror", "configure", "m", on.clone()).expect("while it is in use");
    world.write(&open, 5 << 16, &[2; 512]).expect("written");
    assert!(disks.iter().all(|d| version(d) == 5 && bit(d) == 1 << 5));
    world.close(open);
    let wrong = world.verb("mirror", "configure", "m", json!({ "region": 1000 }));
    assert!(wrong.expect_err("no power of two").message.contains("power of two"));
    let (mut full, _) = mirror(2, json!({}));
    let refused = full.verb("mirror", "configure", "m", on).expect_err("no room");
    assert!(refused.message.contains("no space for a bitmap"), "{}", refused.message);
}

/// Which disks take WRITE ZEROES.
fn able(disks: &[Disk], take: &[bool]) {
    for (disk, take) in disks.iter().zip(take) {
        disk.0.lock().expect("media").zeroes = *take;
    }
}

#[test]
fn zeroed_ranges_are_zero_on_members_without_write_zeroes_too() {
    for take in [[true, true, false], [false, true, false], [false, false, true], [false; 3]] {
        let (mut world, disks) = mirror(3, json!({}));
        let mut bytes = write_all(&mut world, 5);
        able(&disks, &take);
        let open = world.open("mirror/m", Access::WRITE);
        for (at, len) in [(0, 512), (4096, 300 * 1024), (400 * 1024 + 512, MIB - 401 * 1024 - 512)]
        {
            world.range(&open, Op::WriteZeroes, at as u64, len as u64).expect("zeroed");
            bytes[at..at + len].fill(0);
        }
        world.close(open);
        for (i, disk) in disks.iter().enumerate() {
            assert!(disk.bytes()[..MIB - 512] == bytes, "d{i} of {take:?}");
        }
        assert_eq!(world.show("mirror", "m", "State"), ["COMPLETE"], "nobody is to blame");
    }
}

#[test]
fn a_manual_mirror_exists_at_once_and_copies_its_first_member() {
    let mut world = World::new();
    let bytes = noise(7, MIB);
    world.disk("d0", bytes.clone(), 512);
    let copy = world.disk("d1", noise(8, MIB), 512);
    let members = json!({ "members": ["d0", "d1"] });
    let answer = world.verb("mirror", "create", "m", members).expect("made");
    assert_eq!(answer["provider"], "mirror/m");
    complete(&mut world);
    assert!(copy.bytes() == bytes, "the first is copied");
}
