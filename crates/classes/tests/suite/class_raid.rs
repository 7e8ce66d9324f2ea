//! The class raid on disks in memory: the subjects of FreeBSD's tests of graid (levels,
//! degradation, rebuild, spares, stop and start), and one that those could not have: parity that is
//! written.

use bio::Errno;
use geom::Access;
use serde_json::json;
use testkit::noise;

use crate::raids::{self, DDF, INTEL, Raid};
use crate::world::{self, World};

#[test]
fn every_level_stores_its_data_and_is_found_again() {
    for (format, levels) in [(INTEL, raids::INTEL_LEVELS), (DDF, raids::DDF_LEVELS)] {
        for (level, disks) in levels {
            let mut raid = Raid::label(format, level, *disks, json!({ "strip": 8192 }));
            let bytes = noise(1, raid.size());
            raid.write(0, &bytes);
            raid.random_writes(7, &bytes.clone());
            let now = raid.read_all();
            raid.stop();
            let mut again = raid.reborn();
            assert!(again.read_all() == now, "{format} {level}");
            assert_eq!(again.state(), "OPTIMAL", "{format} {level}");
        }
    }
}

#[test]
fn redundant_levels_work_without_a_disk_and_rebuild_it_on_return() {
    for (format, level, disks) in raids::REDUNDANT {
        let mut raid = Raid::label(format, level, *disks, json!({ "strip": 8192 }));
        let bytes = noise(2, raid.size());
        raid.write(0, &bytes);
        for lost in [0, disks - 1] {
            raid.lose(lost);
            let degraded = ["DEGRADED"].contains(&raid.state().as_str());
            assert!(degraded, "{format} {level}: {}", raid.state());
            assert!(raid.read_all() == raid.model, "{format} {level} without {lost}");
            raid.random_writes(lost as u64 + 3, &noise(9, raid.size()));
            assert!(raid.read_all() == raid.model, "{format} {level} written without {lost}");
            raid.back(lost);
            raid.complete();
            assert!(raid.read_all() == raid.model, "{format} {level} rebuilt");
        }
        // Without any other disk, the rebuilt data is right.
        raid.lose(1);
        assert!(raid.read_all() == raid.model, "{format} {level}: what was rebuilt is read");
    }
}

#[test]
fn two_parities_tolerate_the_loss_of_any_two_disks() {
    for level in ["RAID6-LA", "RAID6-RA", "RAID6-LS"] {
        let mut raid = Raid::label(DDF, level, 5, json!({ "strip": 4096, "size": 1 << 20 }));
        raid.write(0, &noise(3, raid.size()));
        for (one, two) in [(0, 1), (0, 4), (2, 3), (1, 4)] {
            raid.lose(one);
            raid.lose(two);
            assert!(raid.read_all() == raid.model, "{level} without {one} and {two}");
            raid.random_writes(11, &noise(one as u64 + 20, raid.size()));
            assert!(raid.read_all() == raid.model, "{level} written without {one} and {two}");
            raid.back(one);
            raid.back(two);
            raid.complete();
            assert!(raid.read_all() == raid.model, "{level} rebuilt");
        }
    }
}

/// Properties that FreeBSD loses: where blocks of the disks begin, the identity, support for
/// DELETE.
#[test]
fn properties_of_the_disks_are_reported() {
    let mut bench = World::new();
    let mut world = World::new();
    for name in ["d0", "d1"] {
        let disk = bench.disk(name, vec![0; 3 << 20], 512);
        world.attach(name, &disk, 512, (4096, 512));
    }
    let members = json!(["d0", "d1"]);
    let with = json!({
        "format": INTEL, "level": "RAID1", "members": members, "assume_same": true,
        "size": 1 << 20,
    });
    let answer = world.verb("raid", "label", "one", with).expect("labelled");
    let set = answer["array"].as_str().expect("a name").to_owned();
    let add = json!({ "label": "two", "level": "RAID0", "strip": 8192 });
    world.verb("raid", "add", &set, add).expect("added");
    let stripe =
        |volume: &str| world.control.topology.stripe(world.find(&format!("raid/{set}/{volume}")));
    assert_eq!((stripe("one"), stripe("two")), ((4096, 512), (8192, 0)));
    let text = |volume: &str, name| world.text(&format!("raid/{set}/{volume}"), name);
    assert_ne!(text("one", "GEOM::ident"), text("two", "GEOM::ident"));
    assert!(text("one", "GEOM::ident").expect("an identity").contains(&set));
    assert_eq!(text("one", "GEOM::candelete").as_deref(), Some("0"), "its disks cannot");
    assert_eq!(text("one", "GEOM::physpath"), None, "it is in no bay");
}

#[test]
fn a_spare_replaces_a_failed_disk() {
    for format in [INTEL, DDF] {
        let mut raid = Raid::label(format, "RAID5", 3, json!({ "strip": 8192 }));
        raid.write(0, &noise(4, raid.size()));
        raid.insert_new("s0");
        raid.world.verb("raid", "fail", &raid.set, json!({ "members": ["d1"] })).expect("failed");
        raid.complete();
        assert!(raid.read_all() == raid.model);
        assert!(raid.subdisks().contains("s0 (ACTIVE)"), "{}", raid.subdisks());
        raid.lose(0);
        assert!(raid.read_all() == raid.model, "{format}: from the spare");
    }
}

/// B2 of members::load, as a mirror's test of that name.
#[test]
fn sequential_reads_stay_with_one_copy() {
    let mut raid = Raid::label(INTEL, "RAID1", 2, json!({}));
    for (disk, byte) in raid.disks.iter().zip([1, 2]) {
        disk.put(0, &[byte; 1 << 20]);
    }
    let name = format!("raid/{}/data", raid.set);
    let open = raid.world.open(&name, Access::READ);
    let mut whose = |at: u64| raid.world.read(&open, at, 4096).expect("read")[0];
    for from in [0, 512 << 10] {
        let first = whose(from);
        let rest: Vec<u8> = (1..100).map(|n| whose(from + n * 4096)).collect();
        assert_eq!(rest, vec![first; 99], "from {from}");
    }
    raid.world.close(open);
}

#[test]
fn a_disk_joins_the_array_into_which_it_is_inserted() {
    let mut raid = Raid::label(INTEL, "RAID1", 2, json!({}));
    for name in ["e0", "e1", "free"] {
        raid.world.disk(name, vec![0; 3 << 20], 512);
    }
    let label = json!({ "format": INTEL, "level": "RAID1", "members": ["e0", "e1"] });
    let answer = raid.world.verb("raid", "label", "more", label).expect("a second array");
    let other = answer["array"].as_str().expect("a name").to_owned();
    raid.settle();
    // In turn, so that the order of the arrays does not matter.
    for set in [raid.set.clone(), other.clone(), raid.set.clone()] {
        let free = json!({ "members": ["free"] });
        raid.world.verb("raid", "insert", &set, free.clone()).expect("inserted");
        raid.settle();
        let has = |set: &str| raid.world.show("raid", set, "Subdisks").join("\n");
        let held: Vec<String> =
            [&raid.set, &other].into_iter().filter(|s| raid.holds(s, "free")).cloned().collect();
        assert_eq!(held, [set.as_str()], "{} / {}", has(&raid.set), has(&other));
        // It fails there, which is remembered, and is taken for new.
        raid.world.verb("raid", "fail", &set, free.clone()).expect("failed");
        raid.settle();
        raid.world.verb("raid", "clear", "", free).expect("cleared");
    }
}

#[test]
fn a_read_error_is_served_by_other_disks_and_a_write_error_drops_the_disk() {
    for level in ["RAID1", "RAID5"] {
        let disks = if level == "RAID1" { 2 } else { 3 };
        let mut raid = Raid::label(INTEL, level, disks, json!({ "strip": 8192 }));
        raid.write(0, &noise(5, raid.size()));
        raid.disks[1].0.lock().expect("media").unreadable = true;
        assert!(raid.read_all() == raid.model, "{level}");
        raid.disks[1].0.lock().expect("media").unreadable = false;
        raid.settle();
        raid.disks[0].0.lock().expect("media").cut_at = Some(0);
        let dropped = raid.try_write(4096, &[7; 4096]);
        let was = raid.state();
        assert!(dropped.is_ok() || was == "DEGRADED", "{level}: {dropped:?} {was}");
        assert!(raid.read_all() == raid.model, "{level}");
    }
}

#[test]
fn a_disk_pulled_during_a_record_write_is_not_marked_failed() {
    for format in [INTEL, DDF] {
        let mut raid = Raid::label(format, "RAID1", 2, json!({}));
        let open = raid.open(Access::WRITE);
        let bytes = noise(15, 65536);
        raid.world.write(&open, 0, &bytes).expect("written");
        raid.model[..bytes.len()].copy_from_slice(&bytes);
        raid.disks[1].0.lock().expect("media").gone = true;
        // The last close flushes the disks and marks the volume clean.
        raid.world.close(open);
        raid.settle();
        assert!(raid.subdisks().contains("NONE"), "{format}: {}", raid.subdisks());
        raid.disks[1].0.lock().expect("media").gone = false;
        // Writes that it had not flushed are lost with it.
        raid.disks[1].put(0, &vec![0xee; bytes.len()]);
        raid.lose(1);
        raid.back(1);
        raid.complete();
        raid.lose(0);
        assert!(raid.read_all() == raid.model, "{format}: what was rebuilt is read");
    }
}

#[test]
fn a_volume_is_dirty_from_the_first_write_to_the_last_close() {
    for format in [INTEL, DDF] {
        let mut raid = Raid::label(format, "RAID5", 3, json!({ "strip": 8192 }));
        let dirty = |raid: &mut Raid| raid.record(0)["volumes"][0]["dirty"] == json!(true);
        assert!(!dirty(&mut raid), "{format}");
        let open = raid.open(Access::WRITE);
        raid.world.write(&open, 0, &[1; 512]).expect("written");
        assert!(dirty(&mut raid), "{format}");
        raid.world.close(open);
        raid.settle();
        assert!(!dirty(&mut raid), "{format}");
    }
}

#[test]
fn a_dirty_parity_volume_without_a_disk_starts_only_by_force() {
    let mut raid = Raid::label(INTEL, "RAID5", 3, json!({ "strip": 8192 }));
    raid.write(0, &noise(6, raid.size()));
    let open = raid.open(Access::WRITE);
    raid.world.write(&open, 0, &raid.model[..512]).expect("written");
    // The power fails while it is dirty, and a disk with it.
    let mut again = raid.reborn_with(&[0, 1]);
    let start = |raid: &mut Raid, force| {
        raid.world.verb("raid", "start", &raid.set.clone(), json!({ "force": force }))
    };
    let refused = start(&mut again, false).expect_err("its parity may be wrong");
    assert!(refused.message.contains("raid start --force"), "{}", refused.message);
    start(&mut again, true).expect("by force");
    assert_eq!(again.state(), "DEGRADED");
    assert!(again.show("Volume").contains("parity may be wrong"), "{}", again.show("Volume"));
    assert!(again.read_all() == again.model);
    again.back(2);
    again.complete();
    assert!(!again.show("Volume").contains("parity may be wrong"));
}

#[test]
fn parity_is_repaired_after_a_crash() {
    let mut raid = Raid::label(INTEL, "RAID5", 4, json!({ "strip": 4096 }));
    raid.write(0, &noise(7, raid.size()));
    let open = raid.open(Access::WRITE);
    raid.world.write(&open, 0, &raid.model[..512]).expect("written");
    // A write that reached its data and not its parity.
    raid.disks[0].put(100, &[0xee; 300]);
    let mut again = raid.reborn();
    again.complete();
    let now = again.read_all();
    assert!(now != again.model, "what reached the disk is there");
    again.model = now;
    for lost in 0..4 {
        again.lose(lost);
        assert!(again.read_all() == again.model, "without {lost}");
        again.back(lost);
        again.complete();
    }
}

/// Where Intel's record has its number.
const GENERATION: usize = 44;

/// Tears a record of two sectors as a power cut may: the second sector is new, the first still old.
fn tear(raid: &Raid, disk: usize) {
    let len = raid.disks[disk].bytes().len();
    raid.disks[disk].put(len - 3 * 512, &[0xee; 20]);
}

#[test]
fn a_torn_record_is_repaired_from_the_other_disks() {
    for (level, count) in [("RAID0", 3), ("RAID1E", 3), ("RAID10", 4), ("RAID5", 3)] {
        let mut raid = Raid::label(INTEL, level, count, json!({ "strip": 8192 }));
        raid.write(0, &noise(21, raid.size()));
        raid.stop();
        for which in [[0, 1, 2], [2, 1, 0]] {
            tear(&raid, which[0]);
            let alone = raid.reborn_with(&which[..1]);
            let answer = alone.world.taste_outcome(&format!("d{}", which[0]), "raid");
            assert!(answer.contains("its record is torn"), "{answer}");
            // It is looked at first, and waits for the others.
            let mut again = raid.reborn_with(&[&which[..], &[3][..count - 3]].concat());
            assert_eq!(again.state(), "OPTIMAL", "{level}");
            assert!(again.read_all() == raid.model, "{level}");
            again.settle();
            assert_eq!(again.record(which[0])["disk"], json!(format!("serial-d{}", which[0])));
            again.stop();
        }
    }
}

#[test]
fn a_torn_record_newer_than_the_others_prevents_an_unforced_start() {
    let mut raid = Raid::label(INTEL, "RAID5", 3, json!({ "strip": 8192 }));
    let old: Vec<Vec<u8>> = raid.disks.iter().map(|d| d.bytes()).collect();
    raid.write(0, &noise(22, raid.size()));
    raid.stop();
    let at = old[0].len() - 3 * 512;
    [0, 2].iter().for_each(|i| raid.disks[*i].put(at, &old[*i][at..]));
    tear(&raid, 1);
    let mut again = raid.reborn();
    assert!(again.state().contains("the record of d1 is torn, and newer"), "{}", again.state());
    let force = json!({ "force": true });
    again.world.verb("raid", "start", &raid.set, force).expect("without it");
    assert_eq!(again.state(), "DEGRADED");
    assert!(
        again.show("Refused").starts_with("d1: its record is torn"),
        "{}",
        again.show("Refused")
    );
    // A disk with such a record that arrives later is not trusted either.
    let mut late = raid.reborn_with(&[0, 2]);
    let force = json!({ "force": true });
    late.world.verb("raid", "start", &raid.set, force).expect("without it");
    late.back(1);
    assert_eq!(late.state(), "DEGRADED");
    assert!(late.show("Refused").contains("torn, and newer than the"), "{}", late.show("Refused"));
}

#[test]
fn a_start_forced_despite_a_torn_record_needs_no_force_again() {
    let mut raid = Raid::label(INTEL, "RAID5", 3, json!({ "strip": 8192 }));
    let old: Vec<Vec<u8>> = raid.disks.iter().map(|d| d.bytes()).collect();
    for _ in 0..3 {
        raid.write(0, &noise(25, 4096));
    }
    raid.stop();
    let at = old[0].len() - 3 * 512;
    [0, 2].iter().for_each(|i| raid.disks[*i].put(at, &old[*i][at..]));
    tear(&raid, 1);
    let mut again = raid.reborn();
    let force = json!({ "force": true });
    again.world.verb("raid", "start", &raid.set, force).expect("without it");
    again.write(0, &noise(26, 4096));
    again.stop();
    let mut last = again.reborn();
    last.complete();
    last.lose(0);
    assert!(last.read_all() == again.model, "d1 was filled");
}

/// A member that arrives late, with a record as old as the one used at the start, was in use
/// together with the running members. One that has left is judged by the record that it had then: a
/// higher number means that it was used elsewhere.
#[test]
fn a_torn_record_that_arrives_late_is_judged_by_its_generation() {
    let mut raid = Raid::label(INTEL, "RAID5", 3, json!({ "strip": 8192 }));
    raid.write(0, &noise(27, raid.size()));
    raid.stop();
    tear(&raid, 1);
    let mut late = raid.reborn_with(&[0, 2]);
    let force = json!({ "force": true });
    late.world.verb("raid", "start", &raid.set, force).expect("without it");
    late.back(1);
    late.complete();
    let number = late.record(1)["generation"].as_u64().expect("a number") as u32;
    late.lose(1);
    tear(&late, 1);
    let at = late.disks[1].bytes().len() - 1024 + GENERATION;
    late.disks[1].put(at, &(number + 1).to_le_bytes());
    late.back(1);
    assert_eq!(late.state(), "DEGRADED");
    assert!(late.show("Refused").contains("torn, and newer than the"), "{}", late.show("Refused"));
    late.lose(1);
    late.disks[1].put(at, &number.to_le_bytes());
    late.back(1);
    late.complete();
    late.lose(0);
    assert!(late.read_all() == raid.model);
}

#[test]
fn a_pulled_disk_with_a_torn_record_is_accepted_on_return() {
    let mut raid = Raid::label(INTEL, "RAID5", 3, json!({ "strip": 8192 }));
    raid.write(0, &noise(23, raid.size()));
    for written in [false, true] {
        raid.lose(1);
        tear(&raid, 1);
        if written {
            raid.write(0, &noise(24, 40_960));
        }
        raid.back(1);
        raid.complete();
        assert_eq!(raid.record(1)["disk"], json!("serial-d1"));
        raid.lose(0);
        assert!(raid.read_all() == raid.model);
        raid.back(0);
        raid.complete();
    }
}

#[test]
fn several_volumes_share_one_set_of_disks() {
    let mut raid = Raid::label(INTEL, "RAID1", 2, json!({ "size": 1 << 20 }));
    raid.write(0, &noise(8, raid.size()));
    let more = json!({ "label": "more", "level": "RAID0", "strip": 8192 });
    // A new volume overwrites no data of others, so there is nothing to force.
    let forced = json!({ "label": "more", "level": "RAID0", "force": true });
    let error = raid.world.verb("raid", "add", &raid.set, forced).expect_err("no such option");
    assert!(error.message.contains("has no `force`"), "{}", error.message);
    let answer = raid.world.verb("raid", "add", &raid.set, more).expect("added");
    let second = format!("raid/{}/more", raid.set);
    assert_eq!(answer["provider"], json!(second));
    let open = raid.world.open(&second, Access::WRITE);
    let bytes = noise(9, 64 << 10);
    raid.world.write(&open, 0, &bytes).expect("written");
    assert_eq!(raid.world.read(&open, 0, bytes.len()).expect("read"), bytes);
    raid.world.close(open);
    let third = json!({ "label": "third", "level": "RAID0" });
    let error = raid.world.verb("raid", "add", &raid.set, third).expect_err("two is the most");
    assert!(!error.message.is_empty());
    assert!(raid.read_all() == raid.model);
    let one = json!({ "volume": "more" });
    raid.world.verb("raid", "delete", &raid.set, one).expect("deleted");
    assert!(!raid.world.has(&second) && raid.read_all() == raid.model);
    raid.world.verb("raid", "delete", &raid.set, json!({})).expect("all of it");
    assert!(!raid.world.has(&raid.volume()));
    let error = raid.world.verb("raid", "dump", "", json!({ "members": ["d0"] }));
    assert!(error.is_err(), "cleared");
}

#[test]
fn a_removed_disk_is_cleared_and_no_longer_expected() {
    let mut raid = Raid::label(DDF, "RAID1", 2, json!({ "size": 1 << 20 }));
    raid.write(0, &noise(10, raid.size()));
    let remove = |raid: &mut Raid, name: &str| {
        raid.world.verb("raid", "remove", &raid.set.clone(), json!({ "members": [name] }))
    };
    remove(&mut raid, "d1").expect("removed");
    assert_eq!(raid.state(), "DEGRADED");
    assert_eq!(remove(&mut raid, "d0").expect_err("the last").kind, Errno::Busy);
    assert!(raid.read_all() == raid.model);
    let insert = json!({ "members": ["d1"] });
    raid.world.verb("raid", "insert", &raid.set, insert).expect("inserted");
    raid.complete();
    raid.lose(0);
    assert!(raid.read_all() == raid.model);
}

#[test]
fn bad_input_is_refused_with_the_reason_and_nothing_is_written() {
    let mut raid = Raid::label(INTEL, "RAID1", 2, json!({}));
    let before: Vec<Vec<u8>> = raid.disks.iter().map(|d| d.bytes()).collect();
    let copy = raid.world.disk("copy", before[0].clone(), 512);
    assert!(raid.world.taste_outcome("copy", "raid").contains("the array"), "not ours by serial");
    assert!(copy.bytes() == before[0]);
    let cases = [
        (json!({ "format": "Promise", "level": "RAID1", "members": ["x0"] }), "no format"),
        (json!({ "format": "Intel", "level": "RAID7", "members": ["x0"] }), "no level"),
        (
            json!({ "format": "Intel", "level": "RAID5", "members": ["x0", "x1"] }),
            "it takes 3, 4, 5",
        ),
        (
            json!({ "format": "Intel", "level": "RAID0", "strip": 1000, "members": ["x0", "x1"] }),
            "power of two",
        ),
        (json!({ "format": "Intel", "level": "RAID1", "members": ["x0", "x0"] }), "twice"),
        (json!({ "format": "Intel", "level": "RAID4", "members": ["x0", "x1", "x2"] }), "Intel"),
        (json!({ "format": "Intel", "level": "RAID1", "members": ["d0", "x0"] }), "in use"),
        (json!({ "format": "Intel", "level": "RAID1", "members": ["x0", "k4"] }), "sectors of"),
        (json!({ "format": "DDF", "level": "RAID1", "members": ["x0", "x1"] }), "too"),
        (
            json!({ "format": "DDF", "order": "odd", "level": "RAID1", "members": ["x0", "x1"] }),
            "`order`",
        ),
    ];
    let spare: Vec<_> =
        (0..3).map(|i| raid.world.disk(&format!("x{i}"), vec![0; 4 << 20], 512)).collect();
    raid.world.disk("k4", vec![0; 4 << 20], 4096);
    for (params, why) in cases {
        let error = raid.world.verb("raid", "label", "other", params.clone());
        let error = error.expect_err("refused");
        assert!(error.message.contains(why), "{params}: {}", error.message);
        assert!(spare.iter().all(|disk| disk.bytes().iter().all(|b| *b == 0)), "{params}");
    }
    for (disk, before) in raid.disks.iter().zip(before) {
        assert!(disk.bytes() == before, "nothing was written");
    }
}

#[test]
fn a_half_that_was_used_alone_is_not_overwritten() {
    let mut raid = Raid::label(INTEL, "RAID1", 2, json!({}));
    raid.write(0, &noise(11, raid.size()));
    raid.stop();
    // Each is started alone and written.
    for half in [0, 1] {
        let mut alone = raid.reborn_with(&[half]);
        let force = json!({ "force": true });
        alone.world.verb("raid", "start", &raid.set, force).expect("alone");
        alone.write(0, &noise(12 + half as u64, 4096));
        alone.stop();
    }
    let before: Vec<Vec<u8>> = raid.disks.iter().map(|d| d.bytes()).collect();
    for order in [[0, 1], [1, 0]] {
        // The one that was inserted first has no user: it does not stay.
        let both = raid.reborn_with(&order);
        let state = both.state();
        assert!(state.contains("used without each other"), "{state}");
        assert!(state.contains("d0 (generation") && state.contains("d1 (generation"), "{state}");
        assert!(!both.world.has(&both.volume()));
        // It stays while it is open, and the other is refused with the commands that choose.
        let mut both = raid.reborn_with(&order[..1]);
        let open = both.world.open(&both.volume(), Access::READ);
        let late = format!("d{}", order[1]);
        both.world.attach(&late, &raid.disks[order[1]], 512, (0, 0));
        both.world.control.settle().expect("at rest");
        assert_eq!(both.state(), "DEGRADED", "with the one that came first");
        let refused = both.show("Refused");
        assert!(refused.contains("used without those of the running"), "{refused}");
        assert!(refused.contains(&format!("--keep {late}`")), "{refused}");
        both.world.close(open);
        for (disk, before) in raid.disks.iter().zip(&before) {
            assert!(disk.bytes() == *before, "nothing is copied over either");
        }
        assert!(both.read_all()[..4096] == before[order[0]][..4096]);
    }
}

#[test]
fn a_volume_name_is_independent_of_other_arrays_and_of_order() {
    let bytes = [noise(16, 8192), noise(17, 8192)];
    let arrays = [0, 1].map(|n: usize| {
        let mut raid = Raid::label(INTEL, "RAID1", 2, json!({}));
        raid.write(0, &bytes[n]);
        raid.stop();
        raid
    });
    assert_ne!(arrays[0].volume(), arrays[1].volume());
    // Array and disk: all orders of arrays, one that waits for a disk while the other starts, and
    // one that arrives while the other is open.
    for order in [
        [(0, 0), (0, 1), (1, 0), (1, 1)],
        [(1, 1), (1, 0), (0, 1), (0, 0)],
        [(0, 0), (1, 0), (1, 1), (0, 1)],
        [(1, 0), (0, 0), (0, 1), (1, 1)],
    ] {
        let mut world = world::World::new();
        let mut open = Vec::new();
        for (array, disk) in order {
            let (name, serial) = (format!("{array}.{disk}"), format!("serial-d{disk}"));
            world.attach_as(&name, &serial, &arrays[array].disks[disk], 512, (0, 0));
            world.control.settle().expect("at rest");
            let name = arrays[array].volume();
            if world.has(&name) && open.is_empty() {
                open.push((array, world.open(&name, Access::WRITE)));
            }
        }
        let (first, user) = open.pop().expect("one that came first");
        assert!(world.read(&user, 0, 8192).expect("read") == bytes[first], "{order:?}");
        for (array, bytes) in arrays.iter().zip(&bytes) {
            let user = world.open(&array.volume(), Access::READ);
            assert!(world.read(&user, 0, 8192).expect("read") == *bytes, "{order:?}");
        }
        assert!(!world.has("raid/r0") && !world.has("raid/data"), "{:?}", world.names());
    }
}

#[test]
fn odd_labels_become_safe_names_that_verbs_accept() {
    let mut world = world::World::new();
    for disk in ["d0", "d1", "d2", "d3"] {
        world.disk(disk, vec![0; 3 << 20], 512);
    }
    let mut label = |label: &str, members: [&str; 2]| {
        let size = 1 << 20;
        let with = json!({ "format": "Intel", "level": "RAID0", "members": members, "size": size });
        let answer = world.verb("raid", "label", label, with).expect("labelled");
        let text = |key: &str| answer[key].as_str().expect("a name").to_owned();
        (text("array"), text("provider"))
    };
    let (one, blank) = label("my \"disk\" 1", ["d0", "d1"]);
    let (two, climbs) = label("..", ["d2", "d3"]);
    assert_eq!(blank, format!("raid/{one}/my%20%22disk%22%201"));
    assert_eq!(climbs, format!("raid/{two}/~1"));
    for on in ["my \"disk\" 1".to_owned(), blank.clone(), format!("{one}/my%20%22disk%22%201")] {
        world.verb("raid", "configure", &on, json!({ "sync_rate": 0 })).expect(&on);
    }
    // Called by its volume, only that is removed.
    world.verb("raid", "add", &two, json!({ "label": "more", "level": "RAID0" })).expect("added");
    world.verb("raid", "delete", &climbs, json!({})).expect("deleted");
    let left = [blank, format!("raid/{two}/more")];
    assert!(left.iter().all(|name| world.has(name)) && !world.has(&climbs), "{:?}", world.names());
}

#[test]
fn the_same_disk_by_another_name_is_refused() {
    let mut raid = Raid::label(DDF, "RAID1", 2, json!({}));
    let twin = raid.world.disk("twin", raid.disks[0].bytes(), 512);
    let before = twin.bytes();
    assert!(raid.world.taste_outcome("twin", "raid").contains("there already"));
    assert!(raid.show("Refused").starts_with("twin: d0 is there already"));
    assert!(twin.bytes() == before);
    assert_eq!(raid.state(), "OPTIMAL");
    assert_eq!(raid.world.text(&raid.volume(), "GEOM::candelete").as_deref(), Some("0"));
}

#[test]
fn a_disk_with_a_long_serial_number_is_recognised_on_return() {
    let mut raid = Raid::label(INTEL, "RAID1", 2, json!({}));
    raid.write(0, &noise(13, raid.size()));
    raid.stop();
    let mut world = world::World::new();
    let serials = ["0123456789ABCDEF-long-0", "0123456789ABCDEF-long-1"];
    for (i, serial) in serials.iter().enumerate() {
        let disk = &raid.disks[i];
        disk.put(0, &vec![0; disk.bytes().len()]);
        world.attach_as(&format!("d{i}"), serial, disk, 512, (0, 0));
    }
    let params = json!({ "format": "Intel", "level": "RAID1", "members": ["d0", "d1"] });
    let answer = world.verb("raid", "label", "data", params).expect("labelled");
    raid.set = answer["array"].as_str().expect("a name").to_owned();
    (raid.world, raid.model) = (world, Vec::new());
    raid.complete();
    raid.model = vec![0; raid.size()];
    for _ in 0..2 {
        raid.lose(1);
        raid.write(0, &noise(14, 8192));
        let disk = raid.disks[1].clone();
        raid.world.attach_as("d1", serials[1], &disk, 512, (0, 0));
        raid.settle();
        raid.complete();
        assert_eq!(raid.record(1)["disk"], json!("789ABCDEF-long-1"));
        raid.lose(0);
        assert!(raid.read_all() == raid.model);
        let disk = raid.disks[0].clone();
        raid.world.attach_as("d0", serials[0], &disk, 512, (0, 0));
        raid.settle();
        raid.complete();
    }
}
