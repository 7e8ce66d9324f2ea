//! Disks of arrays that grew unseen: `raid relocate` moves their records to the new end.

use bio::Errno;
use serde_json::{Value, json};
use testkit::noise;

use crate::raids::{DDF, INTEL, Raid};
use crate::world::World;

const KINDS: &[(&str, &str, usize)] = &[
    (INTEL, "RAID1", 2),
    (INTEL, "RAID0", 3),
    (INTEL, "RAID5", 3),
    (DDF, "RAID1", 2),
    (DDF, "RAID6-LA", 4),
];
const MIB: usize = 1 << 20;

/// Grows the disks while the array is stopped.
fn grown(raid: &mut Raid, which: &[usize], by: usize) {
    raid.stop();
    for i in which {
        let mut media = raid.disks[*i].0.lock().expect("media");
        let len = media.bytes.len() + by;
        media.bytes.resize(len, 0);
    }
}

fn filled(format: &str, level: &str, disks: usize) -> Raid {
    let mut raid = Raid::label(format, level, disks, json!({ "strip": 8192 }));
    raid.write(0, &noise(3, raid.size()));
    raid
}

fn follow(world: &mut World, disk: &str, with: Value) -> Result<Value, geom::Error> {
    let mut all = json!({ "member": disk });
    for (key, value) in with.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    world.verb("raid", "relocate", "", all)
}

#[test]
fn an_array_whose_disks_all_grew_is_found_with_all_its_data() {
    for (format, level, count) in KINDS {
        let what = format!("{format} {level}");
        let mut raid = filled(format, level, *count);
        let was = raid.disks[0].bytes().len();
        grown(&mut raid, &(0..*count).collect::<Vec<_>>(), MIB / 2);
        let mut again = raid.reborn();
        assert!(!again.world.names().iter().any(|name| name.starts_with("raid/")), "{what}");
        for disk in 0..*count {
            let with = if disk == 0 { json!({}) } else { json!({ "was": was }) };
            let answer = follow(&mut again.world, &format!("d{disk}"), with);
            let answer = answer.unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(
                (&answer["was"], &answer["array"]),
                (&json!(was), &json!(raid.set)),
                "{what}"
            );
        }
        again.complete();
        assert!(again.read_all() == raid.model, "{what}");
        assert_eq!(again.show("Refused"), "", "{what}");
        // All records contain that, and nothing is left at the old place.
        again.write(0, &noise(4, 4096));
        again.stop();
        let mut later = again.reborn();
        assert!(later.read_all() == again.model, "{what}");
        assert_eq!(later.state(), "OPTIMAL", "{what}");
        let two = later.disks[0].bytes()[was - 1024..was].to_vec();
        assert!(two.iter().all(|byte| *byte == 0), "{what}");
    }
}

#[test]
fn a_disk_that_grew_returns_to_the_degraded_array() {
    for (format, level, count) in KINDS.iter().filter(|kind| kind.1 != "RAID0") {
        let what = format!("{format} {level}");
        let mut raid = filled(format, level, *count);
        grown(&mut raid, &[1], 65536);
        let all: Vec<usize> = (0..*count).filter(|i| *i != 1).collect();
        let mut again = raid.reborn_with(&all);
        again.world.verb("raid", "start", &raid.set, json!({ "force": true })).expect("started");
        again.write(0, &noise(5, 8192));
        let disk = again.disks[1].clone();
        again.world.attach("d1", &disk, 512, (0, 0));
        again.settle();
        assert_eq!(again.state(), "DEGRADED", "{what}");
        follow(&mut again.world, "d1", json!({})).unwrap_or_else(|e| panic!("{what}: {e}"));
        again.complete();
        again.lose(0);
        assert!(again.read_all() == again.model, "{what}: rebuilt with what was written meanwhile");
    }
}

#[test]
fn follow_can_be_repeated_after_a_power_cut_at_any_step() {
    for (format, level, count) in [(INTEL, "RAID5", 3), (DDF, "RAID1", 2)] {
        let mut raid = filled(format, level, count);
        grown(&mut raid, &[1], MIB / 4);
        let before = raid.disks[1].bytes();
        let mut cuts = 0;
        for cut in 0.. {
            {
                let mut media = raid.disks[1].0.lock().expect("media");
                (media.bytes, media.durable) = (before.clone(), before.clone());
                (media.steps, media.cut_at) = (0, Some(cut));
                media.unflushed.clear();
            }
            let mut world = World::new();
            world.attach("d1", &raid.disks[1], 512, (0, 0));
            world.control.settle().expect("at rest");
            let done = follow(&mut world, "d1", json!({}));
            drop(world);
            {
                // Unflushed writes are lost.
                let mut media = raid.disks[1].0.lock().expect("media");
                media.cut_at = None;
                media.bytes = media.durable.clone();
            }
            let mut again = raid.reborn();
            if done.is_err() {
                cuts += 1;
                let done = follow(&mut again.world, "d1", json!({}));
                // The record was moved already, and the remains of the old one do no harm.
                assert!(done.is_ok() || done.is_err_and(|e| e.kind == Errno::Exist), "cut {cut}");
            }
            again.complete();
            assert!(again.read_all() == raid.model, "{format} {level}, cut {cut}");
            assert_eq!(again.state(), "OPTIMAL", "{format} {level}, cut {cut}");
            again.stop();
            if done.is_ok() {
                break;
            }
        }
        assert!(cuts > 3, "{format}: {cuts}");
    }
}

#[test]
fn follow_moves_only_the_record_of_a_smaller_disk() {
    let mut raid = filled(INTEL, "RAID1", 2);
    let was = raid.disks[0].bytes().len();
    let there = follow(&mut raid.world, "d0", json!({})).expect_err("in use");
    assert!(there.kind == Errno::Exist || there.kind == Errno::Perm, "{there}");
    grown(&mut raid, &[0, 1], MIB / 2);
    let mut again = raid.reborn();
    let world = &mut again.world;
    for (with, words) in [
        (json!({ "was": was - 512 }), "d0"),
        (json!({ "was": was + MIB }), "--was must be smaller"),
        (json!({ "was": 8 * MIB }), "--was must be smaller"),
    ] {
        let error = follow(world, "d0", with).expect_err("not there");
        assert!(error.message.contains(words), "{error}");
    }
    // `inspect` prints the command.
    let answer = world.verb("inspect", "scan", "d0", json!({})).expect("scanned").to_string();
    assert!(answer.contains(&format!("ashlar raid relocate PROVIDER --was {was}")), "{answer}");
    // Something else at the end.
    let end = again.disks[0].bytes().len() - 100;
    again.disks[0].put(end, &[1; 50]);
    let before = again.disks[0].bytes();
    let error = follow(&mut again.world, "d0", json!({})).expect_err("occupied");
    assert!(error.kind == Errno::Exist && error.message.contains("--force"), "{error}");
    assert!(again.disks[0].bytes() == before, "nothing is written");
    follow(&mut again.world, "d0", json!({ "force": true })).expect("forced");
    // A record of another disk, copied: its own size is not recorded there.
    let twin = again.world.disk("twin", again.disks[1].bytes(), 512);
    let error = follow(&mut again.world, "twin", json!({})).expect_err("a copy");
    assert!(error.kind == Errno::NoEnt, "{error}");
    assert!(twin.bytes() == again.disks[1].bytes());
    // Less than the record is long.
    let mut raid = filled(INTEL, "RAID5", 3);
    grown(&mut raid, &[0], 512);
    let mut again = raid.reborn();
    let before = again.disks[0].bytes();
    let error = follow(&mut again.world, "d0", json!({})).expect_err("too little");
    assert!(error.message.contains("a power cut could lose both"), "{error}");
    assert!(again.disks[0].bytes() == before, "nothing is written");
}
