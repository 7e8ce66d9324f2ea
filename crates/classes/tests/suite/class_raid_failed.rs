//! Failed disks: how they are reported, and that a deleted array leaves none of them behind.

use bio::Errno;
use serde_json::json;
use testkit::noise;

use crate::raids::{DDF, INTEL, Raid};

const KINDS: [(&str, &str, usize); 3] =
    [(INTEL, "RAID1", 2), (INTEL, "RAID5", 3), (DDF, "RAID5-LS", 3)];

fn fail(raid: &mut Raid, disk: &str) -> String {
    let answer = raid.world.verb("raid", "fail", &raid.set, json!({ "members": [disk] }));
    answer.expect("failed")["message"].as_str().expect("words").to_owned()
}

fn delete(raid: &mut Raid) -> Result<String, geom::Error> {
    let answer = raid.world.verb("raid", "delete", &raid.set, json!({}))?;
    Ok(answer["message"].as_str().expect("words").to_owned())
}

/// Arrays that a daemon finds on the disks when it starts.
fn ghosts(raid: &Raid) -> Vec<String> {
    let again = raid.reborn();
    let view = again.world.control.topology.view(0);
    view.iter().filter(|g| g.class == "raid").map(|g| g.name.clone()).collect()
}

#[test]
fn a_disk_failed_by_hand_returns_by_the_printed_commands() {
    for (format, level, count) in KINDS {
        let mut raid = Raid::label(format, level, count, json!({ "strip": 8192 }));
        raid.write(0, &noise(1, raid.size()));
        let answer = fail(&mut raid, "d1");
        let set = raid.set.clone();
        let how = format!("`ashlar raid clear d1`, then `ashlar raid insert {set} d1`");
        assert!(answer.contains(&how), "{answer}");
        let listed = raid.show("Refused");
        assert!(listed.contains("failed by hand") && listed.contains(&how), "{listed}");
        assert!(!listed.contains("it failed a request"), "{listed}");
        // Exactly the commands that it prints.
        raid.write(4096, &noise(2, 8192));
        let d1 = json!({ "members": ["d1"] });
        raid.world.verb("raid", "clear", "", d1.clone()).expect("cleared");
        raid.world.verb("raid", "insert", &set, d1).expect("inserted");
        raid.complete();
        raid.lose(0);
        assert!(raid.read_all() == raid.model, "{format} {level}");
    }
}

#[test]
fn a_disk_that_failed_a_request_is_reported_so() {
    let mut raid = Raid::label(INTEL, "RAID5", 3, json!({ "strip": 8192 }));
    raid.disks[1].0.lock().expect("media").cut_at = Some(0);
    raid.write(0, &noise(3, raid.size()));
    let listed = raid.show("Refused");
    assert!(listed.contains("it failed a request"), "{listed}");
    assert!(listed.contains(&format!("`ashlar raid insert {} d1`", raid.set)), "{listed}");
}

#[test]
fn a_deleted_array_leaves_no_record_on_disks_that_failed() {
    for (format, level, count) in KINDS {
        for restart in [false, true] {
            let what = format!("{format} {level}, restarted {restart}");
            let mut raid = Raid::label(format, level, count, json!({ "strip": 8192 }));
            fail(&mut raid, "d1");
            if restart {
                raid = raid.reborn();
                raid.settle();
            }
            let answer = delete(&mut raid).expect("deleted");
            assert!(answer.contains("d1") && !answer.contains("not cleared"), "{what}: {answer}");
            assert_eq!(ghosts(&raid), [""; 0], "{what}");
        }
    }
}

#[test]
fn delete_names_a_disk_it_cannot_clear_and_the_command_to_clear_it() {
    for (format, level, count) in KINDS {
        let mut raid = Raid::label(format, level, count, json!({ "strip": 8192 }));
        raid.disks[1].0.lock().expect("media").cut_at = Some(0);
        raid.write(0, &noise(4, raid.size()));
        let refused = delete(&mut raid).expect_err("d1 cannot be written");
        assert_eq!(refused.kind, Errno::Io, "{refused}");
        assert!(refused.message.contains("the record of d1 stays"), "{refused}");
        assert!(refused.message.contains("`ashlar raid clear d1`"), "{refused}");
        raid.disks[1].0.lock().expect("media").cut_at = None;
        raid.world.verb("raid", "clear", "", json!({ "members": ["d1"] })).expect("cleared");
        assert_eq!(ghosts(&raid), [""; 0], "{format} {level}");
        // One that is not there is named too.
        let mut raid = Raid::label(format, level, count, json!({ "strip": 8192 }));
        let key = raid.record(1)["disk"].as_str().expect("a key").to_owned();
        raid.lose(1);
        let answer = delete(&mut raid).expect("deleted");
        assert!(answer.contains(&format!("not there and not cleared: {key}")), "{answer}");
        assert_eq!(ghosts(&raid), [raid.set.clone()], "as it says");
    }
}

/// The choice is in the records: no start needs another choice, whichever half is found first, and
/// the other half stays as it is.
fn expect_no_further_choice(raid: &Raid, kept: usize, (model, other): (&[u8], &[u8])) {
    for order in [[0, 1], [1, 0]] {
        let mut again = raid.reborn_with(&order);
        again.settle();
        let says = format!("d{kept} was kept, {order:?}: {}", again.state());
        assert!(again.world.has(&again.volume()), "{says}");
        assert!(again.show("Refused").contains("used without the half that was chosen"), "{says}");
        assert!(again.read_all() == model, "{says}");
        assert!(raid.disks[1 - kept].bytes() == other, "{says}");
        again.stop();
    }
}

/// The time of all records: the clock of these worlds shows 1,800,000,000 s.
const WRITTEN: &str = "last written 2027-01-15T08:00:00Z";

/// Both halves are named with the age of their records, and with the command that keeps each.
fn assert_halves_are_shown(raid: &mut Raid, text: &str) {
    assert!(text.contains("split brain"), "{text}");
    for disk in [0, 1] {
        assert!(text.contains(&format!("d{disk} (generation ")), "{text}");
        let command = format!("`ashlar raid start {} --keep d{disk}`", raid.set);
        assert!(text.contains(&command), "{text}");
        assert_eq!(raid.record(disk)["written_s"], 1_800_000_000);
    }
    assert_eq!(text.matches(WRITTEN).count(), 2, "{text}");
    let view = raid.world.control.topology.view(0);
    let array = view.iter().find(|g| g.class == "raid").expect("the array");
    let ages = array.consumers.iter().flat_map(|c| &c.show).filter(|(key, _)| *key == "Record");
    assert_eq!(ages.filter(|(_, age)| age.ends_with(WRITTEN)).count(), 2, "`list` shows both");
}

/// Two halves of a pair, each used alone, and then together again. They are not put together, and
/// the half that the operator names is kept, whichever is the newer.
#[test]
fn the_half_that_the_operator_names_is_kept_after_a_split_brain() {
    for (format, level) in [(INTEL, "RAID1"), (DDF, "RAID1")] {
        for kept in [0, 1] {
            let raid = Raid::label(format, level, 2, json!({}));
            let set = raid.set.clone();
            let mut halves = [0, 1].map(|i| {
                let mut half = raid.reborn_with(&[i]);
                if !half.world.has(&half.volume()) {
                    half.world.verb("raid", "start", &set, json!({})).expect("alone");
                }
                half.write(0, &noise(60 + i as u64, half.size()));
                if i == 1 {
                    half.write(0, &noise(70, half.size()));
                }
                half.stop();
                half
            });
            let model = std::mem::take(&mut halves[kept].model);
            // The right half is not known: neither runs, and neither is written to.
            let before = [0, 1].map(|i| raid.disks[i].bytes());
            let mut both = raid.reborn();
            both.settle();
            let answer = both.state();
            assert_halves_are_shown(&mut both, &answer);
            assert!(!both.world.has(&both.volume()), "{format}");
            let unasked = both.world.verb("raid", "start", &set, json!({}));
            assert!(unasked.expect_err("a choice").message.contains("split brain"));
            let forced = both.world.verb("raid", "start", &set, json!({ "force": true }));
            let refused = forced.expect_err("--force chooses no half").message;
            assert_halves_are_shown(&mut both, &refused);
            assert!(!both.world.has(&both.volume()), "{format}");
            assert!([0, 1].map(|i| raid.disks[i].bytes()) == before);
            let keep = json!({ "keep": format!("d{kept}") });
            let wrong = both.world.verb("raid", "start", &set, json!({ "keep": "d9" }));
            assert!(wrong.expect_err("no disk of it").message.contains("d9"));
            both.world.verb("raid", "start", &set, keep).expect("chosen");
            assert!(raid.disks[1 - kept].bytes() == before[1 - kept], "the other stays as it is");
            let other = json!({ "keep": format!("d{}", 1 - kept) });
            let runs = both.world.verb("raid", "start", &set, other);
            assert!(runs.expect_err("the other half").message.contains("runs already"));
            assert!(both.read_all() == model, "{format}: d{kept} was kept");
            both.settle();
            both.stop();
            expect_no_further_choice(&raid, kept, (model.as_slice(), before[1 - kept].as_slice()));
        }
    }
}
