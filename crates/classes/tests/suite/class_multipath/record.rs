//! The multipath record on the disk: proof of a path, sectors left untouched, refusals.

use bio::{Errno, Op};
use geom::Access;
use serde_json::{Value, json};

use super::fixture::*;
use crate::world::{Disk, World};

#[test]
fn label_requires_that_all_paths_lead_to_one_disk() {
    let mut world = World::new();
    let (one, two) = (disk(vec![0; MIB]), disk(vec![0; MIB]));
    way(&mut world, "d0", &one);
    way(&mut world, "d1", &one);
    way(&mut world, "e0", &two);
    way(&mut world, "s0", &disk(vec![0; MIB / 2]));
    let mut refused = |members: Value| {
        let done = world.verb("multipath", "label", "m", json!({ "members": members }));
        let error = done.expect_err("refused");
        assert!(one.bytes().iter().chain(&two.bytes()).all(|b| *b == 0), "nothing is left");
        assert!(!world.has("multipath/m"));
        error.message
    };
    assert!(refused(json!(["d0", "d1", "e0"])).contains("e0 does not show"));
    assert!(refused(json!(["d0", "s0"])).contains("not the same disk"));
    assert!(refused(json!(["d0", "d0"])).contains("twice"));
    assert!(refused(json!(["d0", "x"])).contains("no provider"));
    world.verb("multipath", "label", "m", json!({ "members": ["d0", "d1"] })).expect("labelled");
    assert!(two.bytes().iter().all(|b| *b == 0));
    let error = ask(&mut world, "add", "e0").expect_err("another disk");
    assert!(error.message.contains("another disk"), "{error}");
    assert_eq!(world.size("multipath/m"), (MIB - 512) as u64);
}

#[test]
fn label_overwrites_existing_data_only_with_force() {
    let mut world = World::new();
    let mut bytes = vec![0; MIB];
    bytes[MIB - 1] = 1;
    let one = disk(bytes.clone());
    way(&mut world, "d0", &one);
    let params = json!({ "members": ["d0"] });
    let refused = world.verb("multipath", "label", "m", params).expect_err("refused");
    assert!(refused.destroys == ["d0"] && one.bytes() == bytes, "{refused}");
    let params = json!({ "members": ["d0"], "force": true });
    world.verb("multipath", "label", "m", params).expect("forced");
}

/// M1 of multipath/geom.rs.
#[test]
fn no_other_class_claims_the_paths_of_a_multipath_disk() {
    let (mut world, disk, _) = labelled(2, json!({}));
    world.part("create", "multipath/m", json!({ "scheme": "gpt" }));
    world.part("add", "multipath/m", json!({ "kind": "linux-data", "size": { "bytes": 65536 } }));
    way(&mut world, "d2", &disk);
    // The partition has a name of its own besides; that is the label class, on top of it all.
    let names = |world: &World| {
        let mut names = world.names();
        names.retain(|name| !name.starts_with("gptid/"));
        names
    };
    assert_eq!(names(&world), ["d0", "d1", "d2", "multipath/m", "multipath/mp1"]);
    world.lose("d0");
    way(&mut world, "d3", &disk);
    for name in ["d1", "d2"] {
        let on = world.find(name);
        look_again(&mut world, on);
    }
    assert_eq!(names(&world), ["d1", "d2", "d3", "multipath/m", "multipath/mp1"]);
    assert!(world.try_open("d1", Access::WRITE).is_err(), "held alone");
    // A new daemon, in any order.
    for order in [["d0", "d1"], ["d1", "d0"]] {
        let mut again = World::new();
        order.iter().for_each(|name| drop(way(&mut again, name, &disk)));
        assert_eq!(names(&again), ["d0", "d1", "multipath/m", "multipath/mp1"]);
        assert_eq!(state(&again), "OPTIMAL");
    }
}

#[test]
fn another_disk_with_the_same_name_gets_a_different_name() {
    let (mut world, _, _) = labelled(2, json!({}));
    let (mut other, second, _) = labelled(1, json!({}));
    write(&mut other, 0, 4).expect("written");
    way(&mut world, "e0", &second);
    way(&mut world, "e1", &second);
    let names = world.names();
    let found: Vec<&String> = names.iter().filter(|n| n.starts_with("multipath/")).collect();
    assert_eq!(found.len(), 2, "{names:?}");
    assert!(found[1].starts_with("multipath/m-"), "{names:?}");
    let (temporary, name) = (found[1].clone(), found[1]["multipath/".len()..].to_owned());
    let open = world.open(&temporary, Access::READ);
    assert_eq!(world.read(&open, 0, 512), Ok(vec![4; 512]));
    world.close(open);
    // Stopped, it stays so, and the other one does not mind.
    world.verb("multipath", "stop", &name, json!({})).expect("stopped");
    assert!(!world.has(&temporary) && world.has("multipath/m"));
    assert!(world.taste_outcome("e0", "multipath").contains("stopped by hand"));
    world.verb("multipath", "start", &name, json!({})).expect("started");
    assert!(world.has(&temporary));
}

#[test]
fn configure_changes_the_mode_in_use_and_in_the_record() {
    let (mut world, disk, _) = labelled(2, json!({}));
    let mode = |d: &Disk| d.bytes()[MIB - 512 + 88];
    assert_eq!(mode(&disk), 0);
    for (flag, number, words) in [
        ("active", 1, ["d0 ACTIVE", "d1 ACTIVE"]),
        ("read", 2, ["d0 ACTIVE", "d1 READ"]),
        ("passive", 0, ["d0 ACTIVE", "d1 PASSIVE"]),
    ] {
        world.verb("multipath", "configure", "m", json!({ flag: true })).expect("configured");
        assert_eq!((mode(&disk), states(&world)), (number, words.map(String::from).to_vec()));
    }
    let both = json!({ "active": true, "read": true });
    assert!(world.verb("multipath", "configure", "m", both).is_err());
}

/// M3 of multipath/geom.rs.
#[test]
fn the_size_grows_when_all_paths_report_it_and_the_record_moves() {
    let (mut world, disk, _) = labelled(2, json!({}));
    let record = disk.bytes()[MIB - 512..].to_vec();
    let open = world.open("multipath/m", Access::READ);
    world.grow("d0", &disk, 2 * MIB);
    assert_eq!(world.size("multipath/m"), (MIB - 512) as u64, "the other has not seen it");
    world.grow("d1", &disk, 2 * MIB);
    assert_eq!(world.size("multipath/m"), (2 * MIB - 512) as u64);
    let bytes = disk.bytes();
    assert_eq!(bytes[2 * MIB - 512..][..80], record[..80]);
    assert_eq!(bytes[2 * MIB - 512..][80..88], (2 * MIB as u64).to_le_bytes());
    assert!(bytes[MIB - 512..MIB].iter().all(|b| *b == 0), "the old one is wiped");
    world.grow("d1", &disk, MIB / 2);
    assert_eq!(world.size("multipath/m"), (2 * MIB - 512) as u64, "the other has not seen it");
    world.grow("d0", &disk, MIB / 2);
    assert_eq!(world.size("multipath/m"), (MIB / 2 - 512) as u64);
    assert_eq!(disk.bytes()[MIB / 2 - 512..][80..88], (MIB as u64 / 2).to_le_bytes());
    assert!(!open.orphaned() && states(&world).len() == 2);
    world.close(open);
}

/// M3 of multipath/geom.rs.
#[test]
fn a_path_that_reports_another_size_is_used_last() {
    let (mut world, disk, ways) = labelled(2, json!({}));
    let open = world.open("multipath/m", Access::READ);
    let record = disk.bytes()[MIB - 512..].to_vec();
    for lie in [MIB / 2, 4 * MIB, 512] {
        world.report_size("d0", lie);
        settle(&mut world);
        assert_eq!(world.size("multipath/m"), (MIB - 512) as u64, "{lie}");
        assert_eq!(states(&world), ["d0 PASSIVE", "d1 ACTIVE"], "{lie}");
        let last = (MIB - 1024) as u64;
        for way in &ways {
            way.seen(Op::Write);
        }
        write(&mut world, last, 7).expect("beyond what the liar says");
        assert_eq!(ways.iter().map(|way| way.seen(Op::Write)).collect::<Vec<_>>(), [0, 1]);
        let view = world.control.topology.view(0);
        let reasons = view.iter().find(|g| g.name == "m").map(|g| format!("{:?}", g.troubles));
        let reasons = reasons.unwrap_or_default();
        assert!(
            reasons.contains(&format!("path d0 reports another disk size ({lie} bytes")),
            "{reasons}"
        );
        // Queried again, it reports its true size.
        world.report_size("d0", MIB);
        settle(&mut world);
        assert_eq!(states(&world), ["d0 PASSIVE", "d1 ACTIVE"], "nobody goes back by himself");
        ask(&mut world, "prefer", "d0").expect("as good as the other");
    }
    assert!(disk.bytes()[MIB - 512..] == record, "the record is left alone");
    // The other path leaves: the size is now that of the remaining path.
    world.report_size("d0", MIB / 2);
    world.lose("d1");
    assert_eq!(world.size("multipath/m"), (MIB / 2 - 512) as u64);
    assert!(!open.orphaned());
    world.close(open);
}

#[test]
fn stop_start_and_dump_keep_the_record_and_destroy_and_clear_erase_it() {
    let (mut world, disk, _) = labelled(2, json!({ "read": true }));
    let open = world.open("multipath/m", Access::READ);
    for verb in ["stop", "destroy"] {
        let refused = world.verb("multipath", verb, "m", json!({})).expect_err("open");
        assert_eq!(refused.kind, Errno::Busy);
    }
    world.close(open);
    world.verb("multipath", "stop", "m", json!({})).expect("stopped");
    assert!(!world.has("multipath/m"));
    let dump = json!({ "members": ["d1"] });
    let answer = world.verb("multipath", "dump", "", dump.clone()).expect("a record");
    let record = &answer["records"][0];
    assert_eq!((&record["name"], &record["mode"]), (&json!("m"), &json!("Active/Read")));
    let uuid = record["uuid"].as_str().expect("text");
    assert!(uuid.len() == 36 && &uuid[14..15] == "4", "{uuid}");
    world.verb("multipath", "start", "m", json!({})).expect("started");
    assert_eq!(states(&world), ["d0 ACTIVE", "d1 READ"]);
    world.verb("multipath", "destroy", "m", json!({})).expect("destroyed");
    assert!(disk.bytes().iter().all(|b| *b == 0), "its label is cleared");
    assert_eq!(world.names(), ["d0", "d1"]);
    assert!(world.verb("multipath", "dump", "", dump).is_err());
    let members = json!({ "members": ["d0", "d1"] });
    world.verb("multipath", "label", "m", members).expect("labelled anew");
    world.verb("multipath", "stop", "m", json!({})).expect("stopped");
    let one = json!({ "members": ["d1"] });
    world.verb("multipath", "clear", "", one.clone()).expect("cleared");
    assert!(disk.bytes().iter().all(|b| *b == 0));
    assert_eq!(world.verb("multipath", "clear", "", one).expect_err("none").kind, Errno::NoEnt);
}

#[test]
fn bad_records_are_refused_with_the_reason_and_nothing_is_written() {
    let (_, good, _) = labelled(1, json!({}));
    let damaged = |at: usize, new: &[u8]| {
        let mut bytes = good.bytes();
        bytes[MIB - 512 + at..][..new.len()].copy_from_slice(new);
        bytes
    };
    let mut longer = vec![0; MIB];
    longer.extend(&good.bytes()[MIB - 512..]);
    for (bytes, word) in [
        (damaged(72, &[2]), "newer"),
        (damaged(16, &[0]), "uuid"),
        (damaged(88, &[9]), "mode"),
        (damaged(80, &(2 * MIB as u64).to_le_bytes()), "written for"),
        (damaged(76, &4096u32.to_le_bytes()), "written for"),
        (longer, "written for"),
    ] {
        let mut world = World::new();
        let one = disk(bytes.clone());
        way(&mut world, "d0", &one);
        assert_eq!(world.names(), ["d0"], "{word}");
        let verdict = world.taste_outcome("d0", "multipath");
        assert!(verdict.contains(word), "{word}: {verdict}");
        assert!(one.bytes() == bytes);
    }
}
